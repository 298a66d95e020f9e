//! Memory of containers: how much each has, and what happens when it has too much.
//!
//! Key types: [`Usage`] (what one container has), [`Memory`] (of a machine), [`Common`] (blocks that a fork has made common to several
//! address spaces), [`OomKill`]. Charged is what a program has touched, never what a platform happens to have mapped (design rule
//! 2), so two platforms, a restored world and one whose stubs were evicted agree:
//! - private pages, from the fault or the copy that made them on, in blocks of 16 pages;
//! - after fork(2) a block is charged once, until somebody writes there: whoever writes first is charged a copy of it;
//! - pages of shared memory, once, to the container that made the object;
//! - what lies in a tmpfs, to every container that mounts it;
//! - what the kernel keeps for its processes ([`objects`]).
//!
//! Clean pages of files are not: they could be dropped at any time. Neighbours: `mm::pages` (which blocks there are), `mm::fault`
//! (which makes them), `procfs` (what is shown of it), `bloodhound-sim`'s steps, after which [`Node::relieve`] is called.

mod objects;

use bloodhound_abi::SimTime;
use bloodhound_abi::consts as c;
use bloodhound_net::NodeId;

use crate::container::ContainerId;
use crate::ctx::Outside;
use crate::ids::*;
use crate::mm::{Backing, Mm, PAGE, Vma};
use crate::node::Node;
use crate::process::{ExitStatus, Process};

pub use objects::KernelUsage;
pub(crate) use objects::{PROCESS, TASK};

/// What a container has, in pages, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Private pages.
    pub anon: u64,
    /// Pages of shared memory that it has made.
    pub shmem: u64,
    /// What the kernel keeps for it.
    pub kernel: KernelUsage,
    /// The most that all of them and its tmpfs mounts had together.
    pub peak: u64,
    /// How often its limit was reached.
    pub reached: u64,
    /// How many of its processes were killed for that.
    pub kills: u64,
}

/// When the kernel's objects were weighed last is no difference, nor is what that has shown: the objects themselves are compared.
impl PartialEq for Usage {
    fn eq(&self, other: &Usage) -> bool {
        let Usage { anon, shmem, kernel: _, peak: _, reached, kills } = *self;
        (anon, shmem, reached, kills) == (other.anon, other.shmem, other.reached, other.kills)
    }
}

impl Eq for Usage {}

/// A block that several address spaces have in common, by its fork and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef {
    family: FamilyId,
    index: u32,
}

/// A common block: how many have it, and the pages that are charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    owners: u32,
    pages: u32,
}

/// The blocks that one fork has made common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Family {
    blocks: Vec<Block>,
    /// How many of them anybody has.
    live: u32,
}

/// A family while a fork puts it together.
pub struct NewFamily {
    id: FamilyId,
    blocks: Vec<Block>,
}

impl NewFamily {
    /// A block of `pages` pages, from now on that of parent and child.
    pub fn add(&mut self, pages: u64) -> BlockRef {
        self.blocks.push(Block { owners: 2, pages: pages as u32 });
        BlockRef { family: self.id, index: self.blocks.len() as u32 - 1 }
    }
}

/// Blocks that address spaces have in common since they were forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    families: Arena<FamilyId, Family>,
}

impl Default for Common {
    fn default() -> Common {
        Common { families: Arena::starting_at(1) }
    }
}

impl Common {
    /// Begins the family of a fork.
    pub fn begin(&mut self) -> NewFamily {
        NewFamily { id: self.families.insert(Family::default()), blocks: Vec::new() }
    }

    /// Its blocks are all there.
    pub fn end(&mut self, new: NewFamily) {
        let live = new.blocks.len() as u32;
        self.families[new.id] = Family { blocks: new.blocks, live };
    }

    /// One more address space has the block.
    pub fn one_more(&mut self, block: BlockRef) {
        self.families[block.family].blocks[block.index as usize].owners += 1;
    }

    /// One less has it. The pages that were charged for it, if that was the last one.
    fn one_less(&mut self, block: BlockRef) -> u64 {
        let family = &mut self.families[block.family];
        let Block { owners, pages } = &mut family.blocks[block.index as usize];
        *owners -= 1;
        if *owners > 0 {
            return 0;
        }
        let pages = u64::from(*pages);
        family.live -= 1;
        if family.live == 0 {
            self.families.remove(block.family);
        }
        pages
    }
}

/// A process was killed because there was no memory left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// When.
    pub at: SimTime,
    /// Its container's name.
    pub container: NodeId,
    /// Who.
    pub pid: Pid,
    /// Its name.
    pub comm: Vec<u8>,
    /// How many bytes it had.
    pub had: u64,
    /// How many all could have.
    pub limit: u64,
    /// The limit was that of its container, not the machine's memory.
    pub of_container: bool,
}

/// Memory of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What containers have, by number.
    pub usage: Vec<Usage>,
    /// Blocks that processes have in common.
    pub common: Common,
    /// Processes that were killed, since the simulation last took them.
    pub kills: Vec<OomKill>,
    /// Whose use has grown since it was last compared with its limit.
    grown: Vec<ContainerId>,
    /// Pages of all file systems in memory when that was done.
    tmpfs: u64,
    /// Pages that were made or copied since the last call, for which nobody has paid yet ([`Node::price_of_pages`]).
    made: u64,
}

/// Whose processes are looked at for one to kill, and how many bytes they may have together.
#[derive(Clone, Copy)]
struct Pressed {
    container: Option<ContainerId>,
    limit: u64,
    /// The limit is the container's.
    own: bool,
}

impl Memory {
    fn grow(&mut self, container: ContainerId) {
        if !self.grown.contains(&container) {
            self.grown.push(container);
        }
    }

    fn of(&mut self, container: ContainerId) -> &mut Usage {
        let at = container.0 as usize;
        if self.usage.len() <= at {
            self.usage.resize(at + 1, Usage::default());
        }
        &mut self.usage[at]
    }

    /// What a container has.
    pub fn usage(&self, container: ContainerId) -> Usage {
        self.usage.get(container.0 as usize).copied().unwrap_or_default()
    }

    /// `pages` pages of shared memory are there that a container has made.
    pub fn shared_grows(&mut self, container: ContainerId, pages: u64) {
        self.of(container).shmem += pages;
        self.made += pages;
        self.grow(container);
    }

    /// So many are gone.
    pub fn shared_shrinks(&mut self, container: ContainerId, pages: u64) {
        self.of(container).shmem -= pages;
    }
}

impl Node {
    /// Charges what has become of the private pages of an address space since this was called last.
    pub(crate) fn settle(&mut self, id: MmId) {
        let Some(mm) = self.mms.get(id) else { return };
        let own = mm.pages.own();
        if own == mm.charged && !mm.pages.has_left() {
            return;
        }
        let mm = &mut self.mms[id];
        mm.peak = mm.peak.max(mm.pages.len());
        let (before, container) = (std::mem::replace(&mut mm.charged, own), mm.container);
        let left = mm.pages.take_left();
        let gone: u64 = left.into_iter().map(|block| self.memory.common.one_less(block)).sum();
        self.memory.made += own.saturating_sub(before);
        let usage = self.memory.of(container);
        let anon = usage.anon;
        usage.anon = anon + own - before - gone;
        if usage.anon > anon {
            self.memory.grow(container);
        }
    }

    /// Virtual time for the pages that were made since this was asked last, in ns. The next call pays it: a fault itself changes no
    /// clock, and which pages a program makes between two calls is part of the world. Without a price, processes that do nothing
    /// but fork and write would do that without end before a moment of virtual time has passed.
    pub(crate) fn price_of_pages(&mut self) -> u64 {
        std::mem::take(&mut self.memory.made).saturating_mul(self.config.costs.page)
    }

    /// All pages that a container is charged for.
    pub fn memory_of(&self, id: ContainerId) -> u64 {
        let Usage { anon, shmem, kernel, .. } = self.memory.usage(id);
        anon + shmem + kernel.pages() + self.vfs.memory_pages(self.container(id).mounts)
    }

    /// All pages that the containers are charged for, without those that the kernel has for itself.
    pub(crate) fn memory_pages(&self) -> u64 {
        let private: u64 = self.memory.usage.iter().map(|usage| usage.anon + usage.shmem).sum();
        private + self.vfs.all_memory_pages()
    }

    /// Pages of shared memory that exist behind a mapping.
    pub(crate) fn shared_pages(&self, vma: &Vma) -> u64 {
        let Backing::Shm { id, offset } = vma.backing else { return 0 };
        let (first, count) = (offset / PAGE, (vma.end - vma.start) / PAGE);
        self.shm[id].pages.range(first..first + count).count() as u64
    }

    /// Pages of an address space that count when memory runs out: private ones, and those of shared memory.
    pub(crate) fn resident_pages(&self, mm: &Mm) -> u64 {
        mm.pages.len() + mm.vmas().map(|vma| self.shared_pages(vma)).sum::<u64>()
    }

    /// Pages of all file systems in memory, with what is kept there beside the files' bytes.
    fn tmpfs_pages(&self) -> u64 {
        self.vfs.all_memory_pages() + self.vfs.all_kept_pages()
    }

    /// Whether [`Node::relieve`] has something to look at.
    pub fn memory_has_grown(&self) -> bool {
        !self.memory.grown.is_empty() || self.tmpfs_pages() > self.memory.tmpfs
    }

    /// Compares what has grown with the limits, and kills processes until nobody has too much: "OOM killer is invoked" by a charge
    /// over memory.max in the cgroup (Documentation/admin-guide/cgroup-v2.rst), by an allocation on the machine. `current` is the
    /// task that runs; its process gets a signal only, as it is in the middle of something. Whether it got one.
    pub fn relieve(&mut self, current: Tid, outside: &mut Outside<'_>) -> bool {
        let maker = self.tasks.get(&current).map_or(ContainerId(0), |task| self.process(task.pid).container);
        let all = self.tmpfs_pages();
        let mut grown = std::mem::take(&mut self.memory.grown);
        if std::mem::replace(&mut self.memory.tmpfs, all) < all {
            grown = (0..self.containers.len() as u32).map(ContainerId).collect();
        }
        for id in &grown {
            let now = self.memory_of(*id);
            let usage = self.memory.of(*id);
            usage.peak = usage.peak.max(now);
        }
        while let Some(pressed) = self.pressed(&grown) {
            if let Some(id) = pressed.container {
                self.memory.of(id).reached += 1;
            }
            let Some(worst) = self.worst(pressed, |_| true) else { break };
            if self.oom_kill(worst, current, pressed, outside) {
                return true;
            }
            // What its descriptors had referred to is gone with it.
            self.weigh_objects(maker);
        }
        false
    }

    /// Whether a container is beyond its limit, or all are beyond the machine's.
    pub(crate) fn has_too_much(&self, container: ContainerId) -> bool {
        self.pressed(&[container]).is_some()
    }

    fn pressed(&self, grown: &[ContainerId]) -> Option<Pressed> {
        for id in grown {
            if let Some(limit) = self.container(*id).settings.memory
                && self.memory_of(*id) > limit / PAGE
            {
                return Some(Pressed { container: Some(*id), limit, own: true });
            }
        }
        let limit = self.config.memory;
        let kernel: u64 = self.memory.usage.iter().map(|usage| usage.kernel.pages()).sum();
        let kernel = kernel + self.vfs.all_kept_pages();
        (!grown.is_empty() && self.memory_pages() + kernel > limit / PAGE).then_some(Pressed {
            container: None,
            limit,
            own: false,
        })
    }

    /// What a container meets that has no memory left: its own limit, or else that of the machine.
    fn shortage(&self, container: ContainerId) -> Pressed {
        let own = self.container(container).settings.memory;
        let limit = own.unwrap_or(self.config.memory);
        Pressed { container: Some(container), limit, own: own.is_some() }
    }

    /// The process of a container that [`Node::kill_for_memory`] would kill now.
    pub fn oom_victim(&self, container: ContainerId) -> Option<Pid> {
        self.worst(self.shortage(container), Process::is_of_service)
    }

    /// Kills the process of a container that has most, as if the container had no memory left, between two steps: "max: The number of
    /// times the cgroup's memory usage was about to go over the max boundary", "oom_kill: The number of processes belonging to this
    /// cgroup killed by any kind of OOM killer" (memory.events in Documentation/admin-guide/cgroup-v2.rst). Checks are spared.
    pub fn kill_for_memory(&mut self, container: ContainerId, outside: &mut Outside<'_>) -> Option<Pid> {
        let pressed = self.shortage(container);
        let worst = self.worst(pressed, Process::is_of_service)?;
        self.memory.of(container).reached += u64::from(pressed.own);
        // No task runs between two steps.
        self.oom_kill(worst, Tid(0), pressed, outside);
        self.weigh_objects(container);
        Some(worst)
    }

    /// The process with the highest badness (`oom_badness` of Linux): its pages, moved by oom_score_adj, of which "a value of
    /// -1000 [...] is equivalent to disabling OOM killing" (proc(5)).
    fn worst(&self, pressed: Pressed, may_die: impl Fn(&Process) -> bool) -> Option<Pid> {
        let total = i128::from(pressed.limit / PAGE);
        let badness = |process: &Process| {
            let adjusted = i128::from(process.knobs.oom_score_adj);
            let pages = self.mms.get(process.mm).map_or(0, |mm| self.resident_pages(mm));
            i128::from(pages) + adjusted * total / 1000
        };
        let mut worst: Option<(i128, Pid)> = None;
        for process in self.processes.values() {
            let inside = pressed.container.is_none_or(|id| process.container == id);
            // Nor is the init of a machine ever chosen (oom_unkillable_task).
            let spared = process.zombie.is_some()
                || process.knobs.oom_score_adj == -1000
                || self.is_sleeping_init(process.pid);
            if !inside || spared || !may_die(process) {
                continue;
            }
            let points = badness(process);
            if worst.is_none_or(|(most, _)| points > most) {
                worst = Some((points, process.pid));
            }
        }
        worst.map(|(_, pid)| pid)
    }

    /// Kills a process, and all that use the same memory. Whether the one that runs is among them.
    fn oom_kill(&mut self, pid: Pid, current: Tid, pressed: Pressed, outside: &mut Outside<'_>) -> bool {
        let (mm, container) = (self.process(pid).mm, self.process(pid).container);
        let had = self.resident_pages(&self.mms[mm]) * PAGE;
        self.memory.of(container).kills += 1;
        self.memory.kills.push(OomKill {
            at: self.clock,
            container: self.container(container).id,
            pid,
            comm: self.comm_of(pid),
            had,
            limit: pressed.limit,
            of_container: pressed.own,
        });
        let running = self.tasks.get(&current).map(|task| task.pid);
        let uses = |p: &&Process| p.mm == mm && p.zombie.is_none();
        let users: Vec<Pid> = self.processes.values().filter(uses).map(|p| p.pid).collect();
        for user in &users {
            if Some(*user) == running {
                let info = crate::signal::user_info(c::SIGKILL as u32, c::SI_KERNEL as i32, Pid::NONE, 0);
                self.send_process(*user, info);
            } else if let Some(tid) = self.process(*user).threads.first().copied() {
                self.exit_group(tid, ExitStatus::Signal { signo: c::SIGKILL as u32, core: false }, outside);
            }
        }
        self.drain_net();
        running.is_some_and(|running| users.contains(&running))
    }
}

#[cfg(test)]
mod tests {
    use bloodhound_abi::consts as c;
    use bloodhound_abi::table::nr;

    use crate::ids::Pid;
    use crate::mm::{Access, PAGE};
    use crate::testing::Bench;

    /// What a call costs that comes after a store to each of so many pages from an address on.
    fn stores(b: &mut Bench, at: u64, pages: u64) -> u64 {
        let mm = b.node.process(Pid(1)).mm;
        for page in 0..pages {
            b.node.page_fault(mm, at + page * PAGE, Access::Write);
        }
        let before = b.node.clock;
        b.call(nr::getpid, &[]).unwrap();
        b.node.clock.since(before) - b.node.config.costs.syscall
    }

    #[test]
    fn pages_cost_time_once_and_after_a_fork_again() {
        const PAGES: u64 = 64;
        let mut b = Bench::new();
        let (prot, flags) = (c::PROT_READ | c::PROT_WRITE, c::MAP_PRIVATE | c::MAP_ANONYMOUS);
        let at = b.call(nr::mmap, &[0, PAGES * PAGE, prot, flags, u64::MAX, 0]).unwrap();
        let price = PAGES * b.node.config.costs.page;
        stores(&mut b, at, 0);
        assert_eq!(stores(&mut b, at, PAGES), price);
        assert_eq!(stores(&mut b, at, PAGES), 0, "they are there");
        let before = b.node.clock;
        b.fork();
        let costs = b.node.config.costs;
        let spent = b.node.clock.since(before);
        assert!(spent >= costs.process + price / 8, "{spent}");
        assert_eq!(stores(&mut b, at, PAGES), price, "they are copied");
    }
}
