//! How a compose file is laid over another one: override files, `extends`, and several files of one project.
//!
//! Key function: [`over`]. Mappings are merged key by key, lists are appended, single values replaced; what differs from that is in
//! [`RULES`]. The tags `!reset` and `!override` are told by what stands before a value in its file: the tree has no tags. Source: the
//! compose specification, "Merge Compose files".

use crate::decode::Ctx;
use crate::diagnostic::Code;
use crate::tree::{Entry, Node, Scalar, ScalarKind, Span, Value};

/// How the values of a key are laid over each other.
#[derive(Clone, Copy)]
enum Rule {
    /// The later one takes the place of the earlier one.
    Replace,
    /// `NAME=value` in a list, or a mapping: by name.
    Pairs,
    /// A list of names, or a mapping of names to settings: by name.
    Names,
    /// One text or a list of texts, without repetitions.
    Texts,
    /// A list of addresses of hosts, or a mapping.
    Hosts,
    /// One text that stands for a mapping with this key.
    Short(&'static str),
    /// Items of a list that have a key of their own: a later item with the key of an earlier one takes its place.
    Keyed(fn(&Node) -> String),
    /// A mapping that is replaced if the other one has another `driver`.
    Driver,
    /// A single number or a mapping.
    Limit,
}

/// What differs from the general rule, by the path of the key; `*` stands for any name.
const RULES: &[(&str, Rule)] = &[
    ("services.*.annotations", Rule::Pairs),
    ("services.*.build", Rule::Short("context")),
    ("services.*.build.additional_contexts", Rule::Pairs),
    ("services.*.build.args", Rule::Pairs),
    ("services.*.build.extra_hosts", Rule::Hosts),
    ("services.*.build.labels", Rule::Pairs),
    ("services.*.build.secrets", Rule::Keyed(mount_target)),
    ("services.*.build.tags", Rule::Texts),
    ("services.*.build.ulimits.*", Rule::Limit),
    ("services.*.cap_add", Rule::Texts),
    ("services.*.cap_drop", Rule::Texts),
    ("services.*.command", Rule::Replace),
    ("services.*.configs", Rule::Keyed(mount_target)),
    ("services.*.depends_on", Rule::Names),
    ("services.*.deploy.labels", Rule::Pairs),
    ("services.*.devices", Rule::Texts),
    ("services.*.dns", Rule::Texts),
    ("services.*.dns_opt", Rule::Texts),
    ("services.*.dns_search", Rule::Texts),
    ("services.*.entrypoint", Rule::Replace),
    ("services.*.env_file", Rule::Texts),
    ("services.*.environment", Rule::Pairs),
    ("services.*.expose", Rule::Texts),
    ("services.*.extra_hosts", Rule::Hosts),
    ("services.*.group_add", Rule::Texts),
    ("services.*.healthcheck.test", Rule::Replace),
    ("services.*.label_file", Rule::Texts),
    ("services.*.labels", Rule::Pairs),
    ("services.*.links", Rule::Texts),
    ("services.*.logging", Rule::Driver),
    ("services.*.networks", Rule::Names),
    ("services.*.networks.*.aliases", Rule::Texts),
    ("services.*.networks.*.link_local_ips", Rule::Texts),
    ("services.*.ports", Rule::Keyed(port)),
    ("services.*.profiles", Rule::Texts),
    ("services.*.secrets", Rule::Keyed(mount_target)),
    ("services.*.security_opt", Rule::Texts),
    ("services.*.sysctls", Rule::Pairs),
    ("services.*.tmpfs", Rule::Texts),
    ("services.*.ulimits.*", Rule::Limit),
    ("services.*.volumes", Rule::Keyed(volume_target)),
    ("services.*.volumes_from", Rule::Texts),
    ("networks.*.ipam.config", Rule::Keyed(subnet)),
    ("networks.*.labels", Rule::Pairs),
    ("volumes.*.labels", Rule::Pairs),
    ("secrets.*.labels", Rule::Pairs),
    ("configs.*.labels", Rule::Pairs),
];

/// What a tag before a value says.
#[derive(Clone, Copy, PartialEq)]
enum Tag {
    /// `!reset`: the key is taken away.
    Reset,
    /// `!override`: the value takes the place of the earlier one, whatever the rule.
    Override,
}

/// Lays `top` over `below`; both are mappings. `path` is that of the mappings, as in [`RULES`].
pub(super) fn over(ctx: &mut Ctx, below: Node, top: Node, path: &[&str]) -> Node {
    let (Value::Map(mut entries), Value::Map(later)) = (below.value, top.value) else {
        return Node { value: Value::Map(Vec::new()), span: top.span };
    };
    for entry in later {
        let place = entries.iter().position(|e| e.key == entry.key);
        match (tag(ctx, entry.key_span, &entry.value), place) {
            (Some(Tag::Reset), Some(place)) => drop(entries.remove(place)),
            (Some(Tag::Reset), None) => {}
            (None | Some(Tag::Override), None) => entries.push(entry),
            (Some(Tag::Override), Some(place)) => entries[place] = entry,
            (None, Some(place)) => {
                let deeper: Vec<&str> = path.iter().copied().chain([entry.key.as_str()]).collect();
                let old = std::mem::replace(&mut entries[place].value, null(entry.value.span));
                let value = both(ctx, old, entry.value, &deeper);
                entries[place] = Entry { value, key: entry.key, key_span: entry.key_span };
            }
        }
    }
    Node { value: Value::Map(entries), span: top.span }
}

/// Takes away what is tagged with `!reset`, where there is nothing below it.
pub(super) fn without_resets(ctx: &Ctx, node: &mut Node) {
    match &mut node.value {
        Value::Map(entries) => {
            entries.retain(|entry| tag(ctx, entry.key_span, &entry.value) != Some(Tag::Reset));
            entries.iter_mut().for_each(|entry| without_resets(ctx, &mut entry.value));
        }
        Value::Seq(items) => items.iter_mut().for_each(|item| without_resets(ctx, item)),
        Value::Scalar(_) => {}
    }
}

/// The tag before a value, if it is one of the two. An alias has the place of its anchor's value, and no tag.
fn tag(ctx: &Ctx, key: Span, value: &Node) -> Option<Tag> {
    if value.span.start < key.end {
        return None;
    }
    let between = ctx.file(key.start).written(Span { start: key.end, end: value.span.start });
    let words = between.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
    // The value's own place may begin with its tag.
    let own = ctx.file(key.start).written(value.span).split_whitespace().next();
    words.chain(own).find_map(|word| match word.trim_start_matches(':') {
        "!reset" => Some(Tag::Reset),
        "!override" => Some(Tag::Override),
        _ => None,
    })
}

fn rule(path: &[&str]) -> Option<Rule> {
    let fits = |pattern: &str| {
        let parts: Vec<&str> = pattern.split('.').collect();
        parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
    };
    RULES.iter().find(|(pattern, _)| fits(pattern)).map(|(_, rule)| *rule)
}

/// One value laid over another.
fn both(ctx: &mut Ctx, below: Node, top: Node, path: &[&str]) -> Node {
    // A key without a value says nothing.
    if top.is_null() {
        return below;
    }
    if below.is_null() {
        return top;
    }
    match rule(path) {
        Some(Rule::Replace) => top,
        Some(Rule::Pairs) => general(ctx, pairs(below), pairs(top), path),
        Some(Rule::Names) => general(ctx, names(below), names(top), path),
        Some(Rule::Texts) => unique(texts(below), texts(top), shown),
        Some(Rule::Hosts) => match (hosts(below), hosts(top)) {
            (below, top) if is_list(&below) && is_list(&top) => unique(below, top, shown),
            (below, top) => general(ctx, below, top, path),
        },
        Some(Rule::Keyed(key)) if is_list(&below) && is_list(&top) => unique(below, top, key),
        Some(Rule::Short(key)) => general(ctx, long(below, key), long(top, key), path),
        Some(Rule::Driver) if driver(&below).is_some_and(|d| driver(&top).is_some_and(|t| t != d)) => top,
        Some(Rule::Limit) if !(is_map(&below) && is_map(&top)) => top,
        _ => general(ctx, below, top, path),
    }
}

fn general(ctx: &mut Ctx, below: Node, top: Node, path: &[&str]) -> Node {
    match (&below.value, &top.value) {
        (Value::Map(_), Value::Map(_)) => over(ctx, below, top, path),
        (Value::Seq(_), Value::Seq(_)) => unique(below, top, |_| String::new()),
        (Value::Scalar(_), Value::Scalar(_)) => top,
        _ => {
            let (place, other) = (ctx.place(below.span), below.noun());
            let message = format!("`{}` is {} here and {other} below it", path.join("."), top.noun());
            ctx.error(Code::WrongType, top.span, message)
                .relate(place, "what it is laid over")
                .help("write both in the same form, or replace the other one: `!override`");
            below
        }
    }
}

fn is_list(node: &Node) -> bool {
    matches!(node.value, Value::Seq(_))
}

fn is_map(node: &Node) -> bool {
    matches!(node.value, Value::Map(_))
}

fn null(span: Span) -> Node {
    text_node(String::new(), ScalarKind::Null, span)
}

fn text_node(text: String, kind: ScalarKind, span: Span) -> Node {
    Node { value: Value::Scalar(Scalar { text, kind }), span }
}

/// The text of a single value.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => scalar.text.clone(),
        Value::Map(entries) => {
            entries.iter().find(|e| e.key == "path").map_or(String::new(), |e| shown(&e.value))
        }
        Value::Seq(_) => String::new(),
    }
}

/// The items of both lists; one with the key of an earlier one takes its place. Items without a key are all kept.
fn unique(below: Node, top: Node, key: fn(&Node) -> String) -> Node {
    let (Value::Seq(mut items), Value::Seq(later)) = (below.value, top.value) else {
        return Node { value: Value::Seq(Vec::new()), span: top.span };
    };
    for item in later {
        let name = key(&item);
        match items.iter().position(|other| !name.is_empty() && key(other) == name) {
            Some(place) => items[place] = item,
            None => items.push(item),
        }
    }
    Node { value: Value::Seq(items), span: top.span }
}

/// One text as a list of it.
fn texts(node: Node) -> Node {
    match node.value {
        Value::Seq(_) => node,
        _ => Node { span: node.span, value: Value::Seq(vec![node]) },
    }
}

/// `NAME=value` items as a mapping.
fn pairs(node: Node) -> Node {
    let Value::Seq(items) = node.value else { return node };
    let mut entries: Vec<Entry> = Vec::new();
    for item in items {
        let span = item.span;
        let Value::Scalar(scalar) = item.value else { continue };
        let (key, value) = match scalar.text.split_once('=') {
            Some((key, value)) => (key.to_owned(), text_node(value.to_owned(), ScalarKind::String, span)),
            None => (scalar.text, null(span)),
        };
        entries.retain(|entry| entry.key != key);
        entries.push(Entry { key, key_span: span, value });
    }
    Node { value: Value::Map(entries), span: node.span }
}

/// A list of names as a mapping of names to nothing.
fn names(node: Node) -> Node {
    let Value::Seq(items) = node.value else { return node };
    let entry = |item: Node| Entry { key: shown(&item), key_span: item.span, value: null(item.span) };
    Node { value: Value::Map(items.into_iter().map(entry).collect()), span: node.span }
}

/// A mapping of host names to addresses as `name=address` items.
fn hosts(node: Node) -> Node {
    let Value::Map(entries) = node.value else { return node };
    let items = entries.into_iter().flat_map(|entry| {
        let addresses = match entry.value.value {
            Value::Seq(items) => items,
            value => vec![Node { value, span: entry.value.span }],
        };
        let key = entry.key;
        addresses
            .into_iter()
            .map(move |item| text_node(format!("{key}={}", shown(&item)), ScalarKind::String, item.span))
    });
    Node { value: Value::Seq(items.collect()), span: node.span }
}

/// The short form as the long one.
fn long(node: Node, key: &str) -> Node {
    if is_map(&node) {
        return node;
    }
    let span = node.span;
    Node { value: Value::Map(vec![Entry { key: key.to_owned(), key_span: span, value: node }]), span }
}

/// The text of a key of a mapping.
fn field(node: &Node, key: &str) -> Option<String> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|entry| entry.key == key).map(|entry| shown(&entry.value))
}

fn driver(node: &Node) -> Option<String> {
    field(node, "driver")
}

fn subnet(node: &Node) -> String {
    field(node, "subnet").unwrap_or_default()
}

/// Where a secret or configuration is mounted.
fn mount_target(node: &Node) -> String {
    field(node, "target").or_else(|| field(node, "source")).unwrap_or_else(|| shown(node))
}

/// Where a volume is mounted.
fn volume_target(node: &Node) -> String {
    if is_map(node) {
        return field(node, "target").unwrap_or_default();
    }
    let text = shown(node);
    let parts: Vec<&str> = text.split(':').collect();
    let target = parts.get(1).or(parts.first()).copied().unwrap_or_default();
    target.trim_end_matches('/').to_owned()
}

/// What makes a port one of its own: address and port of the host, port and protocol of the service.
fn port(node: &Node) -> String {
    if is_map(node) {
        let part = |key| field(node, key).unwrap_or_default();
        let protocol = field(node, "protocol").unwrap_or_else(|| "tcp".to_owned());
        return format!("{}:{}:{}/{protocol}", part("host_ip"), part("published"), part("target"));
    }
    let text = shown(node);
    let (rest, protocol) = text.rsplit_once('/').unwrap_or((&text, "tcp"));
    let (rest, target) = rest.rsplit_once(':').unwrap_or(("", rest));
    let (host, published) = rest.rsplit_once(':').unwrap_or(("", rest));
    format!("{host}:{published}:{target}/{protocol}")
}
