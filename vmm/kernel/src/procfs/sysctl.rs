//! /proc/sys (proc(5), "sysctl"): the values of an untouched Linux 6.1. All are read-only, as in a container.

use super::Source::{Make, Text};
use super::{Table, View};

/// `uname -r`.
pub const OSRELEASE: &str = "6.1.0-bloodhound";

pub(super) const TABLE: Table = &[
    ("fs/aio-max-nr", Text("65536\n")),
    ("fs/dir-notify-enable", Text("1\n")),
    ("fs/file-max", Text("9223372036854775807\n")),
    ("fs/file-nr", Make(file_nr)),
    ("fs/inotify/max_queued_events", Text("16384\n")),
    ("fs/inotify/max_user_instances", Text("128\n")),
    ("fs/inotify/max_user_watches", Text("65536\n")),
    ("fs/lease-break-time", Text("45\n")),
    ("fs/leases-enable", Text("1\n")),
    ("fs/mqueue/msg_default", Text("10\n")),
    ("fs/mqueue/msg_max", Text("10\n")),
    ("fs/mqueue/msgsize_default", Text("8192\n")),
    ("fs/mqueue/msgsize_max", Text("8192\n")),
    ("fs/mqueue/queues_max", Text("256\n")),
    ("fs/nr_open", Text("1048576\n")),
    ("fs/pipe-max-size", Text("1048576\n")),
    ("fs/pipe-user-pages-hard", Text("0\n")),
    ("fs/pipe-user-pages-soft", Text("16384\n")),
    ("fs/protected_hardlinks", Text("1\n")),
    ("fs/protected_symlinks", Text("1\n")),
    ("kernel/cap_last_cap", Text("40\n")),
    ("kernel/core_pattern", Text("core\n")),
    ("kernel/core_uses_pid", Text("0\n")),
    ("kernel/domainname", Text("(none)\n")),
    ("kernel/hostname", Make(hostname)),
    ("kernel/msgmax", Text("8192\n")),
    ("kernel/msgmnb", Text("16384\n")),
    ("kernel/msgmni", Text("32000\n")),
    ("kernel/ngroups_max", Text("65536\n")),
    ("kernel/numa_balancing", Text("0\n")),
    ("kernel/osrelease", Text("6.1.0-bloodhound\n")),
    ("kernel/ostype", Text("Linux\n")),
    ("kernel/overflowgid", Text("65534\n")),
    ("kernel/overflowuid", Text("65534\n")),
    ("kernel/perf_event_paranoid", Text("3\n")),
    ("kernel/pid_max", Text("4194304\n")),
    ("kernel/random/boot_id", Make(boot_id)),
    ("kernel/random/entropy_avail", Text("256\n")),
    ("kernel/random/poolsize", Text("256\n")),
    ("kernel/random/uuid", Make(uuid)),
    ("kernel/randomize_va_space", Text("2\n")),
    ("kernel/sched_autogroup_enabled", Text("0\n")),
    ("kernel/sem", Text("32000\t1024000000\t500\t32000\n")),
    ("kernel/shmall", Text("18446744073692774399\n")),
    ("kernel/shmmax", Text("18446744073692774399\n")),
    ("kernel/shmmni", Text("4096\n")),
    ("kernel/tainted", Text("0\n")),
    ("kernel/threads-max", Make(|view| format!("{}\n", view.node.threads_max()))),
    ("kernel/version", Text("#1 SMP PREEMPT_DYNAMIC\n")),
    ("kernel/yama/ptrace_scope", Text("1\n")),
    ("net/core/netdev_max_backlog", Text("1000\n")),
    ("net/core/rmem_default", Text("212992\n")),
    ("net/core/rmem_max", Text("212992\n")),
    ("net/core/somaxconn", Text("4096\n")),
    ("net/core/wmem_default", Text("212992\n")),
    ("net/core/wmem_max", Text("212992\n")),
    ("net/ipv4/conf/all/accept_redirects", Text("1\n")),
    ("net/ipv4/conf/all/accept_source_route", Text("0\n")),
    ("net/ipv4/conf/all/forwarding", Text("0\n")),
    ("net/ipv4/conf/all/rp_filter", Text("0\n")),
    ("net/ipv4/conf/all/send_redirects", Text("1\n")),
    ("net/ipv4/conf/all/src_valid_mark", Text("0\n")),
    ("net/ipv4/conf/default/accept_redirects", Text("1\n")),
    ("net/ipv4/conf/default/forwarding", Text("0\n")),
    ("net/ipv4/conf/default/rp_filter", Text("0\n")),
    ("net/ipv4/conf/default/send_redirects", Text("1\n")),
    ("net/ipv4/ip_forward", Text("0\n")),
    ("net/ipv4/ip_local_port_range", Text("32768\t60999\n")),
    ("net/ipv4/ip_nonlocal_bind", Text("0\n")),
    ("net/ipv4/ip_unprivileged_port_start", Make(port_start)),
    ("net/ipv4/tcp_available_congestion_control", Text("reno cubic\n")),
    ("net/ipv4/tcp_congestion_control", Text("cubic\n")),
    ("net/ipv4/tcp_ecn", Text("2\n")),
    ("net/ipv4/tcp_fastopen", Text("1\n")),
    ("net/ipv4/tcp_fin_timeout", Text("60\n")),
    ("net/ipv4/tcp_keepalive_intvl", Text("75\n")),
    ("net/ipv4/tcp_keepalive_probes", Text("9\n")),
    ("net/ipv4/tcp_keepalive_time", Text("7200\n")),
    ("net/ipv4/tcp_max_syn_backlog", Text("512\n")),
    ("net/ipv4/tcp_max_tw_buckets", Text("65536\n")),
    ("net/ipv4/tcp_retries1", Text("3\n")),
    ("net/ipv4/tcp_retries2", Text("15\n")),
    ("net/ipv4/tcp_rmem", Text("4096\t131072\t6291456\n")),
    ("net/ipv4/tcp_sack", Text("1\n")),
    ("net/ipv4/tcp_syn_retries", Text("6\n")),
    ("net/ipv4/tcp_syncookies", Text("1\n")),
    ("net/ipv4/tcp_timestamps", Text("1\n")),
    ("net/ipv4/tcp_tw_reuse", Text("2\n")),
    ("net/ipv4/tcp_window_scaling", Text("1\n")),
    ("net/ipv4/tcp_wmem", Text("4096\t16384\t4194304\n")),
    ("net/ipv6/bindv6only", Text("0\n")),
    ("net/ipv6/conf/all/accept_ra", Text("1\n")),
    ("net/ipv6/conf/all/disable_ipv6", Text("0\n")),
    ("net/ipv6/conf/all/forwarding", Text("0\n")),
    ("net/ipv6/conf/default/disable_ipv6", Text("0\n")),
    ("net/ipv6/conf/default/forwarding", Text("0\n")),
    ("net/ipv6/conf/lo/disable_ipv6", Text("0\n")),
    ("net/unix/max_dgram_qlen", Text("512\n")),
    ("vm/compaction_proactiveness", Text("20\n")),
    ("vm/dirty_background_ratio", Text("10\n")),
    ("vm/dirty_ratio", Text("20\n")),
    ("vm/drop_caches", Text("0\n")),
    ("vm/max_map_count", Text("65530\n")),
    ("vm/min_free_kbytes", Text("67584\n")),
    ("vm/mmap_min_addr", Text("65536\n")),
    ("vm/nr_hugepages", Text("0\n")),
    ("vm/overcommit_kbytes", Text("0\n")),
    ("vm/overcommit_memory", Text("0\n")),
    ("vm/overcommit_ratio", Text("50\n")),
    ("vm/swappiness", Text("60\n")),
    ("vm/vfs_cache_pressure", Text("100\n")),
    ("vm/zone_reclaim_mode", Text("0\n")),
];

/// "the number of allocated file handles; the number of free file handles; and the maximum number" (proc(5)).
fn file_nr(view: &View<'_>) -> String {
    format!("{}\t0\t9223372036854775807\n", view.node.files.len())
}

fn port_start(_: &View<'_>) -> String {
    format!("{}\n", crate::inet::UNPRIVILEGED_PORT_START)
}

fn hostname(view: &View<'_>) -> String {
    format!("{}\n", view.container().hostname)
}

fn boot_id(view: &View<'_>) -> String {
    uuid_text(view.node.boot_id)
}

/// Linux gives another one at each read; here they differ by time and reader, and no random number is drawn.
fn uuid(view: &View<'_>) -> String {
    let [a, b] = view.node.boot_id;
    let mix = |word: u64, salt: u64| {
        let mut z = word ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    uuid_text([mix(a, view.node.clock.0), mix(b, view.node.clock.0 ^ u64::from(view.tid.0) << 32)])
}

/// A version 4 UUID (RFC 9562) of these bits.
fn uuid_text(bits: [u64; 2]) -> String {
    let high = (bits[0] & !0xf000) | 0x4000;
    let low = (bits[1] & !(3 << 62)) | (2 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}\n",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
