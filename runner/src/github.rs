//! `bloodhound github-report`: tells GitHub what `bloodhound test` found. The action (action.yml) calls it.
//!
//! Input is the JSON of `test` and its exit code; output are annotations (workflow commands on standard output), a
//! job summary in Markdown and step outputs, appended to the files that GitHub names. Texts of services may be in
//! the findings, so everything is escaped: no line of theirs becomes a command.

mod cases;
mod coverage;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bloodhound_config::config::{Config, FileChecks};
use serde_json::Value as Json;

use crate::{cli, exit, output};
use coverage::Changes;

/// Arguments of `github-report`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What `bloodhound test --format json` printed
    #[arg(long, value_name = "FILE")]
    result: PathBuf,
    /// Its exit code
    #[arg(long, value_name = "CODE")]
    exit_code: u8,
    /// The configuration that was tested
    #[arg(long, value_name = "FILE", default_value = crate::validate::DEFAULT_CONFIG)]
    config: PathBuf,
    /// Directory of reports and findings
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The job summary to append to ($GITHUB_STEP_SUMMARY)
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// The file for outputs to append to ($GITHUB_OUTPUT)
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Print annotations
    #[arg(long)]
    annotations: bool,
    /// Tell what covers the lines that were changed since this revision (git)
    #[arg(long, value_name = "REV")]
    diff_base: Option<String>,
    /// Least share of the changed lines that must be reached, for example 80%; exit code 3 below it
    #[arg(long, value_parser = cli::share, value_name = "PERCENT", requires = "diff_base")]
    changed_lines_threshold: Option<u32>,
}

/// GitHub shows few annotations of a step: the rest is in the summary.
const ANNOTATIONS: usize = 10;
/// Findings with their text in the summary, and bytes of each text. GitHub refuses summaries of more than 1 MiB.
const SHOWN: usize = 10;
const TEXT: usize = 60_000;

/// Kind of the items that are regression cases.
const REGRESSION: &str = "regression";

/// A finding as `test` reports it.
struct Finding {
    property: String,
    seed: u64,
    virtual_time_ns: u64,
    replay: String,
    text: String,
    /// A regression case is marked as known that has its failure.
    known: bool,
}

/// A property, or the campaign itself, and what came of it.
struct Item {
    name: String,
    kind: String,
    verdict: String,
    reason: String,
}

impl Item {
    /// The items of a list in the result.
    fn list(json: &Json) -> Vec<Item> {
        // Of a regression case it is told whether the gate fails by it.
        let verdict = |i: &Json| match i["fails_gate"].as_bool() {
            None => string(i, "verdict"),
            Some(true) => "failed".to_owned(),
            Some(false) if i["verdict"] == "fails" => "known".to_owned(),
            Some(false) if i["verdict"] == "passes" => "passed".to_owned(),
            Some(false) => string(i, "verdict"),
        };
        let item = |i: &Json| Item {
            name: string(i, "name"),
            kind: if i["fails_gate"].is_boolean() { REGRESSION.to_owned() } else { string(i, "kind") },
            verdict: verdict(i),
            reason: string(i, "reason"),
        };
        json.as_array().into_iter().flatten().map(item).collect()
    }

    /// Whether there is something to say that is neither good nor a finding, which is told with its text.
    fn is_open(&self) -> bool {
        !matches!(&*self.verdict, "passed" | "not run" | "known") && !self.reason.is_empty()
    }
}

/// Everything to tell.
struct Report {
    code: u8,
    /// Nothing if `test` ended without a result.
    result: Json,
    findings: Vec<Finding>,
    config: String,
    /// Names, kinds and lines of the properties.
    properties: Vec<(String, String, u32)>,
    /// What came of them and of the campaign, as `test` says.
    items: Vec<Item>,
    out: PathBuf,
    /// What covers the lines of the pull request, if somebody asks.
    changes: Option<Changes>,
}

/// Reports; the exit code is about the reporting alone, and about the changed lines, of which `test` knows nothing.
pub fn run(args: &Args) -> u8 {
    let mut report = Report::read(args);
    let too_few = match report.look_at_changes(args) {
        Ok(too_few) => too_few,
        Err(error) => {
            output::eprint(&format!("bloodhound: the changed lines cannot be looked up: {error}\n"));
            return exit::ENVIRONMENT;
        }
    };
    if args.annotations {
        output::print(&report.annotations());
    }
    let mut code = if too_few { exit::COVERAGE } else { exit::PASS };
    for (path, text) in [(&args.summary, report.summary()), (&args.outputs, report.outputs())] {
        if let Some(path) = path
            && let Err(error) = append(path, &text)
        {
            output::eprint(&format!("bloodhound: {}: {error}\n", path.display()));
            code = exit::ENVIRONMENT;
        }
    }
    code
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())
}

/// The last line that is a JSON object: `test` may print others before it.
fn last_object(text: &str) -> Json {
    let mut objects = text.lines().rev().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    objects.find(Json::is_object).unwrap_or(Json::Null)
}

fn string(json: &Json, key: &str) -> String {
    json[key].as_str().unwrap_or_default().to_owned()
}

impl Report {
    fn read(args: &Args) -> Report {
        let text = std::fs::read_to_string(&args.result).unwrap_or_default();
        let result = last_object(&text);
        let findings = result["findings"].as_array().into_iter().flatten().map(|finding| Finding {
            property: string(finding, "property"),
            seed: finding["seed"].as_u64().unwrap_or_default(),
            virtual_time_ns: finding["virtual_time_ns"].as_u64().unwrap_or_default(),
            replay: string(finding, "replay"),
            text: string(finding, "text"),
            known: finding["status"] == "known",
        });
        let config = Config::load(&args.config, FileChecks::Lenient).0;
        let properties = config.iter().flat_map(|config| &config.properties);
        let items = ["properties", "campaign", "regressions"].map(|key| Item::list(&result[key]));
        Report {
            code: args.exit_code,
            findings: findings.collect(),
            items: items.into_iter().flatten().collect(),
            config: in_workspace(&args.config),
            properties: properties.map(|p| (p.name.clone(), p.kind.as_str().to_owned(), p.at.line)).collect(),
            out: args.out.clone(),
            changes: None,
            result,
        }
    }

    /// Finds out what covers the changed lines. Whether too few of them were reached, which then is a reason for a campaign to fail
    /// that has passed.
    fn look_at_changes(&mut self, args: &Args) -> Result<bool, String> {
        let Some(base) = &args.diff_base else { return Ok(false) };
        let config = Config::load(&args.config, FileChecks::Lenient).0;
        let source = config.and_then(|config| config.coverage.source);
        let directory = args.config.parent().unwrap_or(Path::new("."));
        let root = crate::coverage::checkout_of(source.as_deref(), directory);
        self.changes = Changes::read(&self.result, &self.out, &root, base)?;
        let Some(least) = args.changed_lines_threshold else { return Ok(false) };
        let (verdict, reason) = match &self.changes {
            None => (
                "error",
                "no code coverage was measured, so nothing is known of the changed lines".to_owned(),
            ),
            // Nothing that counts was changed: nothing can be missing.
            Some(changes) if changes.count().total == 0 => return Ok(false),
            Some(changes) if changes.count().reaches(u64::from(least) * 10) => return Ok(false),
            Some(changes) => {
                let least = crate::campaign::verdict::percent(least);
                (
                    "failed",
                    format!(
                        "{} of the changed lines were reached, at least {least} are wanted",
                        changes.count()
                    ),
                )
            }
        };
        let [name, kind] = ["changed lines", "campaign"].map(str::to_owned);
        self.items.push(Item { name, kind, verdict: verdict.to_owned(), reason });
        if self.code == exit::PASS {
            self.code = exit::COVERAGE;
        }
        Ok(true)
    }

    /// One word for the exit code.
    fn word(&self) -> &'static str {
        match self.code {
            exit::PASS => "passed",
            exit::FINDINGS | exit::COVERAGE => "failed",
            exit::INCONCLUSIVE => "inconclusive",
            _ => "error",
        }
    }

    fn meaning(&self) -> String {
        let known = exit::TABLE.iter().find(|(code, _)| *code == self.code);
        known.map_or_else(|| format!("exit code {}", self.code), |(_, meaning)| (*meaning).to_owned())
    }

    /// ", on ptrace"; and aloud what the platform did not do.
    fn platform(&self) -> String {
        let platform = &self.result["platform"];
        let Some(name) = platform["name"].as_str().map(inline) else { return String::new() };
        let lacks = |ability: &str| platform[ability] == false;
        match (lacks("traps_rdtsc"), lacks("traps_steps")) {
            (false, false) => format!(", on {name}"),
            (true, false) => format!(", on {name}, **which does not trap rdtsc**"),
            (false, true) => format!(", on {name}, **which does not trap single steps**"),
            (true, true) => format!(", on {name}, **which traps neither rdtsc nor single steps**"),
        }
    }

    fn seeds_run(&self) -> u64 {
        self.result["seeds_run"].as_u64().unwrap_or_default()
    }

    /// The first finding of each property with the number of its findings, in the order of the first ones.
    fn by_property(&self) -> Vec<(&Finding, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let told = || self.findings.iter().filter(|finding| !finding.known);
        for finding in told() {
            *counts.entry(&finding.property).or_default() += 1;
        }
        let mut seen: Vec<&str> = Vec::new();
        let mut out = Vec::new();
        for finding in told() {
            if !seen.contains(&finding.property.as_str()) {
                seen.push(&finding.property);
                out.push((finding, counts[finding.property.as_str()]));
            }
        }
        out
    }

    fn annotations(&self) -> String {
        let mut out = String::new();
        for (finding, count) in self.by_property().into_iter().take(ANNOTATIONS) {
            let place = self.place(&finding.property);
            let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            let message = format!(
                "seed {} at {}{more}\n{}\nreplay: {}",
                finding.seed,
                seconds(finding.virtual_time_ns),
                cut(&finding.text, 2000),
                replay(finding)
            );
            let title = property(&format!("{} violated", finding.property));
            // Writing into a String cannot fail.
            let _ = writeln!(out, "::error {place}title={title}::{}", data(&message));
        }
        let room = ANNOTATIONS.saturating_sub(out.lines().count());
        for item in self.items.iter().filter(|i| i.is_open()).take(room) {
            let title = match &*item.kind {
                "campaign" => format!("Bloodhound: {}", item.name),
                _ => format!("{} {}", item.name, item.verdict),
            };
            let (place, title) = (self.place(&item.name), property(&title));
            let _ = writeln!(out, "::error {place}title={title}::{}", data(cut(&item.reason, 2000)));
        }
        out.push_str(&self.changes.as_ref().map(Changes::annotations).unwrap_or_default());
        if out.is_empty() && self.code != exit::PASS {
            let _ = writeln!(out, "::error title=Bloodhound::{}", data(&self.meaning()));
        }
        out
    }

    /// Where a property is written, if the name is one.
    fn place(&self, name: &str) -> String {
        let line = self.properties.iter().find(|(other, _, _)| other == name);
        line.map_or(String::new(), |(_, _, line)| format!("file={},line={line},", property(&self.config)))
    }

    fn summary(&self) -> String {
        let mark = match self.word() {
            "passed" => "✅",
            "failed" => "❌",
            _ => "⚠️",
        };
        let mut out = format!("## {mark} Bloodhound: {}\n\n", self.meaning());
        if self.result.is_null() {
            out.push_str("There is no result; the log of the step says why.\n\n");
            return out;
        }
        let number = |key: &str| self.result[key].as_u64().unwrap_or_default();
        let _ = writeln!(
            out,
            "{} of {} seeds, {} findings, {} operations, {} of virtual time{}.\n",
            self.result["seeds_judged"].as_u64().unwrap_or(self.seeds_run()),
            number("seeds_wanted").max(self.seeds_run()),
            self.findings.len(),
            number("operations"),
            seconds(number("virtual_time_ns")),
            self.platform(),
        );
        if !self.properties.is_empty() {
            out.push_str("| property | kind | verdict |\n|---|---|---|\n");
            for (name, kind, _) in &self.properties {
                let _ = writeln!(out, "| {} | {kind} | {} |", inline(name), self.verdict(name));
            }
            out.push('\n');
        }
        out.push_str(&cases::summary(&self.items, &self.result));
        out.push_str(&coverage::summary(&self.result, self.changes.as_ref()));
        for item in self.items.iter().filter(|i| i.kind == "campaign" && i.is_open()) {
            let lines: Vec<String> = cut(&item.reason, TEXT).lines().map(inline).collect();
            let _ = writeln!(out, "⚠️ {}: {}\n", inline(&item.name), lines.join("<br>"));
        }
        for (finding, _) in self.by_property().into_iter().take(SHOWN) {
            let fence = fence(&finding.text);
            let _ = writeln!(
                out,
                "<details open><summary>{}: seed {} at {}</summary>\n\n{fence}text\n{}\n{fence}\n\n{fence}sh\n{}\n{fence}\n\n</details>\n",
                inline(&finding.property),
                finding.seed,
                seconds(finding.virtual_time_ns),
                printable(cut(&finding.text, TEXT)),
                replay(finding),
            );
        }
        out
    }

    fn verdict(&self, name: &str) -> String {
        let of = || self.findings.iter().filter(|f| f.property == name);
        let seeds = of().count();
        if seeds > 0 && of().all(|finding| finding.known) {
            return format!("known, violated by {seeds} {}", if seeds == 1 { "seed" } else { "seeds" });
        }
        if seeds > 0 {
            return format!("❌ violated by {seeds} {}", if seeds == 1 { "seed" } else { "seeds" });
        }
        match self.items.iter().find(|i| i.name == name && !matches!(&*i.kind, "campaign" | REGRESSION)) {
            Some(item) if item.verdict == "passed" => "✅ held".to_owned(),
            Some(item) if item.is_open() => {
                format!("⚠️ {}: {}", inline(&item.verdict), inline(cut(&item.reason, 500)))
            }
            _ => "not run".to_owned(),
        }
    }

    /// `name=value` lines, as GitHub's file of outputs wants them. Control characters become blanks, so that no value
    /// can add an output.
    fn outputs(&self) -> String {
        let junit = self.out.join("junit.xml");
        let exists = |path: &Path| if path.exists() { path.display().to_string() } else { String::new() };
        let outputs = [
            ("result", self.word().to_owned()),
            ("exit-code", self.code.to_string()),
            ("findings", self.findings.len().to_string()),
            ("seeds-run", self.seeds_run().to_string()),
            ("junit", exists(&junit)),
            ("report-dir", exists(&self.out)),
            ("replay", self.findings.first().map(replay).unwrap_or_default()),
            ("coverage", coverage::share(&self.result)),
            ("changed-lines", self.changes.as_ref().map(|c| c.count().percent()).unwrap_or_default()),
        ];
        let mut out = String::new();
        for (name, value) in outputs {
            let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let _ = writeln!(out, "{name}={value}");
        }
        out
    }
}

/// A path as GitHub's annotations want it: relative to the workspace, if it is below it.
pub fn in_workspace(path: &Path) -> String {
    let workspace = std::env::var_os("GITHUB_WORKSPACE").filter(|w| !w.is_empty());
    let below = workspace.and_then(|workspace| below(path, Path::new(&workspace)));
    below.unwrap_or_else(|| path.to_path_buf()).display().to_string()
}

/// `path` relative to `top`. The file itself need not be there.
fn below(path: &Path, top: &Path) -> Option<PathBuf> {
    let directory = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    let directory = directory.canonicalize().ok()?;
    Some(directory.strip_prefix(top.canonicalize().ok()?).ok()?.join(path.file_name()?))
}

/// The command to copy; nothing if the finding has no files.
fn replay(finding: &Finding) -> String {
    if finding.replay.is_empty() {
        return String::new();
    }
    format!("bloodhound replay {}", crate::bug::quote(&finding.replay))
}

fn seconds(ns: u64) -> String {
    format!("{}.{:03} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000_000)
}

/// At most so many bytes, at a character's boundary.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Without control characters, but with line breaks.
fn printable(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

/// A fence longer than any run of backquotes in the text.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

/// A word in a table of Markdown.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text).replace('\n', " ").chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// The data of a workflow command: GitHub documentation, "Workflow commands for GitHub Actions".
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(code: u8) -> Vec<Item> {
        let item = |name: &str, kind: &str, verdict: &str, reason: &str| Item {
            name: name.into(),
            kind: kind.into(),
            verdict: verdict.into(),
            reason: reason.into(),
        };
        match code {
            exit::FINDINGS => vec![
                item("a|b", "safety", "failed", ""),
                item("slow", "liveness", "not exercised", "0 of 3 requests had an answer"),
                item("fine", "safety", "passed", ""),
                item("seeds", "campaign", "error", "seed 4 not judged: <x>\nand more"),
            ],
            _ => Vec::new(),
        }
    }

    fn report(code: u8, text: &str) -> Report {
        let finding = |property: &str, seed| Finding {
            property: property.into(),
            seed,
            virtual_time_ns: 12_345_678_901,
            replay: "out dir/findings/seed-7".into(),
            text: text.into(),
            known: false,
        };
        let findings =
            if code == exit::FINDINGS { vec![finding("a|b", 7), finding("a|b", 9)] } else { Vec::new() };
        Report {
            code,
            result: serde_json::json!({"seeds_run": 20, "seeds_wanted": 200}),
            findings,
            items: items(code),
            config: "dir,x/bloodhound.yaml".into(),
            properties: vec![
                ("a|b".into(), "safety".into(), 12),
                ("slow".into(), "liveness".into(), 20),
                ("fine".into(), "safety".into(), 30),
            ],
            out: PathBuf::from("/nonexistent/out"),
            changes: None,
        }
    }

    #[test]
    fn one_annotation_per_property_and_nothing_unescaped() {
        let text = report(exit::FINDINGS, "stale\n::set-output name=x::y\r100%").annotations();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains(
            "\n::error file=dir%2Cx/bloodhound.yaml,line=20,title=slow not exercised::0 of 3 requests had an answer\n"
        ));
        assert!(
            text.contains("\n::error title=Bloodhound%3A seeds::seed 4 not judged: <x>%0Aand more\n"),
            "{text}"
        );
        assert!(text.starts_with("::error file=dir%2Cx/bloodhound.yaml,line=12,title=a|b violated::seed 7 at 12.345 s (and 1 more)%0A"));
        assert!(
            text.contains("stale%0A::set-output name=x::y%0D100%25%0Areplay: bloodhound replay 'out dir/")
        );
        assert_eq!(
            report(exit::ENVIRONMENT, "").annotations(),
            "::error title=Bloodhound::environment: platform or host failed, or a service did not start\n"
        );
        assert_eq!(report(exit::PASS, "").annotations(), "");
    }

    #[test]
    fn the_summary_has_a_verdict_for_every_property() {
        let text = report(exit::FINDINGS, "``` </details>\u{1b}[31m").summary();
        assert!(text.contains("| a\\|b | safety | ❌ violated by 2 seeds |"), "{text}");
        assert!(
            text.contains("| slow | liveness | ⚠️ not exercised: 0 of 3 requests had an answer |"),
            "{text}"
        );
        assert!(text.contains("⚠️ seeds: seed 4 not judged: &lt;x&gt;<br>and more\n"), "{text}");
        assert!(report(exit::ENVIRONMENT, "").summary().contains("| fine | safety | not run |"));
        assert!(text.contains("| fine | safety | ✅ held |"));
        assert!(text.contains("20 of 200 seeds, 2 findings"));
        let mut on = report(exit::PASS, "");
        on.result["platform"] = serde_json::json!({"name": "kvm", "traps_rdtsc": true, "traps_steps": true});
        assert!(on.summary().contains(" of virtual time, on kvm.\n"), "{}", on.summary());
        on.result["platform"]["traps_rdtsc"] = false.into();
        assert!(on.summary().contains(", on kvm, **which does not trap rdtsc**.\n"), "{}", on.summary());
        assert!(text.contains("````text\n``` </details>[31m\n````\n"), "{text}");
        let huge = report(exit::FINDINGS, &"é".repeat(3 << 20)).summary();
        assert!(huge.len() < 1 << 20, "{}", huge.len());
    }

    #[test]
    fn outputs_are_one_line_each() {
        let mut report = report(exit::FINDINGS, "");
        report.findings[0].replay = "x\nresult=passed".into();
        let text = report.outputs();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 9, "{text}");
        assert_eq!(lines[..4], ["result=failed", "exit-code=1", "findings=2", "seeds-run=20"]);
        assert_eq!(lines[6], "replay=bloodhound replay 'x result=passed'");
    }

    #[test]
    fn the_last_object_counts() {
        assert_eq!(last_object("noise\n{\"a\":1}\n{\"a\":2}\n\n")["a"], 2);
        assert!(last_object("").is_null());
    }
}
