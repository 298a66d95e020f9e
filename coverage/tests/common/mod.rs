//! What the tests compile: small programs in several languages, with the compilers of this machine.
#![allow(dead_code)] // every test file uses its part
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bloodhound_coverage::{Checkout, HostFiles, NotMeasured, Program, Rules, Unit, analyse};

/// A directory that is removed at the end of its test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(what: &str) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("bloodhound-coverage-{}-{number}-{what}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Scratch(path.canonicalize().expect("a directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the directory")).expect("a directory");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Copies the programs of `tests/data` to `src`.
    pub fn with_sources(what: &str) -> Scratch {
        let scratch = Scratch::new(what);
        copy(&data(""), &scratch.path("src"));
        scratch
    }

    /// The rules of a checkout in this directory.
    pub fn rules(&self, directory: &str) -> Rules {
        let checkout = Checkout::scan(&self.path(directory)).expect("a checkout");
        Rules { checkout: Arc::new(checkout), ..Rules::default() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Whether programs are installed. If not, CI fails (BLOODHOUND_TEST_NO_SKIP=1), and others are told.
pub fn have(programs: &[&str], what: &str) -> bool {
    let dirs = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let installed = |program: &&str| dirs.iter().any(|dir| Path::new(dir).join(program).is_file());
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !installed(program)).collect();
    if missing.is_empty() {
        return true;
    }
    let reason = format!("not installed: {}", missing.join(", "));
    let strict =
        std::env::var("BLOODHOUND_TEST_NO_SKIP").is_ok_and(|value| !value.is_empty() && value != "0");
    assert!(!strict, "{what}: {reason}; BLOODHOUND_TEST_NO_SKIP wants every test to run");
    let line = format!("left out: {what}: {reason}\n");
    let _shown = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("BLOODHOUND_TEST_LEFT_OUT").filter(|path| !path.is_empty()) {
        let file = fs::OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("BLOODHOUND_TEST_LEFT_OUT");
    }
    false
}

/// Runs a program that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Runs a program in a directory, with arguments separated by spaces.
pub fn shell(directory: &Path, line: &str) -> Output {
    let words: Vec<&str> = line.split_whitespace().collect();
    run(Command::new(words[0]).args(&words[1..]).current_dir(directory))
}

/// Analyses a file of this machine.
pub fn look(path: &Path, rules: &Rules) -> Result<Program, NotMeasured> {
    let bytes = fs::read(path).expect("a program");
    analyse(&path.to_string_lossy(), &bytes, &HostFiles::default(), rules)
}

/// The lines that count, by file.
pub fn lines(program: &Program) -> BTreeMap<String, BTreeSet<u32>> {
    assert_eq!(program.unit, Unit::Lines);
    let mut lines: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for item in &program.items {
        let file = &program.files[item.file.expect("a file") as usize];
        lines.entry(file.clone()).or_default().insert(item.line);
    }
    lines
}

/// Names of functions that have points, with their files and lines.
pub fn functions(program: &Program) -> Vec<(String, String, u32)> {
    let counted = program.functions.iter().filter(|function| function.counted);
    let mut all: Vec<(String, String, u32)> = counted
        .map(|function| {
            let file = function.file.map(|file| program.files[file as usize].clone()).unwrap_or_default();
            (function.name.clone(), file, function.line)
        })
        .collect();
    all.sort();
    all
}

/// Checks what must hold for every program.
pub fn sound(program: &Program) {
    assert!(program.points.windows(2).all(|two| two[0].offset < two[1].offset));
    assert!(!program.points.is_empty() && !program.items.is_empty());
    let mut seen = vec![false; program.items.len()];
    for index in 0..program.points.len() {
        let items = program.items_of(index);
        assert!(!items.is_empty());
        for item in items {
            seen[*item as usize] = true;
        }
    }
    assert!(seen.iter().all(|seen| *seen), "an item without points");
    let mut items = program.items.clone();
    items.sort();
    items.dedup();
    assert_eq!(items.len(), program.items.len(), "an item twice");
}
