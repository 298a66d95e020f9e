//! What the decoders accept is valid by the JSON schema.

use std::path::Path;

use bloodhound_config::config::FileChecks;
use bloodhound_config::tree::{self, Node, ScalarKind, Source, Value};
use bloodhound_config::{Config, schema};

/// A tree as JSON, numbers by their value.
fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Seq(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries.iter().map(|e| (e.key.clone(), json(&e.value))).collect(),
        Value::Scalar(s) => match s.kind {
            ScalarKind::Null => serde_json::Value::Null,
            ScalarKind::Bool => s.text.eq_ignore_ascii_case("true").into(),
            ScalarKind::String | ScalarKind::Untyped => s.text.clone().into(),
            ScalarKind::Number => {
                let text = s.text.replace('_', "");
                match text.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16).expect("hexadecimal").into(),
                    None => match text.parse::<u64>() {
                        Ok(number) => number.into(),
                        Err(_) => text.parse::<f64>().expect("a number").into(),
                    },
                }
            }
        },
    }
}

struct Judge {
    validator: jsonschema::Validator,
}

impl Judge {
    fn new() -> Judge {
        let schema = serde_json::from_str(&schema()).expect("JSON");
        Judge { validator: jsonschema::draft202012::new(&schema).expect("a schema") }
    }

    /// Whether the decoders accept a text, and what the schema says against it.
    fn judge(&self, text: &str) -> (bool, Vec<String>) {
        let source = Source::new(Path::new("f.yaml"), text);
        let Some(node) = tree::parse(&source).0 else { return (false, vec!["no YAML".to_owned()]) };
        (Config::decode(source, FileChecks::Lenient).0.is_some(), self.errors(&node))
    }

    fn errors(&self, node: &Node) -> Vec<String> {
        let value = json(node);
        let errors = self.validator.iter_errors(&value);
        errors.map(|e| format!("{}: {e}", e.instance_path())).collect()
    }
}

/// Configurations that use every key.
const SAMPLES: &[&str] = &[
    include_str!("data/reference.yaml"),
    include_str!("data/every-key.yaml"),
    "x-anything: {a: 1}\nproperties: []\n",
    "faults:\nsimulation:\nworkload:\nproperties:\nexploration:\noutput:\ndebug:\n",
    "simulation: {seeds: 1_000, max_time: 1h30m, start_timeout: .5s, latency_jitter: 0}\nproperties: []\n",
    "faults: {network: {drop_rate: 1e-3, partition_duration_ms: 5, partition_probability: 0}}\nproperties: []\n",
];

#[test]
fn samples_are_accepted_by_decoders_and_schema() {
    let judge = Judge::new();
    for sample in SAMPLES {
        let (accepted, errors) = judge.judge(sample);
        assert!(accepted, "{sample}");
        assert_eq!(errors, Vec::<String>::new(), "{sample}");
    }
}

#[test]
fn what_the_schema_can_know_it_refuses() {
    let judge = Judge::new();
    for text in [
        "simulation: {seed: 1}",
        "simulation: {seeds: 0}",
        "simulation: {max_time: 5}",
        "simulation: {max_time: soon}",
        "faults: {network: {drop_rate: 1.5}}",
        "faults: {network: {drop_rate: '0.1'}}",
        "faults: {network: {partition_kinds: [half]}}",
        "workload: {config: {operations: [{type: get}]}}",
        "workload: {config: {target: 'http://a', targets: ['http://a'], operations: [{type: get}]}}",
        "workload: {config: {target: 'lb:80', operations: [{type: get}]}}",
        "workload: {config: {target: 'http://a', operations: [{type: got}]}}",
        "properties: [{name: x, kind: safety, check: {type: linearisability}}]",
        "properties: [{name: x, kind: safety, check: {type: http}}]",
        "properties: [{name: x, check: {type: linearizability}}]",
        "output: {save_violation_traces: yes}",
    ] {
        let (accepted, errors) = judge.judge(text);
        assert!(!accepted, "the decoders accept {text}");
        assert!(!errors.is_empty(), "the schema accepts {text}");
    }
}

/// Each line of a file with every key, with each of many values in place of its own: what the decoders accept then must
/// be valid as well.
#[test]
fn accepted_variations_are_valid() {
    let judge = Judge::new();
    let values = [
        "",
        "~",
        "0",
        "1",
        "-1",
        "7.5",
        "0.25",
        "1e2",
        "0x10",
        "true",
        "no",
        "word",
        "''",
        "'5'",
        "5m",
        "1.5s",
        "10",
        "200",
        "2xx",
        "'200-299'",
        "timeout",
        "http://lb:80/x",
        "/x/{key}",
        "GET",
        "[]",
        "[1, 2]",
        "[a]",
        "[200, 404]",
        "{}",
        "{a: b}",
        "\"{seq}\"",
        "body",
        "[isolate]",
        "0.0",
        "'0'",
        "+5",
        "._5",
    ];
    let mut accepted = 0;
    let lines: Vec<&str> = include_str!("data/every-key.yaml").lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some(colon) = line.find(": ") else { continue };
        for value in values {
            let changed = format!("{} {value}", &line[..colon + 1]);
            let mut all = lines.clone();
            all[index] = &changed;
            let text = all.join("\n");
            let (config, _) = Config::decode(Source::new(Path::new("f.yaml"), &text), FileChecks::Lenient);
            if let Some(config) = config {
                accepted += 1;
                let node = tree::parse(&config.source).0.expect("it has been decoded");
                assert_eq!(judge.errors(&node), Vec::<String>::new(), "line {}: {changed}", index + 1);
            }
        }
    }
    assert!(accepted > 200, "only {accepted} variations were accepted");
}
