//! Processes and descriptors: a thousand spaces leave none behind. It counts what the whole process has, so no other
//! test may run beside it.
//!
//! Neighbours: `stress`, for what many spaces compute.

#![allow(missing_docs)] // the names say it

use bloodhound_platform::{Platform, SpaceId, TaskKey, XState};

use crate::{Make, repetitions};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

pub fn a_thousand_spaces_leak_nothing<P: Platform>(make: Make<P>) {
    bloodhound_frames::init().unwrap();
    let before = (descriptors(), children());
    {
        let mut platform = make(None);
        let live = (descriptors(), children());
        for n in 0..repetitions(&platform.abilities(), 1000) {
            platform.load_xstate(SpaceId(n), TaskKey(n), &XState::initial()).unwrap();
            if n >= 3 {
                platform.drop_space(SpaceId(n - 3));
            }
            if n % 7 == 0 {
                platform.evict_all();
            }
        }
        platform.evict_all();
        let (fds, processes) = (descriptors(), children());
        // What was kept ready for the first space may have gone as well.
        assert!(fds <= live.0 && processes <= live.1, "{fds} of {}, {processes} of {}", live.0, live.1);
    }
    assert_eq!((descriptors(), children()), before);
}
