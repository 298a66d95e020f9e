//! Threads have rights of their own, and what a program gets of them that is executed.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use bloodhound_vfs::Cred;

use super::{Credentials, Executed};
use crate::caps::{CAP_KILL, CAP_SETGID, DOCKER};
use crate::dispatch::Outcome;
use crate::ids::*;
use crate::testing::Bench;

const THREAD: u64 = c::CLONE_VM | c::CLONE_FS | c::CLONE_FILES | c::CLONE_SIGHAND | c::CLONE_THREAD;
/// A part of what a container has.
const SOME: u64 = 1 << CAP_KILL | 1 << CAP_SETGID;
const KEEP: u64 = u32::MAX as u64;

fn clone(b: &mut Bench, by: Tid, flags: u64) -> Tid {
    let stack = b.room(64);
    Tid(b.call_as(by, nr::clone, &[flags, stack, 0, 0, 0]).expect("a task") as u32)
}

fn prctl(b: &mut Bench, by: Tid, option: u64, arg: u64) -> Result<u64, Errno> {
    b.call_as(by, nr::prctl, &[option, arg, 0, 0, 0])
}

/// A line of a thread's status.
fn line(b: &mut Bench, tid: Tid, name: &str) -> String {
    let text = b.content(&format!("/proc/self/task/{}/status", tid.0)).expect("a thread");
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("a line")
        .trim_matches([':', '\t'])
        .to_owned()
}

#[test]
fn no_new_privs_is_of_a_thread_and_of_what_it_makes() {
    let mut b = Bench::new();
    let main = b.tid;
    let before = clone(&mut b, main, THREAD);
    assert_eq!(prctl(&mut b, main, c::PR_SET_NO_NEW_PRIVS, 1), Ok(0));
    let after = clone(&mut b, main, THREAD);
    let child = clone(&mut b, main, c::SIGCHLD);
    for (tid, set) in [(main, 1), (before, 0), (after, 1), (child, 1)] {
        assert_eq!(prctl(&mut b, tid, c::PR_GET_NO_NEW_PRIVS, 0), Ok(set), "{tid:?}");
    }
    assert_eq!(line(&mut b, before, "NoNewPrivs"), "0");
    assert_eq!(line(&mut b, main, "NoNewPrivs"), "1");
    // Who synchronizes filters passes it on.
    let allow = [0x06u16.to_le_bytes(), [0; 2]].concat();
    let allow = b.put_as(main, &[&allow[..], &0x7fff_0000u32.to_le_bytes()].concat());
    let program = b.put_as(main, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], &allow.to_le_bytes()].concat());
    assert_eq!(b.call(nr::seccomp, &[1, 1, program]), Ok(0));
    assert_eq!(prctl(&mut b, before, c::PR_GET_NO_NEW_PRIVS, 0), Ok(1));
}

#[test]
fn ids_and_capabilities_are_those_of_the_thread() {
    let mut b = Bench::new();
    let main = b.tid;
    let thread = clone(&mut b, main, THREAD);
    let other = b.fork();
    assert_eq!(b.call_as(thread, nr::setresuid, &[7, 7, 7]), Ok(0));
    assert_eq!(b.call(nr::getuid, &[]), Ok(0));
    assert_eq!(b.call_as(thread, nr::getuid, &[]), Ok(7));
    assert_eq!(line(&mut b, main, "CapEff"), format!("{DOCKER:016x}"));
    assert_eq!(line(&mut b, thread, "CapEff"), "0000000000000000");
    assert_eq!(line(&mut b, thread, "Uid"), "7\t7\t7\t7");
    assert_eq!(b.call_as(thread, nr::setgroups, &[0, 0]), Err(Errno::EPERM));
    assert_eq!(b.call_as(thread, nr::kill, &[u64::from(other.0), 0]), Err(Errno::EPERM));
    assert_eq!(b.call(nr::kill, &[u64::from(other.0), 0]), Ok(0));
    assert_eq!(prctl(&mut b, main, c::PR_SET_KEEPCAPS, 1), Ok(0));
    assert_eq!(prctl(&mut b, thread, c::PR_GET_KEEPCAPS, 0), Ok(0));
    // Its memory is that of the process.
    assert_eq!(prctl(&mut b, main, c::PR_GET_DUMPABLE, 0), Ok(0));
    // What it makes is as it is; whoever names the process means its first thread.
    let child = clone(&mut b, thread, c::SIGCHLD);
    assert_eq!(b.call_as(child, nr::geteuid, &[]), Ok(7));
    assert_eq!(b.call_as(child, nr::kill, &[u64::from(main.0), 0]), Err(Errno::EPERM));
    assert_eq!(b.call_as(child, nr::tkill, &[u64::from(thread.0), 0]), Ok(0));
    // And so it does when that has ended.
    assert_eq!(b.start(main, nr::exit, &[0]), Outcome::Exited);
    assert_eq!(b.call_as(child, nr::kill, &[u64::from(main.0), 0]), Err(Errno::EPERM));
}

#[test]
fn what_is_kept_of_memory_is_so_for_all_who_have_it() {
    let mut b = Bench::new();
    let main = b.tid;
    let same = clone(&mut b, main, c::CLONE_VM | c::SIGCHLD);
    assert_eq!(prctl(&mut b, same, c::PR_SET_DUMPABLE, 0), Ok(0));
    assert_eq!(b.call_as(same, nr::prctl, &[c::PR_SET_THP_DISABLE, 1, 0, 0, 0]), Ok(0));
    let fd = b.open_as(same, "/proc/self/coredump_filter", c::O_WRONLY).expect("a file");
    let text = b.put_as(same, b"0x7");
    assert_eq!(b.call_as(same, nr::write, &[fd, text, 3]), Ok(3));
    let copy = b.fork();
    for tid in [main, copy] {
        assert_eq!(prctl(&mut b, tid, c::PR_GET_DUMPABLE, 0), Ok(0));
        assert_eq!(prctl(&mut b, tid, c::PR_GET_THP_DISABLE, 0), Ok(1));
        assert_eq!(b.content(&format!("/proc/{}/coredump_filter", tid.0)).as_deref(), Ok("00000007\n"));
    }
    assert_eq!(prctl(&mut b, copy, c::PR_SET_DUMPABLE, 1), Ok(0));
    assert_eq!(prctl(&mut b, main, c::PR_GET_DUMPABLE, 0), Ok(0));
    // A program begins anew with one of them only.
    let path = b.text("/bin/prog");
    assert_eq!(b.start(main, nr::execve, &[path, 0, 0]), Outcome::NoReturn);
    b.give_scratch(Pid(main.0));
    assert_eq!(prctl(&mut b, main, c::PR_GET_DUMPABLE, 0), Ok(1));
    assert_eq!(prctl(&mut b, main, c::PR_GET_THP_DISABLE, 0), Ok(1));
    assert_eq!(prctl(&mut b, same, c::PR_GET_DUMPABLE, 0), Ok(0));
}

#[test]
fn files_of_what_is_not_dumpable_are_root_s() {
    let mut b = Bench::new();
    let child = b.fork();
    let own = format!("/proc/{}/oom_score_adj", child.0);
    assert_eq!(b.call_as(child, nr::setresgid, &[7, 7, 7]), Ok(0));
    assert_eq!(b.call_as(child, nr::setresuid, &[7, 7, 7]), Ok(0));
    assert_eq!(b.open_as(child, &own, c::O_WRONLY), Err(Errno::EACCES));
    assert_eq!(b.open_as(child, "/proc/self/environ", c::O_RDONLY), Err(Errno::EACCES));
    assert!(b.open_as(child, "/proc/self/fd", c::O_RDONLY).is_ok(), "a process sees its own descriptors");
    assert_eq!(prctl(&mut b, child, c::PR_SET_DUMPABLE, 1), Ok(0));
    assert!(b.open_as(child, &own, c::O_WRONLY).is_ok());
    // Without CAP_SYS_PTRACE root does not see into others.
    let exe = format!("/proc/{}/exe", child.0);
    assert_eq!(b.readlink(&exe), Err(Errno::EACCES));
    assert_eq!(b.open(&format!("/proc/{}/maps", child.0), c::O_RDONLY), Err(Errno::EACCES));
    assert!(b.open(&format!("/proc/{}/status", child.0), c::O_RDONLY).is_ok());
}

/// Real and effective user, permitted capabilities.
fn of(ids: [u32; 2], permitted: u64) -> Credentials {
    let mut all = Credentials::new(Cred::user(ids[1], 5), DOCKER);
    (all.real_ids[0], all.caps.permitted, all.caps.effective) = (ids[0], permitted, permitted);
    all
}

#[test]
fn programs_get_rights_and_no_new_ones() {
    let plain = Executed::default();
    let of_root = Executed { set_ids: [Some(0), None], ..plain };
    let held = |with: Executed| Executed { no_new_privs: true, ..with };
    let shared = |with: Executed| Executed { shares_place: true, ..with };
    for (who, with, (uid, permitted, effective), secure) in [
        (of([0, 0], DOCKER), plain, (0, DOCKER, DOCKER), false),
        // Root gets all back, unless it is to get nothing.
        (of([0, 0], SOME), plain, (0, DOCKER, DOCKER), false),
        (of([0, 0], SOME), held(plain), (0, SOME, SOME), false),
        (of([7, 7], 0), plain, (7, 0, 0), false),
        (of([7, 7], 0), of_root, (0, DOCKER, DOCKER), true),
        (of([7, 7], 0), held(of_root), (7, 0, 0), false),
        // Whoever shares its directories is as before, but with CAP_SETUID.
        (of([7, 7], 0), shared(of_root), (7, 0, 0), true),
        // An effective user that is not the real one is not kept; what root had as such is.
        (of([7, 0], DOCKER), plain, (0, DOCKER, DOCKER), true),
        (of([7, 0], DOCKER), held(plain), (7, DOCKER, DOCKER), true),
        (of([0, 7], DOCKER), plain, (7, DOCKER, 0), true),
        (of([0, 7], DOCKER), held(plain), (0, DOCKER, 0), true),
    ] {
        let got = who.of_program(with);
        let new = got.credentials;
        let what = format!("{who:?} {with:?}");
        assert_eq!(
            (new.cred.uid, new.caps.permitted, new.caps.effective),
            (uid, permitted, effective),
            "{what}"
        );
        assert_eq!((new.real_ids[0], new.real_ids[1]), (who.real_ids[0], uid), "{what}");
        assert_eq!(got.secure, secure || who.real_ids[0] != 0 && permitted != 0, "{what}");
    }
}

#[test]
fn execve_lets_go_of_robust_locks() {
    let mut b = Bench::new();
    let (prot, shared) = (c::PROT_READ | c::PROT_WRITE, c::MAP_SHARED | c::MAP_ANONYMOUS);
    let word = b.call(nr::mmap, &[0, 4096, prot, shared, KEEP, 0]).expect("memory");
    let child = b.fork();
    // One lock in the list, which the child has, and 8 bytes before it an entry.
    let head = b.put_as(child, &[word + 8, (-8i64) as u64, 0].map(u64::to_le_bytes).concat());
    let poke = |b: &mut Bench, at: u64, bytes: &[u8]| {
        let outside = &mut crate::ctx::Outside::new(&mut b.base, &mut b.decisions);
        b.node.put(child, at, bytes, outside).expect("memory");
    };
    poke(&mut b, word + 8, &head.to_le_bytes());
    poke(&mut b, word, &child.0.to_le_bytes());
    assert_eq!(b.call_as(child, nr::set_robust_list, &[head, 24]), Ok(0));
    let path = b.put_as(child, b"/bin/prog\0");
    assert_eq!(b.start(child, nr::execve, &[path, 0, 0]), Outcome::NoReturn);
    assert_eq!(b.object::<u32>(b.tid, word), c::FUTEX_OWNER_DIED as u32);
    assert_eq!(b.node.task(child).robust_list, 0);
}

#[test]
fn the_user_for_files_takes_its_capabilities_along() {
    let mut b = Bench::new();
    let main = b.tid;
    let effective = |b: &mut Bench| b.node.task(main).credentials.caps.effective;
    assert_eq!(b.call(nr::setfsuid, &[7]), Ok(0));
    assert_eq!(effective(&mut b), DOCKER & !(0x1f | 1 << 27));
    assert_eq!(b.call(nr::setfsuid, &[0]), Ok(7));
    assert_eq!(effective(&mut b), DOCKER);
    // setuid(2) asks for the real and the saved id, and not for the effective one.
    assert_eq!(b.call(nr::setresuid, &[0, 7, KEEP]), Ok(0));
    assert_eq!(b.call(nr::setuid, &[7]), Err(Errno::EPERM));
    assert_eq!(b.call(nr::setuid, &[0]), Ok(0));
    let groups = b.put_as(main, &[9u32.to_le_bytes(), 3u32.to_le_bytes()].concat());
    assert_eq!(b.call(nr::setgroups, &[2, groups]), Ok(0));
    assert_eq!(*b.node.task(main).credentials.cred.groups, [3, 9]);
}
