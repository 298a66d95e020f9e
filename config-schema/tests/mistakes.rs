//! Typical mistakes and what is said about them, compared word by word with files next to them.
//! `BLESS=1` writes the files anew; read the difference before you commit it.

use std::path::Path;

use bloodhound_config::compose::Variables;
use bloodhound_config::config::FileChecks;
use bloodhound_config::{Compose, Config, Diagnostic, has_errors, render};

/// Runs `check` on every yaml file of a directory and compares what it says with the text file beside it.
fn golden(directory: &str, check: impl Fn(&Path) -> (bool, Vec<Diagnostic>)) -> usize {
    // Paths in messages are relative to the crate, wherever it is checked out.
    std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).expect("the crate's directory");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect(directory)
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    let mut different = Vec::new();
    for file in &files {
        let (usable, diagnostics) = check(file);
        assert_eq!(usable, !has_errors(&diagnostics), "{}", file.display());
        let said: String = diagnostics.iter().map(|d| render::text(d, false) + "\n").collect();
        let expected = file.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&expected, &said).expect("writable");
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != said {
            different.push(format!("{}:\n{said}", expected.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    files.len()
}

#[test]
fn mistakes_in_bloodhound_yaml() {
    let count = golden("tests/data/mistakes", |file| {
        let (config, diagnostics) = Config::load(file, FileChecks::Strict);
        (config.is_some(), diagnostics)
    });
    assert!(count >= 25, "only {count} files");
}

#[test]
fn mistakes_in_compose_files() {
    let count = golden("tests/data/compose-mistakes", |file| {
        let (compose, diagnostics) = Compose::load(file, &Variables::new());
        (compose.is_some(), diagnostics)
    });
    assert!(count >= 18, "only {count} files");
}
