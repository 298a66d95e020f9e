//! Who may look at another process, and whose its files in /proc are: "Ptrace access mode checking" of ptrace(2), without what a security
//! module such as Yama adds.

use crate::caps::CAP_SYS_PTRACE;
use crate::ctx::Ctx;
use crate::process::Process;
use crate::task::Task;

impl Process {
    /// PTRACE_MODE_READ_FSCREDS and PTRACE_MODE_ATTACH_FSCREDS: with the ids that count for files.
    pub(crate) fn may_look_at(&self, ids: (u32, u32), other: &Process) -> bool {
        self.may_access(ids, self.caps.effective, other)
    }

    /// Whose rights to files count: the effective ids, unless the thread has others for this purpose (setfsuid(2)).
    pub(crate) fn file_ids(&self, task: &Task) -> (u32, u32) {
        let [uid, gid] = task.fs_ids;
        (uid.unwrap_or(self.cred.uid), gid.unwrap_or(self.cred.gid))
    }

    /// PTRACE_MODE_READ_REALCREDS and PTRACE_MODE_ATTACH_REALCREDS.
    pub(crate) fn may_attach_to(&self, other: &Process) -> bool {
        let [uid, _, gid, _] = self.real_ids;
        self.may_access((uid, gid), self.caps.permitted, other)
    }

    /// `__ptrace_may_access`: all ids of the target are the caller's, it is dumpable, and it may do nothing that the caller may not
    /// (cap_ptrace_access_check); CAP_SYS_PTRACE makes up for each.
    fn may_access(&self, (uid, gid): (u32, u32), caps: u64, other: &Process) -> bool {
        // "If the calling thread and the target thread are in the same thread group, access is always allowed."
        if self.pid == other.pid || self.caps.has(CAP_SYS_PTRACE) {
            return true;
        }
        let same = other.real_ids == [uid, uid, gid, gid] && (other.cred.uid, other.cred.gid) == (uid, gid);
        same && (other.zombie.is_some() || other.dumpable == 1) && other.caps.permitted & !caps == 0
    }

    /// Whose the files of its directory in /proc are: "the files in each /proc/pid directory are normally owned by the effective user and
    /// effective group ID of the process. However, as a security measure, the ownership is made root:root if the process's "dumpable"
    /// attribute is set to a value other than 1" (proc(5)), or if it has no memory any more. The directories that all may enter stay its
    /// user's (task_dump_owner).
    pub(crate) fn dump_owner(&self, open_directory: bool) -> (u32, u32) {
        let own = open_directory || self.zombie.is_none() && self.dumpable == 1;
        if own { (self.cred.uid, self.cred.gid) } else { (0, 0) }
    }
}

impl Ctx<'_> {
    /// Whether the caller may attach to another process.
    pub(crate) fn may_attach(&self, other: &Process) -> bool {
        self.process().may_attach_to(other)
    }
}
