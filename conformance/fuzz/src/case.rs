//! Cases: sequences of operations as text, one a line (docs/fuzzing.md has the form).

/// A sequence of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// How it is called in reports: where it came from.
    pub name: String,
    /// Its operations.
    pub ops: Vec<String>,
}

impl Case {
    /// As the guest reads it.
    pub fn text(&self) -> String {
        format!("case {}\n{}\n", self.name, self.ops.join("\n"))
    }
}

/// The cases of a text; lines that begin with `#` are comments.
pub fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("case "), cases.last_mut()) {
            (Some(name), _) => cases.push(Case { name: name.to_owned(), ops: Vec::new() }),
            (None, Some(case)) => case.ops.push(line.to_owned()),
            (None, None) => {}
        }
    }
    cases
}

/// What can be made simpler in an operation: each candidate is tried in the place of the operation.
pub fn simpler(op: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words: Vec<&str> = op.split(' ').collect();
    for (i, word) in words.iter().enumerate().skip(3) {
        let mut replace = |with: String| {
            let mut words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            words[i] = with;
            found.push(words.join(" "));
        };
        let (prefix, number) = match word.rsplit_once(':') {
            Some((prefix, number)) => (format!("{prefix}:"), number),
            None => (String::new(), *word),
        };
        if let Some(edge) = word.strip_prefix('|') {
            replace(edge.to_owned());
        }
        let value = match number.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => number.parse().ok(),
        };
        if let Some(value) = value.filter(|v| *v != 0) {
            replace(format!("{prefix}0"));
            if value > 1 {
                replace(format!("{prefix}1"));
            }
            // Flags: one bit less.
            if number.starts_with("0x") && value.count_ones() > 1 {
                for bit in (0..64).map(|n| 1u64 << n).filter(|bit| value & bit != 0) {
                    replace(format!("{prefix}{:#x}", value & !bit));
                }
            }
        }
    }
    found
}
