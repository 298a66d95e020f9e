use bloodhound_abi::Errno;
use bloodhound_abi::table::nr;

use super::*;
use crate::request::{Object, Value};

/// The requests of a call.
fn of(trace: &Trace, call: u64) -> Vec<(&Request, Outcome, Seen)> {
    trace.requests.iter().filter(|((r, _), _)| r.nr == call).map(|((r, o), seen)| (r, *o, *seen)).collect()
}

#[test]
fn calls_of_several_processes_are_put_together() {
    let log = r#"
10 socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = 3
10 setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0
10 setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0
10 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD <unfinished ...>
11 ioctl(3, FIONBIO, [1])               = 0
10 <... clone resumed>, child_tidptr=0x7f) = 11
10 accept4(3, NULL, NULL, SOCK_CLOEXEC <unfinished ...>
11 +++ exited with 0 +++
10 <... accept4 resumed>)               = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
10 --- SIGCHLD {si_signo=SIGCHLD} ---
"#;
    let trace = read(log, None);
    assert_eq!((trace.calls, trace.unread_lines), (6, 0), "{:?}", trace.unread);
    let socket = Some(Object::Socket(2, 0x80001, 0));
    let [(request, Outcome::Success, seen)] = of(&trace, nr::setsockopt)[..] else { panic!("{trace:?}") };
    assert_eq!((request.options.as_str(), seen), ("SOL_SOCKET, SO_REUSEADDR", Seen { line: 3, times: 2 }));
    assert_eq!(request.args[1..3], [Value::Number(1), Value::Number(2)]);
    assert_eq!(request.args[3], Value::Bytes(vec![1, 0, 0, 0]));
    assert_eq!(request.object, socket);
    assert_eq!(of(&trace, nr::ioctl)[0].0.object, socket, "the child has the descriptors of its parent");
    assert_eq!(of(&trace, nr::accept4)[0].1, Outcome::Unseen);
    assert_eq!(of(&trace, nr::clone)[0].0.args[0], Value::Number(0x200011));
}

#[test]
fn times_and_decoded_descriptors_may_be_in_a_log() {
    let log = r#"[pid    7] 12:00:01.123456 openat(AT_FDCWD</srv>, "data", O_RDONLY) = 4</srv/data> <0.000010>
[pid    7] 1700000000.5 fcntl(4</srv/data>, F_SETLEASE, F_RDLCK) = -1 EAGAIN (Resource temporarily unavailable)
[pid    7] (+     0.000020) write(1</dev/pts/0<char 136:0>>, "a \") = 2, <x", 9) = 9
"#;
    let trace = read(log, None);
    assert_eq!((trace.calls, trace.unread_lines), (3, 0), "{:?}", trace.unread);
    assert_eq!(trace.files.keys().collect::<Vec<_>>(), [b"/srv/data"]);
    let lease = of(&trace, nr::fcntl);
    assert_eq!(lease[0].0.object, Some(Object::Path(b"/srv/data".to_vec(), 0)));
    assert_eq!(lease[0].1, Outcome::Error(Errno::EAGAIN.0));
}

#[test]
fn files_that_a_program_makes_are_no_files_that_it_needs() {
    let log = r#"chdir("/var/lib/x") = 0
mkdir("d", 0755) = 0
openat(AT_FDCWD, "d/new", O_RDWR|O_CREAT, 0600) = 3
openat(AT_FDCWD, "d/new", O_RDONLY) = 4
rename("d/new", "/var/lib/x/e") = 0
stat("/var/lib/x/e", {st_mode=S_IFREG|0600}) = 0
stat("/etc/passwd", {st_mode=S_IFREG|0644}) = 0
stat("/etc/none", 0x7ffe) = -1 ENOENT (No such file or directory)
execve("./run", ["./run"], 0x7ffe /* 20 vars */) = 0
"#;
    let trace = read(log, None);
    let files: Vec<_> = trace.files.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    assert_eq!(files, ["/etc/passwd", "/var/lib/x", "/var/lib/x/run"]);
}

#[test]
fn peers_are_those_outside_of_the_programs() {
    let log = r#"bind(3, {sa_family=AF_UNIX, sun_path="/run/own"}, 110) = 0
connect(4, {sa_family=AF_UNIX, sun_path="/run/own"}, 110) = 0
connect(4, {sa_family=AF_UNIX, sun_path="/run/dbus"}, 110) = 0
connect(5, {sa_family=AF_INET, sin_port=htons(5432), sin_addr=inet_addr("10.1.2.3")}, 16) = -1 EINPROGRESS (Operation now in progress)
connect(5, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0
connect(5, {sa_family=AF_INET6, sin6_port=htons(80), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28) = 0
"#;
    let trace = read(log, None);
    let peers: Vec<_> = trace.peers.keys().map(String::as_str).collect();
    assert_eq!(peers, ["/run/dbus", "10.1.2.3:5432", "[2001:db8::1]:80"]);
}

#[test]
fn what_cannot_be_read_is_told() {
    let log = "prctl(PR_NEWER, 1) = 0\nwhat is this\nmystery(1, 2) = 0\nopenat(AT_FDCWD, \"/x\n";
    let trace = read(log, None);
    assert_eq!(trace.constants.keys().collect::<Vec<_>>(), ["PR_NEWER"]);
    assert_eq!(trace.unknown.keys().collect::<Vec<_>>(), ["mystery"]);
    assert_eq!(trace.unread_lines, 2);
    assert_eq!(trace.unread[0], (2, "what is this".to_owned()));
    assert!(looks_like(log));
    assert!(!looks_like("% time     seconds  usecs/call\n100.00 0.1 1 total\n"));
}
