//! What a campaign knows of failures ([`Ledger`]): the cases of the repository and what earlier campaigns have found. It says of each finding whether it is new, and at the
//! end which failures are gone.

use std::collections::BTreeMap;
use std::path::Path;

use bloodhound_explore::Strategy;

use super::case::Case;
use super::seen::{Looked, Seeds, Seen};
use crate::campaign::totals::Totals;
use crate::group::Group;
use crate::plan::Property;
use crate::run::{DEFAULT_CONFIG, Source};
use crate::session::{Failure, Session, Violation};
use crate::{bug, exit, output};

/// What is known of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Nobody has seen such a failure here.
    #[default]
    New,
    /// An earlier campaign has found it, or it is a case.
    Seen,
    /// It is the failure of this case, which is marked as known.
    Known(String),
}

impl Standing {
    /// As JSON names it.
    pub fn word(&self) -> &'static str {
        match self {
            Standing::New => "new",
            Standing::Seen => "seen",
            Standing::Known(_) => "known",
        }
    }

    /// Behind the time of a finding.
    pub fn text(&self) -> String {
        match self {
            Standing::New => String::new(),
            Standing::Seen => " (seen before)".to_owned(),
            Standing::Known(case) => format!(" (known: {case})"),
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The cases, if they are not left out.
    pub cases: Vec<Case>,
    /// What earlier campaigns found; or why it cannot be read. `None`: nobody asks.
    seen: Option<Result<Seen, String>>,
}

impl Ledger {
    /// Of a campaign with these cases that writes into a directory.
    pub fn open(
        cases: Vec<Case>,
        session: &Session,
        (source, strategy): (&Source, Strategy),
        out: &Path,
    ) -> Ledger {
        let files = session.files.compose.iter().map(|path| path.as_path()).chain(source.faults.as_deref());
        let mut stack = session.plan.config.display().to_string();
        for file in files {
            stack.push_str(&format!(" {}", file.display()));
        }
        for profile in &source.compose.profile {
            stack.push_str(&format!(" --profile {profile}"));
        }
        // A seed is another run by another strategy.
        stack.push_str(&format!(" --strategy {}", strategy.name()));
        let of_config = session.plan.strategy == strategy;
        let elsewhere = Some(out).filter(|out| **out != session.plan.out);
        let command = command(source, (!of_config).then(|| strategy.name()), elsewhere);
        Ledger { cases, seen: Some(Seen::open(out, stack, command)) }
    }

    /// What is known of a violation.
    pub fn standing(&self, violation: &Violation) -> Standing {
        let group = Group::of_violation(violation);
        let of_group = || self.cases.iter().filter(|case| case.group == group);
        if let Some(case) = of_group().find(|case| case.known.is_some()) {
            return Standing::Known(case.name.clone());
        }
        let before = matches!(&self.seen, Some(Ok(seen)) if seen.has(&group));
        if before || of_group().next().is_some() { Standing::Seen } else { Standing::New }
    }

    /// Takes in what the campaign found, and puts what is gone into its totals. What goes wrong is a trouble of the campaign.
    pub fn finish(&mut self, properties: &[Property], totals: &mut Totals) {
        match &mut self.seen {
            None => {}
            Some(Err(why)) => totals.trouble(exit::ENVIRONMENT, why.clone()),
            Some(Ok(seen)) => {
                let looked = looked(seen.groups(), properties, totals);
                totals.gone = seen.take(&looked);
                if let Some(note) = seen.note() {
                    output::eprint(&format!("bloodhound: {note}\n"));
                }
                if let Err(why) = seen.save() {
                    totals.trouble(exit::ENVIRONMENT, why);
                }
            }
        }
    }
}

/// The command that runs seeds of the same stack, without their numbers.
fn command(source: &Source, strategy: Option<&str>, out: Option<&Path>) -> String {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let config = Some(path(&source.config)).filter(|config| config != DEFAULT_CONFIG);
    let mut options: Vec<(&str, String)> = config.into_iter().map(|config| ("--config", config)).collect();
    options.extend(source.compose.compose.iter().map(|file| ("--compose", path(file))));
    options.extend(source.compose.profile.iter().map(|name| ("--profile", name.clone())));
    options.extend(source.faults.iter().map(|file| ("--faults", path(file))));
    options.extend(strategy.map(|name| ("--strategy", name.to_owned())));
    // What is gone stands there.
    options.extend(out.map(|dir| ("--out", path(dir))));
    let words = options.iter().map(|(option, value)| format!(" {option} {}", bug::quote(value)));
    format!("bloodhound test{}", words.collect::<String>())
}

/// What the campaign says of each group that it found, and of those that it could have found.
fn looked(known: Vec<Group>, properties: &[Property], totals: &Totals) -> BTreeMap<Group, Looked> {
    let mut looked: BTreeMap<Group, Looked> =
        known.into_iter().map(|group| (group, Looked::default())).collect();
    for found in &totals.findings {
        looked.entry(Group::of_violation(&found.violation)).or_default().failing.add(found.number);
    }
    for (group, of_group) in &mut looked {
        of_group.judged = judged(group, properties, totals).unwrap_or_default();
        let failing = of_group.failing.clone();
        of_group.judged.join(&failing);
    }
    // Of a property that there is no more nothing can be said.
    looked.retain(|group, of_group| {
        of_group.failing.count() > 0
            || judged(group, properties, totals).is_some_and(|seeds| seeds.count() > 0)
    });
    looked
}

/// The seeds that could have shown a failure.
fn judged(group: &Group, properties: &[Property], totals: &Totals) -> Option<Seeds> {
    let index = properties.iter().position(|p| p.name == group.property && p.kind == group.kind);
    match index {
        Some(index) => totals.properties.get(index).map(|property| property.judged.clone()),
        None => (group.property == group.kind).then(|| totals.whole.clone()),
    }
}

/// The cases of a session for a campaign.
///
/// # Errors
/// What is wrong in any of them.
pub fn cases_of(session: &Session, left_out: bool) -> Result<Vec<Case>, Failure> {
    if left_out { Ok(Vec::new()) } else { super::cases(&session.project.config.regressions) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::ComposeArgs;

    #[test]
    fn the_command_runs_the_same_stack() {
        let usual = Source {
            config: DEFAULT_CONFIG.into(),
            compose: ComposeArgs::default(),
            images: Default::default(),
            faults: None,
        };
        assert_eq!(command(&usual, None, None), "bloodhound test");
        let compose = ComposeArgs { compose: vec!["a b.yaml".into()], profile: vec!["debug".into()] };
        let other = Source { config: "bugs/x.yaml".into(), compose, faults: Some("f.yaml".into()), ..usual };
        assert_eq!(
            command(&other, Some("random"), Some(Path::new("out2"))),
            "bloodhound test --config bugs/x.yaml --compose 'a b.yaml' --profile debug --faults f.yaml --strategy random --out out2"
        );
    }
}
