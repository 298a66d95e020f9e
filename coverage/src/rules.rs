//! What counts: the unit, the checkout, and which of its files.

use std::sync::{Arc, LazyLock};

use crate::checkout::{Meant, Named, normal};
use crate::{Checkout, Pattern, Unit};

/// What counts in all programs of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// What is counted. `None`: lines, and a program without line tables is not measured.
    pub unit: Option<Unit>,
    /// If there are any, only files that match one of these count.
    pub include: Vec<Pattern>,
    /// Files that do not count.
    pub exclude: Vec<Pattern>,
    /// The user's source. Lines of other files do not count.
    pub checkout: Arc<Checkout>,
    /// Beginnings of paths that programs name, and what stands for them in the checkout: absolute, or below the checkout.
    pub path_map: Vec<(String, String)>,
    /// Whether [`Program::place`](crate::Program::place) is wanted. Its tables take memory for the whole program.
    pub places: bool,
}

impl Rules {
    /// Whether a file of the checkout counts, by its path there.
    ///
    /// `exclude` always excludes. The usual patterns of tests, generated code and vendored dependencies exclude what no pattern of
    /// `include` names.
    pub fn counts(&self, path: &str) -> bool {
        let named = self.include.iter().any(|pattern| pattern.matches(path));
        let excluded = self.exclude.iter().any(|pattern| pattern.matches(path));
        !excluded && (named || self.include.is_empty() && !usually_excluded(path))
    }

    /// Which files of the checkout that count the names of a tool's report mean, and what is to be said of those that could be several.
    pub(crate) fn files<'n>(
        &self,
        names: impl Iterator<Item = &'n String>,
    ) -> (Vec<Option<String>>, Vec<String>) {
        let names: Vec<Named> = names.map(|name| Named { path: normal("", name), md5: None }).collect();
        let mut notes = Vec::new();
        let meant = self.checkout.map(&names, &self.path_map).into_iter();
        let files = meant.map(|meant| match meant {
            Meant::File(path) => Some(path).filter(|path| self.counts(path)),
            Meant::Ambiguous(one, other) => {
                if self.counts(&one) || self.counts(&other) {
                    notes.push(ambiguous(&one, &other));
                }
                None
            }
            Meant::Changed(_) | Meant::Outside => None,
        });
        (files.collect(), notes)
    }
}

/// What is said of a name that could mean two files.
pub(crate) fn ambiguous(one: &str, other: &str) -> String {
    format!("{one} or {other} could be meant: say which in coverage.path_map")
}

/// Patterns of what a user did not write or does not mean to cover.
const USUALLY_EXCLUDED: &[&str] = &[
    // Tests.
    "test/",
    "tests/",
    "testdata/",
    "__tests__/",
    "__mocks__/",
    "benches/",
    "*_test.*",
    "*_tests.*",
    "test_*.*",
    "tests.rs",
    "*.test.*",
    "*.spec.*",
    "conftest.py",
    "*Test.java",
    "*Tests.java",
    "*IT.java",
    // Generated code.
    "*.pb.*",
    "*.pb",
    "*_pb2.py",
    "*_pb2_grpc.py",
    "*_pb.js",
    "*_pb.d.ts",
    "*_generated.*",
    "*.generated.*",
    "zz_generated*",
    "*.gen.*",
    "generated/",
    "moc_*",
    "*.tab.c",
    "*.yy.c",
    "*.min.js",
    // Dependencies, and what builds leave.
    "vendor/",
    "node_modules/",
    "bower_components/",
    "third_party/",
    "third-party/",
    "thirdparty/",
    "_deps/",
    "target/",
    "site-packages/",
    "dist-packages/",
    ".venv/",
    "venv/",
    ".cargo/",
    ".git/",
    ".tox/",
    "__pycache__/",
];

/// Whether the usual patterns exclude a path.
pub(crate) fn usually_excluded(path: &str) -> bool {
    static PATTERNS: LazyLock<Vec<Pattern>> =
        LazyLock::new(|| USUALLY_EXCLUDED.iter().filter_map(|text| Pattern::new(text).ok()).collect());
    PATTERNS.iter().any(|pattern| pattern.matches(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(text).expect("a pattern")).collect()
    }

    #[test]
    fn all_usual_patterns_can_be_read() {
        assert_eq!(patterns(USUALLY_EXCLUDED).len(), USUALLY_EXCLUDED.len());
    }

    #[test]
    fn tests_generated_and_vendored_code_do_not_count() {
        let rules = Rules::default();
        for path in [
            "kv/store_test.go",
            "tests/a.rs",
            "api/kv.pb.go",
            "vendor/x/y.go",
            "node_modules/a/index.js",
            "src/tests.rs",
            "target/debug/build/a/out/b.rs",
            "third_party/zlib/inflate.c",
            "test_app.py",
            "app/kv_pb2.py",
            "src/a.test.ts",
        ] {
            assert!(!rules.counts(path), "{path}");
        }
        for path in
            ["kv/store.go", "src/main.rs", "src/contest.c", "lib/attest.py", "latest/a.c", "src/protest.rs"]
        {
            assert!(rules.counts(path), "{path}");
        }
    }

    #[test]
    fn include_and_exclude_rule() {
        let rules = Rules {
            include: patterns(&["src/", "vendor/ours/"]),
            exclude: patterns(&["src/debug/"]),
            ..Rules::default()
        };
        assert!(rules.counts("src/a.c") && rules.counts("vendor/ours/b.c") && rules.counts("src/x_test.c"));
        assert!(!rules.counts("src/debug/a.c") && !rules.counts("lib/a.c") && !rules.counts("vendor/b.c"));
    }
}
