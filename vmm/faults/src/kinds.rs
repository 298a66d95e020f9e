//! The declarations: all kinds of faults, in the order of the manual.

use bloodhound_declare::{Key, ValueKind};

use crate::keys::{millis, number, ppm, probability, range, rate};
use crate::{Begins, Declaration, Group, Shape, Swarm};

/// What a declaration need not say.
const PLAIN: Declaration = Declaration {
    kind: Kind::Drop,
    name: "",
    group: Group::Network,
    begins: Begins::Link,
    swarm: Swarm::Strength,
    keys: &[],
    does: "",
};

kinds! { $
    links {
        /// A packet is lost.
        Drop in drop {
            name: "drop",
            group: Group::Network,
            keys: &[rate("drop_rate", "packets that are lost")],
            does: "a packet is lost; TCP sends it again, UDP does not",
        }
        /// A packet is held up, and those behind it with it.
        Delay in delay {
            name: "delay",
            group: Group::Network,
            keys: &[
                millis("delay_ms", "50", "how much later a delayed packet arrives at most"),
                rate("delay_rate", "packets that are delayed, by up to `delay_ms`"),
            ],
            does: "a packet arrives up to that much later",
        }
        /// Every packet takes longer, by a fixed time.
        Latency in latency {
            name: "latency",
            group: Group::Network,
            swarm: Swarm::Always,
            keys: &[millis("latency_ms", "0", "added to the latency of every packet")],
            does: "every packet takes longer by a fixed time",
        }
        /// Every packet takes longer, by a random time.
        Jitter in jitter {
            name: "jitter",
            group: Group::Network,
            swarm: Swarm::Coin,
            keys: &[millis("jitter_ms", "0", "upper bound of a random addition to the latency of every packet")],
            does: "every packet takes longer by a random time",
        }
        /// A packet is damaged on its way.
        Corrupt in corrupt {
            name: "corrupt",
            group: Group::Network,
            keys: &[rate("corrupt_rate", "packets that are damaged on their way")],
            does: "a packet is damaged on its way: its receiver's checksum rejects it, so it is lost",
        }
        /// A packet arrives twice.
        Duplicate in duplicate {
            name: "duplicate",
            group: Group::Network,
            keys: &[rate("duplicate_rate", "packets that arrive twice")],
            does: "a packet arrives twice",
        }
        /// A packet is overtaken.
        Reorder in reorder {
            name: "reorder",
            group: Group::Network,
            keys: &[rate("reorder_rate", "packets that are overtaken by later ones")],
            does: "a packet is overtaken by later ones",
        }
        /// A link carries so many bits in a second.
        Bandwidth in bandwidth {
            name: "bandwidth",
            group: Group::Network,
            swarm: Swarm::Coin,
            keys: &[number("bandwidth_kbit", (0, 100_000_000), "0", "what each direction between two nodes carries, in 1000 bits per second; 0: all that comes")],
            does: "packets wait for each other, as a link carries only so much; none is lost for that",
        }
        /// A packet is damaged so that its checksum does not show it.
        CorruptPass in corrupt_pass {
            name: "corrupt-pass",
            group: Group::Network,
            keys: &[rate("corrupt_pass_rate", "packets with data that arrive with one bit changed, unseen by the checksum")],
            does: "a packet arrives with one bit of its data changed, which its checksum does not show: few systems promise to survive that",
        }
        /// A question to the name server fails.
        DnsFail in dns_fail {
            name: "dns-fail",
            group: Group::Network,
            keys: &[rate("dns_fail_rate", "questions to the name server that fail: half of them are answered with SERVFAIL, half get no answer")],
            does: "a question to the name server is answered with SERVFAIL, or gets no answer",
        }
        /// An answer of the name server comes late.
        DnsDelay in dns_delay {
            name: "dns-delay",
            group: Group::Network,
            swarm: Swarm::Coin,
            keys: &[millis("dns_delay_ms", "0", "answers of the name server come later by a random time up to this")],
            does: "an answer of the name server comes up to that much later",
        }
        /// A datagram is found damaged when it is read.
        BadChecksum in bad_checksum {
            name: "bad-checksum",
            group: Group::Network,
            keys: &[rate("bad_checksum_rate", "UDP datagrams whose receiver finds them damaged when it reads them")],
            does: "a UDP datagram arrives damaged, which Linux finds out when it is read: poll(2) and epoll(7) report a socket with O_NONBLOCK as readable, and recv(2) fails with EAGAIN",
        }
    }
    timed {
        /// The connections of a node are reset.
        Reset in reset {
            name: "reset",
            group: Group::Network,
            begins: Begins::ByNetwork,
            keys: &[probability("reset_probability", "", "all connections of a node that is drawn are reset")],
            does: "the connections of a node are reset",
        }
        /// Some nodes cannot reach some others.
        Partition in partition {
            name: "partition",
            group: Group::Network,
            begins: Begins::ByNetwork,
            keys: &[
                probability("partition_probability", "", "a partition begins"),
                range("partition_duration_ms", "[1000, 10000]", "how long a partition lasts"),
                Key::new("partition_kinds", ValueKind::NonEmpty(&ValueKind::Word(Shape::WORDS), "name at least one kind"), "which shapes a partition may take")
                    .otherwise("all but `link`"),
            ],
            does: "some nodes cannot reach some others, for `partition_duration_ms`",
        }
        /// All processes of a node are killed.
        Crash in crash {
            name: "crash",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("crash_probability", "node", "every process of the node is killed; its files stay"),
                range("crash_restart_ms", "[500, 5000]", "how long a crashed node stays down before it is started again"),
            ],
            does: "all processes of a node are killed as by SIGKILL; files stay (those in /tmp and /run too), tmpfs mounts are empty; it starts again after `crash_restart_ms`",
        }
        /// A node stands still.
        Pause in pause {
            name: "pause",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("pause_probability", "node", "the node stops running while time goes on"),
                range("pause_duration_ms", "[100, 5000]", "how long a pause lasts"),
            ],
            does: "a node stands still while time goes on, for `pause_duration_ms`, as in a long garbage collection",
        }
        /// A machine loses its power.
        PowerFailure in power_failure {
            name: "power-failure",
            group: Group::Process,
            begins: Begins::ByMachine,
            keys: &[
                probability("power_failure_probability", "machine", "the machine loses its power: memory is gone, and what was not synced may be"),
                range("power_restart_ms", "[500, 5000]", "how long a machine stays without power before its services are started again"),
            ],
            does: "a machine with all its services is gone at once, nobody is told; its disk keeps what was synced and, of the rest, what `disk.model` may; its services start again after `power_restart_ms`",
        }
        /// The disk of a node is full.
        DiskFull in disk_full {
            name: "disk-full",
            group: Group::Disk,
            begins: Begins::ByNode,
            keys: &[
                probability("disk_full_probability", "node", "the disk of the node has no room left"),
                range("disk_full_ms", "[500, 5000]", "how long a disk stays full"),
            ],
            does: "a write that would make a file longer, and the making of a name, fail with ENOSPC for `disk_full_ms`; what fits into the last page of a file is written",
        }
        /// The disk of a node is slow.
        DiskSlow in disk_slow {
            name: "disk-slow",
            group: Group::Disk,
            begins: Begins::ByNode,
            keys: &[
                probability("disk_slow_probability", "node", "the disk of the node becomes slow"),
                Key::new("disk_latency_ms", ValueKind::Millis, "how much longer a call waits for a slow disk").default("100"),
                range("disk_slow_ms", "[500, 5000]", "how long a disk stays slow"),
            ],
            does: "for `disk_slow_ms` each fsync, each write with O_SYNC, each transfer with O_DIRECT and each read of what was neither read nor written since the disk became slow sleeps for `disk_latency_ms` first",
        }
        /// The file systems of a node can only be read.
        DiskReadonly in disk_readonly {
            name: "disk-readonly",
            group: Group::Disk,
            begins: Begins::ByNode,
            keys: &[
                probability("disk_readonly_probability", "node", "the file systems of the node become read-only"),
                range("disk_readonly_ms", "[500, 5000]", "how long they stay so"),
            ],
            does: "writes and changes of names fail with EROFS for `disk_readonly_ms`, as after an error of ext4 with errors=remount-ro",
        }
        /// The kernel kills a process for want of memory.
        Oom in oom {
            name: "oom",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("oom_probability", "node", "memory runs out: the kernel kills the process of the service that has most of it"),
                range("oom_restart_ms", "[500, 5000]", "how long a service stays down whose first process was killed so, if its `restart` does not start it again"),
            ],
            does: "the out-of-memory killer ends the process with the highest score in the service's container by SIGKILL, as if its memory limit were reached; a service that ends so starts again by its `restart`, or else after `oom_restart_ms`",
        }
        /// One process of a service is killed.
        Kill in kill {
            name: "kill",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("kill_probability", "node", "one process of the service, not its first one, is killed"),
                range("kill_restart_ms", "[500, 5000]", "how long a service stays down that ends for that, if its `restart` does not start it again"),
            ],
            does: "SIGKILL to one process that descends from the service's first one, such as a worker; a service that ends for that starts again by its `restart`, or else after `kill_restart_ms`",
        }
        /// A service is stopped and started as by an operator.
        Stop in stop {
            name: "stop",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("stop_probability", "node", "the service is asked to end, and starts again when it has"),
                Key::new("stop_timeout_ms", ValueKind::MillisRange, "how long it has to end before it is killed")
                    .otherwise("its `stop_grace_period`"),
            ],
            does: "the service gets its `stop_signal` (SIGTERM), and SIGKILL after `stop_timeout_ms`; then it starts again",
        }
        /// A service crashes again and again.
        CrashLoop in crash_loop {
            name: "crash-loop",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("crash_loop_probability", "node", "the node crashes several times, with short times between"),
                range("crash_loop_duration_ms", "[2000, 10000]", "how long that goes on"),
                number("crash_loop_times", (1, 1000), "5", "how often it crashes"),
            ],
            does: "`crash_loop_times` crashes within `crash_loop_duration_ms`: the service is down half of each part, and up the other half",
        }
        /// A node has a share of its processor.
        Slow in slow {
            name: "slow",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("slow_probability", "node", "the node gets slow"),
                range("slow_duration_ms", "[1000, 10000]", "how long it is slow"),
                Key::new("slow_factor", ValueKind::Decimal { least: "1", most: "1000" }, "how many times as long all work takes there")
                    .default("10"),
            ],
            does: "all work of a node takes `slow_factor` times as long, as with a share of its processor; sleeps and timers end on time",
        }
        /// A task gets no turns.
        Starve in starve {
            name: "starve",
            group: Group::Process,
            begins: Begins::ByNode,
            keys: &[
                probability("starve_probability", "node", "one thread of the service gets no processor"),
                range("starve_duration_ms", "[100, 2000]", "for how long"),
            ],
            does: "one thread of the service does not run for `starve_duration_ms`, while the others do",
        }
        /// Large packets of a node are lost.
        Mtu in mtu {
            name: "mtu",
            group: Group::Network,
            begins: Begins::ByNode,
            keys: &[
                probability("mtu_probability", "node", "large packets from and to the node are lost"),
                range("mtu_duration_ms", "[1000, 10000]", "for how long"),
                number("mtu_bytes", (68, 65_535), "1280", "the largest packet that is not lost, with its headers"),
            ],
            does: "packets from and to a node that are larger than `mtu_bytes` are lost and nobody is told (an MTU black hole): connections open, and hang at the first large transfer",
        }
        /// The network forgets a connection.
        HalfOpen in half_open {
            name: "half-open",
            group: Group::Network,
            begins: Begins::ByNode,
            keys: &[
                probability("half_open_probability", "node", "the network forgets one connection of the node"),
                range("half_open_duration_ms", "[5000, 60000]", "for how long"),
            ],
            does: "all packets of one connection are lost, without FIN or RST, as when a firewall or NAT forgets it: both ends go on as if it were open",
        }
        /// A node takes no new connections.
        SynDrop in syn_drop {
            name: "syn-drop",
            group: Group::Network,
            begins: Begins::ByNode,
            keys: &[
                probability("syn_drop_probability", "node", "the node takes no new connections, as with a full backlog"),
                range("syn_drop_duration_ms", "[1000, 5000]", "for how long"),
            ],
            does: "SYNs to a node are lost, as with a full backlog of a listener: connect(2) takes 1 s, 3 s, ... longer; connections that are open work",
        }
        /// The wall clock of a node is set wrong.
        ClockJump in clock_jump {
            name: "clock-jump",
            group: Group::Clock,
            begins: Begins::ByNode,
            keys: &[
                probability("clock_jump_probability", "node", "the node's wall clock is set wrong, forward or back"),
                range("clock_jump_ms", "[100, 60000]", "how far the wall clock jumps"),
                range("clock_jump_duration_ms", "[1000, 10000]", "how long until it is set right; 0: until the heal"),
            ],
            does: "the wall clock of a node (CLOCK_REALTIME) is set forward or back by `clock_jump_ms`, and set right after `clock_jump_duration_ms`; CLOCK_MONOTONIC goes on",
        }
        /// A node's clocks are fast or slow.
        ClockDrift in clock_drift {
            name: "clock-drift",
            group: Group::Clock,
            begins: Begins::ByNode,
            keys: &[
                probability("clock_drift_probability", "node", "the node's clocks become fast or slow"),
                ppm("clock_drift_ppm", "[10, 500]", "how fast or slow"),
                range("clock_drift_duration_ms", "[5000, 60000]", "how long that lasts; 0: until the heal"),
            ],
            does: "all clocks and timers of a node are fast or slow by `clock_drift_ppm`, for `clock_drift_duration_ms`; then its wall clock is set right",
        }
        /// The wall clocks of nodes differ.
        ClockSkew in clock_skew {
            name: "clock-skew",
            group: Group::Clock,
            begins: Begins::Standing,
            swarm: Swarm::Always,
            keys: &[millis("clock_skew_ms", "0", "each node's wall clock is up to so much before or behind, as is drawn for it")],
            does: "each node's wall clock is wrong by a time up to `clock_skew_ms`, until the heal",
        }
        /// Wall clocks repeat a second.
        LeapSecond in leap_second {
            name: "leap-second",
            group: Group::Clock,
            begins: Begins::ByNetwork,
            keys: &[probability("leap_second_probability", "", "a leap second is inserted")],
            does: "the wall clock of each machine shows a second twice, as at the end of a day with a leap second (adjtimex(2): TIME_INS, TIME_OOP)",
        }
        /// A service has used up its quota of the disk.
        DiskQuota in disk_quota {
            name: "disk-quota",
            group: Group::Disk,
            begins: Begins::ByNode,
            keys: &[
                probability("disk_quota_probability", "node", "the service has used up its quota of the disk"),
                range("disk_quota_ms", "[500, 5000]", "how long it gets no more"),
            ],
            does: "a write of the service that would make a file longer, and the making of a name, fail with EDQUOT for `disk_quota_ms`; what fits into the last page of a file is written",
        }
        /// A sector of the disk cannot be read.
        BadSector in bad_sector {
            name: "bad-sector",
            group: Group::Disk,
            begins: Begins::ByNode,
            keys: &[probability("bad_sector_probability", "node", "a sector (4096 bytes) under a file of the service cannot be read any more")],
            does: "a sector under a file that the service has written goes bad, until all of it is overwritten: read(2) of it fails with EIO, also a write(2) of a part of it; an access to a mapping of it is SIGBUS",
        }
        /// A listener's queue counts as full.
        BacklogFull in backlog_full {
            name: "backlog-full",
            group: Group::Network,
            begins: Begins::ByNode,
            keys: &[
                probability("backlog_full_probability", "node", "the backlog of one listener of the node counts as full"),
                range("backlog_full_duration_ms", "[1000, 5000]", "for how long"),
            ],
            does: "one TCP listener of the service ignores SYNs, and the ACKs that end handshakes, as with a full backlog: connect(2) takes 1 s, 3 s, ... longer, or succeeds long before accept(2) gives the connection",
        }
        /// The ends of connections are lost.
        FinDrop in fin_drop {
            name: "fin-drop",
            group: Group::Network,
            begins: Begins::ByNode,
            keys: &[
                probability("fin_drop_probability", "node", "the FINs that the node sends are lost"),
                range("fin_drop_duration_ms", "[500, 3000]", "for how long"),
            ],
            does: "FINs of a node are lost, each as often as it is sent again: peers learn late that a connection is closed; data arrives",
        }
        /// The machines of a group lose their power together.
        GroupPower in group_power {
            name: "group-power",
            group: Group::Process,
            begins: Begins::ByGroup,
            keys: &[
                probability("group_power_probability", "group", "all machines of the group lose their power at once, as those of a rack do"),
                range("group_power_restart_ms", "[500, 5000]", "how long they stay without power before their services are started again"),
            ],
            does: "all machines of a group of `groups` are without power at once, as in `power-failure`; their services start again after `group_power_restart_ms`",
        }
        /// A group is cut off from all others.
        GroupPartition in group_partition {
            name: "group-partition",
            group: Group::Network,
            begins: Begins::ByGroup,
            keys: &[
                probability("group_partition_probability", "group", "the group is cut off from all other services, as behind a switch that fails"),
                range("group_partition_duration_ms", "[1000, 10000]", "for how long"),
            ],
            does: "the services of a group of `groups` reach each other but no other services, and are reached by none, for `group_partition_duration_ms`",
        }
        /// The services of a group are restarted one after the other.
        RollingRestart in rollout {
            name: "rolling-restart",
            group: Group::Process,
            begins: Begins::ByGroup,
            keys: &[
                probability("rolling_restart_probability", "group", "the services of the group are stopped and started, one after the other"),
                range("rolling_pause_ms", "[200, 2000]", "from when a service is ready again until the next one is stopped"),
                range("rolling_restart_ms", "[10000, 30000]", "how long all of it may take: services whose turn has not come by then go on"),
            ],
            does: "the services of a group of `groups` are stopped and started one after the other, as in `stop`; each has its turn `rolling_pause_ms` after the one before is ready again, within `rolling_restart_ms`, at whose end a service that is still being stopped is killed",
        }
        /// A machine is replaced by one with an empty disk.
        Replace in replace {
            name: "replace",
            group: Group::Process,
            begins: Begins::ByMachine,
            keys: &[
                probability("replace_probability", "machine", "the machine is lost with its disk, and another one takes its place"),
                range("replace_restart_ms", "[1000, 10000]", "how long until that one starts the services"),
            ],
            does: "a machine is gone with all that is on its disk, nobody is told; one with its names and addresses and an empty disk takes its place: its services start after `replace_restart_ms` with new root file systems and empty volumes",
        }
        /// The services of a group are made of another image, one after the other.
        Upgrade in rollout {
            name: "upgrade",
            group: Group::Process,
            begins: Begins::ByGroup,
            keys: &[
                probability("upgrade_probability", "group", "the services of the group are stopped and made of what `upgrades` names, one after the other"),
                range("upgrade_pause_ms", "[200, 2000]", "from when a service is ready again until the next one is stopped"),
                range("upgrade_ms", "[10000, 30000]", "how long all of it may take: services whose turn has not come by then stay as they are"),
            ],
            does: "the services of a group of `groups` are stopped one after the other and started from another image, or other definition, that `upgrades` names: volumes stay, root file systems are new; each has its turn `upgrade_pause_ms` after the one before is ready again, within `upgrade_ms`, at whose end a service that is still being stopped is killed",
        }
        /// The services of a group are made of their first image again, one after the other.
        Downgrade in rollout {
            name: "downgrade",
            group: Group::Process,
            begins: Begins::ByGroup,
            keys: &[
                probability("downgrade_probability", "group", "those services of the group that were upgraded are made of what they began with, one after the other"),
                range("downgrade_pause_ms", "[200, 2000]", "from when a service is ready again until the next one is stopped"),
                range("downgrade_ms", "[10000, 30000]", "how long all of it may take: services whose turn has not come by then stay as they are"),
            ],
            does: "the services of a group of `groups` that an `upgrade` has changed go back to what they began with, one after the other, as they were upgraded; their volumes have what the later version wrote there",
        }
    }
    asked {
        /// A write fails.
        WriteFail {
            name: "write-fail",
            group: Group::Disk,
            keys: &[rate("write_fail_rate", "writes to files on a disk that fail with EIO")],
            does: "write(2) or its kin to a file on a disk fails with EIO; nothing of it is written",
        }
        /// A write is cut short.
        PartialWrite {
            name: "partial-write",
            group: Group::Disk,
            keys: &[rate("partial_write_rate", "writes to files on a disk that are cut short, of those that touch more than one page")],
            does: "the medium fails in the middle of a write: it ends at a page boundary with the count so far, the next write to the file fails with EIO",
        }
        /// An fsync fails.
        FsyncFail {
            name: "fsync-fail",
            group: Group::Disk,
            keys: &[rate("fsync_fail_rate", "calls that make file data durable and fail with EIO")],
            does: "fsync(2), fdatasync(2), msync(2) or a write with O_SYNC fails with EIO; each descriptor that is open then is told once, and the data that did not reach the disk counts as clean",
        }
        /// A read fails.
        ReadFail {
            name: "read-fail",
            group: Group::Disk,
            keys: &[rate("read_fail_rate", "reads of files on a disk that fail with EIO")],
            does: "read(2) or its kin of a file on a disk fails with EIO",
        }
        /// There is no open file left.
        Enfile {
            name: "enfile",
            group: Group::Resources,
            keys: &[rate("enfile_rate", "calls that open a file, socket, pipe or the like and fail with ENFILE")],
            does: "open(2), socket(2), accept(2), pipe(2) and their kin fail with ENFILE before they do anything",
        }
        /// There is no memory left.
        Enomem {
            name: "enomem",
            group: Group::Resources,
            keys: &[rate("enomem_rate", "calls of mmap, brk and fork that fail with ENOMEM")],
            does: "mmap(2), fork(2) and clone(2) fail with ENOMEM; brk(2) leaves the break where it is",
        }
        /// There may be no further task.
        ForkFail {
            name: "fork-fail",
            group: Group::Resources,
            keys: &[rate("fork_fail_rate", "processes and threads that are not made, with EAGAIN")],
            does: "fork(2) and clone(2) fail with EAGAIN, as at a limit of the number of tasks",
        }
        /// There is no ephemeral port left.
        PortExhaustion {
            name: "port-exhaustion",
            group: Group::Resources,
            keys: &[rate("port_exhaustion_rate", "TCP sockets that find no ephemeral port")],
            does: "connect(2) of a TCP socket without a port fails with EADDRNOTAVAIL, bind(2) to port 0 with EADDRINUSE",
        }
        /// A futex wait ends for nothing.
        FutexWake {
            name: "futex-wake",
            group: Group::Kernel,
            keys: &[rate("futex_wake_rate", "futex waits that end at once although nobody woke them")],
            does: "futex(2) with FUTEX_WAIT returns 0 although nobody woke the caller, as it may",
        }
        /// A read gives less than there is.
        ShortRead {
            name: "short-read",
            group: Group::Kernel,
            keys: &[rate("short_read_rate", "reads of TCP sockets that give less than there is")],
            does: "a read of a TCP socket gives a part of what is there; the rest counts as arriving at once behind it, with a new edge",
        }
        /// A write that is reported as durable is not.
        LostWrite {
            name: "lost-write",
            group: Group::Disk,
            keys: &[rate("lost_write_rate", "calls that make file data durable and succeed without doing so (a disk that lies)")],
            does: "fsync(2) or its kin succeeds, but the data of the file since the last one is not on the disk: a loss of power shows it; no system is expected to survive that",
        }
        /// A read gives other data.
        ReadCorrupt {
            name: "read-corrupt",
            group: Group::Disk,
            keys: &[rate("read_corrupt_rate", "reads of files on a disk in which a bit is wrong (a disk that lies)")],
            does: "read(2) or its kin of a file on a disk gives data with a bit inverted; no system is expected to survive that unless it has checksums",
        }
        /// A block is written to the place of another one.
        Misdirected {
            name: "misdirected",
            group: Group::Disk,
            keys: &[rate("misdirected_write_rate", "calls that make file data durable of which a block is written to the place of another block (a disk that lies)")],
            does: "fsync(2) or its kin succeeds, but one block of 4096 bytes lies in the place of another block on the disk, and its own place has what it had: a loss of power shows both; no system is expected to survive that unless it has checksums",
        }
        /// A file is gone after a power failure.
        VanishedFile {
            name: "vanished-file",
            group: Group::Disk,
            keys: &[rate("vanished_file_rate", "power failures after which a file of the service is gone, whatever was synced (a disk that lies)")],
            does: "after a power failure of its machine a file that the service has written is not in its directory any more, although file and directory were synced, as where fsck(8) removed it; no system is expected to survive that",
        }
        /// A send takes a part.
        PartialSend {
            name: "partial-send",
            group: Group::Kernel,
            keys: &[rate("partial_send_rate", "sends on stream sockets that do not block which take a part of the data, though there is room for more")],
            does: "write(2), send(2) or sendmsg(2) on a TCP or Unix stream socket that does not block takes a part of the data, as when memory is short; EPOLLOUT comes anew",
        }
        /// A connection is reset before it is accepted.
        AcceptReset {
            name: "accept-reset",
            group: Group::Kernel,
            keys: &[rate("accept_reset_rate", "TCP connections from other nodes that were reset when accept(2) gives them")],
            does: "a connection from another node is reset while it waits for accept(2), which gives it all the same: getpeername(2) fails with ENOTCONN, and read(2) with ECONNRESET after what had come",
        }
        /// Events of inotify are lost.
        InotifyOverflow {
            name: "inotify-overflow",
            group: Group::Kernel,
            keys: &[rate("inotify_overflow_rate", "reads of inotify instances in which events were lost")],
            does: "an event of inotify(7) is lost, and IN_Q_OVERFLOW stands in its place, as when there is no memory for it",
        }
        /// Events of epoll come in another order.
        EpollReorder {
            name: "epoll-reorder",
            group: Group::Kernel,
            keys: &[rate("epoll_reorder_rate", "calls of epoll_wait that tell of several connections to other nodes and do so in another order")],
            does: "epoll_wait(2) tells of several connections to other nodes in another order than that in which their packets came",
        }
        /// There is no inotify instance or watch left.
        InotifyLimit {
            name: "inotify-limit",
            group: Group::Resources,
            keys: &[rate("inotify_limit_rate", "instances and watches of inotify that are not made")],
            does: "inotify_init(2) fails with EMFILE, inotify_add_watch(2) of another file with ENOSPC, as when other processes of the user have all that it may have",
        }
        /// The user's pipes have too many pages.
        PipeLimit {
            name: "pipe-limit",
            group: Group::Resources,
            keys: &[rate("pipe_limit_rate", "pipes that are made small, or do not grow")],
            does: "a new pipe has two pages, and F_SETPIPE_SZ to more than a pipe has fails with EPERM, as beyond pipe-user-pages-soft; not for CAP_SYS_RESOURCE or CAP_SYS_ADMIN",
        }
    }
}
