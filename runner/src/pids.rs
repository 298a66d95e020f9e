//! How many processes of the host the stubs of a worker may be ([`per_worker`]): RLIMIT_NPROC and control groups limit them, and
//! Bloodhound must not use up what others need. What is beyond is made again when it runs; no program notices.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use crate::cpus;

/// As many as are useful.
const MOST: u64 = 1024;
/// Those that threads and commands of the host may need meanwhile.
const RESERVE: u64 = 64;

/// Processes for the stubs of one worker.
pub fn per_worker() -> usize {
    static ANSWER: OnceLock<usize> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        share(groups.lines().filter_map(left_in_group).chain(limit()).min(), cpus::jobs() as u64) as usize
    })
}

/// A worker's share of what is left: half of it stays free.
fn share(left: Option<u64>, workers: u64) -> u64 {
    left.map_or(MOST, |left| left.saturating_sub(RESERVE) / 2 / workers.max(1)).clamp(2, MOST)
}

/// RLIMIT_NPROC, from /proc/self/limits. That of root is not enforced.
fn limit() -> Option<u64> {
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return None;
    }
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max processes"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What the control group of a line of /proc/self/cgroup, and those above it, leave of pids.max (cgroups(7)).
fn left_in_group(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (controllers, path) = (parts.nth(1)?, parts.next()?);
    let root = match controllers {
        "" => "/sys/fs/cgroup",
        list if list.split(',').any(|name| name == "pids") => "/sys/fs/cgroup/pids",
        _ => return None,
    };
    crate::memory::least_left(root, path, "pids.max", "pids.current")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_left_is_shared() {
        assert_eq!(share(None, 2), MOST);
        assert_eq!(share(Some(2000), 2), 484);
        assert_eq!(share(Some(0), 2), 2);
        assert_eq!(share(Some(1 << 30), 2), MOST);
        assert!(per_worker() >= 2);
    }
}
