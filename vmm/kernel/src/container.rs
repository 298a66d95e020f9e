//! A container of a machine: what its processes see and share that others do not, as Linux's namespaces divide it.
//!
//! Key types: [`Container`], [`Settings`] (what an engine sets for its processes), [`ContainerId`] (names one within its machine), [`ContainerConfig`]. A [`Node`] is the machine: one
//! clock, one processor, one page cache. A service is a container: mounts, process numbers, host name, network stack, System V
//! objects, each its own or another container's (`network_mode: service:x` and its kin). It starts, ends and starts anew by
//! itself. Neighbours: [`crate::node`], `bloodhound-sim`'s supervision of services.

mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::consts as c;
use bloodhound_net::{NodeId, Stack};
use bloodhound_vfs::{BaseFs, Fill, MountNs, RootSpec};

use crate::ctx::Outside;
use crate::hazards::Hazards;
use crate::ids::*;
use crate::node::Node;
use crate::process::ExitStatus;
use crate::stacks::NetNs;
use crate::stdin::Stdin;

pub use settings::Settings;

/// A container of a machine, by number: 0 is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub u32);

/// An IPC namespace (ipc_namespaces(7)), by the number of the container that it was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpcNs(pub u32);

/// Whose network a container uses.
#[derive(Clone, Debug)]
pub enum Network {
    /// Its own stack.
    Own(Box<Stack>),
    /// The stack of an earlier container of the machine.
    Of(ContainerId),
}

/// What a container is made from.
#[derive(Clone, Debug)]
pub struct ContainerConfig {
    /// Its name over the world: the service's place in the network and in the names of choices.
    pub id: NodeId,
    /// uname(2)'s nodename.
    pub hostname: String,
    /// Its mount namespace, made before.
    pub mounts: MountNs,
    /// Its network.
    pub net: Network,
    /// The earlier container whose processes it sees, if not only its own.
    pub pids: Option<ContainerId>,
    /// The earlier container whose System V objects it uses, if not only its own.
    pub ipc: Option<ContainerId>,
    /// What an engine sets for its processes.
    pub settings: Settings,
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name over the world.
    pub id: NodeId,
    /// uname(2)'s nodename.
    pub hostname: String,
    /// What it sees of the file systems.
    pub mounts: MountNs,
    /// In which namespace its processes have their numbers.
    pub pids: PidNs,
    /// Its network.
    pub net: NetNs,
    /// Its System V objects.
    pub ipc: IpcNs,
    /// What an engine sets for its processes.
    pub settings: Arc<Settings>,
    /// Parameters of the kernel, its names among them, that its processes gave another value: by path below /proc/sys.
    pub written: BTreeMap<String, String>,
    /// How often it was made anew: the life that its choices are named by.
    pub life: u32,
    /// Root processes (commands, health checks) of this life.
    pub roots: u32,
    /// Standard input of its root processes.
    pub stdin: Stdin,
    /// How often operations of its programs meet faults.
    pub hazards: Hazards,
}

impl Container {
    /// What uname(2) shows as the name of the machine.
    pub(crate) fn shown_name(&self) -> &str {
        self.written.get("kernel/hostname").unwrap_or(&self.hostname)
    }

    /// The value of a parameter of the kernel, if it is another one than that of an untouched Linux.
    pub(crate) fn parameter(&self, path: &str) -> Option<&str> {
        self.written.get(path).or_else(|| self.settings.sysctls.get(path)).map(String::as_str)
    }

    /// The same as a number.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.parameter(path)?.trim().parse().ok()
    }
}

impl Node {
    /// Adds a container without processes.
    ///
    /// # Panics
    /// If it shares with a container that does not exist.
    pub fn add_container(&mut self, config: ContainerConfig) -> ContainerId {
        let id = ContainerId(self.containers.len() as u32);
        let ContainerConfig { id: name, hostname, mounts, net, pids, ipc, settings } = config;
        let net = match net {
            Network::Own(stack) => self.net.add(*stack),
            Network::Of(other) => self.container(other).net,
        };
        let pids = match pids {
            Some(other) => self.container(other).pids,
            None => {
                let ns = PidNs(self.next_numbers.len() as u32);
                self.next_numbers.push(1);
                ns
            }
        };
        let ipc = ipc.map_or(IpcNs(id.0), |other| self.container(other).ipc);
        let stdin = Stdin::default();
        self.containers.push(Container {
            id: name,
            hostname,
            mounts,
            pids,
            net,
            ipc,
            settings: Arc::new(settings),
            written: BTreeMap::new(),
            life: 0,
            roots: 0,
            stdin,
            hazards: Hazards::default(),
        });
        id
    }

    /// The container; it must exist.
    pub fn container(&self, id: ContainerId) -> &Container {
        &self.containers[id.0 as usize]
    }

    /// The container; it must exist.
    pub fn container_mut(&mut self, id: ContainerId) -> &mut Container {
        &mut self.containers[id.0 as usize]
    }

    /// The container of a process; the process must exist.
    pub fn container_of(&self, pid: Pid) -> &Container {
        // Most machines have one.
        match self.containers.as_slice() {
            [only] => only,
            _ => self.container(self.process(pid).container),
        }
    }

    /// The container of a process that may be gone: then the one that its numbers were made for.
    pub fn container_of_any(&self, pid: Pid) -> &Container {
        match self.processes.get(&pid) {
            _ if self.containers.len() == 1 => &self.containers[0],
            Some(process) => self.container(process.container),
            None => self.containers.iter().find(|c| c.pids == pid.ns()).unwrap_or(&self.containers[0]),
        }
    }

    /// Whether a program of one of the containers waits for standard input.
    pub fn wants_stdin(&self) -> bool {
        self.containers.iter().any(|container| container.stdin.wanted.is_some())
    }

    /// A fresh process or task number of a namespace. After the largest one they begin anew, without those that are in use (alloc_pid
    /// of Linux).
    pub(crate) fn new_number(&mut self, ns: PidNs) -> u32 {
        let most =
            self.containers.iter().filter(|own| own.pids == ns).find_map(|own| own.number("kernel/pid_max"));
        // A process, dead or alive, has the numbers of a group and a session in use beside its own. Where those could be all that there
        // are, greater ones are given, so that there is always one.
        let used = self.tasks.len() + 3 * self.processes.len();
        let roomy = |last: &u64| last.saturating_sub(PidNs::AGAIN.into()) > used as u64;
        let last = most.and_then(|most| most.checked_sub(1)).filter(roomy);
        let last = last.map_or(PidNs::LAST, |last| last.min(PidNs::LAST.into()) as u32);
        loop {
            let next = &mut self.next_numbers[ns.0 as usize];
            let number = if *next > last { PidNs::AGAIN } else { *next };
            *next = number + 1;
            let pid = ns.pid(number);
            if !self.number_is_used(pid) {
                return pid.0;
            }
        }
    }

    /// Whether a number is that of a process, a task, a process group or a session.
    fn number_is_used(&self, pid: Pid) -> bool {
        self.tasks.contains_key(&Tid(pid.0))
            || self.processes.contains_key(&pid)
            || self.processes.values().any(|process| process.pgid == pid || process.sid == pid)
    }

    /// The last number that a namespace has given to a process or task.
    pub fn last_number(&self, ns: PidNs) -> u32 {
        self.next_numbers[ns.0 as usize] - 1
    }

    /// Whether the end of a container is the end of a process: its own do not survive it, nor does anybody in its namespace of
    /// processes. "If the "init" process of a PID namespace terminates, the kernel terminates all of the processes in the
    /// namespace via a SIGKILL signal" (pid_namespaces(7)); a container runtime kills those of a container that has joined
    /// another's namespace.
    fn ends_with(&self, id: ContainerId, pid: Pid) -> bool {
        let owns = !self.containers[..id.0 as usize].iter().any(|c| c.pids == self.container(id).pids);
        self.process(pid).container == id || owns && pid.ns() == self.container(id).pids
    }

    /// Kills every process of a container at once, as its end does, and forgets the dead.
    pub fn kill_container(&mut self, id: ContainerId, outside: &mut Outside<'_>) {
        let status = ExitStatus::Signal { signo: c::SIGKILL as u32, core: false };
        let pids: Vec<Pid> = self.processes.keys().copied().filter(|pid| self.ends_with(id, *pid)).collect();
        for pid in &pids {
            let first = self.processes.get(pid).and_then(|p| p.threads.first().copied());
            if let Some(tid) = first {
                self.exit_group(tid, status, outside);
            }
        }
        for pid in pids {
            self.forget_process(pid);
        }
        self.drain_net();
        self.weigh_objects(id);
    }

    /// Whether another container than this one has processes in its network namespace.
    pub fn shares_network(&self, id: ContainerId) -> bool {
        let net = self.container(id).net;
        let lives = |other: ContainerId| self.processes.values().any(|p| p.container == other);
        (0..self.containers.len() as u32)
            .map(ContainerId)
            .any(|other| other != id && self.container(other).net == net && lives(other))
    }

    /// Makes a container anew whose processes are gone: `stack` takes the place of its network stack, unless others use that; its
    /// System V objects and what lies in its tmpfs mounts go away unless others use them; its next process is the first of its
    /// namespace, if that is its own and empty.
    ///
    /// # Errors
    /// What the base layer reports.
    pub fn renew_container(
        &mut self,
        id: ContainerId,
        stack: Stack,
        base: &mut dyn BaseFs,
    ) -> Result<(), bloodhound_abi::Errno> {
        let Container { pids, net, ipc, mounts, .. } = *self.container(id);
        if !self.shares_network(id) {
            self.net.replace(net, stack);
        }
        if !self.processes.keys().any(|pid| pid.ns() == pids) {
            self.next_numbers[pids.0 as usize] = 1;
        }
        if !self.processes.values().any(|p| self.container(p.container).ipc == ipc) {
            self.remove_ipc(ipc);
        }
        self.unix.close_log(id);
        let container = self.container_mut(id);
        (container.life, container.roots) = (container.life + 1, 0);
        container.written.clear();
        self.vfs.enter_namespace(mounts);
        // An engine makes the container, and waits until it can.
        let alone = self.containers.len() == 1;
        self.vfs.without_trouble(|vfs| if alone { vfs.restart(base) } else { vfs.restart_namespace(base) })
    }

    /// [`Node::renew_container`], of a container that is made of something else now: another root file system, what `fill` puts there, and other settings. File
    /// systems that several mounts can show stay ([`Vfs::make_anew`]).
    ///
    /// # Errors
    /// What the base layer reports, and `fill`.
    pub fn remake_container(
        &mut self,
        id: ContainerId,
        (stack, settings): (Stack, Settings),
        base: &mut dyn BaseFs,
        (root, fill): (RootSpec, Fill<'_>),
    ) -> Result<(), bloodhound_abi::Errno> {
        self.renew_container(id, stack, base)?;
        let container = self.container_mut(id);
        container.settings = Arc::new(settings);
        let mounts = container.mounts;
        self.vfs.enter_namespace(mounts);
        self.vfs.make_anew(root, base, fill)
    }
}

#[cfg(test)]
mod tests;
