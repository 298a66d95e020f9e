//! Rules of the house that a machine can check (CONTRIBUTING.md, "What a change needs"): sizes of files and functions, documentation
//! of system calls, one word for one thing, no test that is left out without a word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bloodhound_abi::table::{Status, TABLE};

/// Lines of a file, at most.
const FILE: usize = 600;
/// Lines of a function, at most, from `fn` to its closing brace. The aim is 70; what is a little longer for a reason, such as a table
/// of cases, is left to the judgement of people.
const FUNCTION: usize = 90;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// A source file: its path in the repository, and its text.
struct Source {
    path: String,
    text: String,
}

/// All files below `directory` with this ending.
fn sources(directory: &str, ending: &str) -> Vec<Source> {
    let root = repository();
    let (mut found, mut todo) = (Vec::new(), vec![root.join(directory)]);
    while let Some(path) = todo.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "target" | ".git" | "node_modules") {
                todo.extend(
                    std::fs::read_dir(&path).expect("a directory").map(|e| e.expect("an entry").path()),
                );
            }
        } else if name.ends_with(ending) {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let path = path.strip_prefix(&root).expect("in the repository").to_string_lossy().into_owned();
            found.push(Source { path, text });
        }
    }
    assert!(!found.is_empty(), "no {ending} files in {directory}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn rust() -> Vec<Source> {
    sources("", ".rs")
}

/// Fails with all that is wrong.
fn none(wrong: &[String], rule: &str) {
    assert!(wrong.is_empty(), "{rule}:\n  {}", wrong.join("\n  "));
}

/// The functions of a file that rustfmt has formatted: line of `fn` from 1, name, number of lines.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let words = code.split_whitespace().take_while(|word| !word.starts_with("//"));
        let mut words = words.skip_while(|word| {
            word.starts_with("pub")
                || matches!(*word, "const" | "unsafe" | "extern" | "\"C\"" | "async" | "in")
        });
        let (Some("fn"), Some(name)) = (words.next(), words.next()) else { continue };
        let name = name.split(['(', '<']).next().unwrap_or(name).to_owned();
        // A function of one line ends there, and so does a declaration without a body.
        if code.ends_with('}') || code.ends_with(';') {
            continue;
        }
        let outer = |line: &&str| {
            line.strip_prefix(&" ".repeat(indent))
                .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
        };
        let mut rest = lines.iter().enumerate().skip(index + 1).filter(|(_, line)| outer(line));
        let end = rest.find(|(_, line)| line.trim() == "}" || line.ends_with(';'));
        if let Some((end, _)) = end.filter(|(_, line)| line.trim() == "}") {
            found.push((index + 1, name, end - index + 1));
        }
    }
    found
}

#[test]
fn files_are_short() {
    let long = |source: &Source| {
        let lines = source.text.lines().count();
        (lines > FILE).then(|| format!("{}: {lines} lines", source.path))
    };
    none(&rust().iter().filter_map(long).collect::<Vec<_>>(), &format!("files have at most {FILE} lines"));
}

#[test]
fn functions_are_short() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in rust() {
        for (line, name, length) in functions(&source.text) {
            seen += 1;
            if length > FUNCTION {
                wrong.push(format!("{}:{line}: {name} has {length} lines", source.path));
            }
        }
    }
    assert!(seen > 3000, "only {seen} functions were found: they are not recognised any more");
    none(&wrong, &format!("functions have at most {FUNCTION} lines"));
}

#[test]
fn long_functions_are_recognised() {
    let body = "        let x = 1;\n".repeat(100);
    let text = format!(
        "impl A {{\n    pub(crate) const fn long<T>(\n        x: T,\n    ) {{\n{body}    }}\n}}\nfn short() {{\n}}\n"
    );
    assert_eq!(functions(&text), [(2, "long".to_owned(), 104), (107, "short".to_owned(), 2)]);
}

/// Whether the item at this line (from 0) has a doc comment, above its attributes.
fn documented(lines: &[&str], item: usize) -> bool {
    let mut above = lines[..item].iter().rev().map(|line| line.trim());
    above.find(|line| !line.starts_with("#[")).is_some_and(|line| line.starts_with("///"))
}

#[test]
fn handlers_of_system_calls_are_documented() {
    let files = sources("vmm/kernel/src/sys", ".rs");
    let mut handlers: BTreeMap<String, (String, bool)> = BTreeMap::new();
    for source in &files {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(rest) = line.strip_prefix("pub fn ").or_else(|| line.strip_prefix("pub(crate) fn "))
            else {
                continue;
            };
            let name = rest.split(['(', '<']).next().unwrap_or(rest).to_owned();
            let place = format!("{}:{}", source.path, index + 1);
            handlers.insert(name, (place, documented(&lines, index)));
        }
    }
    let mut wrong = Vec::new();
    for call in TABLE.iter().filter(|call| matches!(call.status, Status::Full | Status::Partial)) {
        match handlers.get(call.name) {
            Some((_, true)) => {}
            Some((place, false)) => wrong.push(format!("{place}: {} has no documentation", call.name)),
            None => wrong.push(format!("vmm/kernel/src/sys: no function {}", call.name)),
        }
    }
    none(&wrong, "each handler says what it does, its errors and the man page");
}

#[test]
fn ignored_tests_have_a_reason() {
    let mut wrong = Vec::new();
    for source in rust() {
        for (index, line) in source.text.lines().enumerate() {
            if line.trim_start().starts_with(concat!("#[", "ignore]")) {
                wrong.push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    none(&wrong, "#[ignore = \"reason\"]");
}

/// A test that leaves itself out says so by `left_out` or `have`, which CI counts and can refuse. A plain message is seen by nobody.
#[test]
fn no_test_leaves_itself_out_silently() {
    let mut wrong = Vec::new();
    for source in
        rust().iter().filter(|source| source.path.contains("tests") && !source.path.ends_with("tidy.rs"))
    {
        for (index, line) in source.text.lines().enumerate() {
            let says = line.contains("println!(")
                && ["skip", "left out", "not installed"].iter().any(|word| line.contains(word));
            if says {
                wrong.push(format!("{}:{}: {}", source.path, index + 1, line.trim()));
            }
        }
    }
    none(&wrong, "use `left_out` or `have` (runner/tests/common/mod.rs)");
}

/// The words that the glossary of ARCHITECTURE.md replaces: the third column of its table, word by word, with the term.
fn replaced_words(architecture: &str) -> Vec<(String, String)> {
    let glossary =
        architecture.split("\n## ").find(|section| section.starts_with("Glossary")).expect("a glossary");
    let rows = glossary.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut words = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [term, _, not] = columns[..] else { panic!("three columns: {row}") };
        let named = not.split('`').skip(1).step_by(2);
        words.extend(named.map(|word| (word.to_owned(), term.to_owned())));
    }
    words
}

/// Whether `text` has `word` as a word of its own, or as a part of a name that underscores separate.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric();
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(part);
        let after = text[at + word.len()..].chars().next().is_some_and(part);
        !before && !after
    })
}

#[test]
fn every_file_of_tests_is_compiled() {
    let text = |path: &str| std::fs::read_to_string(repository().join(path)).expect(path);
    let (main, package) = (text("runner/tests/main.rs"), text("runner/Cargo.toml"));
    let files = sources("runner/tests", ".rs");
    let names =
        files.iter().filter_map(|source| source.path.strip_prefix("runner/tests/")?.strip_suffix(".rs"));
    let of_program = names.filter(|name| !name.contains('/') && *name != "main");
    let wrong: Vec<String> = of_program
        .filter(|name| !main.lines().any(|line| line == format!("mod {name};")))
        .filter(|name| !package.contains(&format!("path = \"tests/{name}.rs\"")))
        .map(|name| format!("runner/tests/{name}.rs"))
        .collect();
    none(
        &wrong,
        "a file that is neither a module of runner/tests/main.rs nor a test of runner/Cargo.toml is never compiled",
    );
}

#[test]
fn each_thing_has_one_word() {
    let architecture =
        std::fs::read_to_string(repository().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let words = replaced_words(&architecture);
    assert!(words.len() > 5, "the glossary's third column was not read: {words:?}");
    let mut wrong = Vec::new();
    for source in
        rust().iter().chain(&sources("docs", ".md")).filter(|source| !source.path.ends_with("tidy.rs"))
    {
        // An option that was renamed keeps its old name as an alias.
        let lines = source.text.lines().enumerate().filter(|(_, line)| !line.contains("alias = "));
        for (index, line) in lines {
            for (word, term) in words.iter().filter(|(word, _)| has_word(line, word)) {
                wrong.push(format!("{}:{}: `{word}`: say {term}", source.path, index + 1));
            }
        }
    }
    none(&wrong, "the glossary of ARCHITECTURE.md rules");
}

#[test]
fn words_are_told_from_parts_of_words() {
    assert!(has_word("let mut_look = 1", "look") && has_word("a look.", "look"));
    assert!(!has_word("outlook", "look") && !has_word("looked", "look"));
    let table = "## Glossary\n\n| term | meaning | not |\n|---|---|---|\n| task | a thread | `thread`, `fiber` |\n\n## Next\n| a | b | `c` |\n";
    let rows = replaced_words(&format!("# A\n{table}"));
    assert!(
        rows.contains(&("fiber".to_owned(), "task".to_owned())) && !rows.iter().any(|(word, _)| word == "c"),
        "{rows:?}"
    );
}
