//! Rust: two mutexes, taken in opposite orders.
//!
//! Race: the lock operations of both threads. It blocks for ever if each thread is preempted after its first lock and before its
//! second one. `--cfg fixed` is the repaired variant.

use std::sync::{Arc, Mutex};
use std::thread;

fn main() {
    let pair = Arc::new((Mutex::new(1), Mutex::new(2)));
    let other = pair.clone();
    let thread = thread::spawn(move || {
        if cfg!(fixed) {
            let first = other.0.lock().expect("no panic");
            let second = other.1.lock().expect("no panic");
            *first + *second
        } else {
            let second = other.1.lock().expect("no panic");
            let first = other.0.lock().expect("no panic");
            *first + *second
        }
    });
    let first = pair.0.lock().expect("no panic");
    let second = pair.1.lock().expect("no panic");
    assert_eq!(*first + *second, 3);
    drop((first, second));
    assert_eq!(thread.join().expect("it adds"), 3);
}
