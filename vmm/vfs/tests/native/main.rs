//! Differential test: the same random calls on the host's file system and on [`Vfs`] must give the same results, down
//! to the error number and, at the end, the same tree. Every call also runs on a clone first, which must agree.
//!
//! Half of the runs start from a tree that lies in the base layer. Runs with the credentials it finds. As root it switches the file-system user for some calls (setfsuid(2)).
//! Of the `..` in the generated paths there are fewer than the directories above the test's own, so that no call can
//! leave the temporary directory; link targets have none.

mod calls;
mod host;
mod sim;

use bloodhound_abi::Errno;
use bloodhound_vfs::Cred;
use bloodhound_vfs::flags::*;
use proptest::prelude::*;

use calls::{Call, Op, call};
use host::{Host, dump_host};
use sim::Sim;

/// Directories above the one that the calls start in, more than a path has `..`.
const ABOVE: &str = "above1/above2/above3/start";
const SLOTS: usize = 3;
const TREE: bloodhound_vfs::TreeId = bloodhound_vfs::TreeId(0);
/// What a run on layers starts with: files with the string that is repeated in them, and links.
const FILES: [(&str, &[u8]); 5] = [
    ("a/a", b"one"),
    ("a/b/a", b"the second file"),
    ("a/b/c", b""),
    ("b", b"a longer text, which takes several pages"),
    ("c/c/c/c", b"deep"),
];
const LINKS: [(&str, &str); 2] = [("a/c", "b/a"), ("c/a", "c/c")];

/// What a call returns, in terms that both sides share.
type Answer = Result<Vec<u8>, Errno>;

/// What both sides say about a file. Sizes of directories and link counts of directories differ by file system.
fn describe(mode: u32, nlink: u64, uid: u32, gid: u32, size: u64) -> Vec<u8> {
    let is_dir = mode & S_IFMT == S_IFDIR;
    let (nlink, size) = if is_dir { (0, 0) } else { (nlink, size) };
    format!("{mode:o} {nlink} {uid}:{gid} {size}").into_bytes()
}

fn line(path: &str, about: &[u8], bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte) + 1));
    format!("{path} {} {sum:x}\n", String::from_utf8_lossy(about))
}

struct Users(Vec<(u32, u32)>);

impl Users {
    fn new() -> Users {
        // SAFETY: these calls have no preconditions.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        Users(if uid == 0 { vec![(0, 0), (1000, 1000), (1001, 1000)] } else { vec![(uid, gid)] })
    }

    fn get(&self, user: usize) -> (u32, u32) {
        self.0[user % self.0.len()]
    }

    fn cred(&self, user: usize) -> Cred {
        let (uid, gid) = self.get(user);
        if self.0.len() > 1 {
            return Cred::user(uid, gid);
        }
        let mut groups = vec![0; 256];
        // SAFETY: the buffer has the length that is passed.
        let len = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
        groups.truncate(len.max(0) as usize);
        Cred { groups: groups.into(), ..Cred::user(uid, gid) }
    }

    /// Makes this thread act as `user` on files.
    fn become_user(&self, user: usize) {
        if self.0.len() > 1 {
            let (uid, gid) = self.get(user);
            // SAFETY: these calls have no preconditions; they change this thread only.
            unsafe { (libc::setfsgid(gid), libc::setfsuid(uid)) };
        }
    }
}

/// Calls that the host's file system does not know (tmpfs has no ZERO_RANGE, for example) are left out.
fn supported(host: &mut Host) -> impl Fn(&Call) -> bool + use<> {
    let mut try_one = |op: Op| host.run(&Call { user: 0, from: None, op });
    let probe = |name: &str| name.to_string();
    let tmpfile =
        try_one(Op::Open { path: probe("."), flags: O_TMPFILE | O_RDWR, mode: 0o600, slot: 0 }).is_ok();
    let flags = O_CREAT | O_RDWR;
    for (name, slot) in [("probe1", 0), ("probe2", 1)] {
        try_one(Op::Open { path: probe(name), flags, mode: 0o600, slot }).unwrap();
    }
    let modes: Vec<u32> = [0, 1, 3, 0x10, 0x11]
        .into_iter()
        .filter(|mode| try_one(Op::Fallocate { slot: 0, mode: *mode, at: 0, len: 1 }).is_ok())
        .collect();
    let rename = |flags| Op::Rename { old: probe("probe1"), new: probe("probe2"), flags };
    let exchange = try_one(rename(RENAME_EXCHANGE)).is_ok();
    let noreplace = try_one(rename(RENAME_NOREPLACE)) == Err(Errno::EEXIST);
    for name in ["probe1", "probe2"] {
        try_one(Op::Unlink { path: probe(name) }).unwrap();
    }
    (0..SLOTS).for_each(|slot| host.close(slot));
    move |call| match &call.op {
        Op::Open { flags, .. } => tmpfile || flags & O_TMPFILE_BIT == 0,
        Op::Fallocate { mode, .. } => modes.contains(mode) || ![0, 1, 3, 0x10, 0x11].contains(mode),
        Op::Rename { flags, .. } => exchange && noreplace || *flags == 0,
        _ => true,
    }
}

fn compare(calls: &[Call], layered: bool) -> Result<(), TestCaseError> {
    let users = Users::new();
    // The files of the base layer belong to root.
    let layered = layered && users.get(0).0 == 0;
    // SAFETY: no preconditions.
    unsafe { libc::umask(0o022) };
    let (mut host, mut sim) = (Host::new(layered), Sim::new(&users, layered));
    let supported = supported(&mut host);
    for (step, call) in calls.iter().enumerate() {
        if !supported(call) {
            continue;
        }
        let before = sim.clone();
        let mut fork = sim.clone();
        users.become_user(call.user);
        let native = host.run(call);
        users.become_user(0);
        let forked = fork.run(call, &users);
        let simulated = sim.run(call, &users);
        let note = format!("step {step}: {call:?}");
        prop_assert_eq!(&native, &simulated, "{}", note);
        prop_assert_eq!(&forked, &simulated, "on a clone, {}", note);
        if step % 8 == 0 {
            let mut again = before;
            let old = again.clone().dump();
            prop_assert_eq!(again.run(call, &users), forked);
            prop_assert_eq!(fork.dump(), sim.dump(), "on a clone, {}", note);
            prop_assert_eq!(again.dump(), sim.dump(), "from the snapshot {:?}, {}", old, note);
        }
    }
    (0..SLOTS).for_each(|slot| (host.close(slot), sim.close(slot)).1);
    if users.0.len() > 1 {
        let mut native = String::new();
        dump_host(&host.top, "", &mut native);
        prop_assert_eq!(native, sim.dump());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn same_as_the_host(calls in prop::collection::vec(call(), 1..60), layered: bool) {
        compare(&calls, layered)?;
    }
}
