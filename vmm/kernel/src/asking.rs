//! Calls without a program: what would the kernel answer? A process that runs nothing makes them, with a megabyte of memory for
//! arguments and results.
//!
//! The runner's `compat` asks so what a program would be answered, and the tests of calls (`testing`) are made of it. Whoever asks works
//! on a clone of the node, as calls change it.

use bloodhound_abi::Errno;
use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;

use crate::container::ContainerId;
use crate::ctx::{Ctx, Outside};
use crate::dispatch::Outcome;
use crate::exec::Program;
use crate::ids::*;
use crate::mm::{Backing, OnFork, Vma};
use crate::node::Node;

/// Where the memory for arguments and results begins.
pub const SCRATCH: u64 = 0x1000_0000;
/// Its bytes.
pub const SCRATCH_SIZE: u64 = 1 << 20;
/// What the process is made of, and where else if the root file system is read-only.
const PROGRAM: [&[u8]; 2] = [b"/.nothing-runs", b"/dev/shm/.nothing-runs"];

impl Node {
    /// A process of a container that runs no program, with the identity and directory of `like`.
    ///
    /// # Errors
    /// The container can have no other process, or there is no such directory.
    pub fn spawn_asker(
        &mut self,
        id: ContainerId,
        like: &Program,
        outside: &mut Outside<'_>,
    ) -> Result<Tid, Errno> {
        let mounts = self.container(id).mounts;
        self.vfs.enter_namespace(mounts);
        // Any program will do; the init of containers is one that can be made.
        let image = crate::init::image();
        let mut put = |path: &&&[u8]| self.vfs.put_file(outside.base, path, 0o755, &image).is_ok();
        let path = PROGRAM.iter().find(|path| put(path)).ok_or(Errno::EROFS)?;
        let program = Program { path: path.to_vec(), ..like.clone() };
        let pid = self.spawn(id, &program, outside)?;
        self.give_scratch(pid);
        Ok(Tid(pid.0))
    }

    /// Gives a process the memory for arguments and results.
    pub(crate) fn give_scratch(&mut self, pid: Pid) {
        let mm = self.process(pid).mm;
        self.mms[mm].insert(Vma {
            start: SCRATCH,
            end: SCRATCH + SCRATCH_SIZE,
            prot: c::PROT_READ | c::PROT_WRITE,
            shared: false,
            backing: Backing::Anon,
            on_fork: OnFork::Copy,
            may_write: true,
            marks: Default::default(),
        });
    }

    /// Sets the registers of a task for a call.
    pub(crate) fn set_call(&mut self, tid: Tid, nr: u64, args: &[u64]) {
        let regs = &mut self.task_mut(tid).regs;
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        regs.orig_rax = nr;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = all;
    }

    /// Makes a call, of up to six arguments.
    pub fn ask(&mut self, tid: Tid, nr: u64, args: &[u64], outside: &mut Outside<'_>) -> Outcome {
        self.set_call(tid, nr, args);
        let call = Call::decode(nr, self.task(tid).regs.syscall_args());
        self.syscall(tid, call, outside)
    }

    /// Writes to a process's memory.
    ///
    /// # Errors
    /// EFAULT.
    pub fn put(&mut self, tid: Tid, at: u64, bytes: &[u8], outside: &mut Outside<'_>) -> Result<(), Errno> {
        Ctx::new(self, tid, outside.reborrow()).write_bytes(at, bytes)
    }

    /// Reads a process's memory.
    ///
    /// # Errors
    /// EFAULT.
    pub fn get(&mut self, tid: Tid, at: u64, out: &mut [u8], outside: &mut Outside<'_>) -> Result<(), Errno> {
        Ctx::new(self, tid, outside.reborrow()).read_bytes(at, out)
    }
}
