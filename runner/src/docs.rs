//! Keeps the documentation equal to what the program is: `BLESS=1 cargo test -p bloodhound docs` writes the generated
//! parts anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bloodhound_abi::table::{ArgKind, Status, TABLE};
use bloodhound_config::Compose;
use bloodhound_config::config::{Config, FileChecks};
use bloodhound_config::tree::{Entry, Node, Source, Value};
use clap::CommandFactory;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Compares the part of a page from the line `marker` on, or writes it anew.
fn generated(path: &str, marker: &str, content: &str) {
    let page = read(path);
    let at = page.find(marker).unwrap_or_else(|| panic!("{path} has no line {marker:?}")) + marker.len();
    let wanted = format!("{}\n\n{content}", &page[..at]);
    if page == wanted {
        return;
    }
    if std::env::var_os("BLESS").is_some() {
        return crate::output::write_file(&root().join(path), wanted).unwrap();
    }
    let old = &page[at..];
    let line = wanted[at..].lines().zip(old.lines()).find(|(new, old)| new != old);
    panic!("{path} is out of date, first at {line:?}: BLESS=1 cargo test -p bloodhound docs");
}

#[test]
fn exit_codes_are_documented() {
    let mut table = String::from("| code | meaning |\n|---:|---|\n");
    for (code, meaning) in crate::exit::TABLE {
        let _ = writeln!(table, "| {code} | {meaning} |");
    }
    generated("docs/exit-codes.md", "<!-- generated from exit::TABLE -->", &table);
}

#[test]
fn help_lists_the_exit_codes() {
    let help = crate::cli::Cli::command().render_long_help().to_string();
    for (code, meaning) in crate::exit::TABLE {
        assert!(help.contains(&format!("  {code:>3}  {meaning}\n")), "{code}: {help}");
    }
    let codes: Vec<u8> = crate::exit::TABLE.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 70, 126, 127, 130], "scripts of users depend on these");
}

#[test]
fn the_command_line_is_documented() {
    let mut out = String::new();
    let mut root = crate::cli::Cli::command();
    root.build();
    document(&mut root, "bloodhound", &mut out);
    generated("docs/cli.md", "<!-- generated from the command line -->", out.trim_end_matches('\n'));
}

/// The help of each command below `above`, and of the commands below those.
fn document(above: &mut clap::Command, path: &str, out: &mut String) {
    for command in above.get_subcommands_mut().filter(|c| c.get_name() != "help" && !c.is_hide_set()) {
        let path = format!("{path} {}", command.get_name());
        let help = command.render_help().to_string();
        let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        let _ = write!(out, "## {path}\n\n```text\n{}\n```\n\n", lines.join("\n"));
        document(command, &path, out);
    }
}

#[test]
fn system_calls_are_documented() {
    let count = |wanted: fn(&Status) -> bool| TABLE.iter().filter(|i| wanted(&i.status)).count();
    let mut out = format!(
        "{} calls: {} full, {} partial, {} answered with an error on purpose, {} unsupported.\n\n",
        TABLE.len(),
        count(|s| *s == Status::Full),
        count(|s| *s == Status::Partial),
        count(|s| matches!(s, Status::Errno(_))),
        count(|s| *s == Status::Unsupported),
    );
    out.push_str("| nr | call | status | note |\n|---:|---|---|---|\n");
    for info in TABLE {
        let arguments: Vec<String> =
            info.args.iter().map(|(name, kind)| format!("{name}: {}", argument(*kind))).collect();
        let status = match info.status {
            Status::Full => "full".to_owned(),
            Status::Partial => "partial".to_owned(),
            Status::Errno(errno) => format!("answers {errno:?}"),
            Status::Unsupported => "unsupported".to_owned(),
        };
        let note = info.note.replace('|', "\\|");
        let _ =
            writeln!(out, "| {} | `{}({})` | {status} | {note} |", info.nr, info.name, arguments.join(", "));
    }
    generated("docs/syscalls.md", "<!-- generated from bloodhound_abi::table -->", &out);
}

fn argument(kind: ArgKind) -> &'static str {
    match kind {
        ArgKind::Fd => "fd",
        ArgKind::Ptr => "address",
        ArgKind::Path => "text",
        ArgKind::Hex | ArgKind::Flags(_) => "bits",
        ArgKind::I32 => "i32",
        ArgKind::U32 => "u32",
        ArgKind::I64 => "i64",
        ArgKind::U64 => "u64",
    }
}

/// The inputs or outputs of action.yml as a table.
fn action_table(action: &[Entry], section: &str) -> String {
    let map = |node: &Node| match &node.value {
        Value::Map(entries) => entries.clone(),
        _ => panic!("{section} of action.yml is no mapping"),
    };
    let text = |entries: &[Entry], key: &str| {
        let value = entries.iter().find(|e| e.key == key).map(|e| e.value.value.clone());
        value.map(|value| match value {
            Value::Scalar(scalar) => scalar.text,
            _ => panic!("{key} of action.yml is no text"),
        })
    };
    let section = action.iter().find(|e| e.key == section).expect("the section");
    let mut out = String::new();
    for entry in map(&section.value) {
        let fields = map(&entry.value);
        let description = text(&fields, "description").expect("a description");
        let default = match text(&fields, "default") {
            Some(default) if default.is_empty() => "| ".to_owned(),
            Some(default) => format!("| `{default}` "),
            None => String::new(),
        };
        let _ = writeln!(out, "| `{}` {default}| {description} |", entry.key);
    }
    out
}

#[test]
fn the_action_is_documented() {
    let source = Source::new(Path::new("action.yml"), &read("action.yml"));
    let (node, problems) = bloodhound_config::tree::parse(&source);
    assert!(problems.is_empty(), "{problems:?}");
    let Some(Node { value: Value::Map(action), .. }) = node else { panic!("action.yml is no mapping") };
    let text = format!(
        "## Inputs\n\n| input | default | meaning |\n|---|---|---|\n{}\n## Outputs\n\n| output | meaning |\n|---|---|\n{}",
        action_table(&action, "inputs"),
        action_table(&action, "outputs"),
    );
    generated("docs/github-action.md", "<!-- generated from action.yml -->", &text);
}

/// The targets of Markdown links in a page, without web addresses and anchors.
fn links(page: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (at, _) in page.match_indices("](") {
        let target = page[at + 2..].split([')', ' ', '\n']).next().unwrap_or("");
        let file = target.split('#').next().unwrap_or("");
        if !file.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
            out.push(file.to_owned());
        }
    }
    out
}

/// Compares the part of a page between two texts, or writes it anew.
fn generated_between(path: &str, from: &str, to: &str, content: &str) {
    let page = read(path);
    let begin = page.find(from).unwrap_or_else(|| panic!("{path} has no {from:?}")) + from.len();
    let end = begin + page[begin..].find(to).unwrap_or_else(|| panic!("{path} has no {to:?}"));
    let wanted = format!("{}{content}{}", &page[..begin], &page[end..]);
    if page != wanted && std::env::var_os("BLESS").is_some() {
        return crate::output::write_file(&root().join(path), wanted).unwrap();
    }
    assert!(page == wanted, "{path} is out of date at {from:?}: BLESS=1 cargo test -p bloodhound docs");
}

#[test]
fn kinds_of_faults_are_documented() {
    let marker = "<!-- generated from bloodhound_faults -->\n\n";
    generated_between("docs/faults.md", marker, "\nRates are per packet.", &bloodhound_faults::manual());
    let marker = "<!-- presets: generated from bloodhound_faults -->\n\n";
    generated_between("docs/faults.md", marker, "\nNo preset has", &bloodhound_faults::presets_manual());
}

#[test]
fn links_lead_to_files() {
    let mut pages: Vec<PathBuf> =
        std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.extend(std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()));
    pages.retain(|path| path.extension().is_some_and(|e| e == "md"));
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        for link in links(&std::fs::read_to_string(&page).unwrap()) {
            let target = page.with_file_name(&link);
            assert!(target.exists(), "{} links to {link}, which is not there", page.display());
        }
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let listed = links(&read("docs/SUMMARY.md"));
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(listed.contains(&name), "docs/{name} is not in docs/SUMMARY.md");
        }
    }
}

/// The YAML blocks of a page.
fn yaml_blocks(page: &str) -> Vec<String> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn configurations_in_the_documentation_are_valid() {
    let mut checked = 0;
    for page in ["README.md", "docs/own-stack.md", "docs/configuration.md"] {
        for block in yaml_blocks(&read(page)) {
            let source = Source::new(Path::new(page), &block);
            let diagnostics = if block.contains("properties:") {
                Config::decode(source, FileChecks::Lenient).1
            } else if block.contains("services:") {
                Compose::decode(source, &Default::default()).1
            } else {
                continue;
            };
            let errors: Vec<_> = diagnostics.iter().filter(|d| d.is_error()).collect();
            // What a bind mount or a script names is not there.
            let missing =
                |d: &&&bloodhound_config::Diagnostic| d.code == bloodhound_config::Code::MissingFile;
            assert!(errors.iter().all(|d| missing(&d)), "{page}: {errors:?}");
            checked += 1;
        }
    }
    assert!(checked >= 4, "only {checked} configurations were found");
}

#[test]
fn every_kind_of_event_is_documented() {
    let page = read("docs/events.md");
    let told: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(k, _)| k)
        .collect();
    for kind in bloodhound_sim::event::KINDS {
        assert_eq!(told.iter().filter(|t| **t == kind).count(), 1, "{kind} in docs/events.md");
    }
    assert!(page.contains(&format!("`{}`", crate::events::SCHEMA)), "the version of the format");
}
