//! Schemas of single values: durations, rates, addresses, outcomes.
//!
//! These are written by hand, because their texts have patterns that no Rust type has.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

/// A value with units that has its own pattern.
macro_rules! scalar {
    ($name:ident, $schema:tt) => {
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

scalar!(Duration, {
    "description": "A duration with its unit: 10ms, 1.5s, 30s, 5m, 1m30s.",
    "anyOf": [
        { "type": "string", "pattern": "^([0-9_]*\\.?[0-9]*(ns|us|µs|ms|s|m|h))+$|^[-+]?[0._]+$" },
        { "const": 0 }
    ]
});
scalar!(Rate, {
    "description": "A decimal from 0 to 1 with at most nine places.",
    "type": "number", "minimum": 0, "maximum": 1
});
scalar!(Millis, { "description": "Milliseconds.", "type": "number", "minimum": 0 });
scalar!(MillisRange, {
    "description": "Shortest and longest in milliseconds; one number stands for both.",
    "anyOf": [
        { "type": "number", "minimum": 0 },
        { "type": "array", "items": { "type": "number", "minimum": 0 }, "minItems": 2, "maxItems": 2 }
    ]
});
scalar!(Address, {
    "description": "An HTTP address inside the simulated network, such as http://lb:80/health.",
    "type": "string", "pattern": "^http://"
});
scalar!(Text, {
    "description": "A text; numbers and booleans are taken as written.",
    "type": ["string", "number", "boolean"]
});
pub(super) struct Outcomes;

impl JsonSchema for Outcomes {
    fn schema_name() -> Cow<'static, str> {
        "Outcomes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Outcome>();
        json_schema!({
            "description": "Statuses (404), ranges (\"200-299\"), classes (2xx), timeout, reset and refused.",
            "anyOf": [one, { "type": "array", "items": one }]
        })
    }
}

scalar!(Outcome, {
    "description": "How a request ends: a status, a range, a class, timeout, reset or refused.",
    "anyOf": [
        { "type": "integer", "minimum": 100, "maximum": 599 },
        {
            "type": "string",
            "pattern": "^(timeout|reset|refused|[1-5]xx|\\+?0*[1-5][0-9]{2}(-\\+?0*[1-5][0-9]{2})?)$"
        }
    ]
});
scalar!(OneOrManyServices, {
    "description": "Names of services.",
    "type": "array", "items": { "type": "string", "minLength": 1 }, "minItems": 1
});
