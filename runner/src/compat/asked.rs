//! Requests put to the kernel: what would it answer? [`ask`] makes the object that a call is about, gives it the request's arguments, and
//! makes the call, on a copy of the container's node.

use bloodhound_abi::Errno;
use bloodhound_abi::args::ArgKind;
use bloodhound_abi::consts as c;
use bloodhound_abi::names;
use bloodhound_abi::table::{Status, nr};
use bloodhound_compat::request::selectors;
use bloodhound_compat::{Object, Request, Value, symbols};
use bloodhound_kernel::dispatch::Outcome;

use super::container::{Container, Copy, result};

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call is there, and nothing in its options says otherwise.
    Modelled,
    /// The call is there; its options were not looked at, as what it is about cannot be made or it may not be made.
    NotAsked,
    /// It would be answered with this error, because of what it is or of its options; with a note of the table.
    Error(Errno, &'static str),
    /// The run would stop: why.
    Stops(String),
    /// The table has no such call.
    NoSuchCall,
}

/// Calls that end or replace the process, sleep for sure, or return elsewhere: their options are looked at by nobody.
const NOT_MADE: [u64; 8] = [
    nr::execve,
    nr::execveat,
    nr::exit,
    nr::exit_group,
    nr::rt_sigreturn,
    nr::vfork,
    nr::kill,
    nr::restart_syscall,
];

/// A file that every container has.
const ANY_FILE: &[u8] = b"/etc/hosts";
/// A socket of each kind.
const TCP: Object = Object::Socket(2, 1, 0);
const TCP6: Object = Object::Socket(10, 1, 0);
const UDP: Object = Object::Socket(2, 2, 0);

/// What the kernel of the container would answer.
pub fn ask(container: &mut Container, request: &Request) -> Answer {
    let Some(info) = request.info() else { return Answer::NoSuchCall };
    match info.status {
        Status::Errno(errno) => return Answer::Error(errno, info.note),
        Status::Unsupported => return Answer::Stops("Bloodhound has no such call".into()),
        Status::Full | Status::Partial => {}
    }
    if selectors(info).next().is_none() {
        return Answer::Modelled;
    }
    if NOT_MADE.contains(&info.nr) {
        return Answer::NotAsked;
    }
    let first = put(container, request);
    if info.nr != nr::setsockopt || matches!(first, Answer::Stops(_) | Answer::NotAsked) {
        return first;
    }
    let likely = likely_values(request);
    let mut answers = likely.iter().map(|likely| put(container, likely));
    answers.find(|answer| matches!(answer, Answer::Stops(_))).unwrap_or(first)
}

/// What setsockopt(2) may be given where a request does not say it: an option of the wrong length is an error, and many a zero turns off what is off.
fn likely_values(request: &Request) -> Vec<Request> {
    let (Some(Value::Unknown) | None, Some(Value::Unknown) | None) =
        (request.args.get(3), request.args.get(4))
    else {
        return Vec::new();
    };
    // A number; `struct timeval`, `sock_fprog` or a key; `ipv6_mreq` or `in6_pktinfo`; an extension header; `tcp_md5sig`.
    const LENGTHS: [usize; 5] = [4, 16, 20, 40, 216];
    let values =
        LENGTHS.iter().flat_map(|len| [vec![0; *len], [&1u32.to_le_bytes()[..], &vec![0; len - 4]].concat()]);
    let likely = values.map(|value| {
        let mut likely = request.clone();
        likely.args.resize(3, Value::Unknown);
        likely.args.extend([Value::Number(value.len() as u64)]);
        likely.args.insert(3, Value::Bytes(value));
        likely
    });
    likely.collect()
}

/// Makes the call on a copy of the container's node.
fn put(container: &mut Container, request: &Request) -> Answer {
    let Some(info) = request.info() else { return Answer::NoSuchCall };
    let mut copy = container.copy();
    let Some(args) = arguments(&mut copy, request) else { return Answer::NotAsked };
    match copy.ask(info.nr, &args) {
        Outcome::Unsupported(what) => Answer::Stops(format!("Bloodhound has no {what}")),
        Outcome::Done(value) => match result(value) {
            Err(errno) if tells(errno, request) => Answer::Error(errno, ""),
            _ => Answer::Modelled,
        },
        Outcome::Blocked | Outcome::Exited | Outcome::NoReturn => Answer::Modelled,
    }
}

/// Whether an error is about what the call asks for, rather than about the object and the bytes that were made up for it.
fn tells(errno: Errno, request: &Request) -> bool {
    // Attributes have names, which were made up.
    let is_xattr = request.info().is_some_and(|info| info.name.contains("xattr"));
    match errno {
        _ if is_xattr => false,
        Errno::ENOSYS
        | Errno::EOPNOTSUPP
        | Errno::ENOPROTOOPT
        | Errno::EPROTONOSUPPORT
        | Errno::ESOCKTNOSUPPORT
        | Errno::EAFNOSUPPORT
        | Errno::EPERM => true,
        // Of an object that the log tells.
        Errno::ENOTTY => !matches!(request.object, None | Some(Object::Unknown | Object::Standard)),
        // Where nothing was made up.
        Errno::EINVAL => {
            let Some(info) = request.info() else { return false };
            let chosen: Vec<usize> = selectors(info).collect();
            let is_given = |(n, (_, kind)): (usize, &(&str, ArgKind))| match request.args.get(n) {
                Some(Value::Number(0)) if *kind == ArgKind::Ptr => true,
                Some(Value::Number(_)) => chosen.contains(&n) || request.nr == nr::fcntl,
                _ => *kind == ArgKind::Fd && request.object.is_some(),
            };
            info.args.iter().enumerate().all(is_given)
        }
        _ => false,
    }
}

/// The registers of the call; nothing if its object cannot be made.
fn arguments(copy: &mut Copy<'_>, request: &Request) -> Option<Vec<u64>> {
    let info = request.info()?;
    let object = match &request.object {
        Some(Object::Unknown) => Some(guess(request)),
        object => object.clone(),
    };
    let made = match &object {
        Some(object) => Some(make(copy, object)?),
        None => None,
    };
    let mut out = Vec::new();
    for (n, (_, kind)) in info.args.iter().enumerate() {
        let given = request.args.get(n).unwrap_or(&Value::Unknown);
        out.push(match (kind, given) {
            // AT_FDCWD, or -1 for a mapping of no file.
            (ArgKind::Fd, _) => made.unwrap_or(if info.nr == nr::mmap { u64::MAX } else { -100_i64 as u64 }),
            (ArgKind::Path, _) => copy.put(n, &[ANY_FILE, b"\0"].concat()).ok()?,
            (_, Value::Number(number)) => *number,
            (_, Value::Bytes(bytes)) => copy.put(n, bytes).ok()?,
            (ArgKind::Ptr, Value::Unknown) => copy.put(n, &[0; 4096]).ok()?,
            (_, Value::Unknown) => 0,
        });
    }
    Some(out)
}

/// What a call is probably about of which only the options are known.
fn guess(request: &Request) -> Object {
    let number = |at: usize| match request.args.get(at) {
        Some(Value::Number(number)) => *number,
        _ => 0,
    };
    match request.nr {
        nr::setsockopt | nr::getsockopt => match number(1) {
            41 | 58 => TCP6,
            17 => UDP,
            16 | 270 => Object::Socket(16, 3, 0),
            _ => TCP,
        },
        nr::ioctl => {
            let command = number(1);
            let of = |table: names::Names| names::name_of(table, command).is_some();
            if of(names::IOCTL_SOCKET) || (0x8900..0x8a00).contains(&command) {
                TCP
            } else if (0x5401..0x5480).contains(&command) {
                Object::Path(b"/dev/ptmx".to_vec(), c::O_RDWR)
            } else {
                Object::Path(ANY_FILE.to_vec(), c::O_RDONLY)
            }
        }
        nr::sendto | nr::recvfrom | nr::sendmsg | nr::recvmsg | nr::recvmmsg | nr::sendmmsg | nr::accept4 => {
            TCP
        }
        nr::epoll_ctl => Object::Made(nr::epoll_create1, vec![Value::Number(0)]),
        nr::splice | nr::tee | nr::vmsplice => Object::PipeOut,
        _ => Object::Path(ANY_FILE.to_vec(), c::O_RDONLY),
    }
}

/// A terminal: the slave of a new pseudoterminal.
fn slave(copy: &mut Copy<'_>) -> Option<u64> {
    let master = copy.open(b"/dev/ptmx", c::O_RDWR | c::O_NOCTTY).ok()?;
    let unlock = copy.put(7, &[0; 4]).ok()?;
    copy.call(nr::ioctl, &[master, symbols::value("TIOCSPTLCK")?, unlock]).ok()?;
    copy.call(nr::ioctl, &[master, symbols::value("TIOCGPTPEER")?, c::O_RDWR | c::O_NOCTTY]).ok()
}

/// Makes an object; its descriptor.
fn make(copy: &mut Copy<'_>, object: &Object) -> Option<u64> {
    // The last slot: the others are the request's.
    const ROOM: usize = 7;
    let room = |copy: &mut Copy<'_>| copy.put(ROOM, &[0; 16]).ok();
    let pair = |copy: &mut Copy<'_>, nr: u64, args: &[u64], which: usize| {
        let at = room(copy)?;
        copy.call(nr, &[args, &[at]].concat()).ok()?;
        let bytes = copy.get(at + which as u64 * 4, 4).ok()?;
        Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?)))
    };
    match object {
        Object::Standard => Some(1),
        Object::Unknown => None,
        Object::Path(path, flags) => {
            let terminal = path.starts_with(b"/dev/pts/") || path == b"/dev/tty";
            if terminal && let Some(fd) = slave(copy) {
                return Some(fd);
            }
            // One that is not there (yet), or that leads to a terminal of another system, may be any file.
            let any = |copy: &mut Copy<'_>| copy.open(ANY_FILE, c::O_RDONLY);
            copy.open(path, *flags | c::O_NONBLOCK).or_else(|_| any(copy)).ok()
        }
        Object::Socket(domain, kind, protocol) => copy.call(nr::socket, &[*domain, *kind, *protocol]).ok(),
        Object::Pair(domain, kind, protocol) => pair(copy, nr::socketpair, &[*domain, *kind, *protocol], 0),
        Object::PipeOut => pair(copy, nr::pipe, &[], 0),
        Object::PipeIn => pair(copy, nr::pipe, &[], 1),
        Object::Made(nr, args) => {
            let mut registers = Vec::new();
            for arg in args {
                registers.push(match arg {
                    Value::Number(number) => *number,
                    Value::Bytes(bytes) => copy.put(ROOM, bytes).ok()?,
                    Value::Unknown if *nr == nr::signalfd || *nr == nr::signalfd4 => {
                        if registers.is_empty() {
                            u64::MAX
                        } else {
                            room(copy)?
                        }
                    }
                    Value::Unknown => room(copy)?,
                });
            }
            copy.call(*nr, &registers).ok()
        }
    }
}
