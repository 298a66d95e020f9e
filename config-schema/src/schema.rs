//! The JSON schema of bloodhound.yaml, for editors and other tools.
//!
//! Key function: [`schema`]. It is made from the declarations of the keys (`bloodhound_declare`); a test checks that what
//! the decoders accept is valid by it.

use std::collections::BTreeMap;

use bloodhound_declare::{Absent, Key, Section, Syntax, ValueKind, Variants, Word, Words};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use crate::config::BLOODHOUND;

static DURATION: Syntax = Syntax {
    name: "Duration",
    written: "duration",
    plural: "durations",
    doc: "a duration with its unit: 10ms, 1.5s, 30s, 5m, 1m30s",
    schema: r#"{"anyOf": [
        {"type": "string", "pattern": "^([0-9_]*\\.?[0-9]*(ns|us|µs|ms|s|m|h))+$|^[-+]?[0._]+$"},
        {"const": 0}
    ]}"#,
    uses: &[],
};

static RATE: Syntax = Syntax {
    name: "Rate",
    written: "rate",
    plural: "rates",
    doc: "a decimal from 0 to 1 with at most nine places",
    schema: r#"{"type": "number", "minimum": 0, "maximum": 1}"#,
    uses: &[],
};

static MILLIS: Syntax = Syntax {
    name: "Millis",
    written: "milliseconds",
    plural: "",
    doc: "milliseconds",
    schema: r#"{"type": "number", "minimum": 0}"#,
    uses: &[],
};

static MILLIS_RANGE: Syntax = Syntax {
    name: "MillisRange",
    written: "range of milliseconds",
    plural: "ranges of milliseconds",
    doc: "shortest and longest in milliseconds; one number stands for both",
    schema: r##"{"anyOf": [
        {"$ref": "#/$defs/Millis"},
        {"type": "array", "items": {"$ref": "#/$defs/Millis"}, "minItems": 2, "maxItems": 2}
    ]}"##,
    uses: &[&MILLIS],
};

static PPM: Syntax = Syntax {
    name: "Ppm",
    written: "parts per million",
    plural: "",
    doc: "parts per million, with at most three decimal places",
    schema: r#"{"type": "number", "minimum": 0, "maximum": 500000}"#,
    uses: &[],
};

static PPM_RANGE: Syntax = Syntax {
    name: "PpmRange",
    written: "range of parts per million",
    plural: "ranges of parts per million",
    doc: "smallest and largest in parts per million; one number stands for both",
    schema: r##"{"anyOf": [
        {"$ref": "#/$defs/Ppm"},
        {"type": "array", "items": {"$ref": "#/$defs/Ppm"}, "minItems": 2, "maxItems": 2}
    ]}"##,
    uses: &[&PPM],
};

/// A text, for which numbers and booleans are taken too.
pub(crate) static TEXT: Syntax = Syntax {
    name: "Text",
    written: "text",
    plural: "texts",
    doc: "a text; numbers and booleans are taken as written",
    schema: r#"{"type": ["string", "number", "boolean"]}"#,
    uses: &[],
};

/// The JSON schema (draft 2020-12) of bloodhound.yaml as text with a final line break. The file
/// `bloodhound.schema.json` of this crate has the same content.
pub fn schema() -> String {
    let mut definitions = Definitions::default();
    let mut top = definitions.section(&BLOODHOUND);
    top.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    top.insert("title".to_owned(), "bloodhound.yaml".into());
    top.insert("$defs".to_owned(), Value::Object(definitions.made.into_iter().collect()));
    let mut text = serde_json::to_string_pretty(&Ordered(&Value::Object(top))).expect("plain JSON");
    text.push('\n');
    text
}

/// The definitions that other parts of the schema refer to by name.
#[derive(Default)]
struct Definitions {
    made: BTreeMap<String, Value>,
}

impl Definitions {
    /// A reference to a definition, which is made when it is first referred to.
    fn refer(&mut self, name: &str, make: impl FnOnce(&mut Definitions) -> Value) -> Value {
        if !self.made.contains_key(name) {
            // Stands for the definition while it is made.
            self.made.insert(name.to_owned(), Value::Null);
            let definition = make(self);
            self.made.insert(name.to_owned(), definition);
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn section(&mut self, section: &Section) -> Map<String, Value> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for key in section.keys {
            properties.insert(key.name.to_owned(), self.key(key));
            if key.absent == Absent::Refused {
                required.push(Value::from(key.name));
            }
        }
        let mut doc = sentence(section.doc);
        if !section.one_of.is_empty() {
            let words: Vec<String> = section.one_of.iter().map(|key| format!("`{key}`")).collect();
            doc += &format!(" Either {} is needed.", words.join(" or "));
        }
        if section.keys.iter().all(|key| key.later) {
            doc += " Not available yet.";
        }
        let mut out = object(json!({
            "description": doc,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
            "patternProperties": {"^x-": true},
        }));
        if !section.one_of.is_empty() {
            let one_of: Vec<Value> = section.one_of.iter().map(|key| json!({"required": [key]})).collect();
            out.insert("oneOf".to_owned(), Value::Array(one_of));
        }
        out
    }

    fn key(&mut self, key: &Key) -> Value {
        let mut out = object(self.kind(&key.kind));
        if matches!(key.kind, ValueKind::Section(_)) && key.absent != Absent::Refused {
            // Nothing counts as an empty mapping.
            out = object(json!({"anyOf": [out, {"type": "null"}]}));
        }
        let mut doc = sentence(key.doc);
        match key.absent {
            Absent::Means(text) => {
                // What is no JSON is a string in YAML too.
                let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
                out.insert("default".to_owned(), value);
            }
            Absent::Described(words) => doc += &format!(" Default: {words}."),
            Absent::Refused | Absent::Nothing => {}
        }
        if key.later || matches!(key.kind, ValueKind::Section(s) if s.keys.iter().all(|key| key.later)) {
            doc += " Not available yet.";
        }
        if let ValueKind::Word(words) = key.kind
            && words.words.iter().any(|word| word.later)
        {
            doc += &format!(" Only {} is available yet.", available(words));
        }
        if !doc.is_empty() {
            out.insert("description".to_owned(), doc.trim_start().into());
        }
        Value::Object(out)
    }

    fn kind(&mut self, kind: &ValueKind) -> Value {
        match kind {
            ValueKind::Bool => json!({"type": "boolean"}),
            ValueKind::Text => json!({"type": "string"}),
            ValueKind::Name(_) | ValueKind::Path => json!({"type": "string", "minLength": 1}),
            ValueKind::Scalar => self.syntax(&TEXT),
            ValueKind::Integer { least, most } => {
                let mut out = json!({"type": "integer", "minimum": least});
                if *most != u64::MAX {
                    out["maximum"] = (*most).into();
                }
                out
            }
            ValueKind::Decimal { least, most } => {
                json!({"type": "number", "minimum": number(least), "maximum": number(most)})
            }
            ValueKind::Rate { most } => {
                let mut out = self.syntax(&RATE);
                if *most != "1" {
                    out["maximum"] = number(most);
                }
                out
            }
            ValueKind::Probability { .. } => self.syntax(&RATE),
            ValueKind::Duration(_) => self.syntax(&DURATION),
            ValueKind::Millis => self.syntax(&MILLIS),
            ValueKind::MillisRange => self.syntax(&MILLIS_RANGE),
            ValueKind::PpmRange => self.syntax(&PPM_RANGE),
            ValueKind::Word(words) => self.refer(words.name, |_| alternatives(words)),
            ValueKind::Tag(word) => json!({"type": "string", "const": word}),
            ValueKind::Section(section) => {
                self.refer(section.name, |all| Value::Object(all.section(section)))
            }
            ValueKind::Variants(variants) => self.refer(variants.name, |all| all.variants(variants)),
            ValueKind::List(of) => json!({"type": ["array", "null"], "items": self.kind(of)}),
            ValueKind::NonEmpty(of, _) => json!({"type": "array", "items": self.kind(of), "minItems": 1}),
            ValueKind::Own(syntax) => self.syntax(syntax),
        }
    }

    fn variants(&mut self, variants: &Variants) -> Value {
        let sections: Vec<Value> =
            variants.sections.iter().map(|section| self.kind(&ValueKind::Section(section))).collect();
        json!({"description": sentence(variants.doc), "anyOf": sections})
    }

    fn syntax(&mut self, syntax: &'static Syntax) -> Value {
        for other in syntax.uses {
            self.syntax(other);
        }
        let mut schema: Value = serde_json::from_str(syntax.schema).expect("the schema of a form is JSON");
        if !syntax.doc.is_empty() {
            schema["description"] = sentence(syntax.doc).into();
        }
        if syntax.name.is_empty() { schema } else { self.refer(syntax.name, |_| schema) }
    }
}

fn alternatives(words: &Words) -> Value {
    if words.words.iter().any(|word| word.doc.is_empty()) {
        return json!({"type": "string", "enum": words.texts()});
    }
    let one = |word: &Word| json!({"description": sentence(word.doc), "type": "string", "const": word.text});
    json!({"oneOf": words.words.iter().map(one).collect::<Vec<_>>()})
}

/// The words of a set that have an effect, as in "`a` and `b`".
pub(crate) fn available(words: &Words) -> String {
    let texts: Vec<&str> = words.words.iter().filter(|word| !word.later).map(|word| word.text).collect();
    crate::diagnostic::listed(&texts, "and")
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("no schema: {other}"),
    }
}

fn number(text: &str) -> Value {
    serde_json::from_str(&text.replace('_', "")).expect("a bound is a number")
}

/// A text of a declaration as a sentence.
fn sentence(doc: &str) -> String {
    let mut chars = doc.chars();
    match chars.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        None => String::new(),
    }
}

/// A schema whose keywords are written in the order in which people read them, names in alphabetical order, whatever
/// order the map has.
struct Ordered<'a>(&'a Value);

/// These keywords come first, the others after them.
const FIRST: &[&str] =
    &["$schema", "title", "description", "type", "$ref", "default", "properties", "items", "const", "enum"];

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(Ordered)),
            Value::Object(map) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort_by_key(|key| {
                    let place = FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len());
                    (*key == "$defs", place, key.as_str())
                });
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for key in keys {
                    match (key.as_str(), &map[key]) {
                        ("properties" | "patternProperties" | "$defs", Value::Object(names)) => {
                            out.serialize_entry(key, &Named(names))?;
                        }
                        (_, value) => out.serialize_entry(key, &Ordered(value))?,
                    }
                }
                out.end()
            }
            other => other.serialize(serializer),
        }
    }
}

/// Schemas by name.
struct Named<'a>(&'a Map<String, Value>);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sorted: BTreeMap<&String, &Value> = self.0.iter().collect();
        serializer.collect_map(sorted.into_iter().map(|(name, value)| (name, Ordered(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_file_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bloodhound.schema.json");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, schema()).expect("writable");
        }
        let file = std::fs::read_to_string(path).expect("the schema is checked in");
        assert!(file == schema(), "run the tests with BLESS=1 to write {path} anew");
    }
}
