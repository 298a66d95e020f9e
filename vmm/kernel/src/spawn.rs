//! Root processes of a container: a service's command, a health check, a script; with an init as process 1, if it is to have one.
//!
//! Neighbours: `exec` loads the program, [`crate::container`] has what processes begin with, [`crate::init`] is the init.

use std::sync::Arc;

use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Sigaction;
use bloodhound_abi::{Errno, Regs};
use bloodhound_decisions::Lineage;
use bloodhound_vfs::Cred;

use crate::container::{Container, ContainerId};
use crate::credentials::{Credentials, First};
use crate::ctx::*;
use crate::exec::{AT_CWD, Origin, Program};
use crate::file::Console;
use crate::ids::*;
use crate::io_account::IoAccount;
use crate::memory::{PROCESS, TASK};
use crate::mm::Mm;
use crate::node::Node;
use crate::process::{CpuTime, ExitStatus, FdEntry, FdTable, Process};
use crate::shared::{Common, FsPlace, Shared};
use crate::signal::UNBLOCKABLE;
use crate::task::Task;
use crate::wait::{Blocked, Pins, Progress, Restart, Stop, Wait};
use crate::watch::Told;

/// Who a program begins as.
fn cred_of(program: &Program) -> Cred {
    // As setgroups(2) keeps them, by which engines give them.
    let mut groups = program.groups.clone();
    groups.sort_unstable();
    Cred { groups: Arc::from(groups), ..Cred::user(program.uid, program.gid) }
}

impl Node {
    /// Starts a root process of a container (a service's command, or a health check), as its runtime does.
    pub fn spawn(
        &mut self,
        id: ContainerId,
        program: &Program,
        outside: &mut Outside<'_>,
    ) -> Result<Pid, Errno> {
        let Container { pids, mounts, roots, .. } = *self.container(id);
        let settings = self.container(id).settings.clone();
        let pid = Pid(self.new_number(pids));
        let tid = Tid(pid.0);
        let space = self.new_space();
        let mm = self.mms.insert(Mm::new(space, id));
        self.vfs.enter_namespace(mounts);
        let root = self.vfs.root();
        self.vfs.hold(root);
        self.vfs.hold(root);
        let without_input = self.container(id).stdin.null;
        let fds = self.console_descriptors(without_input);
        let place = FsPlace { cwd: root, cwd_synthetic: None, root, umask: settings.umask };
        let common = Common {
            table: self.fd_tables.insert(Shared::new(fds)),
            place: self.places.insert(Shared::new(place)),
        };
        let credentials = Credentials::new(cred_of(program), settings.capabilities);
        let mut task = Task::new(tid, pid, common, credentials, Regs::default());
        task.lineage = Lineage::root(roots);
        task.no_new_privs = settings.no_new_privileges;
        let process = Process {
            pid,
            container: id,
            is_check: false,
            is_script: false,
            ppid: Pid::NONE,
            parent_thread: Tid(0),
            sibling: 0,
            pgid: pid,
            grouped: 0,
            sid: pid,
            threads: vec![tid],
            mm,
            actions: self.actions.insert(Shared::new(Arc::new(vec![Sigaction::default(); 64]))),
            pending: Default::default(),
            takers: Default::default(),
            chosen: tid,
            limits: settings.limits,
            zombie: None,
            first: First::of(&task),
            ended_filters: Default::default(),
            fatal: None,
            unkillable: pid.number() == 1,
            exiting: None,
            exit_signal: 0,
            event: None,
            subreaper: false,
            knobs: crate::procfs::Knobs::adjusted(settings.oom_score_adj),
            exe: Vec::new(),
            auxv: Default::default(),
            itimer: None,
            cpu_timers: [None; 2],
            timers: Default::default(),
            next_timer: 0,
            cpu: CpuTime::default(),
            children_cpu: CpuTime::default(),
            io: IoAccount::default(),
            peak: 0,
            children_peak: 0,
            started: self.own_time(),
            did_exec: false,
            sleeps_for_good: false,
            tty: None,
            tty_old_pgrp: None,
        };
        self.add_root(process, task);
        let mut ctx = Ctx::new(self, tid, outside.reborrow());
        ctx.outside.tell(ctx.node, (pid, tid), &Told::Began { parent: None });
        if without_input {
            ctx.take_null_input();
        }
        match ctx.start_program(program) {
            Ok(()) => {
                self.enqueue(tid);
                self.weigh_objects(id);
                Ok(pid)
            }
            Err(e) => {
                self.take_back(id, pid, outside);
                Err(e)
            }
        }
    }

    /// The descriptors 0 to 2 of a program that begins, or 1 and 2.
    fn console_descriptors(&mut self, without_input: bool) -> FdTable {
        let mut fds = FdTable::default();
        let streams = [Console::In, Console::Out, Console::Err].into_iter().enumerate();
        for (fd, stream) in streams.skip(usize::from(without_input)) {
            let file = self.files.insert(Ctx::console_file(stream));
            fds.set(fd, FdEntry { file, cloexec: false });
        }
        fds
    }

    /// One more root process of its container.
    fn add_root(&mut self, process: Process, task: Task) {
        let id = process.container;
        self.container_mut(id).roots += 1;
        self.processes.insert(process.pid, process);
        self.tasks.insert(task.tid, task);
        self.memory.kernel_grows(id, TASK + PROCESS);
    }

    /// As [`Node::spawn`], as the child of an init that is spawned first: see [`crate::init`]. The process is the init's.
    pub fn spawn_with_init(
        &mut self,
        id: ContainerId,
        program: &Program,
        outside: &mut Outside<'_>,
    ) -> Result<Pid, Errno> {
        let mut argv = vec![crate::init::PATH.to_vec(), b"--".to_vec()];
        argv.extend_from_slice(&program.argv);
        let (init, child) = self.spawn_pair(id, argv, program, outside)?;
        self.task_mut(Tid(init.0)).regs.rbx = u64::from(child.number());
        Ok(init)
    }

    /// As [`Node::spawn`], as a program of a machine that has been running for long: process 1 is an init that is asleep, and never
    /// runs. Its children that end are forgotten at once, as those of a process that ignores SIGCHLD; it blocks all signals.
    pub fn spawn_below_init(
        &mut self,
        id: ContainerId,
        program: &Program,
        outside: &mut Outside<'_>,
    ) -> Result<Pid, Errno> {
        let (init, child) = self.spawn_pair(id, vec![crate::init::PATH.to_vec()], program, outside)?;
        let ignore = Sigaction { handler: c::SIG_IGN, ..Sigaction::default() };
        self.actions_of_mut(init)[c::SIGCHLD as usize - 1] = ignore;
        self.task_mut(Tid(init.0)).sigmask = !UNBLOCKABLE;
        self.process_mut(init).sleeps_for_good = true;
        let (call, wait) = (Call::pause {}, Wait::until(None).restart(Restart::NoHand));
        let (files, progress) = (Pins::default(), Progress::None);
        self.block(Tid(init.0), Box::new(Blocked { call, files, wait, progress, timeout: None, paid: 0 }));
        Ok(child)
    }

    /// Whether a process is the init of [`Node::spawn_below_init`].
    pub fn is_sleeping_init(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.sleeps_for_good)
    }

    /// An init with these arguments, and a program that is its child.
    fn spawn_pair(
        &mut self,
        id: ContainerId,
        argv: Vec<Vec<u8>>,
        program: &Program,
        outside: &mut Outside<'_>,
    ) -> Result<(Pid, Pid), Errno> {
        let first = Program { path: crate::init::PATH.to_vec(), argv, ..program.clone() };
        let init = self.spawn(id, &first, outside)?;
        let child = match self.spawn(id, program, outside) {
            Ok(child) => child,
            Err(e) => {
                self.take_back(id, init, outside);
                return Err(e);
            }
        };
        let sibling = self.next_sibling();
        let process = self.process_mut(child);
        (process.ppid, process.sid, process.exit_signal) = (init, init, c::SIGCHLD as u32);
        // As if init's thread had made it: that thread is asked whether it blocks SIGCHLD when the command ends.
        (process.parent_thread, process.sibling) = (Tid(init.0), sibling);
        Ok((init, child))
    }

    /// Takes a root process back that has not run. Nobody saw the number: the next one (another directory of PATH) gets it again.
    fn take_back(&mut self, id: ContainerId, pid: Pid, outside: &mut Outside<'_>) {
        self.exit_task(Tid(pid.0), ExitStatus::Code(127), outside);
        self.ends.pop();
        self.forget_process(pid);
        self.next_numbers[pid.ns().0 as usize] = pid.number();
        self.container_mut(id).roots -= 1;
    }
}

impl Ctx<'_> {
    fn start_program(&mut self, program: &Program) -> Result<(), Errno> {
        let plain = |s: Stop| match s {
            Stop::Errno(e) => e,
            _ => Errno::ENOSYS,
        };
        if !program.cwd.is_empty() {
            let ino = self.resolve_ino(AT_CWD, &program.cwd, true).map_err(plain)?;
            if self.node.vfs.stat_ino(ino)?.kind != bloodhound_vfs::Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            self.node.vfs.hold(ino);
            let old = std::mem::replace(&mut self.place_mut().cwd, ino);
            self.node.vfs.close_ref(old, false);
        }
        let (path, argv, envp) = (program.path.clone(), program.argv.clone(), program.envp.clone());
        self.exec(Origin::default(), path, argv, envp).map_err(plain)
    }
}
