//! No input makes a panic, every diagnostic points into its file, and a file is unusable exactly if something
//! is an error.

use std::path::Path;

use bloodhound_config::compose::Variables;
use bloodhound_config::config::{Check, FileChecks};
use bloodhound_config::tree::Source;
use bloodhound_config::{Compose, Config, Diagnostic, has_errors, render};
use bloodhound_faults::Kind;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const REFERENCE: &str = include_str!("data/reference.yaml");
const EVERY_KEY: &str = include_str!("data/every-key.yaml");
const STACK: &str = include_str!("data/stack/docker-compose.yml");

fn check_diagnostics(text: &str, usable: bool, diagnostics: &[Diagnostic]) {
    assert_eq!(usable, !has_errors(diagnostics), "{text}\n{diagnostics:#?}");
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for diagnostic in diagnostics {
        assert!(!diagnostic.message.contains(|c: char| c.is_control()), "{diagnostic:?}");
        if let Some(place) = diagnostic.place.as_ref().filter(|p| p.file == "f.yaml") {
            let line = text.split('\n').nth(place.line as usize - 1).expect("the line exists");
            assert_eq!(place.source_line, line.trim_end_matches('\r'));
            assert!(place.column as usize <= line.chars().count() + 1, "{place:?}");
            assert!(place.end_column > place.column, "{place:?}");
        }
        for colour in [false, true] {
            assert!(render::text(diagnostic, colour).contains(diagnostic.code.as_str()));
        }
        assert!(render::json(diagnostic)["code"].is_string());
        assert!(!render::github(diagnostic).contains('\n'));
    }
}

fn decode(text: &str) {
    let (config, diagnostics) = Config::decode(Source::new(Path::new("f.yaml"), text), FileChecks::Lenient);
    check_diagnostics(text, config.is_some(), &diagnostics);
    let Some(config) = config else { return };
    assert!(config.simulation.time_step_ns > 0 && config.simulation.seeds > 0);
    let operations = config.workload.as_ref().map_or(0, |w| {
        assert!(w.clients >= 1 && w.clients <= w.concurrency && !w.targets.is_empty());
        w.operations.len()
    });
    for property in &config.properties {
        if let Check::Linearizability { operations: judged, .. } = &property.check {
            assert!(!judged.is_empty() && judged.iter().all(|i| *i < operations));
        }
    }
    let kinds = Kind::DECLARATIONS.iter().map(|declaration| config.faults.kinds.get(declaration.kind));
    assert!(
        kinds.into_iter().all(|setting| setting.time.0 <= setting.time.1 && setting.rate <= 1_000_000_000)
    );
    assert!(!config.faults.kinds.get(Kind::Partition).shapes.is_empty());
}

fn decode_compose(text: &str) {
    let variables: Variables = [("REPLICAS".to_owned(), "3".to_owned())].into();
    let (compose, diagnostics) = Compose::decode(Source::new(Path::new("f.yaml"), text), &variables);
    check_diagnostics(text, compose.is_some(), &diagnostics);
    let Some(compose) = compose else { return };
    let mut order = compose.start_order.clone();
    order.sort_unstable();
    assert_eq!(order, (0..compose.services.len()).collect::<Vec<_>>());
    for service in &compose.services {
        assert!(!service.argv().is_empty() && !service.networks.is_empty());
        assert_eq!(service.instances().len(), service.replicas as usize);
    }
}

/// Pieces of text that mean something to a parser.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        ":",
        " ",
        "\n",
        "\t",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "!x ",
        "\"",
        "'",
        "|\n",
        ">\n",
        "#",
        "%",
        "---\n",
        "...\n",
        "? ",
        "~",
        "null",
        "0",
        "-1",
        "1e9",
        "0x1f",
        "9999999999999999999999",
        ".inf",
        ".nan",
        "5m",
        "5",
        "true",
        "é",
        "\u{feff}",
        "\u{0}",
        "\r\n",
        "\u{2028}",
        "x-",
        "${A}",
        "$",
        "${",
        "http://",
        ",",
        "\\",
        "a: b",
        "[1, 2]",
        "{random:1-2}",
        "key",
    ];
    prop_oneof![
        proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned),
        any::<char>().prop_map(String::from)
    ]
}

/// A change of a text: at a place (in thousandths of it), so many characters are replaced by some pieces.
fn changes() -> impl Strategy<Value = Vec<(usize, usize, Vec<String>)>> {
    let one = (0..1000usize, 0..12usize, proptest::collection::vec(piece(), 0..4));
    proptest::collection::vec(one, 1..5)
}

fn changed(text: &str, changes: &[(usize, usize, Vec<String>)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, removed, pieces) in changes {
        let start = chars.len() * at / 1000;
        let end = (start + removed).min(chars.len());
        chars.splice(start..end, pieces.concat().chars());
    }
    chars.into_iter().collect()
}

/// Lines swapped, dropped or repeated: mostly valid YAML with another structure.
fn shuffled(text: &str, moves: &[(usize, usize, u8)]) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    for (a, b, kind) in moves {
        let (a, b) = (a % lines.len(), b % lines.len());
        match kind % 3 {
            0 => lines.swap(a, b),
            1 => lines.insert(a, lines[b]),
            _ if lines.len() > 1 => {
                lines.remove(a);
            }
            _ => {}
        }
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, rng_seed: RngSeed::Fixed(2), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_configurations(every in any::<bool>(), changes in changes()) {
        decode(&changed(if every { EVERY_KEY } else { REFERENCE }, &changes));
    }

    #[test]
    fn shuffled_configurations(every in any::<bool>(), moves in proptest::collection::vec(any::<(usize, usize, u8)>(), 1..6)) {
        decode(&shuffled(if every { EVERY_KEY } else { REFERENCE }, &moves));
    }

    #[test]
    fn changed_compose_files(changes in changes()) {
        decode_compose(&changed(STACK, &changes));
    }

    #[test]
    fn shuffled_compose_files(moves in proptest::collection::vec(any::<(usize, usize, u8)>(), 1..6)) {
        decode_compose(&shuffled(STACK, &moves));
    }

    #[test]
    fn texts_of_pieces(pieces in proptest::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        decode(&text);
        decode_compose(&text);
    }
}

#[test]
fn the_unchanged_files_are_fine() {
    for text in [REFERENCE, EVERY_KEY] {
        let source = Source::new(Path::new("f.yaml"), text);
        assert!(Config::decode(source, FileChecks::Lenient).0.is_some());
    }
}

#[test]
fn every_prefix_of_a_file() {
    for text in [REFERENCE, EVERY_KEY] {
        (0..text.len()).filter(|i| text.is_char_boundary(*i)).for_each(|i| decode(&text[..i]));
    }
    (0..STACK.len()).for_each(|i| decode_compose(&STACK[..i]));
}
