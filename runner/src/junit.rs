//! JUnit XML, as Jenkins, GitLab and the usual GitHub actions read it.
//!
//! Key types: [`Suite`] (a campaign) and [`Case`] (a property); [`render`] makes the text. One `testsuite` per kind of
//! property, one `testcase` per property with the file and line where it is written. The text is a function of its
//! input: no time of day and no duration unless one is given, so that two equal runs give equal files.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

/// A campaign.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    /// Its name; the usual one is `bloodhound`.
    pub name: String,
    /// Facts about the run (version, seeds, digest of the configuration), attached to every testsuite.
    pub facts: Vec<(String, String)>,
    /// Host time of the whole campaign, where it is to be told: such a file differs from run to run.
    pub time: Option<Duration>,
    /// What was judged, in the order in which it is listed.
    pub cases: Vec<Case>,
}

/// A property and what came of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// The property's name; must be unique in a suite (GitLab drops the second one of a name).
    pub name: String,
    /// `safety`, `liveness`, `invariant`, or the kind of a finding that belongs to no property.
    pub kind: String,
    /// The file in which the property is written, as its path was given.
    pub file: Option<String>,
    /// Its line there, from 1.
    pub line: Option<u32>,
    /// The result.
    pub status: Status,
    /// Facts about the case, such as the seed and the virtual time of the failure.
    pub facts: Vec<(String, String)>,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It held on every run.
    Pass,
    /// It was violated.
    Fail {
        /// What kind of failure, as a word: `linearizability`, `http`, `crash`.
        kind: String,
        /// The reason in one line.
        message: String,
        /// Everything else: minimal history, active faults, and at last the replay command.
        text: String,
    },
    /// No verdict.
    Skipped {
        /// Why.
        reason: String,
    },
    /// It could not be judged for a reason that is not the service's.
    Error {
        /// What kind of error, as a word.
        kind: String,
        /// The reason in one line.
        message: String,
        /// Everything else.
        text: String,
    },
}

/// The XML text, with a final line break.
///
/// # Errors
/// What quick-junit says; it strips what XML cannot hold, so this has no known cause.
pub fn render(suite: &Suite) -> Result<String, String> {
    let mut report = Report::new(suite.name.as_str());
    if let Some(time) = suite.time {
        report.set_time(time);
    }
    let mut kinds: Vec<&str> = Vec::new();
    for case in &suite.cases {
        if !kinds.contains(&case.kind.as_str()) {
            kinds.push(&case.kind);
        }
    }
    for kind in kinds {
        let class = format!("{}.{kind}", suite.name);
        let mut group = TestSuite::new(class.as_str());
        group.add_properties(facts(&suite.facts));
        let cases = suite.cases.iter().filter(|case| case.kind == kind);
        group.add_test_cases(cases.map(|case| testcase(case, &class)));
        report.add_test_suite(group);
    }
    let mut xml = report.to_string().map_err(|error| error.to_string())?;
    if !xml.ends_with('\n') {
        xml.push('\n');
    }
    Ok(xml)
}

fn facts(facts: &[(String, String)]) -> impl Iterator<Item = Property> + '_ {
    facts.iter().map(|(name, value)| Property::new(name.as_str(), value.as_str()))
}

fn testcase(case: &Case, class: &str) -> TestCase {
    let status = match &case.status {
        Status::Pass => TestCaseStatus::success(),
        Status::Fail { kind, message, text } => bad(NonSuccessKind::Failure, kind, message, text),
        Status::Error { kind, message, text } => bad(NonSuccessKind::Error, kind, message, text),
        Status::Skipped { reason } => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(one_line(reason));
            status
        }
    };
    let mut out = TestCase::new(case.name.as_str(), status);
    out.set_classname(class);
    if let Some(file) = &case.file {
        out.extra.insert("file".into(), file.as_str().into());
    }
    if let Some(line) = case.line {
        out.extra.insert("line".into(), line.to_string().into());
    }
    out.add_properties(facts(&case.facts));
    out
}

fn bad(result: NonSuccessKind, kind: &str, message: &str, text: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(result);
    // The message once more in the text: GitLab shows the text only.
    let text = if text.starts_with(message) { text.to_owned() } else { format!("{message}\n\n{text}") };
    status.set_type(kind).set_message(one_line(message)).set_description(text);
    status
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, kind: &str, line: u32, status: Status) -> Case {
        let (name, kind, file) = (name.to_owned(), kind.to_owned(), Some("bloodhound.yaml".to_owned()));
        Case { name, kind, file, line: Some(line), status, facts: Vec::new() }
    }

    fn sample() -> Suite {
        let failure = Status::Fail {
            kind: "linearizability".into(),
            message: "\"x\" < 3 &\nkey \"a\"".into(),
            text:
                "process 1 read: found 2 ]]> \u{1b}[31mred\u{1b}[0m \u{0}\nreplay: bloodhound replay out/f1"
                    .into(),
        };
        let mut failed = case("linearizable", "safety", 36, failure);
        failed.facts.push(("seed".into(), "42".into()));
        let skipped = Status::Skipped { reason: "the run ended before\nthe verdict".into() };
        let error = Status::Error {
            kind: "unsupported".into(),
            message: "semget is not modelled".into(),
            text: "semget is not modelled\nnode kv1".into(),
        };
        let mut unplaced = case("unsupported call", "run", 0, error);
        (unplaced.file, unplaced.line) = (None, None);
        Suite {
            name: "bloodhound".into(),
            facts: vec![("version".into(), "0.1.0".into()), ("seeds".into(), "200".into())],
            time: None,
            cases: vec![
                failed,
                case("recovery", "liveness", 42, skipped),
                case("no-crash", "safety", 51, Status::Pass),
                unplaced,
            ],
        }
    }

    #[test]
    fn the_file_is_as_readers_expect_it() {
        let expected = include_str!("../tests/golden/junit.xml");
        assert_eq!(render(&sample()).unwrap(), expected);
    }

    #[test]
    fn equal_input_gives_equal_bytes() {
        assert_eq!(render(&sample()).unwrap(), render(&sample()).unwrap());
        let mut timed = sample();
        timed.time = Some(Duration::from_millis(1500));
        assert!(render(&timed).unwrap().contains(" time=\"1.500\""));
    }

    #[test]
    fn an_empty_campaign_is_a_file_too() {
        let xml = render(&Suite { name: "bloodhound".into(), ..Suite::default() }).unwrap();
        assert!(xml.contains("<testsuites name=\"bloodhound\" tests=\"0\""), "{xml}");
    }
}
