//! What runs in the virtual machine: the script of its commands, and the builds on this machine that they need.
//!
//! Key types: [`Work`], [`Platform`]. Function: [`commands`]. The tests are the executables that cargo makes here; they find
//! their files under the same paths there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use super::Place;
use crate::failure::Failure;

/// What the tests get as BLOODHOUND_TEST_PLATFORM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// The virtual machine's /dev/kvm
    Kvm,
    /// Processes under ptrace, to compare with
    Ptrace,
}

impl Platform {
    fn name(self) -> &'static str {
        match self {
            Platform::Kvm => "kvm",
            Platform::Ptrace => "ptrace",
        }
    }
}

/// What is wanted of the virtual machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// A shell on the terminal.
    Shell,
    /// Facts about /dev/kvm.
    Probe,
    /// One command, as it is.
    Command(Vec<String>),
    /// The tests that take a few minutes.
    Short,
    /// All tests.
    Full,
}

/// Conformance programs of the short run, static and dynamic ones: memory, signals, threads, processes, files, sockets.
const SHORT_PROGRAMS: [&str; 6] =
    ["static/memory", "dynamic/signals", "static/threads", "dynamic/process", "dynamic/files", "static/tcp"];

/// The modules of the runner's tests (`runner/tests`) that run programs.
const PROGRAM_TESTS: [&str; 4] = ["conformance::", "vdso::", "hostile::", "programs::"];

/// Variables that commands get from this process: to find programs and cargo's files, and what tests listen to. Cargo sets
/// many more for this process, which would mislead a cargo there.
const VARIABLES: [&str; 9] = [
    "PATH",
    "HOME",
    "LANG",
    "TERM",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "RUST_BACKTRACE",
    "RUST_TEST_THREADS",
];

/// The script of the commands. Builds first what they need.
///
/// # Errors
/// A build that fails.
pub fn commands(work: &Work, platform: Platform, place: &Place) -> Result<String, Failure> {
    let mut script = Script::new(if *work == Work::Short { 200 } else { 3000 });
    script.environment(platform);
    let here = std::env::current_dir().unwrap_or_else(|_| place.workspace.clone());
    match work {
        Work::Shell => script.line("shell", &[&here.to_string_lossy()]),
        Work::Command(words) => script.only(&here, words),
        Work::Probe => script.only(&here, &[probe()?, "probe-kvm".into()]),
        Work::Short | Work::Full => tests(*work == Work::Short, platform, place, &mut script)?,
    }
    Ok(script.text)
}

/// This program, which also runs there.
fn probe() -> Result<String, Failure> {
    let path = std::env::current_exe().map_err(|e| Failure::Broken(format!("/proc/self/exe: {e}")))?;
    Ok(path.to_string_lossy().into_owned())
}

fn tests(short: bool, platform: Platform, place: &Place, script: &mut Script) -> Result<(), Failure> {
    let all = test_executables(place)?;
    let bloodhound = place.target.join("release/bloodhound").to_string_lossy().into_owned();
    script.run("probe of /dev/kvm", &place.workspace, &[&probe()?, "probe-kvm"]);
    let package = format!("platform-{}", platform.name());
    let of_platform: Vec<&Test> = all.iter().filter(|test| test.package == package).collect();
    if of_platform.is_empty() {
        return Err(Failure::Broken(format!("cargo has built no test of {package}")));
    }
    of_platform.iter().for_each(|test| script.test(test));
    let build = place.workspace.join("conformance/build.sh");
    run_here(Command::new(&build).env("CARGO_TARGET_DIR", &place.target), &build.to_string_lossy())?;
    if short {
        for name in SHORT_PROGRAMS {
            let program = format!("conformance/bin/{name}");
            let both = ["verify", "--platform", "ptrace,kvm", "--"];
            let one = ["exec", "--summary", "--"];
            let options: &[&str] = if platform == Platform::Kvm { &both } else { &one };
            let mut words = vec![bloodhound.as_str()];
            words.extend(options);
            words.push(&program);
            script.run(&program, &place.workspace, &words);
        }
    } else {
        let test = all.iter().find(|test| test.package == "runner" && test.name == "command");
        let test = test.ok_or_else(|| Failure::Broken("cargo has built no test of the command".into()))?;
        for module in PROGRAM_TESTS {
            script.module(test, module);
        }
    }
    script.run("bloodhound doctor", &place.workspace, &[&bloodhound, "doctor"]);
    Ok(())
}

/// A shell script of calls to the functions in guest.sh.
struct Script {
    text: String,
    /// After so many seconds a test is ended, so that the others have their turn.
    limit: u32,
}

impl Script {
    fn new(limit: u32) -> Script {
        Script { text: String::new(), limit }
    }

    fn environment(&mut self, platform: Platform) {
        for name in VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                self.line("export", &[&format!("{name}={}", value.to_string_lossy())]);
            }
        }
        for (name, value) in std::env::vars_os() {
            if let Some(name) = name.to_str().filter(|name| name.starts_with("BLOODHOUND_")) {
                self.line("export", &[&format!("{name}={}", value.to_string_lossy())]);
            }
        }
        self.line("export", &[&format!("BLOODHOUND_TEST_PLATFORM={}", platform.name())]);
    }

    fn test(&mut self, test: &Test) {
        let title = format!("{}: tests of {}", test.package, test.name);
        self.run(&title, &test.directory, &[&test.executable]);
    }

    /// The tests of one module.
    fn module(&mut self, test: &Test, module: &str) {
        let title = format!("{}: tests of {module}", test.package);
        self.run(&title, &test.directory, &[&test.executable, module]);
    }

    fn run(&mut self, title: &str, directory: &Path, words: &[&str]) {
        let (limit, directory) = (self.limit.to_string(), directory.to_string_lossy());
        let mut all = vec![limit.as_str(), title, &directory];
        all.extend(words);
        self.line("run", &all);
    }

    fn only(&mut self, directory: &Path, words: &[String]) {
        let directory = directory.to_string_lossy();
        let mut all: Vec<&str> = vec![&directory];
        all.extend(words.iter().map(String::as_str));
        self.line("only", &all);
    }

    fn line(&mut self, function: &str, words: &[&str]) {
        self.text.push_str(function);
        for word in words {
            // Writing to a string cannot fail.
            let _infallible = write!(self.text, " {}", quoted(word));
        }
        self.text.push('\n');
    }
}

/// A word as the shell takes it unchanged.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The workspace and cargo's target directory.
///
/// # Errors
/// This is not the workspace, or cargo is not there.
pub fn directories() -> Result<(PathBuf, PathBuf), Failure> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(cargo_program())
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(&workspace)
        .stderr(Stdio::inherit())
        .output();
    let output = output.map_err(|e| Failure::Missing(format!("cargo: {e}")))?;
    let about: Json = serde_json::from_slice(&output.stdout)
        .map_err(|e| Failure::Broken(format!("cargo metadata: {e}")))?;
    let path = |key: &str| about[key].as_str().map(PathBuf::from);
    path("workspace_root")
        .zip(path("target_directory"))
        .ok_or_else(|| Failure::Broken("cargo metadata names no target directory".into()))
}

fn cargo_program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs a command on this machine with its output on standard error: standard output is the tests'.
fn run_here(command: &mut Command, text: &str) -> Result<(), Failure> {
    eprintln!("+ {text}");
    match command.stdin(Stdio::null()).stdout(std::io::stderr()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Broken(format!("{text}: {status}"))),
        Err(error) => Err(Failure::Broken(format!("{text}: {error}"))),
    }
}

/// A test executable.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    /// The directory of its package, without those above it.
    package: String,
    name: String,
    executable: String,
    /// The package's, where cargo runs tests.
    directory: PathBuf,
}

/// Builds all tests and the command, and finds the executables of tests. It is what `test.sh` builds: for a part of the packages cargo would
/// compile nearly all of them once more, as other features of dependencies would be wanted.
fn test_executables(place: &Place) -> Result<Vec<Test>, Failure> {
    let arguments =
        ["test", "--release", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    let text = format!("cargo {}", arguments.join(" "));
    eprintln!("+ {text}");
    let mut command = Command::new(cargo_program());
    command.args(arguments).current_dir(&place.workspace).stderr(Stdio::inherit());
    // What cargo says of the package of this program: a dependency whose build script looks at it would be compiled once more.
    let of_package = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(of_package).for_each(|name| {
        command.env_remove(name);
    });
    let output = command.output();
    let output = output.map_err(|e| Failure::Missing(format!("cargo: {e}")))?;
    if !output.status.success() {
        return Err(Failure::Broken(format!("{text}: {}", output.status)));
    }
    let mut tests: Vec<Test> = String::from_utf8_lossy(&output.stdout).lines().filter_map(test).collect();
    // Cargo tells them as they are ready.
    tests.sort();
    Ok(tests)
}

/// Reads one message of cargo.
fn test(message: &str) -> Option<Test> {
    let message: Json = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
    Some(Test {
        package: directory.file_name()?.to_str()?.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        executable: message["executable"].as_str()?.to_string(),
        directory: directory.to_path_buf(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_shell_unchanged() {
        let words = ["plain", "", "two words", "it's", "$HOME `id` \\ \" *", "line\nline"];
        let mut script = Script::new(1);
        script.line("printf '%s|'", &words);
        let output = Command::new("sh").arg("-c").arg(&script.text).output().expect("sh");
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text, words.map(|word| format!("{word}|")).concat());
    }

    #[test]
    fn test_executables_are_found_in_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/w/vmm/abi/Cargo.toml","profile":{"test":true},
            "target":{"name":"traps"},"executable":"/t/release/deps/traps-1"}"#;
        let found = test(message).expect("a test");
        assert_eq!(
            (found.package.as_str(), found.name.as_str(), found.executable.as_str()),
            ("abi", "traps", "/t/release/deps/traps-1")
        );
        assert_eq!(found.directory, Path::new("/w/vmm/abi"));
        assert_eq!(test(&message.replace("true", "false")), None);
        assert_eq!(test(&message.replace("\"/t/release/deps/traps-1\"", "null")), None);
        assert_eq!(test("not JSON"), None);
    }
}
