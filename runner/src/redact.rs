//! Secrets never leave the runner: everything that is printed or written to a file passes here.
//!
//! Key functions: [`install`] (which texts are secret), [`text`] for text and [`json`] for JSON on their way out. What is secret:
//! contents of `secrets` and `configs` of the compose file, values of `env_file`, variables that `output.redact` names, and the
//! registries' credentials, in the environment and wherever they are found ([`learn`]). Neighbours: `output`, `events`, `finding`, `campaign::reports`, which call it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use bloodhound_config::Project;
use bloodhound_config::compose::{Content, Variables};

/// What stands in the place of a secret.
const MARK: &str = "[redacted]";
/// Shorter texts are not searched for: they would be found everywhere.
pub const SHORTEST: usize = 4;
/// Numbers are searched for from this many digits on: a port or a count is none.
const SHORTEST_NUMBER: usize = 6;
/// Variables of the environment that hold credentials of registries.
const CREDENTIALS: &[&str] =
    &["GITHUB_TOKEN", "GH_TOKEN", "DOCKER_AUTH_CONFIG", "REGISTRY_PASSWORD", "DOCKER_PASSWORD"];
/// What values of an `env_file` may be without being secret: the reports are made of these words.
const WORDS: &[&str] = &["true", "false", "null", "none", "info", "debug", "warn", "error", "localhost"];

static SECRETS: RwLock<Option<Arc<Redactor>>> = RwLock::new(None);
/// What [`learn`] was told.
static LEARNT: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// From here on these texts do not get out.
pub fn install(mut redactor: Redactor) {
    LEARNT.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|text| redactor.add(text));
    redactor.sort();
    let redactor = (!redactor.needles.is_empty()).then(|| Arc::new(redactor));
    *SECRETS.write().unwrap_or_else(PoisonError::into_inner) = redactor;
}

/// This text does not get out either.
pub fn learn(text: String) {
    let mut learnt = LEARNT.write().unwrap_or_else(PoisonError::into_inner);
    if !learnt.contains(&text) {
        learnt.push(text);
        drop(learnt);
        install(current().map_or_else(Redactor::default, |redactor| (*redactor).clone()));
    }
}

fn current() -> Option<Arc<Redactor>> {
    SECRETS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A text without the secrets in it.
pub fn text(text: &str) -> Cow<'_, str> {
    match current() {
        Some(redactor) => redactor.text(text),
        None => Cow::Borrowed(text),
    }
}

/// JSON, of one or several lines, without the secrets in its strings.
pub fn json(text: &str) -> Cow<'_, str> {
    match current() {
        Some(redactor) => redactor.json(text),
        None => Cow::Borrowed(text),
    }
}

/// Whether there is a secret in these bytes.
pub fn holds(bytes: &[u8]) -> bool {
    let Some(redactor) = current() else { return false };
    let mut begins = [false; 256];
    redactor.needles.iter().for_each(|needle| begins[usize::from(needle.as_bytes()[0])] = true);
    let here = |at: usize| redactor.needles.iter().any(|needle| bytes[at..].starts_with(needle.as_bytes()));
    (0..bytes.len()).any(|at| begins[usize::from(bytes[at])] && here(at))
}

/// Whether there is anything to hide.
pub fn active() -> bool {
    current().is_some()
}

/// The texts that are secret.
#[derive(Clone, Default)]
pub struct Redactor {
    /// As they may be written, longest first.
    needles: Vec<String>,
    /// What is secret and too short to be searched for, by name.
    short: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} texts)", self.needles.len())
    }
}

impl Redactor {
    /// What is secret in a project. `environment` is the caller's.
    pub fn of(project: &Project, environment: &Variables) -> Redactor {
        let compose = &project.compose;
        let mut redactor = Redactor::default();
        for (resource, is_secret) in
            compose.secrets.iter().map(|r| (r, true)).chain(compose.configs.iter().map(|r| (r, false)))
        {
            let text = match &resource.content {
                Content::Text(text) => Cow::Borrowed(text.as_str()),
                // One that cannot be read is refused elsewhere.
                Content::File(path) => Cow::Owned(std::fs::read(path).map(lossy).unwrap_or_default()),
            };
            redactor.whole(&text);
            if is_secret {
                redactor.note_short(&text, || format!("the secret {}", resource.name));
            }
        }
        let names = compose.host_names();
        let no_secret = |value: &String| WORDS.contains(&value.as_str()) || names.contains(value);
        let values = compose.env_file_values.iter().map(|(_, value)| value);
        values.filter(|value| !no_secret(value)).for_each(|value| redactor.add(value));
        let globs = &project.config.output.redact;
        let services = || compose.services.iter().chain(&compose.definitions);
        let variables = services().flat_map(|service| &service.environment);
        let builds = services().filter_map(|s| s.build.as_ref()).flat_map(|build| &build.args);
        let all = variables.chain(builds).map(|(name, value)| (name, value)).chain(environment);
        for (name, value) in all {
            if globs.iter().any(|glob| matches(glob, name)) || CREDENTIALS.contains(&name.as_str()) {
                redactor.whole(value);
                redactor.note_short(value, || format!("the variable {name}"));
            }
        }
        redactor.sort();
        redactor
    }

    /// What cannot be kept out of reports, as it is too short to be searched for, in words.
    pub fn note(&self) -> Option<String> {
        (!self.short.is_empty()).then(|| {
            format!(
                "{}: too short to be kept out of reports, which takes {SHORTEST} bytes, or {SHORTEST_NUMBER} digits of a number",
                self.short.join(", ")
            )
        })
    }

    fn note_short(&mut self, text: &str, name: impl FnOnce() -> String) {
        let text = text.trim();
        if !text.is_empty() && too_short(text) {
            let name = name();
            if !self.short.contains(&name) {
                self.short.push(name);
            }
        }
    }

    /// A text of several lines is secret as a whole and line by line.
    fn whole(&mut self, text: &str) {
        self.add(text.trim());
        if text.trim().contains('\n') {
            text.lines()
                .filter(|line| line.trim().len() >= 2 * SHORTEST)
                .for_each(|line| self.add(line.trim()));
        }
    }

    /// A text, and the ways in which it may be written.
    fn add(&mut self, text: &str) {
        if too_short(text) {
            return;
        }
        let debug = format!("{text:?}");
        let json = serde_json::Value::from(text).to_string();
        let xml = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        let forms = [
            text.to_owned(),
            debug.trim_matches('"').to_owned(),
            json.trim_matches('"').to_owned(),
            xml.clone(),
            xml.replace('\'', "&apos;"),
            percent(text),
            base64(text.as_bytes()),
        ];
        for form in forms {
            if !self.needles.contains(&form) {
                self.needles.push(form);
            }
        }
    }

    fn sort(&mut self) {
        self.needles.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = Cow::Borrowed(text);
        for needle in &self.needles {
            if out.contains(needle.as_str()) {
                out = Cow::Owned(replaced(&out, needle));
            }
        }
        out
    }

    /// Only within the strings: the numbers and words of JSON stay what they are, and so do the names of its fields.
    fn json<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.needles.iter().any(|needle| text.contains(needle.as_str())) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('"') {
            out.push_str(&rest[..=start]);
            let inner = &rest[start + 1..];
            let end = end_of_string(inner);
            let (string, tail) = inner.split_at(end);
            let field = tail.get(1..).is_some_and(|t| t.trim_start().starts_with(':'))
                && string.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            if field {
                out.push_str(string)
            } else {
                out.push_str(&self.text(string))
            }
            let closed = tail.len().min(1);
            out.push_str(&tail[..closed]);
            rest = &tail[closed..];
        }
        out.push_str(rest);
        Cow::Owned(out)
    }
}

/// Whether a text would be found everywhere.
fn too_short(text: &str) -> bool {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.len() < SHORTEST || digits && text.len() < SHORTEST_NUMBER
}

/// Where the string ends that begins a text: the place of its closing quote.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at,
            _ => {}
        }
    }
    text.len()
}

/// All places of a needle replaced; a number only where it is not a part of a longer word.
fn replaced(text: &str, needle: &str) -> String {
    if !needle.bytes().all(|b| b.is_ascii_digit()) {
        return text.replace(needle, MARK);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(needle) {
        let (before, after) = (&rest[..at], &rest[at + needle.len()..]);
        let part = before.ends_with(|c: char| c.is_alphanumeric())
            || after.starts_with(|c: char| c.is_alphanumeric());
        out.push_str(before);
        out.push_str(if part { needle } else { MARK });
        rest = after;
    }
    out.push_str(rest);
    out
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// As in an address (RFC 3986, section 2.1).
fn percent(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(b)),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// As in `Authorization: Basic` and in Kubernetes' secrets (RFC 4648, section 4), without the padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, b| word << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            out.push(char::from(LETTERS[(word >> (18 - 6 * n) & 63) as usize]));
        }
    }
    out
}

/// Whether a name fits a pattern in which `*` stands for any text and `?` for one character. Upper and lower case are the same.
fn matches(glob: &str, name: &str) -> bool {
    fn fits(glob: &[u8], name: &[u8]) -> bool {
        match (glob.first(), name.first()) {
            (None, None) => true,
            (Some(b'*'), _) => fits(&glob[1..], name) || !name.is_empty() && fits(glob, &name[1..]),
            (Some(b'?'), Some(_)) => fits(&glob[1..], &name[1..]),
            (Some(a), Some(b)) => a.eq_ignore_ascii_case(b) && fits(&glob[1..], &name[1..]),
            _ => false,
        }
    }
    fits(glob.as_bytes(), name.as_bytes())
}

/// A file's content on its way out, by its name: JSON, text, or what is neither.
pub fn file<'b>(path: &Path, bytes: &'b [u8]) -> Cow<'b, [u8]> {
    // What a replay reads: made without secrets, and it must say where files are.
    let kept = ["finding.json", "decisions.json", "digests.json", "bundle.json"];
    if path.file_name().is_some_and(|name| kept.iter().any(|kept| name == *kept)) {
        return Cow::Borrowed(bytes);
    }
    let Some(redactor) = current() else { return Cow::Borrowed(bytes) };
    let Ok(text) = std::str::from_utf8(bytes) else { return Cow::Borrowed(bytes) };
    let json = path.extension().is_some_and(|e| e == "json" || e == "jsonl");
    match if json { redactor.json(text) } else { redactor.text(text) } {
        Cow::Borrowed(_) => Cow::Borrowed(bytes),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(texts: &[&str]) -> Redactor {
        let mut redactor = Redactor::default();
        texts.iter().for_each(|text| redactor.whole(text));
        redactor.sort();
        redactor
    }

    #[test]
    fn secrets_are_found_in_every_form() {
        let r = redactor(&["s3cr\"t & <x>", "hunter2/"]);
        for text in [
            "a s3cr\"t & <x> b",
            "a s3cr\\\"t & <x> b",
            "a s3cr&quot;t &amp; &lt;x&gt; b",
            "a hunter2%2F b",
            "a aHVudGVyMi8 b",
        ] {
            assert_eq!(r.text(text), "a [redacted] b", "{text}");
        }
    }

    #[test]
    fn lines_of_long_secrets_are_secret() {
        let r = redactor(&["-----BEGIN KEY-----\nabcdefghij\nk\n"]);
        assert_eq!(r.text("x abcdefghij k"), "x [redacted] k");
    }

    #[test]
    fn the_longest_secret_counts_and_short_ones_do_not() {
        let r = redactor(&["abcd", "abcdef", "xyz", "80", "12345"]);
        assert_eq!(r.text("abcdef abcd xyz 80 12345"), "[redacted] [redacted] xyz 80 12345");
    }

    #[test]
    fn what_is_too_short_is_told_by_name() {
        let mut r = Redactor::default();
        assert_eq!(r.note(), None);
        for (text, name) in
            [("1234\n", "pin"), ("abc", "abc"), ("abc", "abc"), ("long enough", "long"), ("", "none")]
        {
            r.note_short(text, || format!("the secret {name}"));
        }
        let note = r.note().expect("a note");
        assert!(note.starts_with("the secret pin, the secret abc: too short"), "{note}");
    }

    #[test]
    fn what_is_learnt_later_is_secret_too() {
        learn("registry-passw0rd".to_owned());
        assert_eq!(text("no registry-passw0rd"), "no [redacted]");
        install(redactor(&["another one"]));
        assert_eq!(text("another one, registry-passw0rd"), "[redacted], [redacted]");
    }

    #[test]
    fn numbers_are_secret_as_words_only() {
        assert_eq!(
            redactor(&["123456"]).text("a 123456, 91234567 x123456"),
            "a [redacted], 91234567 x123456"
        );
    }

    #[test]
    fn json_stays_json() {
        let r = redactor(&["123456", "true", "seed", "pa\"ss"]);
        let text = r#"{"seed":123456,"ok":true,"text":"it is true: 123456 pa\"ss","seed x":"a\\"}"#;
        let out = r.json(text);
        assert_eq!(
            out,
            r#"{"seed":123456,"ok":true,"text":"it is [redacted]: [redacted] [redacted]","[redacted] x":"a\\"}"#
        );
        assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok());
    }

    #[test]
    fn globs() {
        assert!(matches("*_password", "DB_PASSWORD") && matches("A?C*", "abcdef") && matches("*", ""));
        assert!(!matches("*_KEY", "KEYS") && !matches("A", "AB"));
    }
}
