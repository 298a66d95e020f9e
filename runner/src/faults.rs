//! `bloodhound faults`: every kind of faults with its keys, from the declarations alone (`bloodhound-faults`), so that a new kind is in it by
//! itself.

use std::fmt::Write as _;

use bloodhound_declare::{Absent, Key, ValueKind};
use bloodhound_faults::{Begins, Declaration, Kind, NAMES, Preset, Swarm};
use serde_json::{Value as Json, json};

use crate::output::{self, Format};
use crate::{exit, session::Failure};

/// Arguments of `faults`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// One kind, by its name
    kind: Option<String>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// Lists the kinds, or tells all about one.
pub fn run(args: &Args) -> u8 {
    let kinds = match args.kind.as_deref().map(named).transpose() {
        Ok(one) => one.map_or_else(|| Kind::DECLARATIONS.iter().collect(), |one| vec![one]),
        Err(failure) => return crate::run::fail(&failure),
    };
    match args.format {
        Format::Json => output::print_json(&json!({
            "schema": "bloodhound.faults/v1",
            "kinds": kinds.iter().map(|kind| as_json(kind)).collect::<Vec<_>>(),
        })),
        Format::Human if args.kind.is_some() => output::print(&details(kinds[0])),
        Format::Human => output::print(&list(&kinds)),
    }
    exit::PASS
}

fn named(name: &str) -> Result<&'static Declaration, Failure> {
    let kind = Kind::named(name).map(Kind::declaration);
    // Who knows a key of it means the kind.
    let of_key = || Kind::DECLARATIONS.iter().find(|kind| kind.keys.iter().any(|key| key.name == name));
    kind.or_else(of_key).ok_or_else(|| {
        let names = NAMES.texts().join(", ");
        Failure::usage(format!("`{name}` is no kind of faults\nhelp: kinds are {names}"))
    })
}

/// The section of bloodhound.yaml in which the keys of a kind stand.
fn section(kind: &Declaration) -> String {
    format!("{:?}", kind.group).to_ascii_lowercase()
}

/// All kinds, a few lines each.
fn list(kinds: &[&Declaration]) -> String {
    let mut out = String::new();
    for kind in kinds {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{} ({})\n  {}", kind.name, section(kind), kind.does);
        for key in kind.keys {
            let _ = writeln!(out, "  faults.{}.{}: {}{}", section(kind), key.name, values(key), default(key));
        }
    }
    out.push_str("\n`bloodhound faults KIND` shows an example; presets (faults.preset):\n");
    for word in Preset::WORDS.words {
        let _ = writeln!(out, "  {}: {}", word.text, word.doc);
    }
    out
}

/// All about one kind.
fn details(kind: &Declaration) -> String {
    let mut out = format!("{}: {}\n\n", kind.name, kind.does);
    for key in kind.keys {
        let _ = writeln!(out, "faults.{}.{}\n  {}", section(kind), key.name, key.doc);
        let _ = writeln!(out, "  {}{}", values(key), default(key));
        let presets = Preset::ALL.iter().filter_map(|preset| Some((preset, preset.text(key.name)?)));
        let presets: Vec<String> =
            presets.map(|(preset, text)| format!("{} {text}", preset.as_str())).collect();
        if !presets.is_empty() {
            let _ = writeln!(out, "  presets: {}", presets.join(", "));
        }
    }
    let _ = writeln!(out, "\nwhen: {}\nswarm: {}\ncounted: {}", when(kind), swarm(kind), counted(kind));
    let _ = write!(out, "\nexample:\n{}", indented(&example(kind)));
    let _ = write!(out, "\nin a fixed schedule:\n{}", indented(&scheduled(kind)));
    out
}

fn as_json(kind: &Declaration) -> Json {
    let keys = kind.keys.iter().map(|key| {
        let presets = Preset::ALL.iter().filter_map(|preset| Some((preset.as_str(), preset.text(key.name)?)));
        json!({
            "name": key.name,
            "path": format!("faults.{}.{}", section(kind), key.name),
            "values": values(key),
            "default": match key.absent { Absent::Means(text) | Absent::Described(text) => Some(text), _ => None },
            "meaning": key.doc,
            "switch": kind.switch().is_some_and(|switch| switch.name == key.name),
            "presets": presets.collect::<std::collections::BTreeMap<_, _>>(),
        })
    });
    json!({
        "name": kind.name,
        "group": section(kind),
        "meaning": kind.does,
        "keys": keys.collect::<Vec<_>>(),
        "when": when(kind),
        "swarm": swarm(kind),
        "counted": counted(kind),
        "example": example(kind),
        "schedule": scheduled(kind),
    })
}

/// Which values a key takes: unit and bounds.
fn values(key: &Key) -> String {
    match key.kind {
        ValueKind::Rate { most } => format!("rate, 0 to {most}"),
        ValueKind::Probability { per: "" } => "probability per time step, 0 to 1".to_owned(),
        ValueKind::Probability { per } => format!("probability per time step and {per}, 0 to 1"),
        ValueKind::Millis => "milliseconds, 0 or more".to_owned(),
        ValueKind::MillisRange => "[shortest, longest] in milliseconds".to_owned(),
        ValueKind::Integer { least, most: u64::MAX } => format!("whole number, {least} or more"),
        ValueKind::Integer { least, most } => format!("whole number, {least} to {most}"),
        ValueKind::Decimal { least, most } => format!("number, {least} to {most}"),
        ValueKind::Duration(_) => "duration".to_owned(),
        ValueKind::Bool => "true or false".to_owned(),
        ValueKind::Word(words) => words.texts().join(", "),
        ValueKind::List(ValueKind::Word(words)) | ValueKind::NonEmpty(ValueKind::Word(words), _) => {
            format!("list of {}", words.texts().join(", "))
        }
        ValueKind::Own(syntax) => syntax.written.to_owned(),
        _ => "see docs/configuration.md".to_owned(),
    }
}

fn default(key: &Key) -> String {
    match key.absent {
        Absent::Means(text) | Absent::Described(text) => format!("; default: {text}"),
        Absent::Refused => "; required".to_owned(),
        Absent::Nothing => String::new(),
    }
}

fn when(kind: &Declaration) -> &'static str {
    match kind.begins {
        Begins::Link => "each packet during the phase of faults",
        Begins::ByNode => "at times that are drawn for each service, for a time",
        Begins::ByMachine => "at times that are drawn for each machine, with all services on it",
        Begins::ByNetwork => "at times that are drawn for the whole network",
        Begins::ByGroup => "at times that are drawn for each group of `faults.groups`, all of it at once",
        Begins::Standing => "when the phase of faults begins, for each service, until the heal",
        Begins::Asked if kind.is_of_power() => "each power failure of a machine during the phase of faults",
        Begins::Asked => "each operation of a program during the phase of faults",
    }
}

fn swarm(kind: &Declaration) -> &'static str {
    match kind.swarm {
        Swarm::Strength => {
            "off in a third of the seeds, else a quarter, once, twice or four times the written rate"
        }
        Swarm::Coin => "off in half of the seeds",
        Swarm::Always => "in every seed as written",
    }
}

fn counted(kind: &Declaration) -> &'static str {
    match (kind.is_timed(), kind.switch().is_some()) {
        (true, _) => "each one that begins; one that finds nothing to do is counted apart, with the reason",
        (false, true) => "each packet or operation that it hits",
        (false, false) if kind.is_of_names() => "each answer that it delays",
        (false, false) => "each packet that crosses a link with it",
    }
}

/// Of what services are made, for kinds that change that.
fn upgrades(kind: &Declaration) -> &'static str {
    if kind.changes_versions() {
        "  upgrades:\n    kv1: {image: \"kv:2\"}\n    kv2: {image: \"kv:2\"}\n"
    } else {
        ""
    }
}

/// The keys of a kind in bloodhound.yaml.
fn example(kind: &Declaration) -> String {
    let mut out = format!("faults:\n  {}:\n", section(kind));
    for key in kind.keys {
        let value = match (key.kind, key.absent) {
            (ValueKind::Rate { .. }, _) => "0.01",
            (ValueKind::Probability { .. }, _) => "0.001",
            (_, Absent::Means(text)) if text != "0" => text,
            (ValueKind::Millis, _) => "5",
            (ValueKind::Integer { .. }, _) => "512",
            _ => continue,
        };
        let _ = writeln!(out, "    {}: {value}", key.name);
    }
    out + upgrades(kind)
}

/// The kind as an entry of a schedule.
fn scheduled(kind: &Declaration) -> String {
    let mut entry = match kind.is_asked() || kind.is_of_names() {
        true => format!("nth: 17, fault: {}", kind.name),
        false => format!("at: 10s, fault: {}", kind.name),
    };
    match kind.begins {
        _ if kind.is_of_names() => {
            entry.push_str(", service: kv1");
            entry.push_str(if kind.has_time() { ", time_ms: 20" } else { "" });
        }
        Begins::Link => {
            entry.push_str(if kind.switch().is_some() { ", rate: 0.2" } else { "" });
            entry.push_str(if kind.has_time() { ", time_ms: 20" } else { "" });
            entry.push_str(if kind.kind == Kind::Bandwidth { ", kbit: 512" } else { "" });
            entry.push_str(", from: [kv1], to: [kv2], duration: 3s");
        }
        Begins::ByNetwork if kind.kind == Kind::Partition => {
            entry.push_str(", partition: symmetric, groups: [[kv1], [kv2, kv3]]");
        }
        Begins::ByNetwork if kind.kind == Kind::LeapSecond => {}
        Begins::Standing => entry.push_str(", service: kv1, time_ms: 20"),
        Begins::ByNode | Begins::ByMachine | Begins::ByNetwork => {
            entry.push_str(", service: kv1");
        }
        Begins::Asked => entry.push_str(", service: kv1"),
        Begins::ByGroup => entry.push_str(", services: [kv1, kv2]"),
    }
    if kind.is_timed() && kind.has_time() {
        entry.push_str(", duration: 3s");
    }
    format!("faults:\n  schedule:\n    - {{{entry}}}\n{}", upgrades(kind))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloodhound_config::Config;
    use bloodhound_config::config::FileChecks;
    use bloodhound_config::tree::Source;
    use std::path::Path;

    #[test]
    fn examples_are_what_the_configuration_takes() {
        for kind in Kind::DECLARATIONS {
            for text in [example(kind), scheduled(kind)] {
                let source = Source::new(Path::new("example.yaml"), &format!("{text}properties: []\n"));
                let (config, diagnostics) = Config::decode(source, FileChecks::Lenient);
                let config = config.unwrap_or_else(|| panic!("{text}: {diagnostics:?}"));
                let written = config.faults.schedule.iter().any(|entry| entry.kind == kind.kind);
                assert!(written || config.faults.kinds.is_on(kind.kind), "{text}");
                assert_eq!(diagnostics, [], "{text}");
            }
            assert!(list(&[kind]).contains(kind.does) && details(kind).contains(kind.keys[0].doc));
        }
    }

    #[test]
    fn kinds_are_found_by_name_and_by_key() {
        assert_eq!(named("crash").map(|kind| kind.name).ok(), Some("crash"));
        assert_eq!(named("drop_rate").map(|kind| kind.name).ok(), Some("drop"));
        assert!(named("cresh").is_err_and(|failure| failure.text.contains("kinds are drop, ")));
    }
}
