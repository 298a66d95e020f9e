//! Files of /proc that tell about the machine: memory, processor, load, mounts.

use bloodhound_vfs::{Dev, MountInfo};

use super::Source::{Bytes, Link, Make, Private, Text};
use super::{Table, View, cgroup, config, counters, sysctl, sysvipc, zones};
use crate::file::FileKind;
use crate::mm::PAGE;
use crate::node::Node;
use crate::task::TaskState;

/// Frequency of the virtual time-stamp counter and processor in MHz.
const MHZ: &str = "1000.000";

/// What `flags` of /proc/cpuinfo shows, in Linux's order: the processor that cpuid shows (`bloodhound-platform`).
pub const CPU_FLAGS: &str = "fpu vme de pse tsc msr pae mce cx8 apic mtrr pge mca cmov pat pse36 clflush mmx fxsr sse \
    sse2 syscall nx rdtscp lm constant_tsc nopl nonstop_tsc cpuid pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 movbe \
    popcnt aes xsave avx f16c lahf_lm abm bmi1 avx2 bmi2 erms";

pub(super) const TABLE: Table = &[
    ("buddyinfo", Make(zones::buddyinfo)),
    ("cgroups", Text("#subsys_name\thierarchy\tnum_cgroups\tenabled\n")),
    ("cmdline", Text("BOOT_IMAGE=/boot/vmlinuz-6.1.0-bloodhound ro quiet\n")),
    ("config.gz", Bytes(config::gz)),
    ("cpuinfo", Make(cpuinfo)),
    (
        "devices",
        Text(
            "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n128 ptm\n136 pts\n\nBlock devices:\n",
        ),
    ),
    ("diskstats", Text("")),
    ("filesystems", Text(FILESYSTEMS)),
    ("interrupts", Text("           CPU0       \n")),
    // The kernel's log, in which is nothing: `Ctx::open_synth` asks who may, and who reads waits.
    ("kmsg", Private(|_| String::new())),
    ("loadavg", Make(loadavg)),
    ("locks", Make(locks)),
    ("meminfo", Make(meminfo)),
    ("modules", Text("")),
    ("mounts", Link("self/mounts")),
    ("net", Link("self/net")),
    ("pagetypeinfo", Private(zones::pagetypeinfo)),
    ("partitions", Text("major minor  #blocks  name\n\n")),
    ("softirqs", Make(counters::softirqs)),
    ("stat", Make(stat)),
    ("swaps", Text("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")),
    ("sysvipc/msg", Make(sysvipc::msg)),
    ("sysvipc/sem", Make(sysvipc::sem)),
    ("sysvipc/shm", Make(sysvipc::shm)),
    ("uptime", Make(uptime)),
    ("version", Make(version)),
    ("vmstat", Make(counters::vmstat)),
    ("zoneinfo", Make(zones::zoneinfo)),
];

const FILESYSTEMS: &str = "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tcgroup2\nnodev\tdevtmpfs\nnodev\tsockfs\n\
    nodev\tpipefs\nnodev\tdevpts\nnodev\tmqueue\n\text4\nnodev\toverlay\n";

/// The types of file systems in the order of their numbers (sysfs(2)).
pub(crate) fn filesystems() -> Vec<&'static str> {
    FILESYSTEMS.lines().filter_map(|line| line.split_once('\t')).map(|(_, name)| name).collect()
}

/// Hundredths of a second in `ns`: Linux's USER_HZ is 100.
pub(super) fn ticks(ns: u64) -> u64 {
    ns / 10_000_000
}

fn version(_: &View<'_>) -> String {
    format!("Linux version {} (bloodhound@bloodhound) #1 SMP PREEMPT_DYNAMIC\n", sysctl::OSRELEASE)
}

/// Total and free memory in KiB: a quarter counts as used by the kernel and its page cache, of which it would give up what programs
/// need, and what the containers have comes to that.
pub(crate) fn memory_kib(node: &Node) -> (u64, u64) {
    let total = node.config.memory / 1024;
    (total, (total / 4 * 3).saturating_sub(node.memory_pages() * (PAGE / 1024)))
}

/// What /proc/meminfo shows in KiB.
pub(super) fn memory_rows(view: &View<'_>) -> Vec<(&'static str, u64)> {
    let (total, free) = memory_kib(view.node);
    // The kernel's part.
    let used = total / 4;
    let kib = |pages: u64| pages * (PAGE / 1024);
    let private = kib(view.node.memory.usage.iter().map(|usage| usage.anon).sum());
    let shared = kib(view.node.memory_pages()) - private;
    vec![
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free + used / 2),
        ("Buffers", 0),
        ("Cached", used / 2 + shared),
        ("SwapCached", 0),
        ("Active", used / 2 + private),
        ("Inactive", used / 4),
        ("Active(anon)", used / 4 + private),
        ("Inactive(anon)", 0),
        ("Active(file)", used / 4),
        ("Inactive(file)", used / 4),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", private),
        ("Mapped", used / 8),
        ("Shmem", shared),
        ("KReclaimable", used / 16),
        ("Slab", used / 8),
        ("SReclaimable", used / 16),
        ("SUnreclaim", used / 16),
        ("KernelStack", 1024),
        ("PageTables", 1024),
        ("SecPageTables", 0),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", total / 2),
        ("Committed_AS", used + private + shared),
        ("VmallocTotal", 34_359_738_367),
        ("VmallocUsed", 1024),
        ("VmallocChunk", 0),
        ("Percpu", 256),
        ("AnonHugePages", 0),
        ("ShmemHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FileHugePages", 0),
        ("FilePmdMapped", 0),
    ]
}

fn meminfo(view: &View<'_>) -> String {
    let rows = memory_rows(view);
    let mut out: String =
        rows.iter().map(|(name, kib)| format!("{:<15} {kib:>8} kB\n", format!("{name}:"))).collect();
    let mapped = view.node.config.memory / 1024;
    out.push_str(&format!("DirectMap4k:    {mapped:>8} kB\nDirectMap2M:    {:>8} kB\n", 0));
    out
}

fn cpuinfo(_: &View<'_>) -> String {
    format!(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 60\nmodel name\t: Bloodhound virtual CPU\n\
         stepping\t: 3\ncpu MHz\t\t: {MHZ}\ncache size\t: 8192 KB\nphysical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\n\
         cpu cores\t: 1\napicid\t\t: 0\ninitial apicid\t: 0\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: 13\n\
         wp\t\t: yes\nflags\t\t: {CPU_FLAGS}\nbugs\t\t:\nbogomips\t: 2000.00\nclflush size\t: 64\n\
         cache_alignment\t: 64\naddress sizes\t: 48 bits physical, 48 bits virtual\npower management:\n\n"
    )
}

/// Time since boot and time idle, in hundredths of a second.
fn busy_idle(node: &Node) -> (u64, u64) {
    let busy = ticks(node.processes.values().map(|p| p.cpu.total).sum());
    (busy, ticks(node.uptime()).saturating_sub(busy))
}

fn stat(view: &View<'_>) -> String {
    let node = view.node;
    let (busy, idle) = busy_idle(node);
    let running = node.tasks.values().filter(|t| t.state == TaskState::Runnable).count();
    format!(
        "cpu  0 0 {busy} {idle} 0 0 0 0 0 0\ncpu0 0 0 {busy} {idle} 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime {}\n\
         processes {}\nprocs_running {running}\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
        node.time.offset().saturating_add_signed(-node.time.boot()) / 1_000_000_000,
        node.last_number(view.pid.ns()),
    )
}

fn uptime(view: &View<'_>) -> String {
    let (up, idle) = (ticks(view.node.uptime()), busy_idle(view.node).1);
    format!("{}.{:02} {}.{:02}\n", up / 100, up % 100, idle / 100, idle % 100)
}

fn loadavg(view: &View<'_>) -> String {
    let node = view.node;
    let running = node.tasks.values().filter(|t| t.state == TaskState::Runnable).count();
    format!("0.00 0.00 0.00 {running}/{} {}\n", node.tasks.len(), node.last_number(view.pid.ns()))
}

/// "/proc/locks: This file shows current file locks (flock(2) and fcntl(2))" (proc(5)).
fn locks(view: &View<'_>) -> String {
    let node = view.node;
    let device = |ino| {
        let dev = node.vfs.stat_ino(ino).map(|s| s.dev).unwrap_or_default();
        format!("{:02x}:{:02x}:{}", dev.major, dev.minor, ino.0)
    };
    let kind = |exclusive| if exclusive { "WRITE" } else { "READ " };
    // "locks owned by a process not visible in the pid namespace of the reader" are left out (locks_show of Linux).
    let ns = view.pid.ns();
    let seen = |pid: crate::ids::Pid| pid.ns() == ns;
    let whole = node.locks.whole_locks().filter(|(_, l)| seen(l.pid)).map(|(ino, l)| {
        format!("FLOCK  ADVISORY  {} {} {} 0 EOF", kind(l.exclusive), l.pid.number(), device(ino))
    });
    let ranges = node.locks.range_locks().filter(|(_, l)| seen(l.pid)).map(|(ino, l)| {
        let (class, pid) = match l.owner {
            crate::locks::Owner::Table(_) => ("POSIX ", l.pid.number() as i32),
            crate::locks::Owner::File(_) => ("OFDLCK", -1),
        };
        let end = if l.end == crate::locks::Request::TO_END { "EOF".to_string() } else { l.end.to_string() };
        format!("{class} ADVISORY  {} {pid} {} {} {end}", kind(l.exclusive), device(ino), l.start)
    });
    let leases = node.leases.iter().flat_map(|(ino, list)| list.iter().map(|l| (*ino, l)));
    let leases = leases.filter(|(_, l)| seen(l.pid)).map(|(ino, l)| {
        let (state, kind) = l.words();
        format!("LEASE  {state} {kind} {} {} 0 EOF", l.pid.number(), device(ino))
    });
    whole.chain(ranges).chain(leases).enumerate().map(|(i, line)| format!("{}: {line}\n", i + 1)).collect()
}

/// /proc/PID/mountinfo.
pub(super) fn mountinfo(view: &View<'_>) -> String {
    let lines = view.node.vfs.mounts().into_iter().map(|m| {
        let line = format!(
            "{} {} {}:{} {} {} {} - {} {} {}\n",
            m.id.0,
            m.parent.0,
            m.dev.major,
            m.dev.minor,
            escape(&m.root),
            escape(&m.path),
            options(&m),
            m.fstype,
            source(&m),
            if m.read_only { "ro" } else { "rw" },
        );
        let cgroup = || {
            let Dev { major, minor } = cgroup::DEVICE;
            format!("{} {} {major}:{minor} / {}\n", cgroup::MOUNT_NUMBER, m.id.0, cgroup::MOUNT_INFO)
        };
        if m.fstype == "sysfs" { line + &cgroup() } else { line }
    });
    lines.collect()
}

/// /proc/PID/mounts, in the form of fstab(5).
pub(super) fn mounts(view: &View<'_>) -> String {
    let mounts = view.node.vfs.mounts().into_iter();
    let lines = mounts.map(|m| {
        let line = format!("{} {} {} {} 0 0\n", source(&m), escape(&m.path), m.fstype, options(&m));
        if m.fstype == "sysfs" { line + cgroup::MOUNT } else { line }
    });
    lines.collect()
}

/// /proc/PID/mountstats: nothing is counted.
pub(super) fn mountstats(view: &View<'_>) -> String {
    let mounts = view.node.vfs.mounts().into_iter();
    mounts
        .map(|m| format!("device {} mounted on {} with fstype {}\n", source(&m), escape(&m.path), m.fstype))
        .collect()
}

fn options(m: &MountInfo) -> &'static str {
    match (m.read_only, m.fstype) {
        (_, "sysfs") => "ro,nosuid,nodev,noexec,relatime",
        (false, "proc") => "rw,nosuid,nodev,noexec,relatime",
        (true, _) => "ro,relatime",
        (false, _) => "rw,relatime",
    }
}

fn source(m: &MountInfo) -> &'static str {
    match m.fstype {
        "ext4" => "/dev/vda",
        other => other,
    }
}

/// Octal escapes as getmntent(3) reads them.
fn escape(path: &[u8]) -> String {
    let mut out = String::new();
    for &byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => out.push_str(&format!("\\{byte:03o}")),
            0x21..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out
}

/// Whether a description is a socket, for /proc/net/sockstat.
pub(super) fn is_socket(kind: &FileKind) -> bool {
    matches!(kind, FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_))
}
