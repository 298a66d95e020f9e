//! A node with one process for tests of system calls: no platform, no program that runs, only calls.

use crate::ctx::Outside;
use bloodhound_abi::Errno;
use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use bloodhound_decisions::Decisions;
use bloodhound_net::{NodeId, Stack};
use bloodhound_vfs::{MemBase, MountNs, TreeId, Vfs};

use crate::asking::{SCRATCH, SCRATCH_SIZE};
use crate::container::{ContainerConfig, Network};
use crate::dispatch::Outcome;
use crate::exec::Program;
use crate::ids::*;
use crate::node::{Costs, MachineId, Node, NodeConfig};
use crate::task::TaskState;

/// See the module's text.
pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) base: MemBase,
    pub(crate) decisions: Decisions,
    /// The process that was there from the start.
    pub(crate) tid: Tid,
    next: u64,
}

/// The smallest static program: headers and one instruction.
fn program() -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
    put(&[2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [0x40_0000u64 + 120, 64, 0] {
        put(&word.to_le_bytes());
    }
    put(&[0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    put(&[1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0u64, 0x40_0000, 0x40_0000, 122, 122, 4096] {
        put(&word.to_le_bytes());
    }
    put(&[0x0f, 0x0b]);
    out
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::on_disk(None)
    }

    /// One whose disk can lose what was not synced.
    pub(crate) fn on_disk(disk: Option<bloodhound_vfs::DiskModel>) -> Bench {
        let tree = TreeId(0);
        let mut base = MemBase::new();
        base.file(tree, "bin/prog", 0o755, &program());
        base.file(tree, "bin/script", 0o755, b"#!/bin/prog -x\n");
        base.file(tree, "etc/hosts", 0o644, b"127.0.0.1 localhost\n");
        let config = bloodhound_vfs::Config { root: Some(tree), disk, ..Default::default() };
        let mut vfs = Vfs::new(config, &mut base).expect("a root");
        crate::procfs::mount_standard(&mut vfs, &mut base).expect("mounts");
        let config = NodeConfig {
            id: MachineId(1),
            epoch_ns: 1_700_000_000_000_000_000,
            memory: 4 << 30,
            costs: Costs::default(),
            vdso: false,
        };
        let mut node = Node::new(config, vfs, [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
        let container = node.add_container(ContainerConfig {
            id: NodeId(1),
            hostname: "alpha".into(),
            mounts: MountNs(0),
            net: Network::Own(Box::new(Stack::new(Default::default(), 1))),
            pids: None,
            ipc: None,
            settings: Default::default(),
        });
        let mut decisions = Decisions::seeded(1);
        let program = Program {
            path: b"/bin/prog".to_vec(),
            argv: vec![b"prog".to_vec(), b"one".to_vec()],
            envp: vec![b"A=b".to_vec()],
            ..Program::default()
        };
        let pid =
            node.spawn(container, &program, &mut Outside::new(&mut base, &mut decisions)).expect("a process");
        let mut bench = Bench { node, base, decisions, tid: Tid(pid.0), next: 0 };
        bench.give_scratch(pid);
        bench
    }

    /// Gives a process the memory for arguments and results.
    pub(crate) fn give_scratch(&mut self, pid: Pid) {
        self.node.give_scratch(pid);
    }

    /// Sets the registers for a call.
    pub(crate) fn prepare(&mut self, tid: Tid, nr: u64, args: &[u64]) {
        self.node.set_call(tid, nr, args);
    }

    /// The call in a task's registers.
    pub(crate) fn call_in(&self, tid: Tid) -> Call {
        let regs = &self.node.task(tid).regs;
        Call::decode(regs.orig_rax, regs.syscall_args())
    }

    /// Makes a call; what comes of it.
    pub(crate) fn start(&mut self, tid: Tid, nr: u64, args: &[u64]) -> Outcome {
        self.node.ask(tid, nr, args, &mut Outside::new(&mut self.base, &mut self.decisions))
    }

    /// Makes a call that must end at once.
    pub(crate) fn call_as(&mut self, tid: Tid, nr: u64, args: &[u64]) -> Result<u64, Errno> {
        let outcome = self.start(tid, nr, args);
        value(outcome)
    }

    /// Makes a call of the first process that must end at once.
    pub(crate) fn call(&mut self, nr: u64, args: &[u64]) -> Result<u64, Errno> {
        self.call_as(self.tid, nr, args)
    }

    /// Runs a call again whose task was woken.
    pub(crate) fn resume(&mut self, tid: Tid) -> Result<u64, Errno> {
        assert!(!self.sleeps(tid), "nothing woke {tid:?}");
        let outcome = self.node.resume_syscall(tid, &mut Outside::new(&mut self.base, &mut self.decisions));
        value(outcome)
    }

    pub(crate) fn sleeps(&self, tid: Tid) -> bool {
        matches!(self.node.task(tid).state, TaskState::Blocked(_))
    }

    /// Another process, a child of the first.
    pub(crate) fn fork(&mut self) -> Tid {
        Tid(self.call(nr::fork, &[]).expect("fork") as u32)
    }

    /// A free piece of a process's memory.
    pub(crate) fn room(&mut self, len: usize) -> u64 {
        let at = self.next;
        self.next += (len as u64).next_multiple_of(16);
        assert!(self.next <= SCRATCH_SIZE, "no scratch left");
        SCRATCH + at
    }

    /// Puts bytes into a process's memory.
    pub(crate) fn put_as(&mut self, tid: Tid, bytes: &[u8]) -> u64 {
        let at = self.room(bytes.len());
        let outside = &mut Outside::new(&mut self.base, &mut self.decisions);
        self.node.put(tid, at, bytes, outside).expect("scratch memory");
        at
    }

    /// A C string in the first process's memory.
    pub(crate) fn text(&mut self, text: &str) -> u64 {
        self.put_as(self.tid, &[text.as_bytes(), b"\0"].concat())
    }

    /// Reads a process's memory.
    pub(crate) fn get_as(&mut self, tid: Tid, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let outside = &mut Outside::new(&mut self.base, &mut self.decisions);
        self.node.get(tid, at, &mut out, outside).expect("scratch memory");
        out
    }

    pub(crate) fn open(&mut self, path: &str, flags: u64) -> Result<u64, Errno> {
        self.open_as(self.tid, path, flags)
    }

    pub(crate) fn open_as(&mut self, tid: Tid, path: &str, flags: u64) -> Result<u64, Errno> {
        let path = self.put_as(tid, &[path.as_bytes(), b"\0"].concat());
        self.call_as(tid, nr::open, &[path, flags, 0o644])
    }

    /// A call with a path as first argument.
    pub(crate) fn with_path(&mut self, nr: u64, path: &str, rest: &[u64]) -> Result<u64, Errno> {
        let path = self.text(path);
        self.call(nr, &[&[path][..], rest].concat())
    }

    /// Everything that can be read from a descriptor.
    pub(crate) fn read_all(&mut self, fd: u64) -> Result<Vec<u8>, Errno> {
        let keep = self.next;
        let at = self.room(65536);
        let mut out = Vec::new();
        loop {
            let n = self.call(nr::read, &[fd, at, 65536])? as usize;
            if n == 0 {
                self.next = keep;
                return Ok(out);
            }
            out.extend(self.get_as(self.tid, at, n));
        }
    }

    /// The content of a file.
    pub(crate) fn content(&mut self, path: &str) -> Result<String, Errno> {
        let fd = self.open(path, c::O_RDONLY)?;
        let bytes = self.read_all(fd)?;
        self.call(nr::close, &[fd])?;
        Ok(String::from_utf8(bytes).expect("text"))
    }

    pub(crate) fn write(&mut self, fd: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let at = self.put_as(self.tid, bytes);
        self.call(nr::write, &[fd, at, bytes.len() as u64])
    }

    pub(crate) fn readlink(&mut self, path: &str) -> Result<String, Errno> {
        let at = self.room(4096);
        let n = self.with_path(nr::readlink, path, &[at, 4096])? as usize;
        Ok(String::from_utf8(self.get_as(self.tid, at, n)).expect("text"))
    }

    /// A structure that a call has stored.
    pub(crate) fn object<T: zerocopy::FromBytes>(&mut self, tid: Tid, at: u64) -> T {
        let bytes = self.get_as(tid, at, size_of::<T>());
        T::read_from_bytes(&bytes).expect("size")
    }
}

fn value(outcome: Outcome) -> Result<u64, Errno> {
    match outcome {
        Outcome::Done(value) if (value as i64) < 0 && (value as i64) > -4096 => {
            Err(Errno((-(value as i64)) as u16))
        }
        Outcome::Done(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}
