//! What the text of an argument says.

use crate::request::Value;
use crate::symbols;

/// An argument as a value; `missing` is told constants without a known value.
pub(super) fn value(text: &str, missing: &mut dyn FnMut(&str)) -> Value {
    let text = text.split_once("=").filter(|(name, _)| is_field(name)).map_or(text, |(_, value)| value);
    if text == "NULL" {
        return Value::Number(0);
    }
    if let Some(bytes) = string(text) {
        return Value::Bytes(bytes);
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return words(inner).map_or(Value::Unknown, Value::Bytes);
    }
    if text.starts_with(['{', '[', '~']) {
        return Value::Unknown;
    }
    number(text, missing).map_or(Value::Unknown, Value::Number)
}

/// `flags=`, as clone(2) is printed.
fn is_field(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// `[1]`, `[1, 2]`: ints one after the other, as setsockopt(2) takes them.
fn words(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for word in text.split(',') {
        let value = number(word.trim(), &mut |_| ())?;
        out.extend_from_slice(&(value as u32).to_le_bytes());
    }
    Some(out)
}

/// A number: of digits, of constants (`A|B|0x4`), of a descriptor (`3</path>`), of shifts and products (`8192*1024`, `1<<FLAG`).
pub(super) fn number(text: &str, missing: &mut dyn FnMut(&str)) -> Option<u64> {
    let text = match text.find("/*") {
        Some(comment) => text[..comment].trim(),
        None => text,
    };
    // `SNDCTL_TMR_START or TCSETS`: one number, which two kinds of devices have for different things.
    if let Some((one, other)) = text.split_once(" or ") {
        return number(one, &mut |_| ()).or_else(|| number(other, missing));
    }
    let mut all = 0;
    for part in text.split('|') {
        all |= term(part.trim(), missing)?;
    }
    Some(all)
}

fn term(text: &str, missing: &mut dyn FnMut(&str)) -> Option<u64> {
    if let Some((one, other)) = text.split_once("<<") {
        return Some(term(one, missing)? << (term(other, missing)? & 63));
    }
    if let Some((one, other)) = text.split_once('*') {
        return Some(term(one, missing)?.wrapping_mul(term(other, missing)?));
    }
    let text = text.find('<').map_or(text, |decoded| &text[..decoded]);
    if let Some(number) = integer(text) {
        return Some(number);
    }
    if let Some(inner) = text.strip_prefix("_IOC(").and_then(|t| t.strip_suffix(')')) {
        return request(inner);
    }
    if let Some(signal) = text.strip_prefix("SIGRT_").or_else(|| text.strip_prefix("SIGRTMIN+")) {
        return integer(signal).map(|number| number + 32);
    }
    let is_constant = text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let value = is_constant.then(|| symbols::value(text))?;
    if value.is_none() {
        missing(text);
    }
    value
}

/// `_IOC(_IOC_READ|_IOC_WRITE, 0x54, 0x30, 0x4)`: a command of ioctl(2) that strace(1) does not know.
fn request(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [direction, kind, nr, size] = parts[..] else { return None };
    let direction: u64 = direction
        .split('|')
        .map(|word| match word {
            "_IOC_WRITE" => 1,
            "_IOC_READ" => 2,
            _ => 0,
        })
        .sum();
    Some(direction << 30 | integer(size)? << 16 | integer(kind)? << 8 | integer(nr)?)
}

/// A number of digits: decimal, hexadecimal, octal.
pub(super) fn integer(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    if let Some(digits) = text.strip_prefix('-') {
        return digits.parse::<u64>().ok().map(u64::wrapping_neg);
    }
    if text.len() > 1 && text.starts_with('0') {
        return u64::from_str_radix(text, 8).ok();
    }
    text.parse().ok()
}

/// A string in quotes, which may be cut (`"abc"...`).
pub(super) fn string(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?;
    let inner = inner.strip_suffix("...").unwrap_or(inner).strip_suffix('"')?;
    let mut out = Vec::new();
    let mut bytes = inner.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next()? {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'v' => out.push(11),
            b'f' => out.push(12),
            b'x' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            digit @ b'0'..=b'7' => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    if let Some(next) = bytes.next_if(|b| (b'0'..=b'7').contains(b)) {
                        value = value * 8 + u32::from(next - b'0');
                    }
                }
                out.push(value as u8);
            }
            other => out.push(other),
        }
    }
    Some(out)
}

/// The path that `-y` tells of a descriptor.
pub(super) fn decoded(text: &str) -> Option<&str> {
    let inside = text.split_once('<')?.1.strip_suffix('>')?;
    // `/path<char 1:3>`, as `-yy` tells devices.
    let path = inside.split_once('<').map_or(inside, |(path, _)| path);
    path.starts_with('/').then_some(path)
}
