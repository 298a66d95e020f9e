//! What the end of a request means for the history.
//!
//! A rule that is given takes precedence. A category without any given rule has these:
//!
//! | category | put | get | delete | cas |
//! |---|---|---|---|---|
//! | ok | 2xx | 2xx | 2xx | 2xx |
//! | not found | | 404: read nothing | 404: there was nothing | |
//! | mismatch | | | | 409, 412: another value was there |
//! | fail | 3xx, other 4xx but 408, no connection | the rest | as put | as put |
//! | unknown | the rest: 5xx, 408, timeout, reset | | as put | as put |
//!
//! A read that failed had no effect, so it never needs to stay open. Redirections are not followed.

use bloodhound_abi::SimTime;

use super::config::Kind;
use super::exchange::End;
use crate::history::{Outcome, Value};

/// Ends of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// A response with a status from `first` to `last`, both included.
    Status {
        /// Smallest status.
        first: u16,
        /// Largest status.
        last: u16,
    },
    /// No response in time.
    Timeout,
    /// The connection ended before a response was complete.
    Reset,
    /// No connection could be made.
    Refused,
}

impl Match {
    fn meets(self, end: &End) -> bool {
        match (self, end) {
            (Match::Status { first, last }, End::Response(response)) => {
                (first..=last).contains(&response.status)
            }
            (Match::Timeout, End::Timeout)
            | (Match::Reset, End::Reset(_))
            | (Match::Refused, End::Refused(_)) => true,
            _ => false,
        }
    }
}

/// Where the value that was read stands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ValueSource {
    /// The whole body is the value.
    #[default]
    Body,
    /// At a JSON pointer (RFC 6901) in the body. A string is its characters, `null` is no value, anything else its
    /// JSON text.
    JsonPointer(String),
}

/// What responses mean; an empty category has the default of the operation's kind.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rules {
    /// The operation took effect.
    pub ok: Vec<Match>,
    /// The operation certainly did not take effect.
    pub fail: Vec<Match>,
    /// The operation may have taken effect, or may do so later.
    pub unknown: Vec<Match>,
    /// The operation took effect and found nothing at the key.
    pub not_found: Vec<Match>,
    /// The operation did not take effect because another value than the expected one was there (cas).
    pub mismatch: Vec<Match>,
    /// Where the value that was read stands.
    pub value: ValueSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    Ok,
    NotFound,
    Mismatch,
    Fail,
    Unknown,
}

const fn status(first: u16, last: u16) -> Match {
    Match::Status { first, last }
}

fn default_category(kind: Kind, end: &End, rules: &Rules) -> Category {
    let is = |matches: &[Match]| matches.iter().any(|m| m.meets(end));
    let not_found = matches!(kind, Kind::Get | Kind::Delete) && rules.not_found.is_empty();
    let mismatch = kind == Kind::Cas && rules.mismatch.is_empty();
    if rules.ok.is_empty() && is(&[status(200, 299)]) {
        Category::Ok
    } else if not_found && is(&[status(404, 404)]) {
        Category::NotFound
    } else if mismatch && is(&[status(409, 409), status(412, 412)]) {
        Category::Mismatch
    } else if kind == Kind::Get
        || rules.fail.is_empty() && is(&[status(300, 407), status(409, 499), Match::Refused])
    {
        Category::Fail
    } else {
        Category::Unknown
    }
}

impl Rules {
    /// The outcome of an operation that ended with `end`, and a text for people where it is not ok.
    pub fn outcome(&self, kind: Kind, end: &End) -> (Outcome, Option<String>) {
        let given = [
            (Category::NotFound, &self.not_found),
            (Category::Mismatch, &self.mismatch),
            (Category::Ok, &self.ok),
            (Category::Fail, &self.fail),
            (Category::Unknown, &self.unknown),
        ];
        let given = given.into_iter().find(|(_, matches)| matches.iter().any(|m| m.meets(end)));
        let category = given.map_or_else(|| default_category(kind, end, self), |(category, _)| category);
        let why = || Some(describe(end));
        match (category, kind) {
            (Category::NotFound, Kind::Delete) => (Outcome::Ok(Value::Bool(false)), None),
            (Category::NotFound, Kind::Cas) => (Outcome::Mismatch, None),
            (Category::NotFound, _) => (Outcome::Ok(Value::Nil), None),
            (Category::Ok, Kind::Get) => match self.read_value(end) {
                Ok(value) => (Outcome::Ok(value), None),
                Err(why) => (Outcome::Fail, Some(why)),
            },
            (Category::Ok, _) => (Outcome::Ok(Value::Nil), None),
            (Category::Mismatch, Kind::Cas) => (Outcome::Mismatch, None),
            (Category::Mismatch | Category::Fail, _) => (Outcome::Fail, why()),
            (Category::Unknown, _) => (Outcome::Unknown, why()),
        }
    }

    fn read_value(&self, end: &End) -> Result<Value, String> {
        let End::Response(response) = end else { return Err("a read without a response".to_owned()) };
        let text = String::from_utf8_lossy(&response.body).into_owned();
        let ValueSource::JsonPointer(pointer) = &self.value else { return Ok(Value::Text(text)) };
        let json: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| format!("the body is no JSON: {e}"))?;
        match json.pointer(pointer) {
            Some(serde_json::Value::String(text)) => Ok(Value::Text(text.clone())),
            Some(serde_json::Value::Null) => Ok(Value::Nil),
            Some(other) => Ok(Value::Text(other.to_string())),
            None => Err(format!("the body has nothing at {pointer:?}")),
        }
    }
}

fn describe(end: &End) -> String {
    match end {
        End::Response(response) => format!("status {}", response.status),
        End::Timeout => "timeout".to_owned(),
        End::Reset(why) => format!("reset: {why}"),
        End::Refused(why) => format!("refused: {why}"),
    }
}

/// The earlier of two times, of which either may be missing.
pub(super) fn earlier(a: Option<SimTime>, b: Option<SimTime>) -> Option<SimTime> {
    [a, b].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::super::response::Response;
    use super::*;

    fn answer(status: u16, body: &str) -> End {
        End::Response(Response { status, body: body.as_bytes().to_vec(), keep_alive: true })
    }

    fn outcome(rules: &Rules, kind: Kind, end: End) -> Outcome {
        rules.outcome(kind, &end).0
    }

    #[test]
    fn defaults_follow_the_table() {
        let rules = Rules::default();
        let ends = || {
            [
                answer(200, "v"),
                answer(302, ""),
                answer(404, ""),
                answer(408, ""),
                answer(409, ""),
                answer(503, ""),
                End::Timeout,
                End::Reset(String::new()),
                End::Refused(String::new()),
            ]
        };
        let row = |kind| ends().map(|end| outcome(&rules, kind, end));
        let (ok, fail, unknown) = (Outcome::Ok(Value::Nil), Outcome::Fail, Outcome::Unknown);
        let read = Outcome::Ok(Value::Text("v".to_owned()));
        let f = || fail.clone();
        let u = || unknown.clone();
        assert_eq!(row(Kind::Put), [ok.clone(), f(), f(), u(), f(), u(), u(), u(), f()]);
        assert_eq!(row(Kind::Get), [read, f(), ok.clone(), f(), f(), f(), f(), f(), f()]);
        let nothing = Outcome::Ok(Value::Bool(false));
        assert_eq!(row(Kind::Delete), [ok.clone(), f(), nothing, u(), f(), u(), u(), u(), f()]);
        assert_eq!(row(Kind::Cas), [ok, f(), f(), u(), Outcome::Mismatch, u(), u(), u(), f()]);
    }

    #[test]
    fn given_rules_replace_their_category_only() {
        let rules = Rules { ok: vec![status(201, 201)], fail: vec![status(503, 503)], ..Rules::default() };
        assert_eq!(outcome(&rules, Kind::Put, answer(201, "")), Outcome::Ok(Value::Nil));
        // No longer among the ok ones, nor said to fail.
        assert_eq!(outcome(&rules, Kind::Put, answer(200, "")), Outcome::Unknown);
        assert_eq!(outcome(&rules, Kind::Put, answer(503, "")), Outcome::Fail);
        assert_eq!(outcome(&rules, Kind::Put, answer(400, "")), Outcome::Unknown);
        let refused = Rules { unknown: vec![Match::Refused], ..Rules::default() };
        assert_eq!(outcome(&refused, Kind::Put, End::Refused(String::new())), Outcome::Unknown);
    }

    #[test]
    fn values_come_from_the_body_or_from_a_place_in_it() {
        let rules = Rules { value: ValueSource::JsonPointer("/data/v".to_owned()), ..Rules::default() };
        let read = |body| outcome(&rules, Kind::Get, answer(200, body));
        assert_eq!(read(r#"{"data":{"v":"x"}}"#), Outcome::Ok(Value::Text("x".to_owned())));
        assert_eq!(read(r#"{"data":{"v":5}}"#), Outcome::Ok(Value::Text("5".to_owned())));
        assert_eq!(read(r#"{"data":{"v":null}}"#), Outcome::Ok(Value::Nil));
        assert_eq!(read(r#"{"data":{}}"#), Outcome::Fail);
        assert_eq!(read("oops"), Outcome::Fail);
    }
}
