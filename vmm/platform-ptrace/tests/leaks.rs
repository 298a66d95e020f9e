//! Processes and descriptors: a thousand spaces leave none behind. A test binary of its own, so that it can
//! count what the whole process has.

mod common;

use bloodhound_platform::{Platform, SpaceId, TaskKey, XState};
use bloodhound_platform_ptrace::PtracePlatform;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

#[test]
fn a_thousand_spaces_leak_nothing() {
    bloodhound_frames::init().unwrap();
    let before = (descriptors(), children());
    {
        let mut platform = PtracePlatform::new(None).unwrap();
        let live = (descriptors(), children());
        for n in 0..1000 {
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
        assert_eq!((fds, processes), (live.0, live.1 - 1), "all but the template (and the first spare stub)");
    }
    assert_eq!((descriptors(), children()), before);
}
