//! /proc/PID and /proc/PID/task/TID (proc(5)).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Sigaction, Timespec};

use super::{
    Entry, Link, Tree, View, anonymous_ino, memory, net, nsfs, sched, system, table_entry, table_names,
};
use crate::caps::Caps;
use crate::credentials::Credentials;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::io_account::IoAccount;
use crate::path::{Place, Synth, cwd_place, place_of};
use crate::process::{CpuTime, FdTable, Process};
use crate::shared::FsPlace;
use crate::task::{NO_LOGIN, Task, TaskState};
use crate::wait::Restart;

/// A process with the thread that was asked for; no thread is left of a zombie.
struct Who<'a> {
    process: &'a Process,
    task: Option<&'a Task>,
    tid: u32,
    /// In the directory of the process, whose files tell of all its threads together; else in one of `task`.
    whole: bool,
}

enum Content {
    /// Bytes as they are.
    Bytes(fn(&View<'_>, &Who<'_>) -> Vec<u8>),
    /// Text.
    Text(fn(&View<'_>, &Who<'_>) -> String),
    /// Always the same.
    Fixed(&'static str),
}

use Content::{Bytes, Fixed, Text};

const OPEN: u32 = 0o444;
const OWN: u32 = 0o400;
/// Written to by programs; see [`super::knobs`].
const WRITE: u32 = 0o644;

/// The first time namespace, in which all are, has none (time_namespaces(7)).
const NO_OFFSETS: &str = "monotonic           0         0\nboottime            0         0\n";

/// All ids are themselves.
const ID_MAP: &str = "         0          0 4294967295\n";

const FILES: &[(&str, u32, Content)] = &[
    ("autogroup", WRITE, Text(|_, who| sched::autogroup(who.process))),
    ("auxv", OWN, Bytes(|_, who| who.process.auxv.to_vec())),
    ("cgroup", OPEN, Fixed("0::/\n")),
    ("children", OPEN, Text(children)),
    ("clear_refs", 0o200, Fixed("")),
    ("cmdline", OPEN, Bytes(|view, who| view.node.command_line(who.process))),
    ("comm", WRITE, Bytes(|_, who| [&comm(who)[..], b"\n"].concat())),
    ("coredump_filter", WRITE, Text(coredump_filter)),
    ("cpuset", OPEN, Fixed("/\n")),
    ("environ", OWN, Bytes(|view, who| view.node.environment(who.process))),
    ("io", OWN, Text(io)),
    ("limits", OPEN, Text(limits)),
    ("gid_map", WRITE, Fixed(ID_MAP)),
    ("loginuid", WRITE, Text(|_, who| login(who).0.to_string())),
    ("maps", OPEN, Bytes(|view, who| memory::maps(view, who.process))),
    ("mem", 0o600, Fixed("")),
    ("mountinfo", OPEN, Text(|view, _| system::mountinfo(view))),
    ("mounts", OPEN, Text(|view, _| system::mounts(view))),
    ("mountstats", 0o400, Text(|view, _| system::mountstats(view))),
    ("numa_maps", OPEN, Bytes(|view, who| memory::numa_maps(view, who.process))),
    ("oom_adj", WRITE, Text(|_, who| format!("{}\n", who.process.knobs.oom_adj()))),
    ("oom_score", OPEN, Text(|_, who| format!("{}\n", who.process.knobs.oom_score()))),
    ("oom_score_adj", WRITE, Text(|_, who| format!("{}\n", who.process.knobs.oom_score_adj))),
    ("pagemap", OWN, Fixed("")),
    ("personality", OWN, Text(|_, who| format!("{:08x}\n", who.task.map_or(0, |task| task.persona)))),
    ("projid_map", WRITE, Fixed(ID_MAP)),
    ("sched", WRITE, Bytes(|view, who| sched::sched(view, who.process, who.task, who.tid, &comm(who)))),
    ("schedstat", OPEN, Text(|_, who| format!("{} 0 0\n", who.process.cpu.total))),
    ("sessionid", OPEN, Text(|_, who| login(who).1.to_string())),
    ("setgroups", WRITE, Fixed("allow\n")),
    ("smaps", OPEN, Bytes(|view, who| memory::smaps(view, who.process))),
    ("smaps_rollup", OPEN, Bytes(|view, who| memory::smaps_rollup(view, who.process))),
    ("stat", OPEN, Bytes(stat)),
    ("statm", OPEN, Text(|view, who| memory::statm(view, who.process))),
    ("status", OPEN, Bytes(status)),
    ("syscall", OWN, Fixed("running\n")),
    ("timens_offsets", WRITE, Fixed(NO_OFFSETS)),
    ("timerslack_ns", 0o666, Text(|_, who| format!("{}\n", who.task.map_or(0, |t| t.timer_slack.ns())))),
    ("uid_map", WRITE, Fixed(ID_MAP)),
    ("wchan", OPEN, Fixed("0")),
];

/// Files that threads do not have in their directories (`tid_base_stuff`), and the one that only these have.
const OF_PROCESSES: [&str; 5] =
    ["autogroup", "coredump_filter", "mountstats", "timens_offsets", "timerslack_ns"];
const OF_THREADS: &str = "children";

const LINKS: [&str; 3] = ["cwd", "exe", "root"];
const DIRS: [&str; 4] = ["fd", "fdinfo", "net", "ns"];

/// A process or thread number as the name of a directory.
pub(super) fn number(name: &str) -> Option<u32> {
    let plain = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_digit())
        && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|_| plain)
}

/// The path below the directory of a process or thread.
fn rest_of(path: &[u8]) -> Option<&str> {
    let (_, rest) = std::str::from_utf8(path).ok()?.split_once('/')?;
    match rest.strip_prefix("task/") {
        Some(thread) => Some(thread.split_once('/')?.1),
        None => Some(rest),
    }
}

/// How reading a file fails without that right, which is asked for when it is read (do_io_accounting, lock_trace).
pub(super) fn refuses_readers(path: &[u8]) -> Option<Errno> {
    match rest_of(path)? {
        "io" => Some(Errno::EACCES),
        "personality" | "syscall" => Some(Errno::EPERM),
        _ => None,
    }
}

/// Whether a place is in the directory `net` of a process.
pub(super) fn is_of_net(path: &[u8]) -> bool {
    rest_of(path).is_some_and(|rest| rest.starts_with("net/"))
}

impl View<'_> {
    /// The process with that number, or that has a thread with that number.
    pub(super) fn process(&self, number: u32) -> Option<&Process> {
        let pid = self.node.process_of(self.pid.ns(), i32::try_from(number).ok()?)?;
        self.node.processes.get(&pid)
    }

    /// The task of that number, or the first of its process: whose descriptors and place are shown.
    fn shown_task(&self, number: u32) -> Option<&Task> {
        let tasks = &self.node.tasks;
        let first = || tasks.get(self.process(number)?.threads.first()?);
        tasks.get(&self.pid.ns().tid(number)).or_else(first)
    }

    fn fds(&self, number: u32) -> Option<&FdTable> {
        self.shown_task(number).map(|task| self.node.fds_of(task.tid))
    }

    fn place(&self, number: u32) -> Option<&FsPlace> {
        self.shown_task(number).map(|task| self.node.place_of(task.tid))
    }

    /// What is at `/proc/number/rest`.
    pub(super) fn process_entry(&self, number: u32, rest: &str) -> Option<Entry> {
        let process = self.process(number)?;
        let (first, tail) = rest.split_once('/').unwrap_or((rest, ""));
        match (first, tail) {
            ("", _) => Some(Entry::Dir { mode: 0o555 }),
            ("task", "") => Some(Entry::Dir { mode: 0o555 }),
            ("task", tail) => {
                let (name, inner) = tail.split_once('/').unwrap_or((tail, ""));
                let tid =
                    self::number(name).filter(|tid| process.threads.contains(&self.pid.ns().tid(*tid)))?;
                // A thread's directory has no "task" of its own.
                if inner == "task" || inner.starts_with("task/") || OF_PROCESSES.contains(&inner) {
                    return None;
                }
                match inner {
                    OF_THREADS => Some(Entry::File { mode: OPEN }),
                    inner => self.process_entry(tid, inner),
                }
            }
            ("net", tail) => table_entry(net::TABLE, tail),
            ("fd" | "fdinfo", "") => Some(Entry::Dir { mode: 0o500 }),
            ("fd", fd) => {
                let id = self.fds(number)?.get(self::number(fd)? as i32).ok()?.file;
                Some(Entry::Link(Link::Place(place_of(id, &self.node.files.get(id)?.kind))))
            }
            ("fdinfo", fd) => {
                self.fds(number)?.get(self::number(fd)? as i32).ok()?;
                Some(Entry::File { mode: OWN })
            }
            ("ns", "") => Some(Entry::Dir { mode: 0o511 }),
            ("ns", name) => {
                let container = self.node.container_of(process.pid);
                let path = nsfs::text(container, name)?.into_bytes();
                Some(Entry::Link(Link::Place(Place::Synth(Synth { tree: Tree::Ns, path }))))
            }
            ("cwd", "") => Some(Entry::Link(Link::Place(cwd_place(self.place(number)?)))),
            ("root", "") => Some(Entry::Link(Link::Place(Place::Ino(self.place(number)?.root)))),
            ("exe", "") if process.exe.is_empty() || process.zombie.is_some() => None,
            ("exe", "") => Some(Entry::Link(Link::Text(process.exe.clone()))),
            (name, "") => FILES
                .iter()
                .find(|(known, ..)| *known == name && name != OF_THREADS)
                .map(|(_, mode, _)| Entry::File { mode: *mode }),
            _ => None,
        }
    }

    /// The names in `/proc/number/rest`.
    pub(super) fn process_names(&self, number: u32, rest: &str) -> Vec<String> {
        let Some(process) = self.process(number) else { return Vec::new() };
        let (first, tail) = rest.split_once('/').unwrap_or((rest, ""));
        match (first, tail) {
            ("", _) => {
                let mut names: Vec<String> = DIRS.iter().chain(&LINKS).map(|s| s.to_string()).collect();
                names.push("task".into());
                let own = FILES.iter().map(|(name, ..)| *name).filter(|name| *name != OF_THREADS);
                names.extend(own.map(String::from));
                names
            }
            ("task", "") => process.threads.iter().map(|tid| tid.number().to_string()).collect(),
            ("task", tail) => {
                let (name, inner) = tail.split_once('/').unwrap_or((tail, ""));
                let Some(tid) = self::number(name) else { return Vec::new() };
                let mut names = self.process_names(tid, inner);
                if inner.is_empty() {
                    names.retain(|name| name != "task" && !OF_PROCESSES.contains(&&name[..]));
                    names.push(OF_THREADS.to_string());
                }
                names
            }
            ("net", tail) => table_names(net::TABLE, tail),
            ("ns", "") => nsfs::NAMES.iter().map(|(name, _)| name.to_string()).collect(),
            ("fd" | "fdinfo", "") => {
                let fds = self.fds(number).map(|fds| fds.iter().map(|(fd, _)| fd.to_string()).collect());
                fds.unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// The text of `/proc/number/rest`.
    pub(super) fn process_text(&self, number: u32, rest: &str) -> Result<Vec<u8>, Errno> {
        self.text_of(number, rest, true)
    }

    fn text_of(&self, number: u32, rest: &str, whole: bool) -> Result<Vec<u8>, Errno> {
        let process = self.process(number).ok_or(Errno::ESRCH)?;
        let (first, tail) = rest.split_once('/').unwrap_or((rest, ""));
        match (first, tail) {
            ("net", tail) => self.table_text(net::TABLE, tail),
            ("task", tail) => {
                let (name, inner) = tail.split_once('/').unwrap_or((tail, ""));
                self.text_of(self::number(name).ok_or(Errno::ENOENT)?, inner, false)
            }
            ("fdinfo", fd) => {
                let fd = self::number(fd).ok_or(Errno::ENOENT)? as i32;
                let id = self.fds(number).and_then(|fds| fds.get(fd).ok()).ok_or(Errno::ENOENT)?.file;
                let file = self.node.files.get(id).ok_or(Errno::ENOENT)?;
                Ok(fdinfo(self, id, file).into_bytes())
            }
            (name, _) => {
                let (.., make) = FILES.iter().find(|(known, ..)| *known == name).ok_or(Errno::ENOENT)?;
                let task = self.node.tasks.get(&self.pid.ns().tid(number));
                let who = Who { process, task, tid: number, whole };
                Ok(match make {
                    Bytes(make) => make(self, &who),
                    Text(make) => make(self, &who).into_bytes(),
                    Fixed(text) => text.as_bytes().to_vec(),
                })
            }
        }
    }
}

/// /proc/PID/task/TID/children: those of a thread, in the order in which it has come by them.
fn children(view: &View<'_>, who: &Who<'_>) -> String {
    let (pid, tid) = (who.process.pid, view.pid.ns().tid(who.tid));
    let own = |p: &&Process| p.ppid == pid && p.parent_thread == tid;
    let mut all: Vec<(u64, u32)> =
        view.node.processes.values().filter(own).map(|p| (p.sibling, p.pid.number())).collect();
    all.sort_unstable();
    all.iter().map(|(_, number)| format!("{number} ")).collect()
}

fn comm(who: &Who<'_>) -> Vec<u8> {
    match who.task {
        Some(task) => task.comm.clone(),
        // A zombie keeps no task; its name was that of its program.
        None => {
            let name = who.process.exe.rsplit(|b| *b == b'/').next().unwrap_or_default();
            name[..name.len().min(15)].to_vec()
        }
    }
}

/// Nothing without memory.
fn coredump_filter(view: &View<'_>, who: &Who<'_>) -> String {
    let mm = view.node.mms.get(who.process.mm).filter(|_| who.task.is_some());
    mm.map_or(String::new(), |mm| format!("{:08x}\n", mm.kept.coredump_filter))
}

fn login(who: &Who<'_>) -> (u32, u32) {
    who.task.map_or((NO_LOGIN, NO_LOGIN), |task| task.login)
}

/// Whose rights the thread has, or had.
fn credentials<'a>(who: &Who<'a>) -> &'a Credentials {
    who.task.map_or(&who.process.first.credentials, |task| &task.credentials)
}

fn state(who: &Who<'_>) -> (char, &'static str) {
    match who.task.map(|t| &t.state) {
        _ if who.process.zombie.is_some() => ('Z', "zombie"),
        Some(TaskState::Runnable) => ('R', "running"),
        // TASK_KILLABLE is a kind of TASK_UNINTERRUPTIBLE.
        Some(TaskState::Blocked(b)) if b.wait.restart == Restart::Killable => ('D', "disk sleep"),
        Some(TaskState::Blocked(_)) => ('S', "sleeping"),
        Some(TaskState::Stopped) => ('T', "stopped"),
        Some(TaskState::Dead) | None => ('Z', "zombie"),
    }
}

/// The signals that a thread blocks: those that it sleeps for in sigtimedwait(2) are not blocked meanwhile (do_sigtimedwait).
fn shown_mask(task: &Task) -> u64 {
    task.sigmask & !task.awaited_signals()
}

/// Ignored and caught signals as masks.
fn signal_masks(actions: &[Sigaction]) -> (u64, u64) {
    let mut masks = (0, 0);
    for (i, action) in actions.iter().enumerate().take(64) {
        match action.handler {
            c::SIG_DFL => {}
            c::SIG_IGN => masks.0 |= 1 << i,
            _ => masks.1 |= 1 << i,
        }
    }
    masks
}

/// /proc/PID/stat: 52 fields, by the table in proc(5).
fn stat(view: &View<'_>, who: &Who<'_>) -> Vec<u8> {
    let p = who.process;
    let threads = p.threads.len();
    let (size, resident) = memory::sizes(view, p);
    // Fields "whose display is governed by a ptrace access mode PTRACE_MODE_READ_FSCREDS | PTRACE_MODE_NOAUDIT check".
    let shown = view.may_know(view.pid.ns().tid(who.tid));
    let mm = view.node.mms.get(p.mm).filter(|_| shown && p.zombie.is_none());
    let stack = mm.map_or(0, |mm| mm.stack_top.saturating_sub(16));
    let heap = mm.map_or(0, |mm| mm.brk.0);
    let [arguments, environment, end] = mm.map_or([0; 3], |mm| mm.strings);
    let (ignored, caught) = signal_masks(view.node.actions_of(p.pid));
    let pending = who.task.map_or(0, |t| t.pending.mask());
    let blocked = who.task.map_or(p.first.sigmask, shown_mask);
    let nice = who.task.map_or(p.first.nice, |t| t.nice);
    let urgency = who.task.map_or(0, |t| t.urgency());
    let code = match p.zombie {
        Some(status) if shown => status.wait_word(),
        _ => 0,
    };
    let limit = p.limits[c::RLIMIT_RSS as usize].cur;
    let name = comm(who);
    let (terminal, group) = view.node.terminal_of(p);
    let mut out = format!("{} (", who.tid).into_bytes();
    out.extend_from_slice(&name);
    let both = |cpu: CpuTime| format!("{} {}", system::ticks(cpu.user()), system::ticks(cpu.system()));
    let cpu = who.task.filter(|_| !who.whole).map_or(p.cpu, |task| task.cpu);
    let times = format!("{} {}", both(cpu), both(p.children_cpu));
    out.extend_from_slice(
        format!(
            ") {} {} {} {} {terminal} {group} 4194304 0 0 0 0 {times} {} {} {threads} 0 {} {size} {} {limit} 1 1 {stack} 0 0 {} {} \
             {ignored} {caught} 0 0 0 {} 0 {} {} 0 0 0 0 0 {heap} {arguments} {environment} {environment} {end} {code}\n",
            state(who).0,
            p.ppid.number(),
            p.pgid.number(),
            p.sid.number(),
            // "For processes running a real-time scheduling policy [...] this is the negated scheduling priority, minus one".
            if urgency > 0 { -1 - urgency as i32 } else { 20 + nice },
            nice,
            system::ticks(p.started.0.saturating_add_signed(view.node.time.boot())),
            resident / 4096,
            // "It is obsolete because it does not provide information on real-time signals": 31 bits.
            pending & 0x7fff_ffff,
            blocked & 0x7fff_ffff,
            p.exit_signal,
            who.task.map_or(0, |t| t.priority),
            who.task.map_or(0, |t| t.policy & 0xff),
        )
        .as_bytes(),
    );
    out
}

/// /proc/PID/status.
fn status(view: &View<'_>, who: &Who<'_>) -> Vec<u8> {
    let p = who.process;
    let (letter, word) = state(who);
    let owner = credentials(who);
    let ([ruid, suid, rgid, sgid], files) = (owner.real_ids, owner.for_files());
    let mut out = b"Name:\t".to_vec();
    for byte in comm(who) {
        // "non-printable characters are escaped": Linux escapes newline and backslash.
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(byte),
        }
    }
    let groups: String = owner.cred.groups.iter().map(|g| format!("{g} ")).collect();
    let umask = view.place(who.tid).map_or(String::new(), |place| format!("Umask:\t{:04o}\n", place.umask));
    let mut text = format!(
        "\n{umask}State:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t{}\nTracerPid:\t0\n\
         Uid:\t{ruid}\t{uid}\t{suid}\t{fsuid}\nGid:\t{rgid}\t{gid}\t{sgid}\t{fsgid}\nFDSize:\t{}\nGroups:\t{groups}\n\
         NStgid:\t{}\nNSpid:\t{}\nNSpgid:\t{}\nNSsid:\t{}\n",
        p.pid.number(),
        who.tid,
        p.ppid.number(),
        view.fds(who.tid).map_or(0, |fds| fds.iter().count().next_multiple_of(64).max(64)),
        p.pid.number(),
        who.tid,
        p.pgid.number(),
        p.sid.number(),
        uid = owner.cred.uid,
        gid = owner.cred.gid,
        fsuid = files.uid,
        fsgid = files.gid,
    );
    text.push_str(&memory::status(view, p));
    text.push_str(&status_signals(view, who));
    out.extend_from_slice(text.as_bytes());
    out
}

fn status_signals(view: &View<'_>, who: &Who<'_>) -> String {
    let p = who.process;
    let (ignored, caught) = signal_masks(view.node.actions_of(p.pid));
    let own = who.task.map_or(0, |t| t.pending.mask());
    let blocked = who.task.map_or(p.first.sigmask, shown_mask);
    let queued = own.count_ones() + p.pending.mask().count_ones();
    let (mode, filters) = who.task.map_or((0, 0), |t| t.seccomp.shown());
    let Caps { inheritable, permitted, effective, bounding, ambient, .. } = credentials(who).caps;
    let no_new_privs = who.task.map_or(p.first.no_new_privs, |task| task.no_new_privs);
    format!(
        "Threads:\t{}\nSigQ:\t{queued}/{}\nSigPnd:\t{own:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\n\
         SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\nCapInh:\t{inheritable:016x}\n\
         CapPrm:\t{permitted:016x}\nCapEff:\t{effective:016x}\nCapBnd:\t{bounding:016x}\nCapAmb:\t{ambient:016x}\nNoNewPrivs:\t{}\nSeccomp:\t{mode}\nSeccomp_filters:\t{filters}\n\
         Speculation_Store_Bypass:\tnot vulnerable\nSpeculationIndirectBranch:\tunknown\nCpus_allowed:\t1\n\
         Cpus_allowed_list:\t0\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t0\n\
         nonvoluntary_ctxt_switches:\t0\n",
        p.threads.len(),
        p.limits[c::RLIMIT_SIGPENDING as usize].cur,
        p.pending.mask(),
        u32::from(no_new_privs),
    )
}

/// /proc/PID/io, of a process or of one thread. That calls had to wait for storage is not modelled: nothing was read from it or written to it.
fn io(_: &View<'_>, who: &Who<'_>) -> String {
    let account = who.task.filter(|_| !who.whole).map_or(who.process.io, |task| task.io);
    let IoAccount { rchar, wchar, syscr, syscw } = account;
    format!(
        "rchar: {rchar}\nwchar: {wchar}\nsyscr: {syscr}\nsyscw: {syscw}\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"
    )
}

/// /proc/PID/limits.
fn limits(_: &View<'_>, who: &Who<'_>) -> String {
    const ROWS: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let shown = |value: u64| if value == u64::MAX { "unlimited".to_string() } else { value.to_string() };
    let mut out = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for ((name, unit), limit) in ROWS.iter().zip(&who.process.limits) {
        out.push_str(&format!("{name:<25} {:<20} {:<20} ", shown(limit.cur), shown(limit.max)));
        if unit.is_empty() {
            out.push('\n');
        } else {
            out.push_str(&format!("{unit:<10}\n"));
        }
    }
    out
}

/// /proc/PID/fdinfo/FD.
fn fdinfo(view: &View<'_>, id: FileId, file: &File) -> String {
    let node = view.node;
    let place = place_of(id, &file.kind);
    let mount = view.mount_number(view.device_of(&place));
    let ino = match place {
        Place::Ino(ino) => ino.0,
        Place::Synth(synth) => super::inode_number(&synth),
        Place::File(_) => anonymous_ino(&file.kind),
    };
    let mut out =
        format!("pos:\t{}\nflags:\t0{:o}\nmnt_id:\t{mount}\nino:\t{ino}\n", file.offset, file.flags);
    match &file.kind {
        FileKind::Event(event) => {
            if let Some(e) = node.events.get(*event) {
                out.push_str(&format!("eventfd-count: {:16x}\n", e.count));
            }
        }
        FileKind::Epoll(ep) => {
            for (fd, events, data) in node.epoll_items(*ep) {
                out.push_str(&format!("tfd: {fd:8} events: {events:8x} data: {data:16x}\n"));
            }
        }
        FileKind::TimerFd(timer) => {
            if let Some(t) = node.timerfds.get(*timer) {
                let mut shown = t.schedule.show(node.own_time());
                if t.waits {
                    // "return remaining < 0 ? 0: remaining" (timerfd_get_remaining).
                    shown.value = Timespec::from_ns(0);
                }
                out.push_str(&format!(
                    "clockid: {}\nticks: {}\nsettime flags: 0{}\nit_value: ({}, {})\nit_interval: ({}, {})\n",
                    u32::from(!t.realtime),
                    t.expired + u64::from(t.cancelled),
                    t.flags(),
                    shown.value.sec,
                    shown.value.nsec,
                    shown.interval.sec,
                    shown.interval.nsec
                ));
            }
        }
        FileKind::Process(named) => {
            // "-1" once the parent has waited for it (pidfd_show_fdinfo).
            let number = node.process_named(*named).map_or(-1, |pid| pid.number_in(view.pid.ns()) as i32);
            out.push_str(&format!("Pid:\t{number}\nNSpid:\t{number}\n"));
        }
        FileKind::Inotify(id) => out.push_str(&node.inotify_lines(*id)),
        FileKind::SignalFd(s) => {
            if let Some(s) = node.signalfds.get(*s) {
                out.push_str(&format!("sigmask:\t{:016x}\n", s.mask));
            }
        }
        _ => {}
    }
    out
}
