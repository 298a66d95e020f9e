//! /proc/config.gz: the configuration of a Linux kernel that has what this one models, as gzip (RFC 1952) of the text.

/// Options that are set; what is not modelled is not, and stands there as `is not set` if programs ask for it.
const SET: &str = "\
64BIT X86_64 X86 MMU SMP SYSVIPC SYSVIPC_SYSCTL POSIX_MQUEUE POSIX_MQUEUE_SYSCTL CROSS_MEMORY_ATTACH HIGH_RES_TIMERS \
NO_HZ_COMMON PREEMPT_DYNAMIC CGROUPS MEMCG CGROUP_PIDS CGROUP_SCHED FAIR_GROUP_SCHED NAMESPACES UTS_NS IPC_NS PID_NS NET_NS \
USER_NS TIME_NS IKCONFIG IKCONFIG_PROC MULTIUSER POSIX_TIMERS PRINTK FUTEX FUTEX_PI EPOLL SIGNALFD TIMERFD EVENTFD SHMEM ADVISE_SYSCALLS \
MEMBARRIER KCMP SCHED_DEBUG SCHED_AUTOGROUP MODULES NUMA NUMA_BALANCING SWAP COMPACTION MIGRATION MEMORY_BALLOON \
SYSCTL PROC_FS PROC_SYSCTL X86_IOPL_IOPERM PROC_PAGE_MONITOR PROC_CHILDREN SYSFS SYSFS_SYSCALL TMPFS TMPFS_XATTR TMPFS_POSIX_ACL FS_POSIX_ACL EXT4_FS EXT4_FS_POSIX_ACL OVERLAY_FS FILE_LOCKING \
DNOTIFY INOTIFY_USER SECCOMP SECCOMP_FILTER UNIX INET IPV6 NET UNIX98_PTYS BINFMT_ELF BINFMT_SCRIPT COREDUMP ELF_CORE TTY \
X86_TSC SPLICE MEMFD_CREATE TRANSPARENT_HUGEPAGE PACKET INET_DIAG INET_TCP_DIAG INET_UDP_DIAG UNIX_DIAG FHANDLE";

/// Options that programs ask for and that are not there.
const UNSET: &str = "\
AIO IO_URING USERFAULTFD BPF_SYSCALL KEYS FANOTIFY BSD_PROCESS_ACCT HUGETLBFS HUGETLB_PAGE KSM ZSWAP CMA ZONE_DEVICE \
MEMORY_FAILURE CHECKPOINT_RESTORE RSEQ MODIFY_LDT_SYSCALL SECRETMEM QUOTA QFMT_V2 PERF_EVENTS \
SECURITY_LANDLOCK VSOCKETS CRYPTO_USER_API ANON_VMA_NAME NET_SCHED UCLAMP_TASK SCHED_CORE RT_GROUP_SCHED";

/// Whether an option is set.
#[cfg(test)]
pub(super) fn is_set(option: &str) -> bool {
    SET.split_whitespace().any(|name| name == option)
}

fn text() -> String {
    let set = SET.split_whitespace().map(|name| format!("CONFIG_{name}=y\n"));
    let unset = UNSET.split_whitespace().map(|name| format!("# CONFIG_{name} is not set\n"));
    let numbers =
        "CONFIG_HZ=250\nCONFIG_NR_CPUS=64\nCONFIG_LOG_BUF_SHIFT=17\nCONFIG_DEFAULT_HOSTNAME=\"(none)\"\n";
    let head = "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 6.1.0 Kernel Configuration\n#\n"
        .to_owned();
    set.chain(unset).fold(head, |all, line| all + &line) + numbers
}

/// CRC-32 as gzip has it.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// The file: one stored block, without compression.
pub(super) fn gz() -> Vec<u8> {
    let text = text().into_bytes();
    let len = u16::try_from(text.len()).unwrap_or_else(|_| panic!("a stored block has less than 64 KiB"));
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    out.extend(len.to_le_bytes());
    out.extend((!len).to_le_bytes());
    out.extend_from_slice(&text);
    out.extend(crc(&text).to_le_bytes());
    out.extend((text.len() as u32).to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_is_both_set_and_not() {
        let mut names: Vec<&str> = SET.split_whitespace().chain(UNSET.split_whitespace()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn the_checksum_is_that_of_gzip() {
        // The check value of CRC-32 (RFC 1952, section 8).
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }
}
