//! What /proc/PID tells about memory: maps, smaps, statm and the Vm lines of status.
//!
//! Private pages and those of shared memory count as resident when they exist (`crate::memory`). Which pages of files a platform has
//! mapped is no part of a run (design rule 2): what is mapped of a file that may be accessed counts as resident.

use bloodhound_abi::consts as c;
use bloodhound_vfs::{Dev, Ino};

use super::View;
use crate::mm::{Backing, Lock, Mm, PAGE, ReadAhead, Vma};
use crate::node::Node;
use crate::process::Process;

/// The text column of /proc/PID/maps at which names begin: 25 + 6 * sizeof(void *) in Linux.
const NAME_COLUMN: usize = 73;

fn mm<'a>(view: &View<'a>, process: &Process) -> Option<&'a Mm> {
    // A zombie has given its address space back.
    view.node.mms.get(process.mm).filter(|_| process.zombie.is_none())
}

/// Bytes of a mapping that are resident: private pages, and others.
fn resident(node: &Node, mm: &Mm, vma: &Vma) -> (u64, u64) {
    let private = || mm.pages.range(vma.start / PAGE, vma.end / PAGE).count() as u64 * PAGE;
    match vma.backing {
        Backing::Anon => (private(), 0),
        Backing::Shm { .. } => (0, node.shared_pages(vma) * PAGE),
        Backing::Special(_) => (0, vma.end - vma.start),
        Backing::File { ino, offset } => {
            let private = if vma.shared { 0 } else { private() };
            let accessible = vma.prot & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC) != 0;
            let there = node.vfs.size(ino).next_multiple_of(PAGE).saturating_sub(offset);
            let mapped = if accessible { there.min(vma.end - vma.start) } else { 0 };
            (private, mapped.saturating_sub(private))
        }
    }
}

/// Bytes mapped and bytes resident.
pub(super) fn sizes(view: &View<'_>, process: &Process) -> (u64, u64) {
    let Some(mm) = mm(view, process) else { return (0, 0) };
    let other = |vma: &&Vma| vma.backing != Backing::Anon;
    let others = mm.vmas().filter(other).map(|vma| resident(view.node, mm, vma).1);
    (mm.total, mm.pages.len() * PAGE + others.sum::<u64>())
}

/// One line of maps: "address perms offset dev inode pathname".
fn line(view: &View<'_>, mm: &Mm, vma: &Vma) -> Vec<u8> {
    let flag = |bit, letter| if vma.prot & bit != 0 { letter } else { '-' };
    let of_file =
        |ino: Ino, offset| (offset, view.node.vfs.stat_ino(ino).map(|s| s.dev).unwrap_or_default(), ino.0);
    let (offset, dev, ino) = match (&vma.backing, vma.marks.zero) {
        (Backing::File { ino, offset }, _) => of_file(*ino, *offset),
        (Backing::Anon, Some(zero)) => of_file(zero.ino, vma.start.wrapping_sub(zero.first)),
        // Shared memory is a file of a hidden tmpfs in Linux.
        (Backing::Shm { id, offset }, _) => (*offset, Dev { major: 0, minor: 1 }, u64::from(id.0)),
        (Backing::Anon | Backing::Special(_), _) => (0, Dev::default(), 0),
    };
    let mut out = format!(
        "{:08x}-{:08x} {}{}{}{} {offset:08x} {:02x}:{:02x} {ino} ",
        vma.start,
        vma.end,
        flag(c::PROT_READ, 'r'),
        flag(c::PROT_WRITE, 'w'),
        flag(c::PROT_EXEC, 'x'),
        if vma.is_shown_shared() { 's' } else { 'p' },
        dev.major,
        dev.minor,
    )
    .into_bytes();
    let name = name(view, mm, vma);
    if !name.is_empty() {
        out.resize(out.len().max(NAME_COLUMN), b' ');
        out.extend_from_slice(&name);
    }
    out.push(b'\n');
    out
}

fn name(view: &View<'_>, mm: &Mm, vma: &Vma) -> Vec<u8> {
    let node = view.node;
    // "newline in a pathname is replaced by an octal escape \012" (proc(5)).
    let path = |ino: Ino| view.path_of(ino).split(|b| *b == b'\n').collect::<Vec<_>>().join(&b"\\012"[..]);
    if let Some(zero) = vma.marks.zero {
        return path(zero.ino);
    }
    match &vma.backing {
        Backing::File { ino, .. } => path(*ino),
        Backing::Shm { id, .. } => match node.shm.get(*id).and_then(|s| s.segment) {
            Some((ns, id)) => {
                let segment = node.sysv.get(ns).and_then(|of| of.segments.get(id));
                let key = segment.map_or(0, |entry| entry.item.key);
                format!("/SYSV{key:08x} (deleted)").into_bytes()
            }
            None => b"/dev/zero (deleted)".to_vec(),
        },
        Backing::Special(name) => name.as_bytes().to_vec(),
        Backing::Anon if vma.start < mm.brk.1 && mm.brk.0 < vma.end => b"[heap]".to_vec(),
        Backing::Anon if vma.start < mm.stack_top && mm.stack_top <= vma.end => b"[stack]".to_vec(),
        Backing::Anon => Vec::new(),
    }
}

/// The last mapping of every process, which its kernel has (get_gate_vma): the vsyscall page. Platforms make the calls of its entries; it cannot
/// be read (vsyscall=xonly).
const VSYSCALL_LINE: &[u8] =
    b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

/// /proc/PID/maps.
pub(super) fn maps(view: &View<'_>, process: &Process) -> Vec<u8> {
    let Some(mm) = mm(view, process) else { return Vec::new() };
    let mut out: Vec<u8> = mm.vmas().flat_map(|vma| line(view, mm, vma)).collect();
    out.extend_from_slice(VSYSCALL_LINE);
    out
}

/// How the resident part of a mapping is shared and dirty, in KiB: shared clean, shared dirty, private clean,
/// private dirty, anonymous.
#[derive(Clone, Copy, Default)]
struct Parts {
    size: u64,
    rss: u64,
    shared: u64,
    private_clean: u64,
    private_dirty: u64,
    anonymous: u64,
    locked: u64,
}

impl Parts {
    fn of(node: &Node, mm: &Mm, vma: &Vma) -> Parts {
        let (private, others) = resident(node, mm, vma);
        let (private, others) = (private / 1024, others / 1024);
        let size = (vma.end - vma.start) / 1024;
        let of_file = matches!(vma.backing, Backing::File { .. }) && !vma.shared;
        let (private_clean, shared) = if of_file { (others, 0) } else { (0, others) };
        let rss = private + others;
        let locked = if vma.marks.lock == Lock::No { 0 } else { rss };
        Parts { size, rss, shared, private_clean, private_dirty: private, anonymous: private, locked }
    }

    fn add(&mut self, other: Parts) {
        self.size += other.size;
        self.rss += other.rss;
        self.shared += other.shared;
        self.private_clean += other.private_clean;
        self.private_dirty += other.private_dirty;
        self.anonymous += other.anonymous;
        self.locked += other.locked;
    }

    /// What stands below a mapping's line, up to its flags.
    fn of_mapping(&self) -> String {
        let sizes = row("Size", self.size) + &row("KernelPageSize", 4) + &row("MMUPageSize", 4);
        sizes + &self.rows() + "THPeligible:    0\nVmFlags:"
    }

    fn rows(&self) -> String {
        let rows = [
            ("Rss", self.rss),
            ("Pss", self.rss),
            ("Pss_Dirty", self.private_dirty),
            ("Shared_Clean", self.shared),
            ("Shared_Dirty", 0),
            ("Private_Clean", self.private_clean),
            ("Private_Dirty", self.private_dirty),
            ("Referenced", self.rss),
            ("Anonymous", self.anonymous),
            ("LazyFree", 0),
            ("AnonHugePages", 0),
            ("ShmemPmdMapped", 0),
            ("FilePmdMapped", 0),
            ("Shared_Hugetlb", 0),
            ("Private_Hugetlb", 0),
            ("Swap", 0),
            ("SwapPss", 0),
            ("Locked", self.locked),
        ];
        rows.iter().map(|(name, kib)| row(name, *kib)).collect()
    }
}

fn row(name: &str, kib: u64) -> String {
    format!("{:<16}{kib:>8} kB\n", format!("{name}:"))
}

/// /proc/PID/smaps.
pub(super) fn smaps(view: &View<'_>, process: &Process) -> Vec<u8> {
    let Some(mm) = mm(view, process) else { return Vec::new() };
    let mut out = Vec::new();
    for vma in mm.vmas() {
        out.extend_from_slice(&line(view, mm, vma));
        let mut text = Parts::of(view.node, mm, vma).of_mapping();
        let flags = [(c::PROT_READ, " rd"), (c::PROT_WRITE, " wr"), (c::PROT_EXEC, " ex")];
        flags.iter().filter(|(bit, _)| vma.prot & bit != 0).for_each(|(_, name)| text.push_str(name));
        text.push_str(match (vma.shared, vma.is_shown_shared()) {
            (true, _) => " sh mr mw me ms",
            (false, true) => " mr me ms",
            (false, false) => " mr mw me",
        });
        text.push_str(if vma.marks.grows { " gd" } else { "" });
        text.push_str(match vma.marks.lock {
            Lock::No => "",
            Lock::Now | Lock::OnFault => " lo",
        });
        text.push_str(match vma.marks.read_ahead {
            ReadAhead::Normal => "",
            ReadAhead::Random => " rr",
            ReadAhead::Sequential => " sr",
        });
        text.push_str(if vma.on_fork.omits() { " dc" } else { "" });
        text.push_str(if vma.marks.lock == Lock::OnFault { " lf" } else { "" });
        text.push_str(if vma.marks.accounted { " ac" } else { "" });
        text.push_str(if vma.marks.no_reserve { " nr" } else { "" });
        text.push_str(if vma.on_fork.wipes() { " wf \n" } else { " \n" });
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(VSYSCALL_LINE);
    out.extend_from_slice((Parts { size: 4, ..Parts::default() }.of_mapping() + " ex \n").as_bytes());
    out
}

/// /proc/PID/smaps_rollup.
pub(super) fn smaps_rollup(view: &View<'_>, process: &Process) -> Vec<u8> {
    let Some(mm) = mm(view, process) else { return Vec::new() };
    let mut sum = Parts::default();
    mm.vmas().for_each(|vma| sum.add(Parts::of(view.node, mm, vma)));
    let first = mm.vmas().next().map_or(0, |v| v.start);
    let last = mm.vmas().next_back().map_or(0, |v| v.end);
    let mut head = format!("{first:08x}-{last:08x} ---p 00000000 00:00 0 ").into_bytes();
    head.resize(head.len().max(NAME_COLUMN), b' ');
    head.extend_from_slice(b"[rollup]\n");
    head.extend_from_slice(sum.rows().as_bytes());
    head
}

/// /proc/PID/numa_maps (`show_numa_map`): all is on the one node there is.
pub(super) fn numa_maps(view: &View<'_>, process: &Process) -> Vec<u8> {
    let Some(mm) = mm(view, process) else { return Vec::new() };
    let mut out = Vec::new();
    for vma in mm.vmas() {
        out.extend_from_slice(format!("{:08x} default", vma.start).as_bytes());
        let of_file =
            vma.marks.zero.is_some() || matches!(vma.backing, Backing::File { .. } | Backing::Shm { .. });
        match (of_file, name(view, mm, vma)) {
            (true, path) => {
                out.extend_from_slice(b" file=");
                // "\n\t= " (seq_file_path).
                path.iter().for_each(|byte| match byte {
                    b'\n' | b'\t' | b'=' | b' ' => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
                    byte => out.push(*byte),
                });
            }
            (_, name) if name == b"[heap]" => out.extend_from_slice(b" heap"),
            (_, name) if name == b"[stack]" => out.extend_from_slice(b" stack"),
            _ => {}
        }
        let (anon, others) = match vma.backing {
            // Its pages are the kernel's.
            Backing::Special(_) => (0, 0),
            _ => resident(view.node, mm, vma),
        };
        let (anon, pages) = (anon / PAGE, (anon + others) / PAGE);
        if pages > 0 {
            let private = if anon > 0 { format!(" anon={anon} dirty={anon}") } else { String::new() };
            let mapped = if pages != anon { format!(" mapped={pages}") } else { String::new() };
            out.extend_from_slice(format!("{private}{mapped} N0={pages} kernelpagesize_kB=4").as_bytes());
        }
        out.push(b'\n');
    }
    out
}

/// Sizes by use, in KiB: data, stack, code, libraries.
fn uses(mm: &Mm) -> (u64, u64, u64, u64) {
    let (mut data, mut stack, mut code, mut libraries) = (0, 0, 0, 0);
    let mut main = None;
    for vma in mm.vmas() {
        let kib = (vma.end - vma.start) / 1024;
        match (&vma.backing, vma.prot & (c::PROT_WRITE | c::PROT_EXEC)) {
            (Backing::Anon, _) if vma.start < mm.stack_top && mm.stack_top <= vma.end => stack += kib,
            (Backing::File { ino, .. }, c::PROT_EXEC) => {
                // The program's own code is the lowest in the address space.
                if *main.get_or_insert(*ino) == *ino {
                    code += kib;
                } else {
                    libraries += kib;
                }
            }
            (_, c::PROT_WRITE) if !vma.shared => data += kib,
            _ => {}
        }
    }
    (data, stack, code, libraries)
}

/// /proc/PID/statm: "size resident shared text lib data dt", in pages.
pub(super) fn statm(view: &View<'_>, process: &Process) -> String {
    let Some(mm) = mm(view, process) else { return "0 0 0 0 0 0 0\n".into() };
    let (total, rss) = sizes(view, process);
    let shared: u64 =
        mm.vmas().map(|vma| Parts::of(view.node, mm, vma)).map(|p| p.shared + p.private_clean).sum();
    let (data, stack, code, _) = uses(mm);
    format!("{} {} {} {} 0 {} 0\n", total / 4096, rss / 4096, shared / 4, code / 4, (data + stack) / 4)
}

/// The Vm lines of /proc/PID/status; none for a zombie.
pub(super) fn status(view: &View<'_>, process: &Process) -> String {
    let Some(mm) = mm(view, process) else { return String::new() };
    let (total, rss) = sizes(view, process);
    let (total, rss) = (total / 1024, rss / 1024);
    let mut sum = Parts::default();
    mm.vmas().for_each(|vma| sum.add(Parts::of(view.node, mm, vma)));
    let (data, stack, code, libraries) = uses(mm);
    let rows = [
        ("VmPeak", total),
        ("VmSize", total),
        ("VmLck", mm.locked / 1024),
        ("VmPin", 0),
        ("VmHWM", rss + mm.peak.saturating_sub(mm.pages.len()) * PAGE / 1024),
        ("VmRSS", rss),
        ("RssAnon", sum.anonymous),
        ("RssFile", sum.private_clean),
        ("RssShmem", sum.shared),
        ("VmData", data),
        ("VmStk", stack),
        ("VmExe", code),
        ("VmLib", libraries),
        ("VmPTE", total / 512 + 4),
        ("VmSwap", 0),
    ];
    let mut out: String = rows.iter().map(|(name, kib)| format!("{name}:\t{kib:>8} kB\n")).collect();
    out.push_str("CoreDumping:\t0\nTHP_enabled:\t0\n");
    out
}
