//! Whose rights a thread has ([`Credentials`], credentials(7)): its ids, groups and capabilities.
//!
//! Each thread has its own: "At the kernel level, user IDs and group IDs are a per-thread attribute" (nptl(7)), and so are capabilities
//! and securebits. C libraries make the calls that change ids in all threads. Where somebody names a process, its first thread is asked.
//! Neighbours: [`crate::caps`], `sys::ids` and `sys::caps` the calls, `exec` a new program.

use bloodhound_abi::consts as c;
use bloodhound_vfs::Cred;

use crate::caps::{CAP_KILL, CAP_SETUID, CAP_SYS_PTRACE, Caps, KEEP_CAPS};
use crate::ctx::Ctx;
use crate::ids::*;
use crate::node::Node;
use crate::process::Process;
use crate::task::Task;

/// `struct cred` of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Effective ids and the groups; those for files are [`Credentials::for_files`]. It has no capabilities: these are in `caps`.
    pub cred: Cred,
    /// Real and saved ids: ruid, suid, rgid, sgid.
    pub real_ids: [u32; 4],
    /// User and group id for files where they are not the effective ones (setfsuid(2), setfsgid(2)).
    pub fs_ids: [Option<u32>; 2],
    /// Capabilities.
    pub caps: Caps,
}

impl Credentials {
    /// Of a first process.
    pub fn new(cred: Cred, bounding: u64) -> Credentials {
        let real_ids = [cred.uid, cred.uid, cred.gid, cred.gid];
        Credentials {
            caps: Caps::of(cred.uid, bounding),
            cred: Cred { caps: 0, ..cred },
            real_ids,
            fs_ids: [None; 2],
        }
    }

    /// Whose rights to files count: the effective ids, unless the thread has others for this purpose.
    pub fn for_files(&self) -> Cred {
        let (cred, [uid, gid]) = (&self.cred, self.fs_ids);
        let groups = cred.groups.clone();
        Cred { uid: uid.unwrap_or(cred.uid), gid: gid.unwrap_or(cred.gid), groups, caps: self.caps.effective }
    }

    /// Whose rights to files access(2) asks about: "The check is done using the calling process's real UID and GID, rather than the effective IDs", and root has the
    /// permitted capabilities then, other users none (access_override_creds in Linux).
    pub fn for_access(&self) -> Cred {
        let [uid, _, gid, _] = self.real_ids;
        let caps = match uid {
            _ if !self.caps.follow_ids() => self.caps.effective,
            0 => self.caps.permitted,
            _ => 0,
        };
        Cred { uid, gid, groups: self.cred.groups.clone(), caps }
    }

    /// Whether all ids are these: a real user and a real group.
    pub fn are_all_of(&self, uid: u32, gid: u32) -> bool {
        self.real_ids == [uid, uid, gid, gid] && (self.cred.uid, self.cred.gid) == (uid, gid)
    }

    /// Whether changing to these is a change that takes the "dumpable" attribute and the parent-death signal away (commit_creds):
    /// effective ids, those for files, or a capability that was not permitted before.
    pub fn takes_secrets_away(&self, new: &Credentials) -> bool {
        let (before, now) = (self.for_files(), new.for_files());
        (self.cred.uid, self.cred.gid) != (new.cred.uid, new.cred.gid)
            || (before.uid, before.gid) != (now.uid, now.gid)
            || new.caps.permitted & !self.caps.permitted != 0
    }
}

/// What a program is executed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    /// The user and the group that the file gives (S_ISUID, S_ISGID).
    pub set_ids: [Option<u32>; 2],
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// Another process has the same root and working directory (LSM_UNSAFE_SHARE).
    pub shares_place: bool,
}

/// Credentials of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfProgram {
    pub credentials: Credentials,
    /// AT_SECURE: it has more rights than who executes it, and is to be careful.
    pub secure: bool,
    /// It wins some, so its address space is random again (PER_CLEAR_ON_SETID).
    pub wins: bool,
}

impl Credentials {
    /// Those of a program that is executed (bprm_fill_uid, cap_bprm_creds_from_file). "The file system user ID is made the same as the effective
    /// user ID" and so is the saved one (credentials(7)); "execve() promises not to grant privileges to do anything that could not have
    /// been done without the execve call" (PR_SET_NO_NEW_PRIVS(2const)).
    pub(crate) fn of_program(&self, with: Executed) -> OfProgram {
        let mut new = self.clone();
        let set_ids = if with.no_new_privs { [None; 2] } else { with.set_ids };
        new.cred.uid = set_ids[0].unwrap_or(new.cred.uid);
        new.cred.gid = set_ids[1].unwrap_or(new.cred.gid);
        let [real, _, real_group, _] = new.real_ids;
        let (mut permitted, effective) = self.caps.of_program(real, new.cred.uid);
        let is_setid = (real, real_group) != (new.cred.uid, new.cred.gid);
        let gains = permitted & !self.caps.permitted != 0;
        if (is_setid || gains) && (with.no_new_privs || with.shares_place) {
            if with.no_new_privs || !self.caps.has(CAP_SETUID) {
                (new.cred.uid, new.cred.gid) = (real, real_group);
            }
            permitted &= self.caps.permitted;
        }
        (new.real_ids[1], new.real_ids[3]) = (new.cred.uid, new.cred.gid);
        new.fs_ids = [None; 2];
        let caps = &mut new.caps;
        if is_setid {
            caps.ambient = 0;
        }
        caps.permitted = permitted | caps.ambient;
        caps.effective = if effective { caps.permitted } else { caps.ambient };
        caps.securebits &= !KEEP_CAPS;
        let more = effective || caps.permitted & !caps.ambient != 0;
        OfProgram {
            secure: is_setid || real != 0 && more,
            wins: gains || set_ids.iter().any(Option::is_some),
            credentials: new,
        }
    }
}

/// What is kept of a process's first thread once that has ended: Linux has its task for as long as the process is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    /// Its nice value.
    pub nice: i32,
    /// Its credentials.
    pub credentials: Credentials,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// The signals that it blocked.
    pub sigmask: u64,
}

impl First {
    /// Of this thread.
    pub fn of(task: &Task) -> First {
        let (nice, credentials) = (task.nice, task.credentials.clone());
        First { nice, credentials, no_new_privs: task.no_new_privs, sigmask: task.sigmask }
    }
}

impl Node {
    /// The credentials of a process: those of its first thread.
    pub fn credentials_of<'a>(&'a self, process: &'a Process) -> &'a Credentials {
        self.tasks.get(&Tid(process.pid.0)).map_or(&process.first.credentials, |task| &task.credentials)
    }
}

/// With whose ids somebody asks for access to another task (ptrace(2), "Ptrace access mode checking").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// PTRACE_MODE_FSCREDS: those for files, and the effective capabilities.
    ForFiles,
    /// PTRACE_MODE_REALCREDS: the real ids, and the permitted capabilities.
    ByCall,
}

impl Node {
    /// The credentials of a thread, or of the first one of a process, which may have ended.
    pub(crate) fn credentials_of_thread(&self, tid: Tid) -> Option<&Credentials> {
        let of_process = || self.processes.get(&Pid(tid.0)).map(|process| &process.first.credentials);
        self.tasks.get(&tid).map(|task| &task.credentials).or_else(of_process)
    }

    /// Whether a thread of the process `by` that has these credentials may send `signo` to another thread (check_kill_permission). "For a
    /// process to have permission to send a signal, it must either be privileged (under Linux: have the CAP_KILL capability [...]), or
    /// the real or effective user ID of the sending process must equal the real or saved set-user-ID of the target process. In the case
    /// of SIGCONT, it suffices when the sending and receiving processes belong to the same session" (kill(2)); its own threads any process may
    /// signal.
    pub(crate) fn may_signal(
        &self,
        by: Pid,
        own: &Credentials,
        target: &Process,
        named: Tid,
        signo: u32,
    ) -> bool {
        let Some(other) = self.credentials_of_thread(named) else { return false };
        let same = |id| id == other.real_ids[0] || id == other.real_ids[1];
        by == target.pid
            || own.caps.has(CAP_KILL)
            || same(own.cred.uid)
            || same(own.real_ids[0])
            || (u64::from(signo) == c::SIGCONT && self.process(by).sid == target.sid)
    }

    /// Whether a task may look into another one, or trace it (`__ptrace_may_access`), without what a security module such as Yama adds.
    pub(crate) fn may_trace(&self, by: Tid, of: Tid, asks: Asks) -> bool {
        let process_of = |tid: Tid| self.tasks.get(&tid).map_or(Pid(tid.0), |task| task.pid);
        let (pid, own) = (process_of(of), process_of(by));
        let Some(target) = self.credentials_of_thread(of) else { return false };
        // "If the calling thread and the target thread are in the same thread group, access is always allowed."
        if pid == own {
            return true;
        }
        let me = &self.task(by).credentials;
        let (uid, gid, caps) = match asks {
            Asks::ForFiles => {
                let cred = me.for_files();
                (cred.uid, cred.gid, me.caps.effective)
            }
            Asks::ByCall => (me.real_ids[0], me.real_ids[2], me.caps.permitted),
        };
        // What has ended has no memory of which this could be said.
        let mm = self.tasks.get(&of).and_then(|task| self.mms.get(self.process(task.pid).mm));
        let dumpable = mm.is_none_or(|mm| mm.kept.dumpable == 1);
        let subset = target.caps.permitted & !caps == 0;
        target.are_all_of(uid, gid) && dumpable && subset || me.caps.has(CAP_SYS_PTRACE)
    }
}

impl Ctx<'_> {
    /// Whether all ids of another thread are the caller's real ones, as prlimit(2) asks: "the real, effective, and saved set user IDs of the
    /// target process must match the real user ID of the caller and the real, effective, and saved set group IDs of the target
    /// process must match the real group ID of the caller".
    pub(crate) fn same_ids(&self, other: &Credentials) -> bool {
        let [uid, _, gid, _] = self.credentials().real_ids;
        other.are_all_of(uid, gid)
    }
}

#[cfg(test)]
mod tests;
