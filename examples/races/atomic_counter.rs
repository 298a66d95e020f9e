//! Rust: a counter of atomic type that is changed by a load and a store.
//!
//! Race: the load of `COUNTER` in one thread and the store to it in the other one. It fails if a thread is preempted between the two
//! and the other one counts. Without data races by Rust's rules, and wrong all the same. `--cfg fixed` is the repaired variant.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

static COUNTER: AtomicUsize = AtomicUsize::new(0);

fn count() {
    if cfg!(fixed) {
        COUNTER.fetch_add(1, Ordering::SeqCst);
    } else {
        let seen = COUNTER.load(Ordering::SeqCst);
        COUNTER.store(seen + 1, Ordering::SeqCst);
    }
}

fn main() {
    let threads: Vec<_> = (0..2).map(|_| thread::spawn(count)).collect();
    for thread in threads {
        thread.join().expect("it counts");
    }
    assert_eq!(COUNTER.load(Ordering::SeqCst), 2);
}
