//! The cases: for each kind of faults one that happens for certain, what the timeline tells of it, and what a service sees.
//!
//! A new kind needs one entry in [`CASES`]. Its program tells what each of its attempts comes to, whenever that changes (`observe.h`); if no
//! program attempts what the kind is about, it is a function more in one of them.

/// What runs in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `calls.c`: one service that asks its kernel for all that can be denied.
    Calls,
    /// `network.c`: `one` sends to `two`, which sends back.
    Network,
    /// `lives.c`: one service with a second thread and a worker.
    Lives,
    /// `data/clock/pair.c`: two services that compare their clocks.
    Clocks,
    /// `sectors.c`: one service that reads a file over and over, by calls and by mappings.
    Sectors,
}

impl Program {
    /// All of them.
    pub const ALL: [Program; 5] =
        [Program::Calls, Program::Network, Program::Lives, Program::Clocks, Program::Sectors];

    /// The name of the file that runs.
    pub fn name(self) -> &'static str {
        match self {
            Program::Calls => "calls",
            Program::Network => "network",
            Program::Lives => "lives",
            Program::Clocks => "clocks",
            Program::Sectors => "sectors",
        }
    }

    /// Where its source is, below `runner/tests`.
    pub fn source(self) -> &'static str {
        match self {
            Program::Calls => "every_fault/calls.c",
            Program::Network => "every_fault/network.c",
            Program::Lives => "every_fault/lives.c",
            Program::Clocks => "data/clock/pair.c",
            Program::Sectors => "every_fault/sectors.c",
        }
    }

    /// Whether a service `two` runs it as well.
    pub fn is_pair(self) -> bool {
        matches!(self, Program::Network | Program::Clocks)
    }

    /// Its argument in a service of a pair: what it is, or whom it talks to.
    pub fn argument(self, service: &'static str) -> &'static str {
        match (self, service) {
            (Program::Clocks, "one") => "two",
            (Program::Clocks, _) => "one",
            _ => service,
        }
    }
}

/// What the service `one` prints if it sees the fault, and does not without it.
#[derive(Clone, Copy, Debug)]
pub enum Sees {
    /// These lines in this order, with whatever between.
    InOrder(&'static [&'static str]),
    /// What this holds of.
    That(fn(&[&str]) -> bool),
}

/// The case of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The kind's name.
    pub kind: &'static str,
    pub program: Program,
    /// Keys of the section `faults`. Faults can begin half a second after the services are ready, and are healed two seconds later.
    pub faults: &'static str,
    /// What stands in lines of the timeline, one after the other: that it begins, and that it ends.
    pub told: &'static [&'static str],
    pub sees: Sees,
}

const fn case(
    kind: &'static str,
    program: Program,
    faults: &'static str,
    told: &'static [&'static str],
    sees: &'static [&'static str],
) -> Case {
    Case { kind, program, faults, told, sees: Sees::InOrder(sees) }
}

const fn case_that(
    kind: &'static str,
    program: Program,
    faults: &'static str,
    told: &'static [&'static str],
    holds: fn(&[&str]) -> bool,
) -> Case {
    Case { kind, program, faults, told, sees: Sees::That(holds) }
}

/// By how many ms the wall clock was set, each time.
fn steps(lines: &[&str]) -> Vec<i64> {
    let of = |line: &&str| line.strip_prefix("step ")?.strip_suffix(" ms alike")?.parse().ok();
    lines.iter().filter_map(of).collect()
}

/// By how many ms the clocks of the two services differed, each time: CLOCK_MONOTONIC and CLOCK_REALTIME.
fn apart(lines: &[&str]) -> Vec<(i64, i64)> {
    let of = |line: &&str| {
        let (mono, real) = line.strip_prefix("apart ")?.strip_suffix(" us")?.split_once(' ')?;
        Some((mono.parse::<i64>().ok()? / 1000, real.parse::<i64>().ok()? / 1000))
    };
    lines.iter().filter_map(of).collect()
}

/// The wall clock is wrong by so much for a while.
fn set_and_set_right(lines: &[&str], least: i64, most: i64) -> bool {
    let steps = steps(lines);
    let is_wrong = |by: &i64| (least..=most).contains(&by.abs());
    steps.len() == 2 && steps.first().is_some_and(is_wrong) && steps.iter().sum::<i64>().abs() <= 2
}

fn jumps(lines: &[&str]) -> bool {
    set_and_set_right(lines, 2_990, 3_010)
}

fn is_skewed(lines: &[&str]) -> bool {
    set_and_set_right(lines, 5, 1_000)
}

/// Ten percent for a second, which the monotonic clock keeps and the wall clock does not.
fn drifts(lines: &[&str]) -> bool {
    let last = apart(lines).last().copied();
    last.is_some_and(|(mono, real)| (80..=120).contains(&mono.abs()) && real.abs() < 5)
}

fn repeats_a_second(lines: &[&str]) -> bool {
    matches!(steps(lines)[..], [by] if (-1_002..=-998).contains(&by))
}

/// One of the threads stands still, and the others go on.
fn one_is_late(lines: &[&str]) -> bool {
    lines.iter().filter(|line| line.ends_with(" late")).count() == 1
}

/// A block cannot be read and is SIGBUS in both mappings, until all of it is written.
fn is_bad_until_written(lines: &[&str]) -> bool {
    let is = |line: &&str, (what, how): &(&str, &str)| line.starts_with(what) && line.ends_with(how);
    let expected = [
        ("read ", " EIO"),
        ("mapped ", " SIGBUS"),
        ("mapped ", " SIGBUS"),
        ("memory ", " EFAULT"),
        ("part ", " EIO"),
        ("whole ", " 4096"),
        ("then ", " good"),
    ];
    lines.len() == expected.len() && lines.iter().zip(&expected).all(|(line, expected)| is(line, expected))
}

/// All kinds, in the order of the manual.
pub const CASES: &[Case] = &[
    case(
        "drop",
        Program::Network,
        "schedule: [{at: 0s, fault: drop, rate: 1, duration: 1s}]",
        &["drop 100% from [all] to [all] for 1000 ms", "drop healed"],
        &["udp good", "udp lost", "udp good"],
    ),
    case(
        "delay",
        Program::Network,
        "schedule: [{at: 0s, fault: delay, rate: 1, time_ms: 45, duration: 1s}]",
        &["delay 100% 45000 us from [all] to [all] for 1000 ms", "delay healed"],
        &["udp good", "udp late", "udp good"],
    ),
    case(
        "latency",
        Program::Network,
        "schedule: [{at: 0s, fault: latency, time_ms: 20, duration: 1s}]",
        &["latency 20000 us from [all] to [all] for 1000 ms", "latency healed"],
        &["udp good", "udp late", "udp good"],
    ),
    case(
        "jitter",
        Program::Network,
        "schedule: [{at: 0s, fault: jitter, time_ms: 45, duration: 1s}]",
        &["jitter 45000 us from [all] to [all] for 1000 ms", "jitter healed"],
        &["udp good", "udp late", "udp good"],
    ),
    case(
        "corrupt",
        Program::Network,
        "schedule: [{at: 0s, fault: corrupt, rate: 1, duration: 1s}]",
        &["corrupt 100%", "corrupt healed"],
        &["udp good", "udp lost", "udp good"],
    ),
    case(
        "duplicate",
        Program::Network,
        "schedule: [{at: 0s, fault: duplicate, rate: 1, duration: 1s}]",
        &["duplicate 100%", "duplicate healed"],
        &["udp good", "udp twice", "udp good"],
    ),
    case(
        "reorder",
        Program::Network,
        "schedule: [{at: 0s, fault: reorder, rate: 0.5, duration: 1500ms}]",
        &["reorder 50%", "reorder healed"],
        &["udp good", "udp overtaken", "udp good"],
    ),
    case(
        "bandwidth",
        Program::Network,
        "schedule: [{at: 0s, fault: bandwidth, kbit: 4000, duration: 1s}]",
        &["bandwidth 4000 kbit/s from [all] to [all] for 1000 ms", "bandwidth healed"],
        &["large good", "large late", "large good"],
    ),
    case(
        "corrupt-pass",
        Program::Network,
        "schedule: [{at: 0s, fault: corrupt-pass, rate: 1, duration: 1s}]",
        &["corrupt-pass 100%", "corrupt-pass healed"],
        &["udp good", "udp changed", "udp good"],
    ),
    case(
        "dns-fail",
        Program::Network,
        "network: {dns_fail_rate: 1}",
        &["one asks its name server", "healed: the system must recover"],
        &["name good", "name again", "name good"],
    ),
    case(
        "dns-delay",
        Program::Network,
        "network: {dns_delay_ms: 200}",
        &["faults: dns-delay 200000 us", "healed: the system must recover"],
        &["name good", "name late", "name good"],
    ),
    case(
        "reset",
        Program::Network,
        "schedule: [{at: 200ms, fault: reset, service: one}]",
        &["reset all connections of one"],
        &["tcp good", "tcp ECONNRESET", "tcp good"],
    ),
    case(
        "partition",
        Program::Network,
        "schedule: [{at: 0s, fault: partition, partition: isolate, service: one, duration: 1s}]",
        &["partition isolate one from [two] for 1000 ms", "partition healed"],
        &["udp good", "udp lost", "udp good"],
    ),
    case(
        "crash",
        Program::Lives,
        "schedule: [{at: 200ms, fault: crash, service: one, duration: 300ms}]",
        &["crash one (SIGKILL), restart after 300 ms", "one started"],
        &["life 1", "life 2", "synced kept", "unsynced kept"],
    ),
    case(
        "pause",
        Program::Lives,
        "schedule: [{at: 200ms, fault: pause, service: one, duration: 500ms}]",
        &["pause one for 500 ms", "pause of one is over"],
        &["first good", "first late", "first good"],
    ),
    case(
        "power-failure",
        Program::Lives,
        "schedule: [{at: 200ms, fault: power-failure, service: one, duration: 300ms}]",
        &[
            "power failure of the machine of one, power again after 300 ms",
            "of what the machine of one had not synced",
            "one started",
        ],
        &["life 1", "life 2", "synced kept", "unsynced lost"],
    ),
    case(
        "disk-full",
        Program::Calls,
        "schedule: [{at: 0s, fault: disk-full, service: one, duration: 700ms}]",
        &["the disk of one is full for 700 ms (ENOSPC)", "disk-full of one is over"],
        &["append good", "append ENOSPC", "append good"],
    ),
    case(
        "disk-slow",
        Program::Calls,
        "disk: {disk_latency_ms: 60}, schedule: [{at: 0s, fault: disk-slow, service: one, duration: 700ms}]",
        &["the disk of one is slow for 700 ms (60 ms a call)", "disk-slow of one is over"],
        &["fsync good", "fsync late", "fsync good"],
    ),
    case(
        "disk-readonly",
        Program::Calls,
        "schedule: [{at: 0s, fault: disk-readonly, service: one, duration: 700ms}]",
        &["the disk of one is read-only for 700 ms (EROFS)", "disk-readonly of one is over"],
        &["name good", "name EROFS", "name good"],
    ),
    case(
        "oom",
        Program::Lives,
        "schedule: [{at: 200ms, fault: oom, service: one}]",
        &["memory of one runs out (OOM kill)", "is killed"],
        &["child killed", "memory out"],
    ),
    case(
        "kill",
        Program::Lives,
        "schedule: [{at: 200ms, fault: kill, service: one}]",
        &["kill a process of one (SIGKILL)", "one process "],
        &["child killed", "memory good"],
    ),
    case(
        "stop",
        Program::Lives,
        "schedule: [{at: 200ms, fault: stop, service: one, duration: 500ms}]",
        &["stop one (SIGKILL after 500 ms) and start it again", "one ended: exit code 0", "one started"],
        &["life 1", "life asked", "life 2", "unsynced kept"],
    ),
    case(
        "crash-loop",
        Program::Lives,
        "process: {crash_loop_times: 3}, schedule: [{at: 200ms, fault: crash-loop, service: one, duration: 900ms}]",
        &["crash one 3 times within 900 ms", "one started", "one started", "one started"],
        &["life 1", "life 2", "life 3", "life 4"],
    ),
    case(
        "slow",
        Program::Lives,
        "process: {slow_factor: 20}, schedule: [{at: 200ms, fault: slow, service: one, duration: 700ms}]",
        &["slow one: all work takes 20 times as long, for 700 ms", "slow of one is over"],
        &["work good", "work slow", "work good"],
    ),
    case_that(
        "starve",
        Program::Lives,
        "schedule: [{at: 200ms, fault: starve, service: one, duration: 500ms}]",
        &["starve a thread of one for 500 ms", "gets no processor", "starve of one is over"],
        one_is_late,
    ),
    case(
        "mtu",
        Program::Network,
        "network: {mtu_bytes: 1000}, schedule: [{at: 0s, fault: mtu, service: two, duration: 1s}]",
        &["of more than 1000 bytes are lost, for 1000 ms", "mtu of two is over"],
        &["large good", "large silent", "large good"],
    ),
    case(
        "half-open",
        Program::Network,
        "schedule: [{at: 0s, fault: half-open, service: two, duration: 1500ms}]",
        &["is forgotten by the network, for 1500 ms", "half-open of two is over"],
        &["tcp good", "tcp silent", "tcp good"],
    ),
    case(
        "syn-drop",
        Program::Network,
        "schedule: [{at: 0s, fault: syn-drop, service: two, duration: 1s}]",
        &["two takes no new connections (SYNs to it are lost), for 1000 ms", "syn-drop of two is over"],
        &["connect good", "connect silent", "connect good"],
    ),
    case_that(
        "clock-jump",
        Program::Clocks,
        "clock: {clock_jump_ms: [3000, 3000]}, schedule: [{at: 200ms, fault: clock-jump, service: one, duration: 1s}]",
        &["wall clock of one goes ", "clock-jump of one is over"],
        jumps,
    ),
    case_that(
        "clock-drift",
        Program::Clocks,
        "clock: {clock_drift_ppm: [100000, 100000]}, schedule: [{at: 200ms, fault: clock-drift, service: one, duration: 1s}]",
        &["clocks of one are 100000 ppm", "clock-drift of one is over"],
        drifts,
    ),
    case_that(
        "clock-skew",
        Program::Clocks,
        "schedule: [{at: 0s, fault: clock-skew, service: one, time_ms: 1000}]",
        &["until the heal", "healed: the system must recover"],
        is_skewed,
    ),
    case_that(
        "leap-second",
        Program::Clocks,
        "schedule: [{at: 200ms, fault: leap-second}]",
        &["leap second: every wall clock shows this second twice"],
        repeats_a_second,
    ),
    case(
        "write-fail",
        Program::Calls,
        "disk: {write_fail_rate: 1}",
        &["write-fail: pwrite64 of /var/tmp/log by one", "healed"],
        &["write good", "write EIO", "write good"],
    ),
    case(
        "partial-write",
        Program::Calls,
        "disk: {partial_write_rate: 1}",
        &["partial-write: pwrite64 of /var/tmp/log by one", "healed"],
        &["write good", "write short", "write EIO", "write good"],
    ),
    case(
        "fsync-fail",
        Program::Calls,
        "disk: {fsync_fail_rate: 1}",
        &["fsync-fail: fsync of /var/tmp/log by one", "healed"],
        &["fsync good", "fsync EIO", "fsync good"],
    ),
    case(
        "read-fail",
        Program::Calls,
        "disk: {read_fail_rate: 1}",
        &["read-fail: pread64 of /var/tmp/known by one", "healed"],
        &["read good", "read EIO", "read good"],
    ),
    case(
        "enfile",
        Program::Calls,
        "resources: {enfile_rate: 1}",
        &["enfile: open", "healed"],
        &["open good", "open ENFILE", "open good"],
    ),
    case(
        "enomem",
        Program::Calls,
        "resources: {enomem_rate: 1}",
        &["enomem: mmap by one", "enomem: clone by one", "healed"],
        &["mmap good", "mmap ENOMEM", "fork ENOMEM", "mmap good", "fork good"],
    ),
    case(
        "fork-fail",
        Program::Calls,
        "resources: {fork_fail_rate: 1}",
        &["fork-fail: clone by one", "healed"],
        &["fork good", "fork EAGAIN", "fork good"],
    ),
    case(
        "port-exhaustion",
        Program::Calls,
        "resources: {port_exhaustion_rate: 1}",
        &["port-exhaustion: bind by one", "port-exhaustion: connect by one", "healed"],
        &["connect good", "bind EADDRINUSE", "connect EADDRNOTAVAIL", "bind good", "connect good"],
    ),
    case(
        "futex-wake",
        Program::Calls,
        "kernel: {futex_wake_rate: 1}",
        &["futex-wake: futex by one", "healed"],
        &["futex good", "futex woken", "futex good"],
    ),
    case(
        "short-read",
        Program::Calls,
        "kernel: {short_read_rate: 1}",
        &["short-read: recvfrom by one", "healed"],
        &["recv good", "recv short", "recv good"],
    ),
    case(
        "lost-write",
        Program::Lives,
        "disk: {lost_write_rate: 1}, schedule: [{at: 300ms, fault: crash, service: one, duration: 100ms}, \
         {at: 800ms, fault: power-failure, service: one, duration: 300ms}]",
        &["lost-write: fsync of /data/synced-0 by one", "power failure of the machine of one"],
        &["synced kept", "synced lost"],
    ),
    case(
        "read-corrupt",
        Program::Calls,
        "disk: {read_corrupt_rate: 1}",
        &["read-corrupt: pread64 of /var/tmp/known by one", "healed"],
        &["read good", "read changed", "read good"],
    ),
    case(
        "bad-checksum",
        Program::Network,
        "schedule: [{at: 0s, fault: bad-checksum, rate: 1, from: [two], to: [one], duration: 1s}]",
        &["bad-checksum 100% from [two] to [one] for 1000 ms", "bad-checksum healed"],
        &["udp good", "udp spurious", "udp good"],
    ),
    case(
        "backlog-full",
        Program::Network,
        "schedule: [{at: 0s, fault: backlog-full, service: two, duration: 1s}]",
        &[
            "the backlog of a listener of two is full, for 1000 ms",
            "listener 0.0.0.0:7000 takes no more connections",
            "backlog-full of two is over",
        ],
        &["connect good", "connect silent", "connect good"],
    ),
    case(
        "fin-drop",
        Program::Network,
        "schedule: [{at: 0s, fault: fin-drop, service: two, duration: 1s}]",
        &["connections that two closes end late (its FINs are lost), for 1000 ms", "fin-drop of two is over"],
        &["end good", "end silent", "end good"],
    ),
    case(
        "partial-send",
        Program::Network,
        "kernel: {partial_send_rate: 1}",
        &["partial-send: sendto by one", "healed"],
        &["send good", "send part", "send good"],
    ),
    case(
        "accept-reset",
        Program::Network,
        "kernel: {accept_reset_rate: 1}",
        &[
            "two | accepted good",
            "accept-reset: accept by two",
            "two | accepted ENOTCONN",
            "healed",
            "two | accepted good",
        ],
        &["large good", "large ECONNRESET", "large good"],
    ),
    case(
        "inotify-overflow",
        Program::Calls,
        "kernel: {inotify_overflow_rate: 1}",
        &["inotify-overflow: read by one", "healed"],
        &["events good", "events overflow", "events good"],
    ),
    case(
        "epoll-reorder",
        Program::Network,
        "kernel: {epoll_reorder_rate: 1}",
        &["epoll-reorder: epoll_wait by one", "healed"],
        &["epoll good", "epoll reordered", "epoll good"],
    ),
    case(
        "inotify-limit",
        Program::Calls,
        "resources: {inotify_limit_rate: 1}",
        &[
            "inotify-limit: inotify_init1 by one",
            "inotify-limit: inotify_add_watch of /var/tmp/known by one",
            "healed",
        ],
        &["watch good", "inotify EMFILE", "watch ENOSPC", "inotify good", "watch good"],
    ),
    case(
        "pipe-limit",
        Program::Calls,
        "resources: {pipe_limit_rate: 1}",
        &["pipe-limit: pipe", "pipe-limit: fcntl by one", "healed"],
        &["grow good", "pipe small", "grow EPERM", "pipe good", "grow good"],
    ),
    case(
        "disk-quota",
        Program::Calls,
        "schedule: [{at: 0s, fault: disk-quota, service: one, duration: 700ms}]",
        &["the quota of one on its disk is used up for 700 ms (EDQUOT)", "disk-quota of one is over"],
        &["name good", "append EDQUOT", "name EDQUOT", "append good", "name good"],
    ),
    case_that(
        "bad-sector",
        Program::Sectors,
        "schedule: [{at: 200ms, fault: bad-sector, service: one}]",
        &[
            "a sector of the disk of one goes bad (EIO, SIGBUS)",
            "one cannot read 4096 bytes of /var/tmp/data from byte ",
            "bad-sector: pread64 of /var/tmp/data by one",
            "bad-sector: page fault of /var/tmp/data by one",
            "bad-sector: pwrite64 of /var/tmp/data by one",
        ],
        is_bad_until_written,
    ),
    case(
        "misdirected",
        Program::Lives,
        "disk: {misdirected_write_rate: 1}, schedule: [{at: 300ms, fault: crash, service: one, duration: 100ms}, \
         {at: 800ms, fault: power-failure, service: one, duration: 300ms}]",
        &["misdirected: fsync of /data/synced-0 by one", "power failure of the machine of one"],
        &["synced kept", "synced lost"],
    ),
    // Which file it is, is drawn, so there are more failures than one.
    case(
        "vanished-file",
        Program::Lives,
        "disk: {vanished_file_rate: 1}, schedule: [{at: 200ms, fault: power-failure, service: one, duration: 100ms}, \
         {at: 700ms, fault: power-failure, service: one, duration: 100ms}, \
         {at: 1200ms, fault: power-failure, service: one, duration: 100ms}]",
        &["power failure of the machine of one", "one has lost /data/synced-", "(vanished-file)", "one started"],
        &["life 1", "synced lost"],
    ),
    case(
        "group-power",
        Program::Lives,
        "groups: {rack: [one]}, schedule: [{at: 200ms, fault: group-power, service: rack, duration: 300ms}]",
        &[
            "power failure of the machines of rack [one], power again after 300 ms",
            "of what the machine of one had not synced",
            "one started",
        ],
        &["life 1", "life 2", "synced kept", "unsynced lost"],
    ),
    case(
        "group-partition",
        Program::Network,
        "groups: {rack: [one]}, schedule: [{at: 0s, fault: group-partition, service: rack, duration: 1s}]",
        &["rack [one] cut off from [two] for 1000 ms", "group-partition healed"],
        &["udp good", "udp lost", "udp good"],
    ),
    case(
        "rolling-restart",
        Program::Lives,
        "groups: {rack: [one]}, schedule: [{at: 200ms, fault: rolling-restart, service: rack, duration: 1s}]",
        &["rolling restart of rack [one], ", "one ended: exit code 0", "one started"],
        &["life 1", "life asked", "life 2", "unsynced kept"],
    ),
    case(
        "replace",
        Program::Lives,
        "schedule: [{at: 200ms, fault: replace, service: one, duration: 300ms}]",
        &["the machine of one is lost, one with an empty disk takes its place after 300 ms", "one started"],
        &["life 1", "life 1"],
    ),
];
