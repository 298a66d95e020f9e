//! `$NAME` and `${NAME...}` in the values of a compose file.
//!
//! Substitution works on the tree, after parsing, so that every value keeps its place and a variable can never
//! change the structure of the file. Source: the compose specification, "Interpolation".
//! Key functions: [`substitute`] for one text, [`tree`] for a whole file. Keys are not substituted.

use std::collections::BTreeMap;

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::tree::{Node, Scalar, ScalarKind, Span, Value};

/// Deepest nesting of defaults: `${A:-${B:-...}}`.
const MAX_DEPTH: u32 = 16;
/// Longest text that substitution may make of one value, in bytes.
const MAX_BYTES: usize = 1 << 16;

/// Variables by name.
pub type Variables = BTreeMap<String, String>;

/// A text after substitution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Substituted {
    pub(crate) text: String,
    /// Variables without a value and without a default; they became empty.
    pub(crate) unset: Vec<String>,
    /// Whether there was anything to substitute.
    pub(crate) changed: bool,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// The expression as written.
    pub(crate) expression: String,
}

/// Substitutes every variable of a text.
pub(crate) fn substitute(text: &str, variables: &Variables) -> Result<Substituted, Mistake> {
    let mut out = Substituted { text: String::new(), unset: Vec::new(), changed: false };
    expand(text, variables, 0, &mut out)?;
    Ok(out)
}

fn expand(text: &str, variables: &Variables, depth: u32, out: &mut Substituted) -> Result<(), Mistake> {
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.text.push_str(&rest[..dollar]);
        out.changed = true;
        let from = &rest[dollar..];
        let after = &from[1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.text.push('$');
            rest = tail;
        } else if let Some(inner) = after.strip_prefix('{') {
            let end = closing(inner).ok_or_else(|| malformed(from, "the brace of `${` is never closed"))?;
            braced(&inner[..end], &from[..end + 3], variables, depth, out)?;
            rest = &inner[end + 1..];
        } else {
            let name = name_of(after);
            if name.is_empty() {
                let length = 1 + after.chars().next().map_or(0, char::len_utf8);
                return Err(malformed(&from[..length], "a `$` must be followed by a variable's name"));
            }
            plain(name, variables, out);
            rest = &after[name.len()..];
        }
        if out.text.len() > MAX_BYTES {
            return Err(malformed(from, "the value becomes too long"));
        }
    }
    out.text.push_str(rest);
    Ok(())
}

fn malformed(expression: &str, message: &str) -> Mistake {
    Mistake { code: Code::BadInterpolation, message: message.to_owned(), expression: expression.to_owned() }
}

fn name_of(text: &str) -> &str {
    let end = text
        .char_indices()
        .find(|(i, c)| !(c.is_ascii_alphabetic() || *c == '_' || (*i > 0 && c.is_ascii_digit())))
        .map_or(text.len(), |(i, _)| i);
    &text[..end]
}

fn plain(name: &str, variables: &Variables, out: &mut Substituted) {
    match variables.get(name) {
        Some(value) => out.text.push_str(value),
        None => out.unset.push(name.to_owned()),
    }
}

/// The offset of the `}` that closes an expression; nested `${...}` are skipped.
fn closing(inner: &str) -> Option<usize> {
    let mut depth = 0;
    let mut previous = ' ';
    for (index, c) in inner.char_indices() {
        match c {
            '{' if previous == '$' => depth += 1,
            '}' if depth == 0 => return Some(index),
            '}' => depth -= 1,
            _ => {}
        }
        previous = c;
    }
    None
}

/// One `${...}`: `inner` is what stands between the braces, `expression` the whole.
fn braced(
    inner: &str,
    expression: &str,
    variables: &Variables,
    depth: u32,
    out: &mut Substituted,
) -> Result<(), Mistake> {
    if depth >= MAX_DEPTH {
        return Err(malformed(expression, "variables are nested too deeply"));
    }
    let name = name_of(inner);
    if name.is_empty() {
        return Err(malformed(expression, "`${` must be followed by a variable's name"));
    }
    let tail = &inner[name.len()..];
    if tail.is_empty() {
        plain(name, variables, out);
        return Ok(());
    }
    let (empty_counts_as_unset, operator) = match tail.strip_prefix(':') {
        Some(operator) => (true, operator),
        None => (false, tail),
    };
    let value = variables.get(name).filter(|value| !empty_counts_as_unset || !value.is_empty());
    let argument = operator.get(1..).unwrap_or("");
    match (operator.as_bytes().first(), value) {
        (Some(b'-' | b'?'), Some(value)) => out.text.push_str(value),
        (Some(b'-'), None) | (Some(b'+'), Some(_)) => expand(argument, variables, depth + 1, out)?,
        (Some(b'+'), None) => {}
        (Some(b'?'), None) => {
            let mut reason = Substituted { text: String::new(), unset: Vec::new(), changed: false };
            expand(argument, variables, depth + 1, &mut reason)?;
            let mut message = format!("the variable `{name}` is required");
            if !reason.text.trim().is_empty() {
                message += &format!(": {}", reason.text.trim());
            }
            return Err(Mistake { code: Code::RequiredVariable, message, expression: expression.to_owned() });
        }
        _ => {
            return Err(malformed(
                expression,
                "after the name only `:-`, `-`, `:?`, `?`, `:+` and `+` are known",
            ));
        }
    }
    Ok(())
}

/// Substitutes the variables in all values of a tree; mistakes are reported at their places.
pub(crate) fn tree(ctx: &mut Ctx, node: &mut Node, variables: &Variables) {
    let span = node.span;
    match &mut node.value {
        Value::Seq(items) => items.iter_mut().for_each(|item| tree(ctx, item, variables)),
        Value::Map(entries) => {
            entries.iter_mut().for_each(|entry| tree(ctx, &mut entry.value, variables));
        }
        Value::Scalar(scalar) => one(ctx, scalar, span, variables),
    }
}

fn one(ctx: &mut Ctx, scalar: &mut Scalar, span: Span, variables: &Variables) {
    if scalar.kind != ScalarKind::String || !scalar.text.contains('$') {
        return;
    }
    match substitute(&scalar.text, variables) {
        Ok(substituted) => {
            for name in &substituted.unset {
                let place = find(ctx, span, name);
                ctx.warn(Code::UnsetVariable, place, format!("the variable `{name}` is not set"))
                    .label("becomes an empty text")
                    .help(format!("set it in the environment or in .env, or write ${{{name}:-default}}"));
            }
            if substituted.changed {
                scalar.text = substituted.text;
                scalar.kind = ScalarKind::Untyped;
            }
        }
        Err(mistake) => {
            let place = find(ctx, span, &mistake.expression);
            let required = mistake.code == Code::RequiredVariable;
            let message = match required {
                true => mistake.message,
                false => format!("cannot understand {}: {}", quoted(&mistake.expression), mistake.message),
            };
            let diagnostic = ctx.error(mistake.code, place, message);
            if !required {
                diagnostic.help("write `$$` for a dollar sign");
            }
        }
    }
}

/// Where an expression stands inside a value, as far as it is written there as such.
fn find(ctx: &Ctx, span: Span, expression: &str) -> Span {
    match ctx.file(span.start).written(span).find(expression) {
        Some(offset) => Span { start: span.start + offset, end: span.start + offset + expression.len() },
        None => span,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        [("A", "1"), ("EMPTY", ""), ("B_2", "two")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    #[test]
    fn every_form_is_substituted() {
        for (text, expected) in [
            ("plain", "plain"),
            ("$A-${A}", "1-1"),
            ("$B_2.", "two."),
            ("$$A $${A}", "$A ${A}"),
            ("${A:-d} ${EMPTY:-d} ${EMPTY-d} ${NONE-d} ${NONE:-d}", "1 d  d d"),
            ("${A:+a} ${EMPTY:+a} ${EMPTY+a} ${NONE+a}", "a  a "),
            ("${A:?x} ${EMPTY?x}", "1 "),
            ("${NONE:-${EMPTY:-${A}}}", "1"),
            ("${NONE:-a:b-c}", "a:b-c"),
            ("é$A", "é1"),
        ] {
            assert_eq!(substitute(text, &variables()).map(|s| s.text), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn unset_variables_are_named() {
        let s = substitute("$NONE/${ALSO}/${A}/${EMPTY}", &variables()).unwrap();
        assert_eq!(s.text, "//1/");
        assert_eq!(s.unset, ["NONE", "ALSO"]);
    }

    #[test]
    fn mistakes_are_found() {
        for text in ["$", "$5", "${", "${A", "${}", "${5}", "${A!x}", "${A:=x}", "$-", "a $é"] {
            let mistake = substitute(text, &variables()).expect_err(text);
            assert_eq!(mistake.code, Code::BadInterpolation, "{text}");
        }
        let mistake = substitute("x ${NONE:?set $A first} y", &variables()).unwrap_err();
        assert_eq!(mistake.code, Code::RequiredVariable);
        assert_eq!(mistake.message, "the variable `NONE` is required: set 1 first");
        assert_eq!(mistake.expression, "${NONE:?set $A first}");
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = "${X:-".repeat(1000) + &"}".repeat(1000);
        assert!(substitute(&deep, &variables()).is_err());
    }
}
