//! A machine loses its power: everything that it has in memory is gone at once, and nobody is told.
//!
//! Neighbours: [`bloodhound_vfs::Vfs::power_fail`] (what its disk has then), [`crate::container`] (the end of one container, of which its
//! peers learn), `bloodhound-sim`'s supervision of services, which starts them again.

use bloodhound_abi::consts as c;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::Stack;
use bloodhound_vfs::{Aspect, BaseFs, PowerReport, Vfs};

use super::{Node, ProcessEnd};
use crate::ids::Pid;
use crate::node_clock::Leap;
use crate::process::ExitStatus;
use crate::timer::TimerKey;
use crate::watch::{Told, Watch, Whose};

/// What a machine begins with when it has power again.
#[derive(Debug)]
pub struct Reboot {
    /// A stack without sockets for each of its network namespaces, in order.
    pub stacks: Vec<Stack>,
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: [u64; 2],
}

impl Node {
    /// Processes, memory, connections and file systems in memory are gone, and no packet tells of it; files are as the disk has them.
    /// `choose(nth, aspect, n)` gives a number below `n` for the nth change that was not synced. The node may have run a little
    /// ahead of `now`: an fsync(2) that is over later than that is not over.
    ///
    /// # Errors
    /// What the base layer reports.
    pub fn lose_power(
        &mut self,
        reboot: Reboot,
        now: SimTime,
        base: &mut dyn BaseFs,
        choose: &mut dyn FnMut(u64, Aspect, u64) -> u64,
        watch: &mut dyn Watch,
    ) -> Result<PowerReport, Errno> {
        let at = self.clock;
        self.tell_ends(at, watch);
        let report = self.vfs.power_fail(base, now, self.time.own(now), choose)?;
        self.start_over(reboot, at);
        Ok(report)
    }

    /// The machine is lost with its disk, and another one with these file systems takes its place: with its names and addresses, a clock that
    /// is as right or wrong as that of the first one was, and nothing else.
    pub fn replace(&mut self, reboot: Reboot, file_systems: Vfs, watch: &mut dyn Watch) {
        let at = self.clock;
        self.tell_ends(at, watch);
        self.vfs = file_systems;
        self.broken.end_slowness();
        self.start_over(reboot, at);
    }

    /// What was in memory is gone.
    fn start_over(&mut self, reboot: Reboot, at: SimTime) {
        let mut after = Node::new(self.config.clone(), self.vfs.clone(), reboot.boot_id);
        // Its wall clock goes on, as a battery keeps it.
        (after.clock, after.time) = (at, self.time.clone());
        after.time.reboot(at);
        // A leap second that is announced comes all the same, as an NTP client announces it again.
        if let Leap::Ahead(end) = after.time.leap {
            after.rearm(TimerKey::Leap, None, Some(end));
        }
        // What is wrong with the disk itself stays so; what it owed to programs is owed to nobody any more.
        after.broken.stay_slow(&self.broken);
        after.containers = std::mem::take(&mut self.containers);
        for container in &mut after.containers {
            (container.life, container.roots) = (container.life + 1, 0);
            container.written.clear();
        }
        for stack in reboot.stacks {
            after.net.add(stack);
        }
        after.next_numbers = vec![1; self.next_numbers.len()];
        // The platform is to drop what it has of the address spaces, whose names are never used again.
        after.next_space = self.next_space;
        after.dead_spaces = std::mem::take(&mut self.dead_spaces);
        after.dead_spaces.extend(self.mms.iter().map(|(_, mm)| mm.space));
        // What was put out before.
        after.console = std::mem::take(&mut self.console);
        after.ends = std::mem::take(&mut self.ends);
        after.memory.kills = std::mem::take(&mut self.memory.kills);
        *self = after;
    }

    /// All processes end as if they were killed.
    fn tell_ends(&mut self, at: SimTime, watch: &mut dyn Watch) {
        let status = ExitStatus::Signal { signo: c::SIGKILL as u32, core: false };
        let living = self.processes.iter().filter(|(_, process)| !process.threads.is_empty());
        let living: Vec<Pid> = living.map(|(pid, _)| *pid).collect();
        for pid in living {
            let container = self.container_of(pid).id;
            for tid in &self.process(pid).threads {
                watch.tell(Whose { node: container, at, pid, tid: *tid }, &Told::Ended { status });
            }
            let comm = self.comm_of(pid);
            self.ends.push(ProcessEnd { at, container, pid, comm, status, fault: None });
        }
    }
}
