//! The sequential objects with which histories are compared.
//!
//! All of them hold one value, and every operation on them is a *guarded assignment*: it demands something of the
//! value ([`Guard`]) and then keeps or replaces it ([`Effect`]). [`Model::lower`] brings the operations of one object
//! into that form, with values replaced by small numbers; the search knows nothing else.
//!
//! | operation, outcome | guard | effect |
//! |---|---|---|
//! | read, ok v | is v | keep |
//! | write v, ok | any | set v |
//! | cas a b, ok | is a | set b |
//! | cas a b, mismatch | not a | keep |
//! | delete, ok nil / true / false | any / not nil / is nil | set nil / set nil / keep |
//! | anything, fail | left out: it took no effect and says nothing | |
//! | read, unknown | left out: nobody saw what it found | |
//! | write, cas, delete, unknown | as ok, but it may be left out | |

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::history::{Call, Operation, Outcome, Value};

/// A sequential object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// Read and write.
    Register,
    /// Read, write and cas; initially nil.
    CasRegister,
    /// A map from keys to values with read (get), write (put), delete and cas; every operation names its key.
    /// Keys are independent objects, therefore each is checked alone (Herlihy and Wing: linearizability is local).
    Kv,
}

impl Model {
    /// All models with the names by which a user chooses them.
    pub const NAMES: [(&'static str, Model); 3] =
        [("register", Model::Register), ("cas-register", Model::CasRegister), ("kv", Model::Kv)];

    fn allows(self, call: &Call) -> bool {
        match call {
            Call::Read | Call::Write(_) => true,
            Call::Cas { .. } => self != Model::Register,
            Call::Delete => self == Model::Kv,
            Call::Other(_) => false,
        }
    }

    /// Whether the model knows this operation.
    pub(crate) fn admit(self, operation: &Operation) -> Result<(), ModelError> {
        let error =
            |problem| Err(ModelError { model: self, operation: Box::new(operation.clone()), problem });
        if !self.allows(&operation.call) {
            return error(Problem::Function);
        }
        if self == Model::Kv && operation.key.is_none() {
            return error(Problem::NoKey);
        }
        Ok(())
    }

    /// The guarded assignment of an operation, and whether it certainly took effect. `None` where it constrains
    /// nothing; see the table in the module's text.
    pub(crate) fn lower(operation: &Operation, values: &mut Values) -> Option<(Transition, bool)> {
        let (guard, effect) = match (&operation.call, &operation.outcome) {
            (_, Outcome::Fail) => return None,
            (Call::Cas { expected, .. }, Outcome::Mismatch) => {
                (Guard::Not(values.number(expected)), Effect::Keep)
            }
            (_, Outcome::Mismatch) => return None,
            (Call::Read, Outcome::Ok(found)) => (Guard::Is(values.number(found)), Effect::Keep),
            (Call::Read, Outcome::Unknown) | (Call::Other(_), _) => return None,
            (Call::Write(value), _) => (Guard::Any, Effect::Set(values.number(value))),
            (Call::Cas { expected, new }, _) => {
                (Guard::Is(values.number(expected)), Effect::Set(values.number(new)))
            }
            (Call::Delete, Outcome::Ok(Value::Bool(true))) => (Guard::Not(NIL), Effect::Set(NIL)),
            (Call::Delete, Outcome::Ok(Value::Bool(false))) => (Guard::Is(NIL), Effect::Keep),
            (Call::Delete, _) => (Guard::Any, Effect::Set(NIL)),
        };
        // Setting what the guard has just found keeps it.
        let effect = match (guard, effect) {
            (Guard::Is(a), Effect::Set(b)) if a == b => Effect::Keep,
            (_, effect) => effect,
        };
        Some((Transition { guard, effect }, operation.outcome != Outcome::Unknown))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Model::NAMES.iter().find(|(_, model)| model == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Model::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, model)| *model)
            .ok_or_else(|| format!("unknown model {text:?}; known are register, cas-register and kv"))
    }
}

/// An operation that the chosen model does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// The chosen model.
    pub model: Model,
    /// The operation.
    pub operation: Box<Operation>,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Function,
    NoKey,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, process) = (self.operation.call.name(), self.operation.process);
        match self.problem {
            Problem::Function => {
                let allowed = match self.model {
                    Model::Register => "read and write",
                    Model::CasRegister => "read, write and cas",
                    Model::Kv => "read (get), write (put), cas and delete",
                };
                write!(
                    f,
                    "process {process} invokes {name:?}, which the model {} does not have: it has {allowed}",
                    self.model
                )
            }
            Problem::NoKey => write!(
                f,
                "process {process} invokes {name:?} without a key, which the model kv needs: \"key\", or a value [key value]"
            ),
        }
    }
}

impl std::error::Error for ModelError {}

/// The number of [`Value::Nil`], the initial value of every object.
pub(crate) const NIL: u32 = 0;

/// Demand on the value before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guard {
    Any,
    Is(u32),
    Not(u32),
}

impl Guard {
    pub(crate) fn admits(self, state: u32) -> bool {
        match self {
            Guard::Any => true,
            Guard::Is(value) => state == value,
            Guard::Not(value) => state != value,
        }
    }
}

/// The value after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    Keep,
    Set(u32),
}

/// A guarded assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Transition {
    pub(crate) guard: Guard,
    pub(crate) effect: Effect,
}

/// Numbers for the values of one object, in the order of their appearance; nil is [`NIL`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    numbers: BTreeMap<Value, u32>,
}

impl Values {
    fn number(&mut self, value: &Value) -> u32 {
        if *value == Value::Nil {
            return NIL;
        }
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(value.clone(), number);
        number
    }
}
