//! Doing something for several things at once: layers are fetched and read by a few threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;

/// Threads, at most. Registries serve a client's blobs faster by several connections, but not by many.
const THREADS: usize = 4;

/// Does it for each item. The first error, in the order of the items, is the result; what has begun is finished, and no more begun.
pub(crate) fn each<T: Sync>(
    items: &[T],
    work: &(dyn Fn(&T) -> Result<(), Error> + Sync),
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let first_error = || failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..items.len().min(THREADS) {
            scope.spawn(|| {
                while first_error().is_none() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { break };
                    if let Err(error) = work(item) {
                        let mut failed = first_error();
                        if failed.as_ref().is_none_or(|(other, _)| number < *other) {
                            *failed = Some((number, error));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failed.map_or(Ok(()), |(_, error)| Err(error))
}
