//! /proc/sys (proc(5), "sysctl"): the values of an untouched Linux 6.1. They are
//! read-only as in a container for whom has not CAP_SYS_ADMIN; with it, those that act here, and those that act on nothing that a program could see, take
//! other values ([`takes`]).

use bloodhound_abi::Errno;

use super::Source::{Make, Text};
use super::{Table, View};
use crate::ids::PidNs;
use crate::mm::PAGE;

/// `uname -r`.
pub const OSRELEASE: &str = "6.1.0-bloodhound";

pub(super) const TABLE: Table = &[
    ("fs/dentry-state", Text("43520\t36864\t45\t0\t12288\t0\n")),
    ("fs/dir-notify-enable", Text("1\n")),
    ("fs/file-max", Text("9223372036854775807\n")),
    ("fs/file-nr", Make(file_nr)),
    ("fs/inode-nr", Text("40960\t512\n")),
    ("fs/inode-state", Text("40960\t512\t0\t0\t0\t0\t0\n")),
    ("fs/inotify/max_queued_events", Text("16384\n")),
    ("fs/inotify/max_user_instances", Text("128\n")),
    ("fs/inotify/max_user_watches", Text("65536\n")),
    ("fs/lease-break-time", Text("45\n")),
    ("fs/leases-enable", Text("1\n")),
    ("fs/mount-max", Text("100000\n")),
    ("fs/mqueue/msg_default", Text("10\n")),
    ("fs/mqueue/msg_max", Text("10\n")),
    ("fs/mqueue/msgsize_default", Text("8192\n")),
    ("fs/mqueue/msgsize_max", Text("8192\n")),
    ("fs/mqueue/queues_max", Text("256\n")),
    ("fs/nr_open", Text("1048576\n")),
    ("fs/overflowgid", Text("65534\n")),
    ("fs/overflowuid", Text("65534\n")),
    ("fs/pipe-max-size", Text("1048576\n")),
    ("fs/pipe-user-pages-hard", Text("0\n")),
    ("fs/pipe-user-pages-soft", Text("16384\n")),
    ("fs/protected_fifos", Text("0\n")),
    ("fs/protected_hardlinks", Text("1\n")),
    ("fs/protected_regular", Text("0\n")),
    ("fs/protected_symlinks", Text("1\n")),
    ("fs/suid_dumpable", Text("0\n")),
    ("kernel/auto_msgmni", Text("0\n")),
    ("kernel/cad_pid", Text("1\n")),
    ("kernel/cap_last_cap", Text("40\n")),
    ("kernel/core_pattern", Text("core\n")),
    ("kernel/core_pipe_limit", Text("0\n")),
    ("kernel/core_uses_pid", Text("0\n")),
    ("kernel/ctrl-alt-del", Text("0\n")),
    ("kernel/dmesg_restrict", Text("1\n")),
    ("kernel/domainname", Text("(none)\n")),
    ("kernel/hostname", Make(hostname)),
    ("kernel/kptr_restrict", Text("0\n")),
    ("kernel/max_lock_depth", Text("1024\n")),
    ("kernel/modprobe", Text("/sbin/modprobe\n")),
    ("kernel/modules_disabled", Text("0\n")),
    ("kernel/msgmax", Text("8192\n")),
    ("kernel/msgmnb", Text("16384\n")),
    ("kernel/msgmni", Text("32000\n")),
    ("kernel/ngroups_max", Text("65536\n")),
    ("kernel/nmi_watchdog", Text("0\n")),
    ("kernel/numa_balancing", Text("0\n")),
    ("kernel/oops_limit", Text("10000\n")),
    ("kernel/osrelease", Text("6.1.0-bloodhound\n")),
    ("kernel/ostype", Text("Linux\n")),
    ("kernel/overflowgid", Text("65534\n")),
    ("kernel/overflowuid", Text("65534\n")),
    ("kernel/panic", Text("0\n")),
    ("kernel/panic_on_oops", Text("0\n")),
    ("kernel/panic_on_warn", Text("0\n")),
    ("kernel/panic_print", Text("0\n")),
    ("kernel/perf_cpu_time_max_percent", Text("25\n")),
    ("kernel/pid_max", Text("4194304\n")),
    ("kernel/poweroff_cmd", Text("/sbin/poweroff\n")),
    ("kernel/print-fatal-signals", Text("0\n")),
    ("kernel/printk", Text("4\t4\t1\t7\n")),
    ("kernel/printk_delay", Text("0\n")),
    ("kernel/printk_devkmsg", Text("on\n")),
    ("kernel/printk_ratelimit", Text("5\n")),
    ("kernel/printk_ratelimit_burst", Text("10\n")),
    ("kernel/pty/max", Text("4096\n")),
    ("kernel/pty/nr", Make(pty_count)),
    ("kernel/pty/reserve", Text("1024\n")),
    ("kernel/random/boot_id", Make(boot_id)),
    ("kernel/random/entropy_avail", Text("256\n")),
    ("kernel/random/poolsize", Text("256\n")),
    ("kernel/random/urandom_min_reseed_secs", Text("60\n")),
    ("kernel/random/uuid", Make(uuid)),
    ("kernel/random/write_wakeup_threshold", Text("256\n")),
    ("kernel/randomize_va_space", Text("2\n")),
    ("kernel/sched_autogroup_enabled", Text("0\n")),
    ("kernel/sched_cfs_bandwidth_slice_us", Text("5000\n")),
    ("kernel/sched_child_runs_first", Text("0\n")),
    ("kernel/sched_deadline_period_max_us", Text("4194304\n")),
    ("kernel/sched_deadline_period_min_us", Text("100\n")),
    ("kernel/sched_rr_timeslice_ms", Text("100\n")),
    ("kernel/sched_rt_period_us", Text("1000000\n")),
    ("kernel/sched_rt_runtime_us", Text("950000\n")),
    ("kernel/sched_schedstats", Text("0\n")),
    (
        "kernel/seccomp/actions_avail",
        Text("kill_process kill_thread trap errno user_notif trace log allow\n"),
    ),
    ("kernel/seccomp/actions_logged", Text("kill_process kill_thread trap errno user_notif trace log\n")),
    ("kernel/sem", Text("32000\t1024000000\t500\t32000\n")),
    ("kernel/shm_rmid_forced", Text("0\n")),
    ("kernel/shmall", Text("18446744073692774399\n")),
    ("kernel/shmmax", Text("18446744073692774399\n")),
    ("kernel/shmmni", Text("4096\n")),
    ("kernel/soft_watchdog", Text("1\n")),
    ("kernel/sysctl_writes_strict", Text("1\n")),
    ("kernel/tainted", Text("0\n")),
    ("kernel/threads-max", Make(|view| format!("{}\n", view.node.threads_max()))),
    ("kernel/timer_migration", Text("1\n")),
    ("kernel/version", Text("#1 SMP PREEMPT_DYNAMIC\n")),
    ("kernel/watchdog", Text("1\n")),
    ("kernel/watchdog_thresh", Text("10\n")),
    ("kernel/yama/ptrace_scope", Text("1\n")),
    ("net/core/netdev_max_backlog", Text("1000\n")),
    ("net/core/optmem_max", Text("20480\n")),
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
    ("net/ipv4/icmp_echo_ignore_all", Text("0\n")),
    ("net/ipv4/icmp_echo_ignore_broadcasts", Text("1\n")),
    ("net/ipv4/igmp_max_memberships", Text("20\n")),
    ("net/ipv4/igmp_max_msf", Text("10\n")),
    ("net/ipv4/ip_default_ttl", Text("64\n")),
    ("net/ipv4/ip_dynaddr", Text("0\n")),
    ("net/ipv4/ip_forward", Text("0\n")),
    ("net/ipv4/ip_local_port_range", Text("32768\t60999\n")),
    ("net/ipv4/ip_no_pmtu_disc", Text("0\n")),
    ("net/ipv4/ip_nonlocal_bind", Text("0\n")),
    ("net/ipv4/ip_unprivileged_port_start", Make(port_start)),
    // As Docker sets it: all groups.
    ("net/ipv4/ping_group_range", Text("0\t2147483647\n")),
    ("net/ipv4/tcp_abort_on_overflow", Text("0\n")),
    ("net/ipv4/tcp_adv_win_scale", Text("1\n")),
    ("net/ipv4/tcp_allowed_congestion_control", Text("reno cubic\n")),
    ("net/ipv4/tcp_autocorking", Text("1\n")),
    ("net/ipv4/tcp_available_congestion_control", Text("reno cubic\n")),
    ("net/ipv4/tcp_base_mss", Text("1024\n")),
    ("net/ipv4/tcp_congestion_control", Text("cubic\n")),
    ("net/ipv4/tcp_dsack", Text("1\n")),
    ("net/ipv4/tcp_early_retrans", Text("3\n")),
    ("net/ipv4/tcp_ecn", Text("2\n")),
    ("net/ipv4/tcp_fastopen", Text("1\n")),
    ("net/ipv4/tcp_fin_timeout", Text("60\n")),
    ("net/ipv4/tcp_frto", Text("2\n")),
    ("net/ipv4/tcp_invalid_ratelimit", Text("500\n")),
    ("net/ipv4/tcp_keepalive_intvl", Text("75\n")),
    ("net/ipv4/tcp_keepalive_probes", Text("9\n")),
    ("net/ipv4/tcp_keepalive_time", Text("7200\n")),
    ("net/ipv4/tcp_max_orphans", Text("65536\n")),
    ("net/ipv4/tcp_max_reordering", Text("300\n")),
    ("net/ipv4/tcp_max_syn_backlog", Text("512\n")),
    ("net/ipv4/tcp_max_tw_buckets", Text("65536\n")),
    ("net/ipv4/tcp_moderate_rcvbuf", Text("1\n")),
    ("net/ipv4/tcp_mtu_probing", Text("0\n")),
    ("net/ipv4/tcp_no_metrics_save", Text("0\n")),
    ("net/ipv4/tcp_notsent_lowat", Text("4294967295\n")),
    ("net/ipv4/tcp_orphan_retries", Text("0\n")),
    ("net/ipv4/tcp_reordering", Text("3\n")),
    ("net/ipv4/tcp_retries1", Text("3\n")),
    ("net/ipv4/tcp_retries2", Text("15\n")),
    ("net/ipv4/tcp_rfc1337", Text("0\n")),
    ("net/ipv4/tcp_rmem", Text("4096\t131072\t6291456\n")),
    ("net/ipv4/tcp_sack", Text("1\n")),
    ("net/ipv4/tcp_slow_start_after_idle", Text("1\n")),
    ("net/ipv4/tcp_stdurg", Text("0\n")),
    ("net/ipv4/tcp_syn_retries", Text("6\n")),
    ("net/ipv4/tcp_synack_retries", Text("5\n")),
    ("net/ipv4/tcp_syncookies", Text("1\n")),
    ("net/ipv4/tcp_thin_linear_timeouts", Text("0\n")),
    ("net/ipv4/tcp_timestamps", Text("1\n")),
    ("net/ipv4/tcp_tso_win_divisor", Text("3\n")),
    ("net/ipv4/tcp_tw_reuse", Text("2\n")),
    ("net/ipv4/tcp_window_scaling", Text("1\n")),
    ("net/ipv4/tcp_wmem", Text("4096\t16384\t4194304\n")),
    ("net/ipv4/udp_rmem_min", Text("4096\n")),
    ("net/ipv4/udp_wmem_min", Text("4096\n")),
    ("net/ipv6/bindv6only", Text("0\n")),
    ("net/ipv6/conf/all/accept_ra", Text("1\n")),
    ("net/ipv6/conf/all/disable_ipv6", Text("0\n")),
    ("net/ipv6/conf/all/forwarding", Text("0\n")),
    ("net/ipv6/conf/default/disable_ipv6", Text("0\n")),
    ("net/ipv6/conf/default/forwarding", Text("0\n")),
    ("net/ipv6/conf/lo/disable_ipv6", Text("0\n")),
    ("net/unix/max_dgram_qlen", Text("10\n")),
    ("user/max_cgroup_namespaces", Make(namespaces_max)),
    ("user/max_inotify_instances", Text("128\n")),
    ("user/max_inotify_watches", Text("65536\n")),
    ("user/max_ipc_namespaces", Make(namespaces_max)),
    ("user/max_mnt_namespaces", Make(namespaces_max)),
    ("user/max_net_namespaces", Make(namespaces_max)),
    ("user/max_pid_namespaces", Make(namespaces_max)),
    ("user/max_time_namespaces", Make(namespaces_max)),
    ("user/max_user_namespaces", Make(namespaces_max)),
    ("user/max_uts_namespaces", Make(namespaces_max)),
    ("vm/admin_reserve_kbytes", Text("8192\n")),
    ("vm/compact_unevictable_allowed", Text("1\n")),
    ("vm/compaction_proactiveness", Text("20\n")),
    ("vm/dirty_background_bytes", Text("0\n")),
    ("vm/dirty_background_ratio", Text("10\n")),
    ("vm/dirty_bytes", Text("0\n")),
    ("vm/dirty_expire_centisecs", Text("3000\n")),
    ("vm/dirty_ratio", Text("20\n")),
    ("vm/dirty_writeback_centisecs", Text("500\n")),
    ("vm/dirtytime_expire_seconds", Text("43200\n")),
    ("vm/drop_caches", Text("0\n")),
    ("vm/extfrag_threshold", Text("500\n")),
    ("vm/laptop_mode", Text("0\n")),
    ("vm/legacy_va_layout", Text("0\n")),
    ("vm/lowmem_reserve_ratio", Text("256\t256\t32\t0\n")),
    ("vm/max_map_count", Text("65530\n")),
    ("vm/memory_failure_early_kill", Text("0\n")),
    ("vm/memory_failure_recovery", Text("1\n")),
    ("vm/min_free_kbytes", Text("67584\n")),
    ("vm/min_slab_ratio", Text("5\n")),
    ("vm/min_unmapped_ratio", Text("1\n")),
    ("vm/mmap_min_addr", Text("65536\n")),
    ("vm/mmap_rnd_bits", Text("28\n")),
    ("vm/mmap_rnd_compat_bits", Text("8\n")),
    ("vm/numa_stat", Text("1\n")),
    ("vm/numa_zonelist_order", Text("Node\n")),
    ("vm/oom_dump_tasks", Text("1\n")),
    ("vm/oom_kill_allocating_task", Text("0\n")),
    ("vm/overcommit_kbytes", Text("0\n")),
    ("vm/overcommit_memory", Text("0\n")),
    ("vm/overcommit_ratio", Text("50\n")),
    ("vm/page-cluster", Text("3\n")),
    ("vm/page_lock_unfairness", Text("5\n")),
    ("vm/panic_on_oom", Text("0\n")),
    ("vm/percpu_pagelist_high_fraction", Text("0\n")),
    ("vm/stat_interval", Text("1\n")),
    ("vm/swappiness", Text("60\n")),
    ("vm/user_reserve_kbytes", Text("131072\n")),
    ("vm/vfs_cache_pressure", Text("100\n")),
    ("vm/watermark_boost_factor", Text("15000\n")),
    ("vm/watermark_scale_factor", Text("10\n")),
    ("vm/zone_reclaim_mode", Text("0\n")),
];

/// "the number of allocated file handles; the number of free file handles; and the maximum number" (proc(5)).
fn file_nr(view: &View<'_>) -> String {
    format!("{}\t0\t9223372036854775807\n", view.node.files.len())
}

/// Pseudo-terminals in use.
fn pty_count(view: &View<'_>) -> String {
    format!("{}\n", view.node.ptys.len())
}

/// Half of the threads that there may be (`fork_init` of Linux).
fn namespaces_max(view: &View<'_>) -> String {
    format!("{}\n", view.node.threads_max() / 2)
}

fn port_start(_: &View<'_>) -> String {
    format!("{}\n", crate::inet::UNPRIVILEGED_PORT_START)
}

fn hostname(view: &View<'_>) -> String {
    format!("{}\n", view.container().shown_name())
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

/// A parameter that acts here: its path, and which numbers it takes.
const ACTING: &[(&str, std::ops::RangeInclusive<u64>)] = &[
    ("fs/lease-break-time", 0..=i32::MAX as u64),
    ("kernel/dmesg_restrict", 0..=1),
    // Up to HARD_MSGMAX and HARD_MSGSIZEMAX, from the least of ipc/mq_sysctl.c on.
    ("fs/mqueue/msg_default", 1..=65536),
    ("fs/mqueue/msg_max", 1..=65536),
    ("fs/mqueue/msgsize_default", 128..=16 << 20),
    ("fs/mqueue/msgsize_max", 128..=16 << 20),
    ("fs/mqueue/queues_max", 0..=i32::MAX as u64),
    ("kernel/msgmni", 0..=32000),
    // From RESERVED_PIDS and one up (pid_max_min).
    ("kernel/pid_max", 301..=PidNs::LAST as u64 + 1),
    ("kernel/shmmax", 0..=u64::MAX),
    ("kernel/shmmni", 0..=32768),
    ("net/core/somaxconn", 0..=i32::MAX as u64),
    ("net/ipv4/ip_unprivileged_port_start", 0..=65535),
];

/// Those for which [`takes`] has a rule of its own.
const CHECKED: [&str; 3] = ["fs/pipe-max-size", "kernel/sched_rr_timeslice_ms", "net/ipv4/ping_group_range"];

/// Parameters that act on nothing that a program here could see: when dirty pages are written and free ones are looked for, namespaces
/// that nobody can make, what is written to the kernel's log.
const NEUTRAL: &[(&str, std::ops::RangeInclusive<i64>)] = &[
    ("kernel/core_uses_pid", i32::MIN as i64..=i32::MAX as i64),
    ("kernel/kptr_restrict", 0..=2),
    ("kernel/panic", i32::MIN as i64..=i32::MAX as i64),
    ("kernel/panic_on_oops", i32::MIN as i64..=i32::MAX as i64),
    ("kernel/panic_on_warn", 0..=1),
    ("kernel/print-fatal-signals", i32::MIN as i64..=i32::MAX as i64),
    ("kernel/printk_ratelimit", 0..=i32::MAX as i64),
    ("kernel/printk_ratelimit_burst", i32::MIN as i64..=i32::MAX as i64),
    ("kernel/sched_autogroup_enabled", 0..=1),
    ("kernel/watchdog_thresh", 0..=60),
    ("user/max_cgroup_namespaces", 0..=i32::MAX as i64),
    ("user/max_ipc_namespaces", 0..=i32::MAX as i64),
    ("user/max_mnt_namespaces", 0..=i32::MAX as i64),
    ("user/max_net_namespaces", 0..=i32::MAX as i64),
    ("user/max_pid_namespaces", 0..=i32::MAX as i64),
    ("user/max_time_namespaces", 0..=i32::MAX as i64),
    ("user/max_user_namespaces", 0..=i32::MAX as i64),
    ("user/max_uts_namespaces", 0..=i32::MAX as i64),
    ("vm/compaction_proactiveness", 0..=100),
    ("vm/dirty_background_ratio", 0..=100),
    ("vm/dirty_expire_centisecs", 0..=i32::MAX as i64),
    ("vm/dirty_ratio", 0..=100),
    ("vm/dirty_writeback_centisecs", i32::MIN as i64..=i32::MAX as i64),
    ("vm/stat_interval", 0..=i32::MAX as i64),
    ("vm/swappiness", 0..=200),
    ("vm/vfs_cache_pressure", 0..=i32::MAX as i64),
];

/// The groups of net.ipv4.ping_group_range: two numbers, none of which is negative; a second one that is not given is that of `now`. A
/// range that is none stands for nobody, and becomes 1 to 0 (`ipv4_ping_group_range`). EINVAL.
pub(crate) fn ping_groups(text: &str, now: &str) -> Result<(u32, u32), Errno> {
    let given = text.split_whitespace().count().max(1);
    let words = text.split_whitespace().chain(now.split_whitespace().skip(given));
    let numbers: Result<Vec<u32>, Errno> =
        words.map(|word| word.parse().map_err(|_| Errno::EINVAL)).collect();
    let [low, high] = numbers?[..] else { return Err(Errno::EINVAL) };
    if low > i32::MAX as u32 || high > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    Ok(if low > high { (1, 0) } else { (low, high) })
}

/// Whether a parameter that acts here could have a value from the beginning.
pub(super) fn is_value(path: &str, value: &str) -> bool {
    let acts = ACTING.iter().any(|(known, _)| *known == path) || CHECKED.contains(&path);
    !acts || takes(path, "", value).is_ok()
}

/// What a parameter becomes when this is written to it. EINVAL for what is no value of it, or one that is not modelled: the one that it
/// has is always taken.
pub(crate) fn takes(path: &str, now: &str, written: &str) -> Result<String, Errno> {
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    let (text, same) = (written.trim(), words(written) == words(now));
    let number = || text.parse::<u64>().ok();
    match path {
        // "The value is rounded up to the next power of two of pages" (proc_dopipe_max_size).
        "fs/pipe-max-size" => {
            let bytes = number().filter(|n| *n <= 1 << 31).ok_or(Errno::EINVAL)?;
            Ok(bytes.max(PAGE).next_power_of_two().to_string())
        }
        // "sched_rr_timeslice = sysctl_sched_rr_timeslice <= 0 ? RR_TIMESLICE : [...]" (sched_rr_handler).
        "kernel/sched_rr_timeslice_ms" => match text.parse::<i32>() {
            Ok(ms) if ms > 0 => Ok(ms.to_string()),
            Ok(_) => Ok("100".into()),
            Err(_) => Err(Errno::EINVAL),
        },
        // Levels of the console, which shows nothing.
        "kernel/printk" if !text.is_empty() && words(text).iter().all(|word| word.parse::<i32>().is_ok()) => {
            let (mut levels, given) = (words(now), words(text));
            levels.iter_mut().zip(given).for_each(|(level, given)| *level = given);
            Ok(levels.join("\t"))
        }
        "net/ipv4/ping_group_range" => ping_groups(text, now).map(|(low, high)| format!("{low}\t{high}")),
        "kernel/hostname" | "kernel/domainname" => Ok(text.chars().take(64).collect()),
        // Nothing is cached that a program could miss.
        "vm/drop_caches" if number().is_some_and(|n| (1..=4).contains(&n)) => Ok(text.into()),
        _ if same => Ok(now.trim_end().into()),
        _ if let Some((_, range)) = NEUTRAL.iter().find(|(known, _)| *known == path) => {
            let value = text.parse().ok().filter(|n| range.contains(n));
            value.map(|n: i64| n.to_string()).ok_or(Errno::EINVAL)
        }
        _ => {
            let acting = ACTING.iter().find(|(known, _)| *known == path).ok_or(Errno::EINVAL)?;
            number().filter(|n| acting.1.contains(n)).map(|n| n.to_string()).ok_or(Errno::EINVAL)
        }
    }
}

#[cfg(test)]
mod tests;
