//! Start tags of XML with their attributes: as much as reports of coverage need.

use std::collections::BTreeMap;

/// A start tag, or an end tag, whose name then has `/` before it.
pub(super) struct Tag {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
}

/// Reads all tags. Text, comments, instructions and declarations are passed over.
pub(super) fn tags(text: &str) -> Result<Vec<Tag>, String> {
    let mut tags = Vec::new();
    let mut rest = text;
    let wrong = |rest: &str, what: &str| {
        let line = text[..text.len() - rest.len()].matches('\n').count() + 1;
        format!("line {line}: {what}")
    };
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let passed = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">")];
        if let Some((start, end)) = passed.iter().find(|(start, _)| rest.starts_with(start)) {
            let close = rest[start.len()..]
                .find(end)
                .ok_or_else(|| wrong(rest, &format!("{start} without {end}")))?;
            rest = &rest[start.len() + close + end.len()..];
            continue;
        }
        let name_end =
            rest[1..].find([' ', '\t', '\r', '\n', '>']).ok_or_else(|| wrong(rest, "a tag without >"))? + 1;
        let name = rest[1..name_end].trim_end_matches('/').to_owned();
        let mut tag = Tag { name, attributes: BTreeMap::new() };
        if rest[1..name_end].starts_with('/') {
            tag.name = format!("/{}", tag.name.trim_start_matches('/'));
        }
        rest = &rest[name_end..];
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix("/>").or_else(|| rest.strip_prefix('>')) {
                rest = after;
                break;
            }
            let (key, after) =
                rest.split_once('=').ok_or_else(|| wrong(rest, "an attribute without value"))?;
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            let quote = quote.ok_or_else(|| wrong(after, "a value without quotes"))?;
            let (value, after) =
                after[1..].split_once(quote).ok_or_else(|| wrong(after, "a value without its end"))?;
            tag.attributes.insert(key.trim().to_owned(), plain(value));
            rest = after;
        }
        tags.push(tag);
    }
    Ok(tags)
}

/// Text without the references that XML has for some characters.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = [("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\''), ("&amp;", '&')];
        let (length, c) = match known.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, c)) => (name.len(), *c),
            None => numbered(rest).unwrap_or((1, '&')),
        };
        out.push(c);
        rest = &rest[length..];
    }
    out + rest
}

/// `&#65;` or `&#x41;`: its length, and the character.
fn numbered(text: &str) -> Option<(usize, char)> {
    let (digits, _) = text.strip_prefix("&#")?.split_once(';')?;
    let number = match digits.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some((digits.len() + 3, char::from_u32(number)?))
}
