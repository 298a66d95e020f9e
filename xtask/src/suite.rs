//! `cargo xtask suite`: the tests of the Open POSIX Test Suite, each natively and under Bloodhound, and how many of those that pass natively
//! pass there.
//!
//! Key types: [`Args`]; [`Ended`] of one run. The suite is Debian's source package `posixtestsuite`, which is fetched and built below
//! `target/suites`; none of it is in the repository. A test says what it found by its exit code.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;

use crate::failure::{Failure, broken_at};

/// The package of Debian.
const PACKAGE: &str = "posixtestsuite";
/// What timeout(1) exits with when the time of its command is over, and when that had to be killed.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Runs the Open POSIX Test Suite natively and under Bloodhound, and compares
#[derive(Parser, Debug)]
pub struct Args {
    /// Directory of the suite, if it is there already; otherwise Debian's source package is fetched
    #[arg(long)]
    source: Option<PathBuf>,
    /// The command
    #[arg(long, default_value = "target/release/bloodhound")]
    bloodhound: PathBuf,
    /// ptrace or kvm
    #[arg(long, default_value = "auto")]
    platform: String,
    /// Seconds of this machine's time for one test, natively and under Bloodhound each
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Only tests with one of these in their name
    names: Vec<String>,
}

/// How a run of one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Status(i32),
    Signal(i32),
    /// It was killed when its time was over.
    Late,
}

impl Ended {
    fn tell(self) -> String {
        // posixtest.h of the suite.
        match self {
            Ended::Status(0) => "pass".into(),
            Ended::Status(1) => "fail".into(),
            Ended::Status(2) => "unresolved".into(),
            Ended::Status(4) => "unsupported".into(),
            Ended::Status(5) => "untested".into(),
            Ended::Status(code) => format!("exit status {code}"),
            Ended::Signal(signal) => format!("signal {signal}"),
            Ended::Late => "not ended".into(),
        }
    }
}

/// Runs the suite. The exit code is 1 if a test passes natively and not under Bloodhound, or if none passes natively.
pub fn run(args: &Args) -> Result<u8, Failure> {
    check_natively()?;
    let base = PathBuf::from("target/suites");
    fs::create_dir_all(&base).map_err(broken_at(&base))?;
    let bloodhound = fs::canonicalize(&args.bloodhound).map_err(broken_at(&args.bloodhound))?;
    let source = match &args.source {
        Some(source) => source.clone(),
        None => fetched(&base)?,
    };
    let tests = built(&source, &base.join("bin"), args)?;
    let results = compared(args, &bloodhound, &tests)?;
    let natively = results.iter().filter(|(_, native, _)| *native == Ended::Status(0)).count();
    let lost = |(_, native, here): &&(usize, Ended, Ended)| *native == Ended::Status(0) && here != native;
    let failed = results.iter().filter(lost).count();
    println!(
        "{} tests; {natively} pass natively, {} of them under Bloodhound",
        results.len(),
        natively - failed
    );
    Ok(u8::from(failed > 0 || natively == 0))
}

/// The directory of the suite, from Debian's archive.
fn fetched(base: &Path) -> Result<PathBuf, Failure> {
    let directory = base.join(PACKAGE);
    if directory.exists() {
        return Ok(directory);
    }
    let lacks = || {
        Failure::Missing(format!(
            "the source package {PACKAGE} cannot be fetched: this needs apt-get, and a line of type deb-src for Debian in \
             /etc/apt/sources.list.d; or name the suite's directory by --source"
        ))
    };
    let mut fetch = Command::new("apt-get");
    fetch.args(["source", "--download-only", PACKAGE]).current_dir(base);
    if !fetch.status().map_err(|_| lacks())?.success() {
        return Err(lacks());
    }
    let entries = fs::read_dir(base).map_err(broken_at(base))?;
    let archive = entries.filter_map(Result::ok).map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with(PACKAGE) && name.contains(".orig.tar.")
        })
    });
    let archive = archive.ok_or_else(lacks)?;
    // Unpacked under another name first, so that what is there is whole.
    let partial = base.join("partial");
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(broken_at(&partial)(error)),
        _ => fs::create_dir_all(&partial).map_err(broken_at(&partial))?,
    }
    let mut unpack = Command::new("tar");
    unpack.arg("xf").arg(&archive).arg("-C").arg(&partial).arg("--strip-components=1");
    if !unpack.status().map_err(broken_at(&archive))?.success() {
        return Err(Failure::Broken(format!("{}: tar cannot unpack it", archive.display())));
    }
    fs::rename(&partial, &directory).map_err(broken_at(&directory))?;
    Ok(directory)
}

/// The programs of all tests that can be built, by name.
fn built(source: &Path, bin: &Path, args: &Args) -> Result<Vec<PathBuf>, Failure> {
    let root = fs::canonicalize(source).map_err(broken_at(source))?;
    let mut files = Vec::new();
    for part in ["conformance/interfaces", "functional"] {
        collect(&root.join(part), &mut files)?;
    }
    files.sort();
    fs::create_dir_all(bin).map_err(broken_at(bin))?;
    let bin = fs::canonicalize(bin).map_err(broken_at(bin))?;
    let (mut programs, mut left_out) = (Vec::new(), 0);
    for file in &files {
        let path = file.strip_prefix(&root).unwrap_or(file).with_extension("");
        let name = path.to_string_lossy().replace("conformance/interfaces/", "").replace('/', "_");
        if !args.names.is_empty() && !args.names.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let program = bin.join(name);
        // What is there may be of another directory than one that is named.
        let kept = args.source.is_none() && program.exists();
        if kept || compile(&root, file, &program) { programs.push(program) } else { left_out += 1 }
    }
    if programs.is_empty() {
        return Err(Failure::Broken(format!("{}: no test of the suite can be built here", root.display())));
    }
    println!("{} tests; {left_out} others cannot be built on this machine", programs.len());
    Ok(programs)
}

/// Sources of tests: `NUMBER-NUMBER.c`.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(directory).map_err(broken_at(directory))? {
        let path = entry.map_err(broken_at(directory))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            collect(&path, files)?;
        } else if name.ends_with(".c")
            && name.starts_with(|first: char| first.is_ascii_digit())
            && name.contains('-')
            && !name.contains("buildonly")
        {
            files.push(path);
        }
    }
    Ok(())
}

fn compile(root: &Path, file: &Path, program: &Path) -> bool {
    let Some(directory) = file.parent() else { return false };
    let mut cc = Command::new("cc");
    cc.args(["-w", "-O1", "-D_GNU_SOURCE", "-D_XOPEN_SOURCE=600", "-I."]).arg("-I").arg(root.join("include"));
    cc.arg("-o").arg(program).arg(file);
    let helpers = directory.join("helpers.c");
    if helpers.exists() {
        cc.arg(helpers);
    }
    cc.args(["-lpthread", "-lrt", "-lm"]).current_dir(directory).stderr(Stdio::null());
    cc.status().is_ok_and(|status| status.success())
}

/// Runs all tests, as many at once as there are processors, and tells the differences: number of the test, natively, and here.
fn compared(
    args: &Args,
    bloodhound: &Path,
    tests: &[PathBuf],
) -> Result<Vec<(usize, Ended, Ended)>, Failure> {
    let next = AtomicUsize::new(0);
    let one_after_another = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(test) = tests.get(index) else { return Ok(results) };
            let native = ended(args.seconds, &NATIVELY, test)?;
            let exec = [
                bloodhound.as_os_str(),
                "exec".as_ref(),
                "--platform".as_ref(),
                args.platform.as_ref(),
                "--".as_ref(),
            ];
            let here = ended(args.seconds, &exec, test)?;
            if native != here {
                let name = test.file_name().unwrap_or_default().to_string_lossy();
                println!("{name}: natively {}, under Bloodhound {}", native.tell(), here.tell());
            }
            results.push((index, native, here));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..workers).map(|_| scope.spawn(one_after_another)).collect();
        let mut results = Vec::new();
        for worker in all {
            results.extend(worker.join().expect("no worker panics")?);
        }
        Ok(results)
    })
}

/// In namespaces of its own, so that its signals, queues and semaphores are nobody else's, and without the right to set this machine's
/// clock.
const NATIVELY: [&str; 12] = [
    "setpriv",
    "--bounding-set",
    "-sys_time",
    "--inh-caps",
    "-sys_time",
    "--",
    "unshare",
    "--pid",
    "--fork",
    "--ipc",
    "--mount-proc",
    "--kill-child",
];

/// Runs a test by a command to its end, or for so many seconds.
fn ended(seconds: u64, by: &[impl AsRef<OsStr>], test: &Path) -> Result<Ended, Failure> {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=5").arg(seconds.to_string()).args(by).arg(test);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| Failure::Missing(format!("timeout: {error}")))?;
    let Some(code) = status.code() else { return Ok(Ended::Signal(status.signal().unwrap_or(0))) };
    Ok(match code {
        code if TIMED_OUT.contains(&code) => Ended::Late,
        // A shell's way to tell a signal, which `bloodhound exec` and timeout(1) follow.
        code if code > 128 => Ended::Signal(code - 128),
        code => Ended::Status(code),
    })
}

/// Whether a program that does nothing runs natively as the tests do, so that a machine that cannot start them is not taken for tests that
/// fail.
fn check_natively() -> Result<(), Failure> {
    match ended(10, &NATIVELY, Path::new("true"))? {
        Ended::Status(0) => Ok(()),
        other => Err(Failure::Missing(format!(
            "a program cannot be run in namespaces of its own ({}): this needs root, and setpriv and unshare of util-linux",
            other.tell()
        ))),
    }
}
