//! Keeps the tables of docs/configuration.md equal to the declarations of the keys:
//! `BLESS=1 cargo test -p bloodhound-config docs` writes them anew.

use std::fmt::Write as _;

use bloodhound_declare::{Absent, Key, Section, Shortest, ValueKind, Words};

use crate::config::tests::sections;
use crate::diagnostic::Code;
use crate::schema::available;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");

fn manual() -> String {
    std::fs::read_to_string(PATH).expect(PATH)
}

/// The manual's table of a section.
fn table(section: &Section) -> String {
    let mut out = String::from("| key | type | default | meaning | status |\n|---|---|---|---|---|\n");
    for key in section.keys {
        let (kind, absent, status) = (type_of(&key.kind), absent(section, key), status(key));
        let _ = writeln!(out, "| `{}` | {kind} | {absent} | {} | {status} |", key.name, key.doc);
    }
    out.replace("|  |", "| |").replace("|  |", "| |")
}

/// The manual's table of a set of words, if their meanings are declared.
fn word_table(words: &Words) -> Option<String> {
    let mut out = String::from("| word | meaning |\n|---|---|\n");
    for word in words.words {
        let _ = writeln!(out, "| `{}` | {} |", word.text, word.doc);
    }
    words.words.iter().all(|word| !word.doc.is_empty()).then_some(out)
}

fn type_of(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Bool => "boolean".to_owned(),
        ValueKind::Text | ValueKind::Scalar => "text".to_owned(),
        ValueKind::Name(what) => (*what).to_owned(),
        ValueKind::Path => "path".to_owned(),
        ValueKind::Integer { least, most: u64::MAX } => format!("whole number, at least {}", grouped(*least)),
        ValueKind::Integer { least, most } => {
            format!("whole number, {} to {}", grouped(*least), grouped(*most))
        }
        ValueKind::Decimal { least, most } => format!("number, {least} to {}", most.replace('_', ",")),
        ValueKind::Rate { most: "1" } => "rate".to_owned(),
        ValueKind::Rate { most } => format!("rate, at most {most}"),
        ValueKind::Probability { per: "" } => "probability".to_owned(),
        ValueKind::Probability { per } => format!("probability, per {per}"),
        ValueKind::Duration(Shortest::Of { least, .. }) => format!("duration, `{least}` or more"),
        ValueKind::Duration(_) => "duration".to_owned(),
        ValueKind::Millis => "milliseconds".to_owned(),
        ValueKind::MillisRange => "range of milliseconds".to_owned(),
        ValueKind::PpmRange => "range of parts per million".to_owned(),
        ValueKind::Word(words) => code_list(words),
        ValueKind::Tag(word) => format!("`{word}`"),
        ValueKind::Section(_) | ValueKind::Variants(_) => "section".to_owned(),
        ValueKind::List(of) | ValueKind::NonEmpty(of, _) => match of {
            ValueKind::Section(_) => "list".to_owned(),
            ValueKind::Word(words) => format!("list of {}", code_list(words)),
            ValueKind::Own(syntax) => format!("list of {}", syntax.plural),
            of => format!("list of {}s", type_of(of)),
        },
        ValueKind::Own(syntax) => syntax.written.to_owned(),
    }
}

fn code_list(words: &Words) -> String {
    words.texts().iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// A number with commas, if it is long.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn absent(section: &Section, key: &Key) -> String {
    match key.absent {
        Absent::Nothing if section.one_of.contains(&key.name) => {
            let names: Vec<String> = section.one_of.iter().map(|name| format!("`{name}`")).collect();
            format!("one of {} is required", names.join(", "))
        }
        Absent::Refused => "required".to_owned(),
        Absent::Means(text) if text.chars().all(|c| c.is_ascii_digit() || c == '.') => text.to_owned(),
        Absent::Means(text) => format!("`{text}`"),
        Absent::Described(words) => words.to_owned(),
        Absent::Nothing => String::new(),
    }
}

/// How much of a value has an effect yet.
fn status(key: &Key) -> String {
    const IN_PART: &str = "in part";
    match key.kind {
        _ if key.later => "later".to_owned(),
        ValueKind::Word(words) if words.words.iter().any(|word| word.later) => {
            format!("{} only", available(words))
        }
        ValueKind::Section(section) => {
            let all: Vec<String> = section.keys.iter().map(status).collect();
            match all.first() {
                Some(first) if all.iter().all(|one| one == first) => first.clone(),
                _ => IN_PART.to_owned(),
            }
        }
        _ => "yes".to_owned(),
    }
}

/// Puts a table in the place of the one below the mark of this name.
fn replace(manual: &str, name: &str, table: &str) -> String {
    let mark = format!("<!-- {name} -->\n");
    let start =
        manual.find(&mark).unwrap_or_else(|| panic!("docs/configuration.md has no line {mark}")) + mark.len();
    let old: usize =
        manual[start..].split_inclusive('\n').take_while(|l| l.starts_with('|')).map(str::len).sum();
    format!("{}{table}{}", &manual[..start], &manual[start + old..])
}

#[test]
fn docs_have_the_declared_keys() {
    let manual = manual();
    let mut wanted = manual.clone();
    for section in sections() {
        wanted = replace(&wanted, section.name, &table(section));
        for key in section.keys {
            let (ValueKind::Word(words)
            | ValueKind::List(ValueKind::Word(words))
            | ValueKind::NonEmpty(ValueKind::Word(words), _)) = &key.kind
            else {
                continue;
            };
            let mark = format!("<!-- {} -->", words.name);
            if let Some(table) = word_table(words).filter(|_| wanted.contains(&mark)) {
                wanted = replace(&wanted, words.name, &table);
            }
        }
    }
    if manual == wanted {
        return;
    }
    if std::env::var_os("BLESS").is_some() {
        let temporary = format!("{PATH}.new");
        std::fs::write(&temporary, wanted).expect("writable");
        return std::fs::rename(&temporary, PATH).expect("renamed");
    }
    let line = wanted.lines().zip(manual.lines()).find(|(new, old)| new != old);
    panic!(
        "docs/configuration.md is out of date, first at {line:#?}: BLESS=1 cargo test -p bloodhound-config docs"
    );
}

#[test]
fn docs_have_every_code() {
    let manual = manual();
    for code in Code::ALL {
        let row = format!("| {code} | {} |", code.meaning());
        assert!(manual.contains(&row), "{row}");
    }
}

/// The keys of each mapping of the specification's JSON schema (tests/data/compose-spec, under the Apache License 2.0), by the paths of
/// the table. `seen` are the definitions on the way.
fn schema_keys(
    schema: &serde_json::Value,
    node: &serde_json::Value,
    path: &str,
    out: &mut std::collections::BTreeMap<String, std::collections::BTreeSet<String>>,
) {
    use crate::compose::keys::WHOLE;
    if !node.is_object() || WHOLE.contains(&path) {
        return;
    }
    if let Some(reference) = node["$ref"].as_str() {
        let name = reference.rsplit('/').next().expect("a name");
        let definitions = if schema["definitions"].is_null() { "$defs" } else { "definitions" };
        schema_keys(schema, &schema[definitions][name], path, out);
    }
    for alternative in ["oneOf", "anyOf", "allOf"].iter().flat_map(|key| node[key].as_array()).flatten() {
        schema_keys(schema, alternative, path, out);
    }
    for (key, value) in node["properties"].as_object().into_iter().flatten() {
        out.entry(path.to_owned()).or_default().insert(key.clone());
        let deeper = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        schema_keys(schema, value, &deeper, out);
    }
    let patterns = node["patternProperties"].as_object().into_iter().flatten();
    let named = patterns.filter(|(pattern, _)| *pattern != "^x-").map(|(_, value)| value);
    for value in named.chain([&node["additionalProperties"]]) {
        schema_keys(schema, value, &format!("{path}.*"), out);
    }
    schema_keys(schema, &node["items"], &format!("{path}[]"), out);
}

/// Every key of the specification at every level is in the table, and nothing else is.
#[test]
fn the_table_has_the_keys_of_the_specification() {
    use crate::compose::keys::SECTIONS;
    let text = include_str!("../tests/data/compose-spec/compose-spec.json");
    let schema: serde_json::Value = serde_json::from_str(text).expect("a schema");
    let mut wanted = std::collections::BTreeMap::new();
    schema_keys(&schema, &schema, "", &mut wanted);
    let mut declared = std::collections::BTreeMap::new();
    for section in SECTIONS {
        let keys: std::collections::BTreeSet<String> =
            section.keys.iter().map(|k| k.name.to_owned()).collect();
        assert_eq!(keys.len(), section.keys.len(), "{} has a key twice", section.path);
        assert!(declared.insert(section.path.to_owned(), keys).is_none(), "{} is there twice", section.path);
    }
    assert!(wanted.values().map(|keys| keys.len()).sum::<usize>() > 250);
    for (path, keys) in &wanted {
        assert_eq!(declared.get(path), Some(keys), "{path}");
    }
    assert_eq!(declared.len(), wanted.len());
}

const COMPOSE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/compose.md");

/// The tables of docs/compose.md: every mapping with its keys.
fn compose_tables() -> String {
    use crate::compose::keys::{SECTIONS, Treatment};
    let mut out = String::new();
    for section in SECTIONS {
        let title =
            if section.path.is_empty() { "The top level".to_owned() } else { format!("`{}`", section.path) };
        let _ = write!(out, "### {title}\n\n| key | treatment | |\n|---|---|---|\n");
        for key in section.keys {
            let (treatment, why) = match key.treatment {
                Treatment::Works(how) => ("works", how),
                Treatment::NoEffect(why) => ("has no effect here", why),
                Treatment::Refused(why) => ("refused", why),
            };
            let _ = writeln!(out, "| `{}` | {treatment} | {why} |", key.name);
        }
        out.push('\n');
    }
    out.replace("|  |", "| |")
}

#[test]
fn docs_have_every_compose_key() {
    const MARK: &str = "<!-- keys: generated from config-schema/src/compose/keys/table.rs -->\n\n";
    let manual = std::fs::read_to_string(COMPOSE).expect(COMPOSE);
    let start = manual.find(MARK).expect("the mark of the tables") + MARK.len();
    let wanted = format!("{}{}\n", &manual[..start], compose_tables().trim_end());
    if manual == wanted {
        return;
    }
    if std::env::var_os("BLESS").is_some() {
        let temporary = format!("{COMPOSE}.new");
        std::fs::write(&temporary, wanted).expect("writable");
        return std::fs::rename(&temporary, COMPOSE).expect("renamed");
    }
    panic!("docs/compose.md is out of date: BLESS=1 cargo test -p bloodhound-config docs");
}
