//! Shapes of system calls: number, how it ended, what kind of file it was about; and what calls do to names of files.
//!
//! Key types: [`Calls`]. What a descriptor stands for is known by the call that made it; one that was open before the run has no kind. Neighbours:
//! [`super::gather`], [`super::book`].

use bloodhound_abi::args::{ArgKind, Path};
use bloodhound_abi::call::Call;
use bloodhound_abi::digest::content;
use bloodhound_abi::flags::OpenFlags;
use bloodhound_abi::table;
use bloodhound_kernel::ids::{Pid, Tid};
use bloodhound_net::NodeId;
use bloodhound_sim::event::{Memory, Moment};

use super::book::{Aspect, Book};
use super::classes::Classes;
use super::table::{Table, mix};

/// System calls have numbers below this.
const NUMBERS: usize = 512;
/// Of tasks and descriptors no more than so many are known.
const MOST: usize = 1 << 16;
/// Results from here on are errors (syscall(2)).
const FIRST_ERROR: u64 = -4095i64 as u64;
/// A node's set of files has no more members than this.
const FILES: usize = 64;

/// What is known of calls.
#[derive(Clone, Debug)]
pub struct Calls {
    /// Whether the first argument of a call is a descriptor.
    on_descriptor: Vec<bool>,
    /// The last call of each task.
    last: Table<u64>,
    /// What descriptors stand for.
    kinds: Table<u64>,
    /// The name of the file that a call under way is about, by task.
    named: Table<u64>,
    /// What each node did last to names of files, and the files that it has made, in order.
    files: Vec<(NodeId, u64, Vec<u64>)>,
    text: Vec<u8>,
}

impl Calls {
    /// Nothing is known.
    pub fn new() -> Calls {
        let on_descriptor = |nr| {
            let first = table::info(nr).and_then(|entry| entry.args.first());
            first.is_some_and(|(_, kind)| *kind == ArgKind::Fd)
        };
        Calls {
            on_descriptor: (0..NUMBERS as u64).map(on_descriptor).collect(),
            last: Table::new(MOST),
            kinds: Table::new(MOST),
            named: Table::new(MOST),
            files: Vec::new(),
            text: Vec::new(),
        }
    }

    /// A call begins: the name of the file that it is about is read now.
    #[inline]
    pub fn begins(
        &mut self,
        at: &Moment,
        tid: Tid,
        (call, memory): (&Call, &dyn Memory),
        classes: &Classes,
        book: &mut Book,
    ) {
        let Some((path, changes)) = path_of(call) else { return };
        let mut buffer = [0; 256];
        let path = read_path(path, memory, &mut buffer);
        let kind = place(path);
        // What is only read says where it lies; what is made, its name.
        let word = if changes {
            classes.templates.of(path, &mut self.text);
            let text = &self.text;
            book.part(content(text), |_| String::from_utf8_lossy(text).into_owned())
        } else {
            content(kind.as_bytes())
        };
        self.named.set(mix(node_word(at.node), u64::from(tid.0)), word);
        book.part(word, |_| kind.to_owned());
    }

    /// A call ended.
    #[inline]
    pub fn ended(
        &mut self,
        at: &Moment,
        (pid, tid): (Pid, Tid),
        call: &Call,
        result: u64,
        classes: &Classes,
        book: &mut Book,
    ) {
        // Clocks are read by a page of memory; now and then one enters the kernel, which says nothing.
        if matches!(call, Call::clock_gettime { .. } | Call::gettimeofday { .. } | Call::sched_yield { .. }) {
            return;
        }
        let (nr, node) = (call.nr(), node_word(at.node));
        let kind = if self.on_descriptor.get(nr as usize).is_some_and(|yes| *yes) {
            let fd = call.arguments().next().map_or(0, |given| given.value);
            self.kinds.get(mix(mix(node, u64::from(pid.0)), fd)).unwrap_or(0)
        } else {
            0
        };
        let end = if result >= FIRST_ERROR { result } else { result.min(1) };
        let class = classes.of(at.node);
        let shape = mix(mix(nr, end), mix(kind, class));
        let shape = book.part(shape, |book| {
            let end = match end {
                0 => "0".to_owned(),
                1 => "ok".to_owned(),
                error => format!("error {}", (error as i64).unsigned_abs()),
            };
            let file = if kind == 0 { String::new() } else { book.words(kind) };
            format!("{} {}({file}) = {end}", classes.name(at.node), call.name())
        });
        book.see(at.at, Aspect::Call, &[shape]);
        let task = mix(node, u64::from(tid.0));
        if let Some(last) = self.last.entry(task) {
            let before = std::mem::replace(last, shape);
            book.see_after(before, at.at, Aspect::Calls, &[before, shape]);
        }
        if result < FIRST_ERROR {
            self.made(node, pid, call, result, task, book);
        }
        if let Some((_, true)) = path_of(call) {
            let name = self.named.get(task).unwrap_or(0);
            self.name_changed(at, (call, end, name), classes, book);
        }
    }

    /// Remembers what a new descriptor stands for.
    fn made(&mut self, node: u64, pid: Pid, call: &Call, result: u64, task: u64, book: &mut Book) {
        let process = mix(node, u64::from(pid.0));
        let (fd, kind) = match *call {
            Call::open { .. } | Call::openat { .. } | Call::creat { .. } | Call::openat2 { .. } => {
                (result, self.named.get(task).unwrap_or(0))
            }
            Call::socket { domain, kind, .. } => {
                let word = mix(u64::from(domain), u64::from(kind & 0xf) + 1);
                (result, book.part(word, |_| format!("socket {domain}.{}", kind & 0xf)))
            }
            Call::dup { fd } => (result, self.kinds.get(mix(process, fd.0 as i64 as u64)).unwrap_or(0)),
            Call::dup2 { old, .. } | Call::dup3 { old, .. } => {
                (result, self.kinds.get(mix(process, old.0 as i64 as u64)).unwrap_or(0))
            }
            Call::accept { .. }
            | Call::accept4 { .. }
            | Call::eventfd { .. }
            | Call::eventfd2 { .. }
            | Call::epoll_create { .. }
            | Call::epoll_create1 { .. }
            | Call::timerfd_create { .. }
            | Call::inotify_init1 { .. }
            | Call::signalfd4 { .. }
            | Call::memfd_create { .. } => {
                (result, book.part(mix(call.nr(), 1), |_| format!("of {}", call.name())))
            }
            _ => return,
        };
        self.kinds.set(mix(process, fd), kind);
    }

    /// A call about the name of a file ended.
    fn name_changed(
        &mut self,
        at: &Moment,
        (call, end, name): (&Call, u64, u64),
        classes: &Classes,
        book: &mut Book,
    ) {
        let Some(node) = at.node else { return };
        let class = classes.of(at.node);
        let done = mix(mix(call.nr(), name), mix(end.max(1), class));
        let done = book.part(done, |book| {
            let failed = if end > 1 { " failed" } else { "" };
            format!("{} {} {}{failed}", classes.name(at.node), call.name(), book.words(name))
        });
        book.see(at.at, Aspect::File, &[done]);
        let place = self.files.iter().position(|(other, ..)| *other == node).unwrap_or_else(|| {
            self.files.push((node, 0, Vec::new()));
            self.files.len() - 1
        });
        let (_, last, set) = &mut self.files[place];
        let before = std::mem::replace(last, done);
        book.see_after(before, at.at, Aspect::Files, &[before, done]);
        if end > 1 {
            return;
        }
        match (set.binary_search(&name), removes(call)) {
            (Ok(known), true) => {
                set.remove(known);
            }
            (Err(place), false) if set.len() < FILES => set.insert(place, name),
            _ => return,
        }
        if !book.is_whole() {
            // Which others it has made before is not known.
            return;
        }
        let all = set.iter().fold(class, |hash, file| mix(hash, *file));
        let set = &*set;
        book.part(all, |book| {
            let names: Vec<String> = set.iter().map(|file| book.words(*file)).collect();
            format!("{} {}", classes.name(at.node), names.join(", "))
        });
        book.see(at.at, Aspect::FileSet, &[all]);
    }
}

fn node_word(node: Option<NodeId>) -> u64 {
    node.map_or(u64::MAX, |node| u64::from(node.0))
}

/// The path of a call, and whether the call changes what names there are. Of two paths, the one that is there afterwards.
fn path_of(call: &Call) -> Option<(Path, bool)> {
    match *call {
        Call::open { path, flags, .. } | Call::openat { path, flags, .. } => {
            Some((path, flags.contains(OpenFlags::O_CREAT)))
        }
        Call::openat2 { path, .. } => Some((path, false)),
        Call::creat { path, .. }
        | Call::mkdir { path, .. }
        | Call::mkdirat { path, .. }
        | Call::rmdir { path }
        | Call::unlink { path }
        | Call::unlinkat { path, .. }
        | Call::truncate { path, .. } => Some((path, true)),
        Call::rename { new, .. }
        | Call::renameat { new, .. }
        | Call::renameat2 { new, .. }
        | Call::link { new, .. }
        | Call::linkat { new, .. } => Some((new, true)),
        Call::symlink { link, .. } | Call::symlinkat { link, .. } => Some((link, true)),
        _ => None,
    }
}

fn removes(call: &Call) -> bool {
    matches!(call, Call::unlink { .. } | Call::unlinkat { .. } | Call::rmdir { .. })
}

/// Reads a string of a program, piece by piece up to the ends of pages, as the next page need not be there.
fn read_path<'a>(path: Path, memory: &dyn Memory, buffer: &'a mut [u8; 256]) -> &'a [u8] {
    let mut have = 0;
    while have < buffer.len() {
        let at = path.0.wrapping_add(have as u64);
        let piece = (64 - (at % 64) as usize).min(buffer.len() - have);
        if !memory.read(at, &mut buffer[have..have + piece]) {
            break;
        }
        if let Some(end) = buffer[have..have + piece].iter().position(|b| *b == 0) {
            return &buffer[..have + end];
        }
        have += piece;
    }
    &buffer[..have]
}

/// Where a file lies, roughly.
fn place(path: &[u8]) -> &'static str {
    let begins = |with: &str| path.starts_with(with.as_bytes());
    match () {
        () if begins("/proc") => "/proc",
        () if begins("/sys") => "/sys",
        () if begins("/dev") => "/dev",
        () if begins("/etc") => "/etc",
        () if begins("/usr") || begins("/lib") => "/usr",
        () if begins("/tmp") || begins("/var/tmp") || begins("/run") => "/tmp",
        () => "file",
    }
}
