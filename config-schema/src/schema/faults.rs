//! Schemas of the sections of `faults`, made from the declarations of the kinds.

use std::borrow::Cow;

use bloodhound_faults::{Kind, SHAPES, Section, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, json};

use super::units::{Millis, MillisRange, OneOrManyServices, Rate};

/// What happens to packets and connections.
pub(super) struct NetworkFaults;

/// What happens to nodes.
pub(super) struct ProcessFaults;

/// The shape of a partition.
struct PartitionKind;

impl JsonSchema for NetworkFaults {
    fn schema_name() -> Cow<'static, str> {
        "NetworkFaults".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        section("What happens to packets and connections.", kinds(Section::Network, generator))
    }
}

impl JsonSchema for ProcessFaults {
    fn schema_name() -> Cow<'static, str> {
        "ProcessFaults".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = kinds(Section::Process, generator);
        let mut oom = generator.subschema_for::<Rate>();
        oom.insert(
            "description".into(),
            "Per time step and node: memory runs out. Not available yet.".into(),
        );
        let mut services = generator.subschema_for::<OneOrManyServices>();
        services.insert("description".into(), "Which services may be hit. Default: all.".into());
        properties.insert("oom_probability".into(), oom.to_value());
        properties.insert("services".into(), services.to_value());
        section("What happens to nodes.", properties)
    }
}

impl JsonSchema for PartitionKind {
    fn schema_name() -> Cow<'static, str> {
        "PartitionKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = SHAPES
            .iter()
            .map(|(name, shape)| json!({ "description": shape.doc(), "type": "string", "const": name }));
        json_schema!({ "oneOf": one.collect::<Vec<_>>() })
    }
}

fn section(description: &str, properties: Map<String, serde_json::Value>) -> Schema {
    json_schema!({
        "description": description,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "patternProperties": { "^x-": true },
        "required": []
    })
}

/// The keys of all kinds of a section.
fn kinds(section: Section, generator: &mut SchemaGenerator) -> Map<String, serde_json::Value> {
    let mut properties = Map::new();
    for key in Kind::of_section(section).flat_map(|declaration| declaration.keys) {
        let (mut schema, default) = match key.value {
            Value::Rate => (generator.subschema_for::<Rate>(), Some(json!(0))),
            Value::Millis(default) => (generator.subschema_for::<Millis>(), Some(json!(default))),
            Value::MillisRange(low, high) => {
                (generator.subschema_for::<MillisRange>(), Some(json!([low, high])))
            }
            Value::Shapes => {
                let items = generator.subschema_for::<PartitionKind>();
                (json_schema!({ "type": "array", "items": items, "minItems": 1 }), None)
            }
        };
        schema.insert("description".into(), key.doc.into());
        if let Some(default) = default {
            schema.insert("default".into(), default);
        }
        properties.insert(key.name.into(), schema.to_value());
    }
    properties
}
