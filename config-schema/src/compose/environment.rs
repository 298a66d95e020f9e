//! Variables of a service: `environment`, `env_file`, and other lists of `NAME=value`.
//!
//! Key functions: [`environment`], [`pairs`].

use std::path::PathBuf;

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::tree::{Entry, Node, Source, Span, Value};

use super::dotenv;
use super::interpolate::Variables;
use super::keys::{self, Fields};
use super::load::Scopes;
use super::service::Inputs;

/// The entries of a mapping that could have been a list as well.
pub(super) fn list_or_mapping<'n>(ctx: &mut Ctx, node: &'n Node, path: &str) -> Option<&'n [Entry]> {
    match &node.value {
        Value::Map(entries) => Some(entries),
        _ => {
            ctx.wrong_type(node, path, "a list or a mapping");
            None
        }
    }
}

/// The variables of `env_file`, with those of `environment` over them.
pub(super) fn environment(
    ctx: &mut Ctx,
    fields: &Fields<'_>,
    scopes: &Scopes,
    inputs: &mut Inputs,
) -> Vec<(String, String)> {
    let mut out = Variables::new();
    let path = fields.path("env_file");
    if let Some(node) = fields.node("env_file") {
        let items = match &node.value {
            Value::Seq(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        for item in items {
            env_file(ctx, item, &path, scopes, &mut out, inputs);
        }
    }
    fields.get(ctx, "environment", |c, node, path| {
        each(c, node, path, |c, span, name, value| variable(c, span, name, value, scopes, &mut out))
    });
    out.into_iter().collect()
}

/// Every `NAME=value` of a list and every entry of a mapping; one without a value is told as such.
fn each(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    mut tell: impl FnMut(&mut Ctx, Span, &str, Option<String>),
) -> Option<()> {
    if let Value::Seq(items) = &node.value {
        for item in items {
            let Some(text) = ctx.text(item, path) else { continue };
            match text.split_once('=') {
                Some((name, value)) => tell(ctx, item.span, name, Some(value.to_owned())),
                None => tell(ctx, item.span, &text, None),
            }
        }
        return Some(());
    }
    for entry in list_or_mapping(ctx, node, path)? {
        let value = match entry.value.is_null() {
            true => None,
            false => match ctx.text(&entry.value, &format!("{path}.{}", entry.key)) {
                Some(value) => Some(value),
                None => continue,
            },
        };
        tell(ctx, entry.key_span, &entry.key, value);
    }
    Some(())
}

/// Labels, kernel parameters and the like, sorted by name; one without a value has an empty one.
pub(super) fn pairs(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<(String, String)>> {
    let mut out = Variables::new();
    each(ctx, node, path, |_, _, name, value| drop(out.insert(name.to_owned(), value.unwrap_or_default())))?;
    Some(out.into_iter().collect())
}

/// Arguments of a build: one without a value is taken from the environment, and left out if that has none.
pub(super) fn arguments(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    scopes: &Scopes,
) -> Option<Vec<(String, String)>> {
    let mut out = Variables::new();
    each(ctx, node, path, |_, span, name, value| {
        if let Some(value) = value.or_else(|| scopes.at(span).get(name).cloned()) {
            out.insert(name.to_owned(), value);
        }
    })?;
    Some(out.into_iter().collect())
}

/// A variable without a value is taken from the environment that the caller has given, if it is there.
fn variable(
    ctx: &mut Ctx,
    span: Span,
    name: &str,
    value: Option<String>,
    scopes: &Scopes,
    out: &mut Variables,
) {
    if name.trim().is_empty() || name.contains(['=', '\0']) {
        ctx.error(Code::Malformed, span, format!("{} is not a variable's name", quoted(name)));
        return;
    }
    match value.or_else(|| scopes.at(span).get(name).cloned()) {
        Some(value) => {
            out.insert(name.to_owned(), value);
        }
        None => {
            ctx.warn(Code::UnsetVariable, span, format!("the variable {} is not set", quoted(name)))
                .label("left out");
            out.remove(name);
        }
    }
}

fn env_file(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    scopes: &Scopes,
    out: &mut Variables,
    inputs: &mut Inputs,
) -> Option<()> {
    let mut required = true;
    let mut raw = false;
    let file = match &node.value {
        Value::Map(_) => {
            let fields = keys::open(ctx, node, path, "services.*.env_file[]")?;
            required = fields.get(ctx, "required", Ctx::bool).unwrap_or(true);
            raw = fields.get(ctx, "format", |c, n, p| c.choice(n, p, &[("raw", ())])).is_some();
            fields.require(ctx, "path", Ctx::name)?
        }
        _ => ctx.name(node, path)?,
    };
    let file: PathBuf = ctx.path(node.span, &file);
    if !file.exists() {
        if required {
            let message = format!("the file {} does not exist", file.display());
            ctx.error(Code::MissingFile, node.span, message)
                .help("paths are relative to the directory of this file");
        }
        return None;
    }
    let source = match Source::read(&file) {
        Ok(source) => source,
        Err(diagnostic) => {
            ctx.error(diagnostic.code, node.span, diagnostic.message);
            return None;
        }
    };
    let variables = scopes.at(node.span);
    let parsed = if raw { dotenv::raw(&source) } else { dotenv::parse(&source, variables) };
    ctx.diagnostics.extend(parsed.diagnostics);
    for (name, value) in parsed.variables {
        // What the file itself says may be a secret; what it takes from the environment is named elsewhere.
        if let Some(value) = &value {
            inputs.values.push((name.clone(), value.clone()));
        }
        if let Some(value) = value.or_else(|| variables.get(&name).cloned()) {
            out.insert(name, value);
        }
    }
    if !inputs.files.contains(&file) {
        inputs.files.push(file);
    }
    Some(())
}
