//! Job control: controlling terminals, foreground process groups, orphaned process groups (credentials(7), termios(3)).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::Ctx;
use crate::ids::*;
use crate::node::Node;
use crate::process::Process;
use crate::signal::{bit, user_info};
use crate::task::TaskState;
use crate::wait::{SysResult, Wait};

impl Ctx<'_> {
    /// Whether a process in the background may do what it asks of its terminal (`__tty_check_change`): it gets the signal, and the
    /// call is made again when it goes on. EIO if nobody could let it go on.
    pub(crate) fn check_foreground(&mut self, pty: PtyId, signo: u64) -> SysResult<()> {
        let process = self.process();
        let (own, foreground) = (process.pgid, self.node.ptys[pty].group);
        if process.tty != Some(pty) || foreground.is_none_or(|group| group == own) {
            return Ok(());
        }
        let ignored = self.node.actions_of(self.pid)[signo as usize - 1].handler == c::SIG_IGN
            || self.task().sigmask & bit(signo as u32) != 0;
        if ignored {
            return if signo == c::SIGTTIN { Err(Errno::EIO.into()) } else { Ok(()) };
        }
        if self.node.is_orphaned(own) {
            return Err(Errno::EIO.into());
        }
        self.node.signal_group(Some(own), signo as u32);
        Err(Wait::until(None).into())
    }

    /// TIOCSCTTY. EPERM unless the caller leads a session without a terminal, and the terminal has none.
    pub(crate) fn take_terminal(&mut self, pty: PtyId, steal: bool, readable: bool) -> SysResult {
        let (process, session) = (self.process(), self.node.ptys[pty].session);
        let (sid, leads) = (process.sid, process.sid == process.pid);
        if leads && session == Some(sid) {
            return Ok(0);
        }
        let admin = self.capable(crate::caps::CAP_SYS_ADMIN);
        if !leads || process.tty.is_some() || session.is_some() && !(steal && admin) || !readable && !admin {
            return Err(Errno::EPERM.into());
        }
        if let Some(session) = session {
            self.node.clear_terminal_of(session);
        }
        self.set_terminal(pty);
        Ok(0)
    }

    /// Opening a terminal makes it the controlling one of a session leader that has none ("O_NOCTTY", open(2)).
    pub(crate) fn may_take_terminal(&mut self, pty: PtyId) {
        let process = self.process();
        if process.sid == process.pid && process.tty.is_none() && self.node.ptys[pty].session.is_none() {
            self.set_terminal(pty);
        }
    }

    fn set_terminal(&mut self, pty: PtyId) {
        let process = self.process_mut();
        (process.tty, process.tty_old_pgrp) = (Some(pty), None);
        let (sid, group) = (process.sid, process.pgid);
        let p = &mut self.node.ptys[pty];
        (p.session, p.group) = (Some(sid), Some(group));
    }
}

impl Node {
    /// A signal of the kernel's for a process group.
    pub(crate) fn signal_group(&mut self, group: Option<Pid>, signo: u32) {
        let Some(group) = group else { return };
        for pid in self.members_of(group) {
            self.send_process(pid, user_info(signo, c::SI_KERNEL as i32, Pid::NONE, 0));
        }
    }

    /// Terminal and foreground process group of a process, as /proc/PID/stat shows them.
    pub(crate) fn terminal_of(&self, process: &Process) -> (u32, i64) {
        match process.tty.and_then(|pty| self.ptys.get(pty)) {
            // new_encode_dev: the low eight bits of the minor number, the major one, the rest.
            Some(p) => {
                let device = p.number & 0xff | 136 << 8 | (p.number & !0xff) << 12;
                (device, p.group.map_or(0, |group| i64::from(group.number_in(process.pid.ns()))))
            }
            None => (0, -1),
        }
    }

    /// No process of the session has a terminal any more (`session_clear_tty`).
    pub(crate) fn clear_terminal_of(&mut self, session: Pid) {
        let members: Vec<Pid> =
            self.processes.values().filter(|p| p.sid == session && p.tty.is_some()).map(|p| p.pid).collect();
        for pid in members {
            self.process_mut(pid).tty = None;
        }
    }

    /// A process gives up its terminal, by TIOCNOTTY or its end. If it leads the session, "the entire session loses the controlling
    /// terminal", and "the foreground process group receives SIGHUP and SIGCONT" (ioctl_tty(2)), at an end only SIGHUP
    /// (`disassociate_ctty`).
    pub(crate) fn leave_terminal(&mut self, pid: Pid, ends: bool) {
        let process = self.process_mut(pid);
        let (leads, session) = (process.sid == pid, process.sid);
        let (terminal, old) = (process.tty.take(), process.tty_old_pgrp);
        if !leads {
            return;
        }
        match terminal {
            Some(pty) => {
                let group = self.ptys[pty].group;
                self.signal_group(group, c::SIGHUP as u32);
                if !ends {
                    self.signal_group(group, c::SIGCONT as u32);
                }
                if let Some(p) = self.ptys.get_mut(pty) {
                    (p.session, p.group) = (None, None);
                }
                self.clear_terminal_of(session);
            }
            None if old.is_some() => {
                self.process_mut(pid).tty_old_pgrp = None;
                self.signal_group(old, c::SIGHUP as u32);
                self.signal_group(old, c::SIGCONT as u32);
            }
            None => {}
        }
    }

    /// The master is closed: the session loses its terminal, and its leader hears of it (`tty_signal_session_leader`).
    pub(crate) fn hang_up(&mut self, pty: PtyId) {
        let p = &mut self.ptys[pty];
        let (session, group) = (p.session.take(), p.group.take());
        let Some(session) = session else { return };
        let members: Vec<Pid> =
            self.processes.values().filter(|q| q.tty == Some(pty)).map(|q| q.pid).collect();
        for pid in members {
            self.process_mut(pid).tty = None;
            if pid == session {
                for signo in [c::SIGHUP, c::SIGCONT] {
                    self.send_process(pid, user_info(signo as u32, c::SI_KERNEL as i32, Pid::NONE, 0));
                }
                self.process_mut(pid).tty_old_pgrp = group;
            }
        }
    }

    /// "A process group is orphaned when the parent of every member is either itself a member of the group or not a member of the
    /// group's session" (POSIX). The init of a machine counts for nobody (`is_global_init` in will_become_orphaned_pgrp).
    pub(crate) fn is_orphaned(&self, group: Pid) -> bool {
        let holds = |p: &Process| {
            let parent = self.processes.get(&p.ppid).filter(|parent| !self.is_sleeping_init(parent.pid));
            parent
                .is_some_and(|parent| parent.zombie.is_none() && parent.pgid != group && parent.sid == p.sid)
        };
        !self.processes.values().any(|p| p.pgid == group && p.zombie.is_none() && holds(p))
    }

    /// The process groups that a process which ends keeps from being orphaned: its own, and those of its children.
    pub(crate) fn groups_held_by(&self, pid: Pid) -> Vec<Pid> {
        let process = self.process(pid);
        let (group, sid, ppid) = (process.pgid, process.sid, process.ppid);
        let parent = self.processes.get(&ppid).filter(|p| p.pgid != group && p.sid == sid);
        let parent = parent.filter(|p| !self.is_sleeping_init(p.pid));
        let mut groups: Vec<Pid> = self
            .processes
            .values()
            .filter(|p| p.ppid == pid && p.pgid != group && p.sid == sid)
            .map(|p| p.pgid)
            .chain(parent.map(|_| group))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// "If the exit of the process causes a process group to become orphaned, and if any member of the newly orphaned process group is
    /// stopped, then a SIGHUP signal followed by a SIGCONT signal will be sent to each process" (_exit(2)).
    pub(crate) fn end_orphaned(&mut self, groups: &[Pid]) {
        for group in groups {
            let stopped = |p: &Process| {
                p.pgid == *group
                    && p.threads.iter().any(|tid| matches!(self.task(*tid).state, TaskState::Stopped))
            };
            if self.is_orphaned(*group) && self.processes.values().any(stopped) {
                self.signal_group(Some(*group), c::SIGHUP as u32);
                self.signal_group(Some(*group), c::SIGCONT as u32);
            }
        }
    }
}
