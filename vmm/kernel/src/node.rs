//! One simulated machine: a clock and a processor, with the processes, memory, files and network stacks of its containers.
//! A plain value; everything a system call can change is in here. Neighbours: [`crate::container`], [`crate::ctx`] (a system call's view),
//! [`crate::dispatch`] (traps), `bloodhound-sim` (time, network, scheduling over all nodes).

mod compare;
mod power;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::consts::RLIMIT_CPU;
use bloodhound_abi::structs::Sigaction;
use bloodhound_frames::Frame;
use bloodhound_net::NodeId;
use bloodhound_persistent::{Map, Set, Table};
use bloodhound_vfs::Vfs;

use crate::container::{Container, ContainerId, IpcNs};
use crate::disk::Broken;
use crate::epoll::Epoll;
use crate::eventfd::EventFd;
use crate::file::{Console, File, Unnamed};
use crate::hazards::Injected;
use crate::ids::*;
use crate::ipc::SysV;
use crate::ipc::mqueue::MqQueues;
use crate::mm::Mm;
use crate::node_clock::NodeClock;
use crate::pipe::{Pipe, PipePages};
use crate::process::{CpuTime, ExitStatus, FdTable, Process};
use crate::shared::{FsPlace, Shared};
use crate::signal::SignalFd;
use crate::stacks::{NetNs, Stacks};
use crate::sys::PiLock;
use crate::task::Task;
use crate::timer::{CpuClock, TimerFd, TimerKey};
use crate::wait::{FutexKey, WaitOn};

pub use power::Reboot;

/// Virtual-time prices, nanoseconds. User computation is free; see design.md section 4 for why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Every system call.
    pub syscall: u64,
    /// Each further KiB moved by read, write, send and their kind.
    pub kib: u64,
    /// A clock read, through the vDSO or by rdtsc.
    pub time_read: u64,
    /// fsync and its kind.
    pub fsync: u64,
    /// execve and fork.
    pub process: u64,
    /// A page of memory that is touched first, or copied after a fork; the next call pays. A fork pays an eighth of it for each page
    /// that the process has, whose entry of the page table is copied.
    pub page: u64,
}

impl Costs {
    /// All prices times `factor / whole`. One that is not nothing stays at least 1 ns.
    #[must_use]
    pub fn scaled(self, factor: u64, whole: u64) -> Costs {
        let scale = |ns: u64| {
            let scaled = u128::from(ns) * u128::from(factor) / u128::from(whole);
            u64::try_from(scaled).unwrap_or(u64::MAX).max(ns.min(1))
        };
        Costs {
            syscall: scale(self.syscall),
            kib: scale(self.kib),
            time_read: scale(self.time_read),
            fsync: scale(self.fsync),
            process: scale(self.process),
            page: scale(self.page),
        }
    }
}

impl Default for Costs {
    fn default() -> Self {
        Costs { syscall: 1_000, kib: 100, time_read: 50, fsync: 500_000, process: 100_000, page: 250 }
    }
}

/// A machine of the world, by the number of its first container ([`Container::id`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

/// How long a machine has been up at virtual time 0, ns. The machines on which services are started have been up for a while: programs
/// that take a time of 0 for "never", or subtract an interval from the present, would behave here as they do nowhere else. A round
/// number, so that times can be told from those of the run.
pub const UPTIME: u64 = 100_000 * 1_000_000_000;

/// What a node is at its start.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its number.
    pub id: MachineId,
    /// CLOCK_REALTIME at virtual time 0, ns since 1970.
    pub epoch_ns: u64,
    /// Memory that sysinfo(2) and /proc/meminfo show, bytes.
    pub memory: u64,
    /// Prices.
    pub costs: Costs,
    /// Offer the vDSO.
    pub vdso: bool,
}

/// A chunk of console output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleChunk {
    /// When.
    pub at: SimTime,
    /// Whose: the container's name.
    pub container: NodeId,
    /// Who.
    pub pid: Pid,
    /// Which stream.
    pub stream: Console,
    /// A health check wrote it, or a child of one.
    pub check: bool,
    /// What.
    pub bytes: Vec<u8>,
}

/// The end of a process, for the runner's checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// When.
    pub at: SimTime,
    /// Whose: the container's name.
    pub container: NodeId,
    /// Who.
    pub pid: Pid,
    /// Its name.
    pub comm: Vec<u8>,
    /// How.
    pub status: ExitStatus,
    /// Fault address, for memory faults.
    pub fault: Option<u64>,
}

/// An unnamed shared-memory object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shm {
    /// Pages that were touched.
    pub pages: BTreeMap<u64, Frame>,
    /// Size in bytes.
    pub size: u64,
    /// Mappings of it.
    pub refs: u32,
    /// The container that it is charged to.
    pub container: ContainerId,
    /// It is the memory of this segment ([`crate::ipc::segment`]).
    pub segment: Option<(IpcNs, i32)>,
}

impl Shm {
    /// Whether it has such a page. A mapping may reach beyond its end, by mremap(2) or an offset of /dev/zero: SIGBUS there.
    pub(crate) fn has(&self, index: u64) -> bool {
        index < self.size.div_ceil(crate::mm::PAGE)
    }
}

/// Time that tasks with policies of real time have used within one period of the node's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealTime {
    period: u64,
    used: u64,
}

impl RealTime {
    /// /proc/sys/kernel/sched_rt_period_us, ns.
    const PERIOD: u64 = 1_000_000_000;
    /// /proc/sys/kernel/sched_rt_runtime_us, ns: "The default value in this file is 950,000 (0.95 seconds); that is, 5% of the CPU time is
    /// reserved for processes that don't run under a real-time or deadline scheduling policy" (sched(7)).
    const RUNTIME: u64 = 950_000_000;

    fn add(&mut self, now: SimTime, ns: u64) {
        let period = now.0 / RealTime::PERIOD;
        let used = if period == self.period { self.used } else { 0 };
        *self = RealTime { period, used: used + ns };
    }

    /// Whether the rest of the period is reserved for others.
    pub fn is_used_up(&self, now: SimTime) -> bool {
        now.0 / RealTime::PERIOD == self.period && self.used >= RealTime::RUNTIME
    }
}

/// A simulated machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it was made with.
    pub config: NodeConfig,
    /// Virtual time on it; never behind an event it has seen.
    pub clock: SimTime,
    /// What its clocks show then.
    pub time: NodeClock,
    /// Its containers, by [`crate::container::ContainerId`].
    pub containers: Vec<Container>,
    /// All tasks.
    pub tasks: Table<Tid, Task>,
    /// All processes, zombies included.
    pub processes: Table<Pid, Process>,
    /// Address spaces.
    pub mms: Arena<MmId, Mm>,
    /// Open file descriptions.
    pub files: Arena<FileId, File>,
    /// Tables of descriptors.
    pub fd_tables: Arena<TableId, Shared<FdTable>>,
    /// Places in the file system.
    pub places: Arena<PlaceId, Shared<FsPlace>>,
    /// Signal actions.
    pub actions: Arena<ActionsId, Shared<Arc<Vec<Sigaction>>>>,
    /// The file system.
    pub vfs: Vfs,
    /// The network stacks.
    pub net: Stacks,
    /// Pipes.
    pub pipes: Arena<PipeId, Pipe>,
    /// What the pipes of each user take.
    pub pipe_pages: PipePages,
    /// What fchmod(2) and fchown(2) have changed of pipes and sockets that have no name, by inode number.
    pub unnamed: Map<u64, Unnamed>,
    /// Fifo buffers by inode.
    pub fifos: Map<bloodhound_vfs::Ino, PipeId>,
    /// eventfds.
    pub events: Arena<EventId, EventFd>,
    /// timerfds.
    pub timerfds: Arena<TimerFdId, TimerFd>,
    /// signalfds.
    pub signalfds: Arena<SignalFdId, SignalFd>,
    /// Pseudoterminals.
    pub ptys: Arena<PtyId, crate::tty::Pty>,
    /// Pseudoterminals by the inodes of their slaves.
    pub pts: Map<bloodhound_vfs::Ino, PtyId>,
    /// inotify instances.
    pub inotifies: Arena<InotifyId, crate::inotify::Inotify>,
    /// Listeners of filters of calls.
    pub listeners: Arena<ListenerId, crate::seccomp::listener::Listener>,
    /// epoll instances.
    pub epolls: Arena<EpollId, Epoll>,
    /// Which epoll instances watch an object: (instance, descriptor number, description).
    pub epoll_watch: Map<crate::wait::Object, Vec<crate::epoll::WatchKey>>,
    /// The kernel's part of TCP and UDP sockets.
    pub inet: crate::inet::InetSockets,
    /// Unix sockets.
    pub unix: crate::unix::UnixSockets,
    /// Netlink sockets.
    pub netlinks: crate::netlink::NetlinkSockets,
    /// Unnamed shared memory.
    pub shm: Arena<ShmId, Shm>,
    /// Who waits for what, first come first.
    pub waiters: Map<WaitOn, Vec<Tid>>,
    /// Who of them goes on first.
    pub lines: crate::line::Lines,
    /// Futex waiters, first come first.
    pub futexes: Map<FutexKey, VecDeque<Tid>>,
    /// Locks with an owner that tasks wait for (FUTEX_LOCK_PI).
    pub pi_locks: Map<FutexKey, PiLock>,
    /// Deadlines of sleeping tasks, in the machine's own time ([`crate::node_clock`]).
    pub sleepers: Set<(SimTime, Tid)>,
    /// Seals of memfd files (fcntl(2)).
    pub seals: crate::sys::Seals,
    /// Armed timers, in own time.
    pub timers: Set<(SimTime, TimerKey)>,
    /// Armed timers on CPU clocks.
    pub cpu_alarms: Map<CpuClock, Set<(SimTime, TimerKey)>>,
    /// Runnable tasks; the scheduler picks from it.
    pub run_queue: Vec<Tid>,
    /// How many watches were added to epoll instances.
    pub(crate) watches_added: u64,
    /// How often a thread was given a child, or a process came to a group ([`crate::process::Process::sibling`], `grouped`).
    pub births: u64,
    /// How often a task became runnable.
    pub woken: u64,
    /// A task got a policy of real time or a deadline, once: the scheduler must look at policies.
    pub urgent: bool,
    /// What such tasks have used of the processor in the present second.
    pub real_time: RealTime,
    /// Descriptions with O_ASYNC by what they refer to.
    pub fasync: Map<crate::wait::Object, Vec<FileId>>,
    /// File leases.
    pub leases: Map<bloodhound_vfs::Ino, Vec<crate::lease::Lease>>,
    /// Who is told of directories (F_NOTIFY).
    pub dnotify: Map<bloodhound_vfs::Ino, Vec<crate::dnotify::Dnotify>>,
    /// File locks (flock and POSIX record locks).
    pub locks: crate::locks::Locks,
    /// Output of the services.
    pub console: Vec<ConsoleChunk>,
    /// Ends of processes since the sim last took them.
    pub ends: Vec<ProcessEnd>,
    /// Faults that operations met since the sim last took them.
    pub injected: Vec<Injected>,
    /// What its disk owes to its programs.
    pub broken: Broken,
    /// Next process or task number of each [`PidNs`].
    pub next_numbers: Vec<u32>,
    /// Next address-space name; unique over a world because the node's number is part of it.
    pub next_space: u64,
    /// Deterministic ids for things like boot_id.
    pub boot_id: [u64; 2],
    /// The page shared by all vDSOs of the node; see [`crate::vdso`].
    pub vvar: Option<Frame>,
    /// Looks at the clock since another call was made; see [`Node::look_price`].
    pub looks: u64,
    /// The vDSO's image.
    pub vdso: Arc<Vec<Frame>>,
    /// Address spaces that map an inode, so that writes reach their platform mappings.
    pub mapped: Map<bloodhound_vfs::Ino, Map<MmId, u32>>,
    /// Address spaces that are gone, for the platform to drop; see [`Mm::space`].
    pub dead_spaces: Vec<u64>,
    /// Open file descriptions that mappings held which the call or the process that ends now has unmapped ([`Node::put_files`]); empty
    /// between calls.
    pub(crate) unmapped: Vec<FileId>,
    /// The task that just ran asked for another one to go first (sched_yield).
    pub yielded: bool,
    /// What its containers are charged for.
    pub memory: crate::memory::Memory,
    /// POSIX message queues.
    pub mqueues: MqQueues,
    /// System V objects.
    pub sysv: SysV,
}

impl Node {
    /// A node without containers. The first mount namespace of `vfs` is that of the first one.
    pub fn new(config: NodeConfig, vfs: Vfs, boot_id: [u64; 2]) -> Node {
        let space = (u64::from(config.id.0) << 32) + 1;
        Node {
            time: NodeClock::new(config.epoch_ns),
            config,
            clock: SimTime::ZERO,
            containers: Vec::new(),
            tasks: Table::new(),
            processes: Table::new(),
            mms: Arena::weighed(),
            files: Arena::weighed(),
            fd_tables: Arena::weighed(),
            places: Arena::weighed(),
            actions: Arena::starting_at(1),
            vfs,
            net: Stacks::default(),
            pipes: Arena::weighed(),
            pipe_pages: PipePages::default(),
            unnamed: Map::new(),
            fifos: Map::new(),
            events: Arena::weighed(),
            timerfds: Arena::weighed(),
            signalfds: Arena::weighed(),
            ptys: Arena::weighed(),
            pts: Map::new(),
            inotifies: Arena::weighed(),
            listeners: Arena::weighed(),
            epolls: Arena::weighed(),
            epoll_watch: Map::new(),
            inet: Default::default(),
            unix: Default::default(),
            netlinks: Arena::weighed(),
            shm: Arena::starting_at(1),
            waiters: Map::new(),
            lines: Default::default(),
            futexes: Map::new(),
            pi_locks: Map::new(),
            sleepers: Set::new(),
            seals: Default::default(),
            timers: Set::new(),
            cpu_alarms: Map::new(),
            run_queue: Vec::new(),
            births: 0,
            watches_added: 0,
            urgent: false,
            real_time: RealTime::default(),
            woken: 0,
            fasync: Map::new(),
            leases: Map::new(),
            dnotify: Map::new(),
            locks: Default::default(),
            console: Vec::new(),
            ends: Vec::new(),
            injected: Vec::new(),
            broken: Broken::default(),
            next_numbers: Vec::new(),
            next_space: space,
            boot_id,
            vvar: None,
            looks: 0,
            vdso: Default::default(),
            mapped: Map::new(),
            dead_spaces: Vec::new(),
            unmapped: Vec::new(),
            yielded: false,
            memory: Default::default(),
            mqueues: MqQueues::default(),
            sysv: SysV::default(),
        }
    }

    /// kernel.threads-max: as many tasks as take an eighth of the memory for what the kernel keeps of each (`set_max_threads` of
    /// Linux).
    pub fn threads_max(&self) -> u64 {
        const KEPT: u64 = 16 << 10;
        self.config.memory / 8 / KEPT
    }

    /// The task; it must exist.
    pub fn task(&self, tid: Tid) -> &Task {
        &self.tasks[&tid]
    }

    /// The task; it must exist.
    pub fn task_mut(&mut self, tid: Tid) -> &mut Task {
        self.tasks.get_mut(&tid).unwrap_or_else(|| panic!("no task {tid:?}"))
    }

    /// The process; it must exist.
    pub fn process(&self, pid: Pid) -> &Process {
        &self.processes[&pid]
    }

    /// The process; it must exist.
    pub fn process_mut(&mut self, pid: Pid) -> &mut Process {
        self.processes.get_mut(&pid).unwrap_or_else(|| panic!("no process {pid:?}"))
    }

    /// The process that a number names in a namespace, as a thread's or its own: what Linux's find_task_by_vpid leads to.
    pub fn process_of(&self, ns: PidNs, number: i32) -> Option<Pid> {
        let pid = ns.pid(u32::try_from(number).ok()?);
        let own = || self.processes.contains_key(&pid).then_some(pid);
        self.tasks.get(&Tid(pid.0)).map(|t| t.pid).or_else(own)
    }

    /// Puts a task at the end of the run queue, once.
    pub fn enqueue(&mut self, tid: Tid) {
        if !self.run_queue.contains(&tid) {
            self.run_queue.push(tid);
            self.woken += 1;
        }
    }

    /// A fresh name for an address space.
    pub fn new_space(&mut self) -> u64 {
        self.next_space += 1;
        self.next_space
    }

    /// Earliest time at which the node must act by itself: timers, sleeping tasks, TCP.
    pub fn next_deadline(&self) -> Option<SimTime> {
        let timers = self.timers.first().map(|t| t.0);
        let sleepers = self.sleepers.first().map(|t| t.0);
        let own = [timers, sleepers].into_iter().flatten().min().map(|own| self.time.reaches(own));
        [own, self.net.next_deadline()].into_iter().flatten().min()
    }

    /// Fires what is due at the node's clock.
    pub fn on_time(&mut self) {
        let (now, own) = (self.clock, self.own_time());
        while let Some(&(at, key)) = self.timers.first()
            && at <= own
        {
            self.timers.remove(&(at, key));
            self.fire_timer(key, at);
        }
        while let Some(&(at, tid)) = self.sleepers.first()
            && at <= own
        {
            self.sleepers.remove(&(at, tid));
            self.wake(tid, true);
        }
        for (_, stack) in self.net.iter_mut() {
            if stack.next_deadline().is_some_and(|d| d <= now) {
                stack.on_time(now);
            }
        }
        self.drain_net();
        self.weigh_objects(ContainerId(0));
    }

    /// A packet for one of the network stacks.
    pub fn receive(&mut self, ns: NetNs, packet: bloodhound_net::Packet) {
        self.net.stack_mut(ns).input(packet, self.clock);
        self.drain_net();
        self.weigh_objects(ContainerId(0));
    }

    /// Turns the network stacks' readiness changes into wake-ups.
    pub fn drain_net(&mut self) {
        for at in 0..self.net.len() as u32 {
            for (id, ready) in self.net.stack_mut(NetNs(at)).take_events() {
                self.notify_object(crate::wait::Object::Inet(id), crate::inet::wake_bits(ready));
            }
            let tells = self.net.stack_mut(NetNs(at)).take_tells();
            if !self.fasync.is_empty() {
                tells.into_iter().for_each(|(id, what)| self.inet_async(id, what));
            }
            for id in self.net.stack_mut(NetNs(at)).take_urgent() {
                self.send_sigurg(crate::wait::Object::Inet(id));
            }
        }
    }

    /// Charges `ns` of virtual time to the node and the task's process, for a call.
    pub fn charge(&mut self, tid: Tid, ns: u64) {
        self.charge_as(tid, CpuTime { total: ns, computed: 0 });
    }

    /// The same for what a task computed without a call: in a loop, or to read the clock.
    pub fn charge_computed(&mut self, tid: Tid, ns: u64) {
        self.charge_as(tid, CpuTime { total: ns, computed: ns });
    }

    fn charge_as(&mut self, tid: Tid, spent: CpuTime) {
        let ns = spent.total;
        self.clock = self.clock.after(ns);
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        task.cpu += spent;
        if self.urgent && task.urgency() > 0 {
            self.real_time.add(self.clock, ns);
        }
        let pid = task.pid;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.cpu += spent;
        let limited = process.cpu.total / 1_000_000_000 >= process.limits[RLIMIT_CPU as usize].cur;
        if process.cpu_timers != [None; 2] {
            self.fire_cpu_timers(pid);
        }
        if !self.cpu_alarms.is_empty() {
            self.fire_cpu_alarms(pid, tid);
        }
        if limited {
            self.cpu_limit_reached(pid);
        }
    }
}
