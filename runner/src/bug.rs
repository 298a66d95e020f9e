//! Panics of ours: what is printed, and exit code 70.
//!
//! [`install`] once at the start of the process; [`catch`] around work whose panic the caller wants to report with
//! more than the hook knows (its seed, say) and which must not end the process.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Mutex;

use crate::{exit, output};

/// Held by the first thread that reports until the process ends.
static REPORTING: Mutex<()> = Mutex::new(());

thread_local! {
    /// What the panic under way on this thread says, where [`catch`] wants it.
    static CAUGHT: Cell<Option<String>> = const { Cell::new(None) };
    static CATCHING: Cell<u32> = const { Cell::new(0) };
}

/// From now on a panic prints a report for us and ends the process with [`exit::BUG`].
pub fn install() {
    std::panic::set_hook(Box::new(hook));
}

fn hook(info: &PanicHookInfo<'_>) {
    let message = message(info);
    if CATCHING.get() > 0 {
        CAUGHT.set(Some(message));
        return;
    }
    if message.starts_with("failed printing to ") {
        // `println!` to a pipe that nobody reads.
        output::eprint(&format!("bloodhound: {message}\n"));
        std::process::exit(i32::from(exit::ENVIRONMENT));
    }
    // A second thread that panics as well waits here until the first has ended the process.
    let _first = REPORTING.lock();
    output::eprint(&report(&message, &std::env::args().collect::<Vec<_>>()));
    let backtrace = std::backtrace::Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        output::eprint(&format!("{backtrace}\n"));
    }
    std::process::exit(i32::from(exit::BUG));
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

/// What is printed about a bug.
pub fn report(message: &str, arguments: &[String]) -> String {
    format!(
        "bloodhound: internal error: {message}\n\
         \n\
         This is a bug of Bloodhound, not of the services it runs. Please report it with these lines:\n\
         \x20 version: {}\n\
         \x20 command: {}\n\
         and, if you can, bloodhound.yaml, the compose file, the seed, and the output of `bloodhound doctor`.\n\
         RUST_BACKTRACE=1 adds a backtrace.\n",
        env!("CARGO_PKG_VERSION"),
        arguments.iter().map(|a| quote(a)).collect::<Vec<_>>().join(" "),
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

/// Runs `work`; a panic in it becomes an error with its message and place. The caller drops whatever `work` left
/// half done.
///
/// # Errors
/// The text of the panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    CATCHING.set(CATCHING.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(CATCHING.get() - 1);
    result.map_err(|_| CAUGHT.take().unwrap_or_else(|| "a panic without text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_is_needed() {
        let arguments = ["bloodhound", "test", "--config", "my file's.yaml"].map(str::to_owned);
        let text = report("index out of bounds\n  at src/x.rs:3", &arguments);
        assert!(text.starts_with("bloodhound: internal error: index out of bounds\n  at src/x.rs:3\n"));
        assert!(text.contains("This is a bug of Bloodhound"));
        assert!(text.contains("command: bloodhound test --config 'my file'\\''s.yaml'\n"), "{text}");
        assert!(text.contains(env!("CARGO_PKG_VERSION")));
    }

    /// The hook is the process's: these run in a process of their own, as tests that are ignored otherwise.
    fn child(name: &str) -> std::process::Output {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "--test-threads=1", name])
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap()
    }

    #[test]
    fn a_panic_ends_the_process_with_70_and_a_report() {
        let output = child("bug::tests::panicking");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{text}");
        assert!(text.contains("internal error: 2 + 2 = 5\n  at "), "{text}");
        assert!(text.contains("This is a bug of Bloodhound"), "{text}");
    }

    #[test]
    #[ignore = "run by a_panic_ends_the_process_with_70_and_a_report"]
    fn panicking() {
        install();
        std::thread::spawn(|| panic!("2 + 2 = {}", 5)).join().unwrap();
    }

    #[test]
    fn a_caught_panic_is_an_error_and_nothing_is_printed() {
        let output = child("bug::tests::catching");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        assert!(!text.contains("internal error"), "{text}");
    }

    #[test]
    #[ignore = "run by a_caught_panic_is_an_error_and_nothing_is_printed"]
    fn catching() {
        install();
        assert_eq!(catch(|| 3), Ok(3));
        let text = catch(|| -> u8 { panic!("seed {}", 7) }).unwrap_err();
        assert!(text.starts_with("seed 7\n  at "), "{text}");
        assert_eq!(catch(|| catch(|| panic!("inner")).is_err()), Ok(true));
    }
}
