//! "Did you mean": the known word nearest to a mistyped one.
//!
//! Used by the decoders for keys, for values out of a fixed set and for names of services and operations.

/// The word of `known` nearest to `word`, if it is near enough to be a likely typing mistake.
///
/// The distance is the restricted Damerau-Levenshtein distance (insert, delete, replace, swap neighbours), and
/// `-`, `_` and letter case count as equal. Of several nearest words, the first in `known` is taken.
pub(crate) fn nearest<'a, T: AsRef<str>>(word: &str, known: &'a [T]) -> Option<&'a str> {
    let typed = normalise(word);
    if typed.is_empty() || typed.len() > 64 {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let candidate = candidate.as_ref();
        let target = normalise(candidate);
        let distance = strsim::osa_distance(&typed, &target);
        let allowed = typed.chars().count().max(target.chars().count()).div_ceil(3);
        if distance <= allowed && best.is_none_or(|(d, _)| distance < d) {
            best = Some((distance, candidate));
        }
    }
    // A single changed character turns a word of one or two letters into any other: no evidence.
    best.filter(|(d, candidate)| *d == 0 || candidate.len() > 2 || typed.len() > 2).map(|(_, c)| c)
}

fn normalise(word: &str) -> String {
    word.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest_word() {
        let keys = ["drop_rate", "delay_rate", "delay_ms"];
        assert_eq!(nearest("drop_rat", &keys), Some("drop_rate"));
        assert_eq!(nearest("dorp_rate", &keys), Some("drop_rate"));
        assert_eq!(nearest("delay-ms", &keys), Some("delay_ms"));
        assert_eq!(nearest("DropRate", &keys), Some("drop_rate"));
        assert_eq!(nearest("bandwidth", &keys), None);
    }
}
