//! Data as it stands in a history file: [`Form`] for any of it, [`Value`] for what an object can hold.

use std::fmt;

/// What a register or a key can hold. Compared by equality only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Value {
    /// Nothing: the initial value, and that of a deleted key.
    #[default]
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A text.
    Text(String),
    /// Anything else (a list, a keyword, a decimal number), by its canonical text.
    Raw(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(i) => write!(f, "{i}"),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Raw(text) => f.write_str(text),
        }
    }
}

/// A datum of EDN or JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Nil,
    Bool(bool),
    Int(i64),
    Text(String),
    /// A keyword with its colon, or the name of a function or type in JSON.
    Keyword(String),
    /// A symbol, a number that is no 64-bit integer, a tagged or a set form: canonical text.
    Other(String),
    List(Vec<Form>),
    Map(Vec<(Form, Form)>),
}

impl Form {
    /// This datum as the content of an object.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Form::Nil => Value::Nil,
            Form::Bool(b) => Value::Bool(*b),
            Form::Int(i) => Value::Int(*i),
            Form::Text(text) => Value::Text(text.clone()),
            other => Value::Raw(other.to_string()),
        }
    }

    /// This datum as the name of an object: a text without its quotes.
    pub(super) fn to_key(&self) -> String {
        match self {
            Form::Text(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// A keyword without its colon, or a text: how names are written in EDN and in JSON.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Form::Keyword(name) => Some(name.strip_prefix(':').unwrap_or(name)),
            Form::Text(name) => Some(name),
            _ => None,
        }
    }

    /// The two elements of a list of two.
    pub(super) fn pair(&self) -> Option<(&Form, &Form)> {
        match self {
            Form::List(items) => match items.as_slice() {
                [a, b] => Some((a, b)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Nil => f.write_str("nil"),
            Form::Bool(b) => write!(f, "{b}"),
            Form::Int(i) => write!(f, "{i}"),
            Form::Text(text) => write!(f, "{text:?}"),
            Form::Keyword(text) | Form::Other(text) => f.write_str(text),
            Form::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { " " } else { "" })?;
                }
                f.write_str("]")
            }
            Form::Map(pairs) => {
                f.write_str("{")?;
                for (i, (key, value)) in pairs.iter().enumerate() {
                    write!(f, "{}{key} {value}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}
