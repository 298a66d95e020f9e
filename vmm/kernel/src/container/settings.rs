//! What an engine sets for the processes of a container: capabilities, limits, kernel parameters of its namespaces, the limits of
//! its cgroup.
//!
//! Key type: [`Settings`]. Neighbours: `exec` (processes begin with it), `procfs` (what is shown of it). That of memory is
//! enforced by `memory`, that of tasks by clone(2); that of the processor is shown only.

use std::collections::BTreeMap;

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Rlimit;

use crate::caps::DOCKER;

/// What an engine sets; the default is a container without anything said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bounding set of its processes, which root has.
    pub capabilities: u64,
    /// Limits of its processes by RLIMIT_* number.
    pub limits: [Rlimit; 16],
    /// PR_SET_NO_NEW_PRIVS for its processes.
    pub no_new_privileges: bool,
    /// umask(2) of its processes.
    pub umask: u32,
    /// Kernel parameters by their path below /proc/sys, instead of what an untouched Linux has.
    pub sysctls: BTreeMap<String, String>,
    /// Most memory in bytes.
    pub memory: Option<u64>,
    /// What makes its processes more or less likely to be killed when there is no memory left, -1000 to 1000 (proc(5)).
    pub oom_score_adj: i16,
    /// Most tasks.
    pub pids: Option<u64>,
    /// Most of the processor, in thousandths.
    pub cpu_milli: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            capabilities: DOCKER,
            limits: default_limits(),
            no_new_privileges: false,
            umask: 0o022,
            sysctls: BTreeMap::new(),
            memory: None,
            oom_score_adj: 0,
            pids: None,
            cpu_milli: None,
        }
    }
}

fn default_limits() -> [Rlimit; 16] {
    let unlimited = Rlimit { cur: u64::MAX, max: u64::MAX };
    let mut limits = [unlimited; 16];
    limits[c::RLIMIT_STACK as usize] = Rlimit { cur: 8 << 20, max: u64::MAX };
    limits[c::RLIMIT_CORE as usize] = Rlimit { cur: 0, max: u64::MAX };
    limits[c::RLIMIT_NOFILE as usize] = Rlimit { cur: 1024, max: 1_048_576 };
    limits[c::RLIMIT_NPROC as usize] = Rlimit { cur: 32_768, max: 32_768 };
    limits[c::RLIMIT_MEMLOCK as usize] = Rlimit { cur: 8 << 20, max: 8 << 20 };
    limits[c::RLIMIT_SIGPENDING as usize] = Rlimit { cur: 32_768, max: 32_768 };
    limits[c::RLIMIT_MSGQUEUE as usize] = Rlimit { cur: 819_200, max: 819_200 };
    limits[c::RLIMIT_NICE as usize] = Rlimit { cur: 0, max: 0 };
    limits[c::RLIMIT_RTPRIO as usize] = Rlimit { cur: 0, max: 0 };
    limits
}
