//! What probably exists at a point of a case, and values for arguments.

use crate::rng::Rng;

/// What a slot probably holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A descriptor of a regular file.
    File,
    /// A descriptor of a directory.
    Directory,
    /// The reading end of a pipe.
    Reader,
    /// The writing end of a pipe.
    Writer,
    /// A descriptor of an epoll instance.
    Epoll,
    /// A descriptor of eventfd(2).
    Event,
    /// A descriptor of signalfd(2).
    Signals,
    /// A descriptor of inotify(7).
    Watches,
    /// A Unix socket.
    Unix,
    /// An IP socket.
    Inet,
    /// System V semaphores.
    Semaphores,
    /// A System V queue.
    Queue,
    /// A System V segment.
    Segment,
    /// A descriptor of a POSIX queue.
    PosixQueue,
}

/// A case that is being made.
#[derive(Debug)]
pub struct Model {
    /// The source of its choices.
    pub rng: Rng,
    /// What was made so far.
    pub ops: Vec<String>,
    /// What each slot probably holds.
    pub slots: Vec<Kind>,
    /// Whether one of the actors is a thread.
    pub threads: bool,
    /// Whether an actor may sleep until a child ends.
    pub waited: bool,
    /// How many actors there are.
    pub actors: u64,
}

const PATHS: &[&str] = &["a", "b", "c", "d", "d/a", "d/b", "d/e", "l", "l2", "d/l"];
/// Nothing outside of the directory of the case: what one case changed there, the next one would see.
const ODD_PATHS: &[&str] =
    &["", ".", "x/y", "a/", "d/", "a/b", "./a", "d/../a", "l/", "l/a", "d/.", "d/..", "a\\ff"];
const SIZES: &[u64] = &[0, 1, 2, 7, 64, 100, 511, 512, 4095, 4096, 4097, 8192, 65535, 65536, 65537];
const OFFSETS: &[i64] = &[
    0,
    1,
    10,
    100,
    4095,
    4096,
    4097,
    8192,
    10000,
    65536,
    1 << 20,
    -1,
    -4096,
    // Nothing right before it, where tmpfs may still have a byte.
    i64::MAX,
    i64::MIN,
    1 << 40,
];

impl Model {
    /// An empty case.
    pub fn new(rng: Rng) -> Model {
        Model { rng, ops: Vec::new(), slots: Vec::new(), threads: false, waited: false, actors: 1 }
    }

    /// Adds an operation.
    pub fn op(&mut self, text: impl Into<String>) {
        self.ops.push(text.into());
    }

    /// Adds a call whose result nobody needs, by an actor that is drawn.
    pub fn call(&mut self, text: impl AsRef<str>) {
        let actor = self.actor();
        self.op(format!("{actor} . {}", text.as_ref()));
    }

    /// Adds a call whose result is kept as this kind.
    pub fn make(&mut self, kind: Kind, text: impl AsRef<str>) {
        let (actor, slot) = (self.actor(), self.slot(kind));
        self.op(format!("{actor} {slot} {}", text.as_ref()));
    }

    /// A new slot.
    pub fn slot(&mut self, kind: Kind) -> usize {
        self.slots.push(kind);
        (self.slots.len() - 1) % 64
    }

    /// Who does it: mostly the first.
    pub fn actor(&mut self) -> u64 {
        if self.actors > 1 && self.rng.one_in(2) { self.rng.below(self.actors) } else { 0 }
    }

    /// A descriptor of one of these kinds, now and then any other, one that was closed, or none.
    pub fn fd(&mut self, kinds: &[Kind]) -> String {
        match self.rng.below(30) {
            0 => return self.rng.pick(&["-1", "-100", "1000", "63", "0", "1"]).to_owned(),
            1 | 2 if !self.slots.is_empty() => {
                let any = self.rng.below(self.slots.len().min(64) as u64);
                return format!("${any}");
            }
            _ => {}
        }
        let fitting: Vec<usize> =
            (0..self.slots.len()).filter(|i| kinds.is_empty() || kinds.contains(&self.slots[*i])).collect();
        match fitting.as_slice() {
            [] => "-1".to_owned(),
            // The newest ones most of all.
            some if self.rng.one_in(2) => format!("${}", some[some.len() - 1] % 64),
            some => format!("${}", self.rng.pick(some) % 64),
        }
    }

    /// A descriptor of one of these kinds, or none.
    pub fn sure(&mut self, kinds: &[Kind]) -> String {
        let fitting: Vec<usize> = (0..self.slots.len()).filter(|i| kinds.contains(&self.slots[*i])).collect();
        if fitting.is_empty() { "-1".to_owned() } else { format!("${}", self.rng.pick(&fitting) % 64) }
    }

    /// A path in quotes.
    pub fn path(&mut self) -> String {
        match self.rng.below(40) {
            0 => "0".to_owned(),
            1 => self.bad_pointer(),
            2 => format!("\"{}\"", "n".repeat(255)),
            3 => format!("\"{}\"", "n".repeat(256)),
            4 => format!("\"{}a\"", "./".repeat(2047)),
            5 => format!("|\"{}\"", self.rng.pick(PATHS)),
            6..=9 => format!("\"{}\"", self.rng.pick(ODD_PATHS)),
            _ => format!("\"{}\"", self.rng.pick(PATHS)),
        }
    }

    /// A directory for calls with names relative to one.
    pub fn dirfd(&mut self) -> String {
        if self.rng.one_in(4) { self.fd(&[Kind::Directory]) } else { "-100".to_owned() }
    }

    /// A length.
    pub fn size(&mut self) -> u64 {
        if self.rng.one_in(3) { self.rng.pick(SIZES) } else { self.rng.below(40) }
    }

    /// A place in a file.
    pub fn offset(&mut self) -> i64 {
        match self.rng.below(6) {
            0 => self.rng.pick(OFFSETS),
            1 => self.rng.pick(&OFFSETS[..10]),
            2 => self.rng.below(20_000) as i64,
            _ => self.rng.below(30) as i64,
        }
    }

    /// An address at which nothing is.
    pub fn bad_pointer(&mut self) -> String {
        self.rng.pick(&["0", "1", "0xdead000", "0x7fffffffffff", "0x800000000000", "-1", "-4096"]).to_owned()
    }

    /// Memory to read from, with its length.
    pub fn input(&mut self) -> (String, u64) {
        let size = self.size();
        let seed = self.rng.below(26);
        let memory = match self.rng.below(25) {
            0 => self.bad_pointer(),
            1 if size < 12_000 => format!("|%{size}:{seed}"),
            // The bytes end before the length does.
            2 if size > 2 && size < 12_000 => format!("|%{}:{seed}", size / 2),
            _ => format!("%{size}:{seed}"),
        };
        (memory, size)
    }

    /// Memory to write to, with its length.
    pub fn output(&mut self) -> (String, u64) {
        let size = self.size();
        let memory = match self.rng.below(25) {
            0 => self.bad_pointer(),
            1 if size < 12_000 => format!("|<{size}"),
            2 if size > 2 && size < 12_000 => format!("|<{}:part", size / 2),
            _ => format!("<{size}"),
        };
        (memory, size)
    }

    /// An array of buffers, with its length.
    pub fn vector(&mut self, reads: bool) -> (String, u64) {
        let count = self.rng.below(4);
        let mut text = "[".to_owned();
        for _ in 0..count {
            let (memory, size) = if reads { self.output() } else { self.input() };
            let memory = if memory.starts_with(['<', '%', '|']) {
                format!(" *{memory} 8:{size}")
            } else {
                format!(" 8:{memory} 8:{size}")
            };
            text.push_str(&memory);
        }
        if self.rng.one_in(25) {
            text.push_str(" *\"abc\" 8:-1");
            return (format!("{text} ]"), count + 1);
        }
        (format!("{text} ]"), if self.rng.one_in(30) { 1025 } else { count })
    }

    /// One of these numbers, now and then another one.
    pub fn number(&mut self, usual: &[i64]) -> i64 {
        match self.rng.below(25) {
            0 => self.rng.pick(&[-1, 0, 1, 77, 0x7fff_ffff, 0xffff_ffff, -2]),
            _ => self.rng.pick(usual),
        }
    }

    /// Some of these flags, now and then one that nobody knows.
    pub fn flags(&mut self, list: &[u64], unknown: u64) -> String {
        let bits = self.rng.bits(list);
        let odd = if self.rng.one_in(30) { unknown } else { 0 };
        format!("{:#x}", bits | odd)
    }
}
