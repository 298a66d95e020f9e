//! /sys/fs/cgroup (cgroups(7), version 2) as a container with a cgroup namespace of its own sees it: its limits, and what it uses.
//!
//! Memory is what the container is charged for (`crate::memory`).

use bloodhound_vfs::Dev;

use super::Source::{Make, Text};
use super::{Synth, Table, Tree, View};
use crate::memory::Usage;
use crate::mm::PAGE;
use crate::process::CpuTime;

/// The number of its mount, its device, and `f_type` of statfs(2) (CGROUP2_SUPER_MAGIC). The files are part of the tree of /sys here; mountinfo, stat(2) and
/// statfs(2) show a mount of their own, of which only the lookup of paths knows nothing (RESOLVE_NO_XDEV).
pub(crate) const MOUNT_NUMBER: u32 = 999;
pub(crate) const DEVICE: Dev = Dev { major: 0, minor: 29 };
pub(crate) const MAGIC: u64 = 0x6367_7270;

/// Whether a file is the root of that mount.
pub(crate) fn is_root(synth: &Synth) -> bool {
    synth.tree == Tree::Sys && synth.path == b"fs/cgroup"
}

/// Whether a file is on that mount.
pub(crate) fn has(synth: &Synth) -> bool {
    is_root(synth) || synth.tree == Tree::Sys && synth.path.starts_with(b"fs/cgroup/")
}

/// What is mounted there, in /proc/PID/mounts.
pub(super) const MOUNT: &str = "cgroup /sys/fs/cgroup cgroup2 ro,nosuid,nodev,noexec,relatime 0 0\n";

/// The same in /proc/PID/mountinfo, behind numbers and root.
pub(super) const MOUNT_INFO: &str =
    "/sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot";

pub(super) const TABLE: Table = &[
    ("fs/cgroup/cgroup.controllers", Text("cpuset cpu io memory pids rdma misc\n")),
    ("fs/cgroup/cgroup.events", Text("populated 1\nfrozen 0\n")),
    ("fs/cgroup/cgroup.max.depth", Text("max\n")),
    ("fs/cgroup/cgroup.max.descendants", Text("max\n")),
    ("fs/cgroup/cgroup.procs", Make(procs)),
    ("fs/cgroup/cgroup.subtree_control", Text("")),
    ("fs/cgroup/cgroup.type", Text("domain\n")),
    ("fs/cgroup/cpu.max", Make(cpu_max)),
    ("fs/cgroup/cpu.stat", Make(cpu_stat)),
    ("fs/cgroup/cpu.weight", Text("100\n")),
    ("fs/cgroup/cpuset.cpus", Text("\n")),
    ("fs/cgroup/cpuset.cpus.effective", Text("0\n")),
    ("fs/cgroup/cpuset.mems.effective", Text("0\n")),
    ("fs/cgroup/memory.current", Make(memory_current)),
    ("fs/cgroup/memory.events", Make(memory_events)),
    ("fs/cgroup/memory.high", Text("max\n")),
    ("fs/cgroup/memory.low", Text("0\n")),
    ("fs/cgroup/memory.max", Make(memory_max)),
    ("fs/cgroup/memory.min", Text("0\n")),
    ("fs/cgroup/memory.peak", Make(memory_peak)),
    ("fs/cgroup/memory.stat", Make(memory_stat)),
    ("fs/cgroup/memory.swap.current", Text("0\n")),
    ("fs/cgroup/memory.swap.max", Make(memory_max)),
    ("fs/cgroup/pids.current", Make(pids_current)),
    ("fs/cgroup/pids.max", Make(pids_max)),
];

/// A limit, or `max`.
fn limit(value: Option<u64>) -> String {
    value.map_or("max\n".into(), |value| format!("{value}\n"))
}

/// The processes of who looks, that it sees.
fn procs(view: &View<'_>) -> String {
    let own = view.node.process(view.pid).container;
    let seen = view.node.processes.values().filter(|p| p.container == own && p.pid.ns() == view.pid.ns());
    seen.map(|p| format!("{}\n", p.pid.number())).collect()
}

/// "The maximum bandwidth limit [...] in the following format: $MAX $PERIOD", in microseconds.
fn cpu_max(view: &View<'_>) -> String {
    const PERIOD: u64 = 100_000;
    let quota = view.container().settings.cpu_milli.map(|milli| milli * PERIOD / 1000);
    format!("{} {PERIOD}\n", quota.map_or("max".into(), |quota| quota.to_string()))
}

fn cpu_stat(view: &View<'_>) -> String {
    let own = view.node.process(view.pid).container;
    let mut busy = CpuTime::default();
    for process in view.node.processes.values().filter(|p| p.container == own) {
        busy += process.cpu;
    }
    format!(
        "usage_usec {}\nuser_usec {}\nsystem_usec {}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        busy.total / 1000,
        busy.user() / 1000,
        busy.system() / 1000
    )
}

fn memory_max(view: &View<'_>) -> String {
    // Swap is limited to as much again (docker run, "--memory-swap").
    limit(view.container().settings.memory.map(|bytes| bytes & !4095))
}

fn memory_current(view: &View<'_>) -> String {
    let own = view.node.process(view.pid).container;
    format!("{}\n", view.node.memory_of(own) * PAGE)
}

fn memory_peak(view: &View<'_>) -> String {
    let own = view.node.process(view.pid).container;
    let now = view.node.memory_of(own);
    format!("{}\n", view.node.memory.usage(own).peak.max(now) * PAGE)
}

fn memory_events(view: &View<'_>) -> String {
    let Usage { reached, kills, .. } = view.node.memory.usage(view.node.process(view.pid).container);
    format!("low 0\nhigh 0\nmax {reached}\noom {reached}\noom_kill {kills}\noom_group_kill 0\n")
}

fn memory_stat(view: &View<'_>) -> String {
    let own = view.node.process(view.pid).container;
    let anon = view.node.memory.usage(own).anon * PAGE;
    let kernel = view.node.memory.usage(own).kernel;
    let shared = (view.node.memory_of(own) - kernel.pages()) * PAGE - anon;
    let (slab, sock) = (kernel.bytes() - kernel.sockets, kernel.sockets);
    format!(
        "anon {anon}\nfile {shared}\nkernel {slab}\nkernel_stack 0\npagetables 0\nsock {sock}\nshmem {shared}\nfile_mapped 0\nfile_dirty 0\n\
         file_writeback 0\nanon_thp 0\ninactive_anon 0\nactive_anon {}\ninactive_file 0\nactive_file 0\nunevictable 0\n\
         slab {slab}\npgfault 0\npgmajfault 0\n",
        anon + shared
    )
}

fn pids_current(view: &View<'_>) -> String {
    let own = view.node.process(view.pid).container;
    let of = |p: &&crate::process::Process| p.container == own;
    format!("{}\n", view.node.processes.values().filter(of).map(|p| p.threads.len()).sum::<usize>())
}

fn pids_max(view: &View<'_>) -> String {
    limit(view.container().settings.pids)
}
