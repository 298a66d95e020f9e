//! Names of functions as people write them.

use std::fmt::{self, Write};

/// Characters of a name, at most. What a hostile symbol stands for can be exponentially long.
const MOST: usize = 1000;

/// Text of a bounded length.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MOST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A demangled name up to its parameters, and without parameters of types.
pub(crate) fn without_parameters(name: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0_usize;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            // A receiver of Go, `main.(*Store).Get`, is no list of parameters.
            '(' if depth == 0 && !plain.is_empty() && !plain.ends_with(['.', ':']) => break,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain
}

/// The demangled name: Rust's without its hash, C++'s with its parameters; any other as it is.
pub(crate) fn demangle(symbol: &[u8]) -> String {
    let text = String::from_utf8_lossy(symbol);
    // The symbol versions of a library, and what compilers add to copies and parts of a function.
    let base = text.split('@').next().unwrap_or_default();
    let base = base.split_once(".llvm.").map_or(base, |(base, _)| base);
    if let Ok(name) = rustc_demangle::try_demangle(base) {
        let mut out = Bounded::default();
        return if write!(out, "{name:#}").is_ok() { out.0 } else { short(base) };
    }
    if base.starts_with("_Z") {
        let plain = base.strip_suffix(".cold").unwrap_or(base);
        let options = cpp_demangle::ParseOptions::default().recursion_limit(96);
        if let Ok(symbol) = cpp_demangle::Symbol::new_with_options(plain, &options) {
            let mut out = Bounded::default();
            let how = cpp_demangle::DemangleOptions::new().recursion_limit(96);
            if symbol.structured_demangle(&mut out, &how).is_ok() {
                return out.0;
            }
        }
    }
    short(base)
}

fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_are_readable() {
        assert_eq!(demangle(b"_ZN7kvstore4raft3log4push17h0123456789abcdefE"), "kvstore::raft::log::push");
        assert_eq!(demangle(b"_RNvCsi1_7kvstore4main"), "kvstore::main");
        assert_eq!(
            demangle(b"_ZN5Store3getERKNSt7__cxx1112basic_stringIcEE"),
            "Store::get(std::__cxx11::basic_string<char> const&)"
        );
        assert_eq!(demangle(b"main"), "main");
        assert_eq!(demangle(b"memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle(b"main.(*Store).Get"), "main.(*Store).Get");
    }

    #[test]
    fn hostile_names_stay_short() {
        let nested = format!("_Z1f{}{}", "St4pairI".repeat(4000), "iE".repeat(4000));
        assert!(demangle(nested.as_bytes()).len() <= 1000);
        assert!(demangle(&[b'x'; 100_000]).len() <= 1000);
        // Each substitution doubles what is written.
        let mut doubling = "_Z1fI".to_owned();
        for level in 0..40 {
            doubling.push_str(&format!("1a{}", if level == 0 { "iE" } else { "IS_S_EE" }));
        }
        assert!(demangle(doubling.as_bytes()).len() <= 1000);
    }
}
