//! Panics of ours: what is printed, and exit code 70.
//!
//! [`install`] once at the start of the process; [`doing`] says what a thread is at, so that the report has it.

use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::Mutex;

use crate::{exit, output};

/// Held by the first thread that reports until the process ends.
static REPORTING: Mutex<()> = Mutex::new(());

thread_local! {
    static DOING: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether a panic of this thread is to be told and no more, and what was told.
    static CONTAINED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`; a panic in it is reported as one that ends the process, and does not end it: whoever asked has results to
/// save first. What `work` had in its hands must not be used any more.
///
/// # Errors
/// The panic's message, with its place.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = CONTAINED.replace(Some(String::new()));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    let told = CONTAINED.replace(before).unwrap_or_default();
    // Without the hook (in tests) there is the payload only.
    result.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|t| (*t).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        if told.is_empty() { text } else { told }
    })
}

/// What this thread does from now on, for the report: the seed that it runs, for instance.
pub fn doing(what: String) {
    DOING.with_borrow_mut(|doing| *doing = what);
}

/// From now on a panic prints a report for us and ends the process with [`exit::BUG`].
pub fn install() {
    std::panic::set_hook(Box::new(hook));
}

fn hook(info: &PanicHookInfo<'_>) {
    let message = message(info);
    if message.starts_with("failed printing to ") {
        // `println!` to a pipe that nobody reads.
        output::eprint(&format!("bloodhound: {message}\n"));
        std::process::exit(i32::from(exit::ENVIRONMENT));
    }
    // A second thread that panics as well waits here until the first has ended the process, or told what it has to.
    let _first = REPORTING.lock();
    let doing = DOING.with(|doing| doing.try_borrow().map(|text| text.clone()).unwrap_or_default());
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let host = message.starts_with(bloodhound_vfs::HOST_FAULT);
    if host {
        output::eprint(&format!(
            "bloodhound: {message}\nhelp: `bloodhound image prune` removes what is damaged from the cache of images\n"
        ));
    } else {
        output::eprint(&report(&message, &doing, &arguments));
    }
    let backtrace = std::backtrace::Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        output::eprint(&format!("{backtrace}\n"));
    }
    let contained = CONTAINED.with(|told| {
        told.try_borrow_mut().is_ok_and(|mut told| told.as_mut().map(|told| *told = message).is_some())
    });
    if contained {
        return;
    }
    std::process::exit(i32::from(if host { exit::ENVIRONMENT } else { exit::BUG }));
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let text = info.payload_as_str().unwrap_or("a panic without text");
    match info.location() {
        Some(at) if !text.starts_with("failed printing to ") => {
            format!("{text}\n  at {}:{}", at.file(), at.line())
        }
        _ => text.to_owned(),
    }
}

/// What is printed about a bug. `doing` may be empty.
fn report(message: &str, doing: &str, arguments: &[String]) -> String {
    let command = arguments.iter().map(|a| quote(a)).collect::<Vec<_>>().join(" ");
    let mut facts = vec![("version", env!("CARGO_PKG_VERSION")), ("command", &command)];
    if !doing.is_empty() {
        facts.push(("doing", doing));
    }
    let facts: String = facts.iter().map(|(name, value)| format!("  {name}: {value}\n")).collect();
    format!(
        "bloodhound: internal error: {message}\n\n\
         This is a bug of Bloodhound, not of the services it runs. Please report it with these lines:\n\
         {facts}\
         and, if you can, bloodhound.yaml, the compose file, the seed, and the output of `bloodhound doctor`.\n\
         RUST_BACKTRACE=1 adds a backtrace.\n"
    )
}

/// A word as a POSIX shell reads it back.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_is_needed() {
        let arguments = ["bloodhound", "test", "--config", "my file's.yaml"].map(str::to_owned);
        let text = report("index out of bounds\n  at src/x.rs:3", "seed 7", &arguments);
        assert!(text.starts_with("bloodhound: internal error: index out of bounds\n  at src/x.rs:3\n"));
        assert!(text.contains("This is a bug of Bloodhound"));
        assert!(text.contains("command: bloodhound test --config 'my file'\\''s.yaml'\n"), "{text}");
        assert!(text.contains(env!("CARGO_PKG_VERSION")));
        assert!(text.contains("\n  doing: seed 7\n"), "{text}");
    }

    #[test]
    fn a_panic_ends_the_process_with_70_and_a_report() {
        // The hook is the process's and ends it: so in a process of its own.
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "--test-threads=1", "bug::tests::panicking"])
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{text}");
        assert!(text.contains("internal error: 2 + 2 = 5\n  at "), "{text}");
        assert!(text.contains("\n  doing: seed 42\n"), "{text}");
        assert!(text.contains("This is a bug of Bloodhound"), "{text}");
    }

    #[test]
    #[ignore = "run by a_panic_ends_the_process_with_70_and_a_report"]
    fn panicking() {
        install();
        let thread = std::thread::spawn(|| {
            doing("seed 42".into());
            panic!("2 + 2 = {}", 5)
        });
        thread.join().unwrap();
    }
}
