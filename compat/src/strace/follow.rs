//! The processes of a log: what their descriptors stand for and where they are, so that each call is known with its object and its files.

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_abi::args::ArgKind;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::{self, SyscallInfo, nr};

use super::argument::{decoded, number, string, value};
use super::line::Parts;
use super::{Answer, Outcome, Trace, count};
use crate::request::{self, Object, Request, Value};

/// Descriptors and the directory, which threads share.
#[derive(Clone, Debug, Default)]
struct Place {
    objects: BTreeMap<i32, Object>,
    directory: Option<String>,
    /// Its root is another one, in which paths mean something else.
    is_jailed: bool,
}

/// See the module's text.
pub(super) struct Followed {
    places: Vec<Place>,
    /// Which of them each process has.
    of: BTreeMap<u32, usize>,
    /// Processes that are making another one, and whether it will share their descriptors.
    forking: Vec<(u32, bool)>,
    /// What the programs made.
    made: BTreeSet<String>,
}

impl Followed {
    pub(super) fn new(directory: Option<&str>) -> Followed {
        let standard = (0..3).map(|fd| (fd, Object::Standard)).collect();
        let first = Place { objects: standard, directory: directory.map(str::to_owned), is_jailed: false };
        Followed { places: vec![first], of: BTreeMap::new(), forking: Vec::new(), made: BTreeSet::new() }
    }

    /// A call whose end is on a later line.
    pub(super) fn begin(&mut self, process: u32, text: &str) {
        if ["clone", "fork", "vfork"].iter().any(|name| text.starts_with(name)) {
            self.place(process);
            self.forking.push((process, text.contains("CLONE_FILES")));
        }
    }

    /// Where the descriptors of a process are.
    fn place(&mut self, process: u32) -> usize {
        if let Some(place) = self.of.get(&process) {
            return *place;
        }
        match self.forking.first().copied() {
            Some((parent, shares)) => self.add(parent, process, shares),
            // The first one, or one that strace(1) was attached to.
            None if self.of.is_empty() => {
                self.of.insert(process, 0);
                0
            }
            None => {
                self.places.push(Place::default());
                self.of.insert(process, self.places.len() - 1);
                self.places.len() - 1
            }
        }
    }

    fn add(&mut self, parent: u32, child: u32, shares: bool) -> usize {
        let mut place = self.place(parent);
        if !shares {
            self.places.push(self.places[place].clone());
            place = self.places.len() - 1;
        }
        self.of.insert(child, place);
        place
    }

    /// Takes a call into the trace.
    pub(super) fn call(&mut self, trace: &mut Trace, process: u32, line: usize, parts: &Parts<'_>) {
        trace.calls += 1;
        let Some(info) = request::number(parts.name).and_then(table::info) else {
            return count(&mut trace.unknown, parts.name.to_owned(), line);
        };
        let place = self.place(process);
        let args = in_order(info.nr, &parts.args);
        let request = self.request(trace, (info, place), line, &args);
        let outcome = match parts.answer {
            Answer::Value(_) => Outcome::Success,
            Answer::Error(number) => Outcome::Error(number),
            Answer::Unseen => Outcome::Unseen,
        };
        if outcome == Outcome::Success {
            self.files(trace, (info, place), line, &args);
        }
        if info.nr == nr::connect {
            self.peer(trace, line, &args, outcome);
        }
        if let Answer::Value(value) = parts.answer {
            self.done(process, (info.nr, value), &args, &request);
        }
        self.forking.retain(|(parent, _)| *parent != process || !makes_tasks(info.nr));
        count(&mut trace.requests, (request, outcome), line);
    }

    fn request(
        &self,
        trace: &mut Trace,
        (info, place): (&'static SyscallInfo, usize),
        line: usize,
        texts: &[&str],
    ) -> Request {
        let mut args = Vec::new();
        let mut options = Vec::new();
        for ((name, kind), text) in info.args.iter().zip(texts) {
            let selects = request::selects(name, *kind);
            if selects {
                options.push(*text);
            }
            let mut missing = |constant: &str| count(&mut trace.constants, constant.to_owned(), line);
            args.push(match kind {
                ArgKind::Fd | ArgKind::Path => Value::Unknown,
                _ if selects => value(text, &mut missing),
                _ => other(info.nr, name, text),
            });
        }
        if info.nr == nr::clone3 {
            (args, options) = clone_args(texts);
        }
        let descriptor = info.args.iter().position(|(_, kind)| *kind == ArgKind::Fd);
        let object = descriptor.and_then(|at| self.object(place, texts.get(at)?));
        Request { nr: info.nr, args, object, options: options.join(", ") }
    }

    /// What a descriptor stands for; nothing for AT_FDCWD and -1.
    fn object(&self, place: usize, text: &str) -> Option<Object> {
        let fd = number(text, &mut |_| ())? as i32;
        if fd < 0 {
            return None;
        }
        Some(self.places[place].objects.get(&fd).cloned().unwrap_or_else(|| match decoded(text) {
            Some(path) => Object::Path(path.into(), c::O_RDONLY),
            None => Object::Unknown,
        }))
    }

    /// The absolute path of an argument, or nothing if nobody can tell.
    fn path(&self, place: usize, directory: Option<&&str>, text: &str) -> Option<String> {
        let path = String::from_utf8(string(text)?).ok()?;
        if self.places[place].is_jailed {
            return None;
        }
        if path.starts_with('/') || path.is_empty() {
            return Some(path);
        }
        let base = match directory {
            Some(text) if !text.starts_with("AT_FDCWD") => match self.object(place, text) {
                Some(Object::Path(path, _)) => String::from_utf8(path).ok(),
                _ => None,
            },
            given => given
                .and_then(|text| decoded(text))
                .map(str::to_owned)
                .or(self.places[place].directory.clone()),
        }?;
        Some(normal(&format!("{base}/{path}")))
    }

    fn is_made(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.filter(|end| *end > 0).any(|end| self.made.contains(&path[..end]))
    }

    /// The files that a call was given.
    fn files(
        &mut self,
        trace: &mut Trace,
        (info, place): (&SyscallInfo, usize),
        line: usize,
        texts: &[&str],
    ) {
        let creates = match info.nr {
            nr::mkdir | nr::mkdirat | nr::mknod | nr::mknodat | nr::creat => true,
            nr::open => texts.get(1).is_some_and(|flags| flags.contains("O_CREAT")),
            nr::openat => texts.get(2).is_some_and(|flags| flags.contains("O_CREAT")),
            nr::openat2 => texts.get(2).is_some_and(|how| how.contains("O_CREAT")),
            _ => false,
        };
        for (at, (name, kind)) in info.args.iter().enumerate() {
            let Some(text) = texts.get(at).filter(|_| *kind == ArgKind::Path) else { continue };
            let (wanted, makes) = match *name {
                "path" => (!creates, creates),
                "old" => (true, false),
                "new" | "link" => (false, true),
                _ => continue,
            };
            let directory = at.checked_sub(1).filter(|before| info.args[*before].1 == ArgKind::Fd);
            let Some(path) = self.path(place, directory.and_then(|at| texts.get(at)), text) else {
                trace.relative += u64::from(wanted);
                continue;
            };
            if wanted && !path.is_empty() && !self.is_made(&path) {
                count(&mut trace.files, path.clone().into_bytes(), line);
            }
            if makes {
                self.made.insert(path);
            }
        }
    }

    /// Whom a program connected to.
    fn peer(&self, trace: &mut Trace, line: usize, texts: &[&str], outcome: Outcome) {
        let begun = bloodhound_abi::Errno::EINPROGRESS.0;
        let Some(address) = texts.get(1) else { return };
        if !matches!(outcome, Outcome::Success) && outcome != Outcome::Error(begun) {
            return;
        }
        let between = |from: &str, to: &str| {
            let rest = &address[address.find(from)? + from.len()..];
            Some(&rest[..rest.find(to)?])
        };
        if let Some(path) = between("sun_path=\"", "\"") {
            if !self.is_made(path) {
                count(&mut trace.peers, path.to_owned(), line);
            }
            return;
        }
        let host = between("inet_addr(\"", "\"").or_else(|| between("inet_pton(AF_INET6, \"", "\""));
        let (Some(host), Some(port)) = (host, between("port=htons(", ")")) else { return };
        let is_local = host.starts_with("127.") || matches!(host, "::1" | "0.0.0.0" | "::");
        // Programs "connect" datagram sockets to port 0 and to that of DNS to learn their own address.
        if !is_local && port != "0" {
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            count(&mut trace.peers, format!("{host}:{port}"), line);
        }
    }

    /// What a call has changed.
    fn done(&mut self, process: u32, (call, value): (u64, u64), texts: &[&str], request: &Request) {
        let place = self.place(process);
        let argument = |at: usize| texts.get(at).and_then(|text| number(text, &mut |_| ()));
        let made = match call {
            nr::open | nr::openat | nr::openat2 | nr::creat => Some(self.opened(place, call, texts)),
            nr::socket => match (argument(0), argument(1), argument(2)) {
                (Some(domain), Some(kind), Some(protocol)) => Some(Object::Socket(domain, kind, protocol)),
                _ => Some(Object::Unknown),
            },
            nr::accept | nr::accept4 | nr::dup | nr::dup2 | nr::dup3 => request.object.clone(),
            nr::fcntl if request.options.starts_with("F_DUPFD") => request.object.clone(),
            nr::eventfd
            | nr::eventfd2
            | nr::epoll_create
            | nr::epoll_create1
            | nr::timerfd_create
            | nr::inotify_init
            | nr::inotify_init1
            | nr::memfd_create
            | nr::signalfd
            | nr::signalfd4
            | nr::pidfd_open => Some(Object::Made(call, request.args.clone())),
            _ => None,
        };
        if let Some(object) = made {
            self.places[place].objects.insert(value as i32, object);
            return;
        }
        match call {
            nr::pipe | nr::pipe2 => self.pair(place, texts.first(), [Object::PipeOut, Object::PipeIn]),
            nr::socketpair => {
                let kind = [0, 1, 2].map(|at| argument(at).unwrap_or(1));
                let object = Object::Pair(kind[0], kind[1], kind[2]);
                self.pair(place, texts.get(3), [object.clone(), object]);
            }
            nr::close => {
                if let Some(fd) = argument(0) {
                    self.places[place].objects.remove(&(fd as i32));
                }
            }
            nr::chdir => {
                self.places[place].directory = texts.first().and_then(|text| self.path(place, None, text));
            }
            nr::chroot => self.places[place].is_jailed = true,
            nr::fchdir => {
                self.places[place].directory = match &request.object {
                    Some(Object::Path(path, _)) => String::from_utf8(path.clone()).ok(),
                    _ => None,
                };
            }
            nr::bind => {
                let path =
                    texts.get(1).and_then(|address| address.split_once("sun_path=\"")?.1.split_once('"'));
                self.made.extend(path.map(|(path, _)| path.to_owned()));
            }
            call if makes_tasks(call) && value != 0 && !self.of.contains_key(&(value as u32)) => {
                let shares = texts.iter().any(|text| text.contains("CLONE_FILES"));
                self.add(process, value as u32, shares);
            }
            _ => {}
        }
    }

    fn opened(&self, place: usize, call: u64, texts: &[&str]) -> Object {
        let (directory, at) = match call {
            nr::open | nr::creat => (None, 0),
            _ => (texts.first(), 1),
        };
        let path = texts.get(at).and_then(|text| self.path(place, directory, text));
        let flags = texts.get(at + 1).and_then(|text| number(text, &mut |_| ())).unwrap_or(c::O_RDONLY);
        match path {
            Some(path) if call != nr::creat && !path.is_empty() => {
                let path = if self.is_made(&path) { "/tmp/made".to_owned() } else { path };
                Object::Path(path.into_bytes(), flags & !(c::O_CREAT | c::O_EXCL | c::O_TRUNC))
            }
            _ => Object::Unknown,
        }
    }

    /// Two descriptors in an array.
    fn pair(&mut self, place: usize, text: Option<&&str>, objects: [Object; 2]) {
        let inner = text.and_then(|text| text.strip_prefix('[')?.strip_suffix(']'));
        for (word, object) in inner.unwrap_or_default().split(',').zip(objects) {
            if let Some(fd) = number(word.trim(), &mut |_| ()) {
                self.places[place].objects.insert(fd as i32, object);
            }
        }
    }
}

fn makes_tasks(call: u64) -> bool {
    matches!(call, nr::clone | nr::clone3 | nr::fork | nr::vfork)
}

/// The arguments in the order of the call: strace(1) names those of clone(2) and prints its stack first.
fn in_order<'a>(call: u64, args: &[&'a str]) -> Vec<&'a str> {
    if call != nr::clone {
        return args.to_vec();
    }
    let named = |name: &str| args.iter().find(|arg| arg.starts_with(name)).copied();
    let order = ["flags=", "child_stack=", "parent_tid=", "child_tidptr=", "tls="];
    order.iter().map(|name| named(name).unwrap_or("NULL")).collect()
}

/// An argument that chooses nothing: what the call moves, or how much.
fn other(call: u64, name: &str, text: &str) -> Value {
    let given = || value(text, &mut |_| ());
    match name {
        "len" if call != nr::setsockopt && call != nr::getsockopt => Value::Number(4096),
        "size" | "sig" | "len" => given(),
        "arg" if matches!(given(), Value::Number(_)) && call == nr::fcntl => given(),
        "value" if call == nr::setsockopt => given(),
        "addr" | "fd" if text == "NULL" || text == "-1" => given(),
        "addr" | "value" | "buf" | "arg" | "event" => Value::Unknown,
        _ if text == "NULL" => Value::Number(0),
        _ if text.starts_with(['{', '[', '"']) || text.starts_with("0x") => Value::Unknown,
        _ => Value::Number(0),
    }
}

/// The structure of clone3(2): `{flags=CLONE_VM|CLONE_VFORK, exit_signal=SIGCHLD, ...}`.
fn clone_args<'a>(texts: &[&'a str]) -> (Vec<Value>, Vec<&'a str>) {
    let field = |name: &str| {
        let rest = texts.first()?.split_once(name)?.1;
        Some(rest[..rest.find([',', '}'])?].trim())
    };
    let flags = field("{flags=").unwrap_or("0");
    let word = |text: Option<&str>| text.and_then(|text| number(text, &mut |_| ())).unwrap_or(0);
    let mut bytes = vec![0; 88];
    bytes[..8].copy_from_slice(&word(Some(flags)).to_le_bytes());
    bytes[32..40].copy_from_slice(&word(field("exit_signal=")).to_le_bytes());
    (vec![Value::Bytes(bytes), Value::Number(88)], vec![flags])
}

/// A path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_absolute() {
        assert_eq!(normal("/a/./b/../c//d"), "/a/c/d");
        assert_eq!(normal("/.."), "/");
    }
}
