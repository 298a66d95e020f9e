//! Checks in the manner of TAP, as `c/tap.h` has them for the C programs.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);

/// One check: prints a line that is the same in every run in which it holds.
pub fn check(what: &str, held: bool) {
    let number = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    if held {
        println!("ok {number} - {what}");
    } else {
        FAILED.fetch_add(1, Ordering::SeqCst);
        println!("not ok {number} - {what}");
    }
}

/// Checks that two values are equal.
pub fn check_eq<T: PartialEq + Debug>(what: &str, got: T, expected: T) {
    let held = got == expected;
    check(what, held);
    if !held {
        println!("# got {got:?}, expected {expected:?}");
    }
}

/// Prints the plan and ends the process.
pub fn done() -> ! {
    println!("1..{}", COUNT.load(Ordering::SeqCst));
    std::process::exit(i32::from(FAILED.load(Ordering::SeqCst) > 0))
}
