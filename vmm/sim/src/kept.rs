//! Files of services that somebody outside of the simulation wants, as coverage that a service writes: they are kept when a container
//! is started anew, which makes its tmpfs mounts empty and lets the next life write over them, and read at the end of a run.
//!
//! Key type: [`Kept`]. Which files are meant stands in [`crate::scenario::Runtime::keep`]; it is part of the scenario, so a run is the
//! same whoever looks. [`Machine::stop_all`] ends services after a run, so that they can write what they write at their end.
//! Neighbours: [`crate::services`] starts containers anew and stops them.

use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;

use crate::machine::Machine;
use crate::queue::Due;
use crate::services::State;
use crate::world::World;

/// The largest file that is kept, and all files of a run together, in bytes.
const LARGEST: u64 = 64 << 20;
const MOST: u64 = 512 << 20;
/// How long commands of `pre_stop` may take at the end of a run, ns.
const PRE_STOP: u64 = 30_000_000_000;

/// A file.
#[derive(Clone, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is.
    pub service: NodeId,
    /// Its path in the service.
    pub path: Vec<u8>,
    /// How many bytes it has.
    pub size: u64,
    /// What is in it; `None`: it is too large to be kept.
    pub bytes: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for Kept {
    /// Without the content, which may be long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        f.debug_struct("Kept")
            .field("service", &self.service)
            .field("path", &path)
            .field("size", &self.size)
            .finish()
    }
}

impl World {
    /// Whether no service runs any more, or a time is over: what [`Machine::stop_all`] is run to.
    pub fn has_stopped(&self, limit: SimTime) -> bool {
        let runs = |state| matches!(state, State::Running(_) | State::Stopping(_));
        self.now >= limit || !self.services.values().any(|service| runs(service.state))
    }
}

impl Machine {
    /// The files of a service that are to be kept, as they are now. Looking changes nothing.
    pub fn files_to_keep(&mut self, id: NodeId) -> Vec<Kept> {
        let Some(spec) = self.spec(id).filter(|spec| !spec.runtime.keep.is_empty()) else {
            return Vec::new();
        };
        let room = self.world.room(id);
        let node = &self.world.nodes[&room.machine];
        // Finding and reading files loads what was not read before: not in the world.
        let mut vfs = node.vfs.clone();
        vfs.enter_namespace(node.container(room.container).mounts);
        let base = &mut *self.base;
        let mut left = MOST.saturating_sub(self.world.kept.iter().map(|kept| kept.size).sum());
        let mut all: Vec<Kept> = Vec::new();
        let patterns = spec.runtime.keep.iter();
        let found: Vec<(Vec<u8>, u64)> = patterns.flat_map(|pattern| vfs.find_files(base, pattern)).collect();
        for (path, size) in found {
            if all.iter().any(|kept| kept.path == path) {
                continue;
            }
            let fits = size <= LARGEST.min(left);
            left -= if fits { size } else { 0 };
            let bytes = fits.then(|| vfs.get_file(base, &path).ok()).flatten().map(Arc::from);
            all.push(Kept { service: id, path, size, bytes });
        }
        all
    }

    /// The content of a file as a service sees it now. Looking changes nothing.
    pub fn file_of(&mut self, id: NodeId, path: &[u8]) -> Option<Vec<u8>> {
        let room = *self.world.rooms.get(&id)?;
        let node = &self.world.nodes[&room.machine];
        let mut vfs = node.vfs.clone();
        vfs.enter_namespace(node.container(room.container).mounts);
        let plain = |byte: &u8| *byte != b'*' && *byte != b'%';
        let size = match path.iter().all(plain) {
            true => vfs.find_files(&mut *self.base, path).first().map(|(_, size)| *size)?,
            false => return None,
        };
        (size <= LARGEST).then(|| vfs.get_file(&mut *self.base, path).ok()).flatten()
    }

    /// A container is about to be started anew.
    pub(crate) fn keep_files(&mut self, id: NodeId) {
        let mut files = self.files_to_keep(id);
        if !files.is_empty() {
            files.iter_mut().filter(|kept| kept.bytes.is_none()).for_each(|kept| kept.size = 0);
            Arc::make_mut(&mut self.world.kept).extend(files);
        }
    }

    /// Asks all services to end after a run, as `docker compose stop` does, but all at once. The machine is then to be run until
    /// [`World::has_stopped`] with the time that this gives.
    pub fn stop_all(&mut self) -> SimTime {
        // Nothing else begins any more; packets still arrive, and whoever was given time to end keeps it.
        self.world.queue.remove_if(|due| {
            !matches!(
                due,
                Due::Deliver(..) | Due::HealthTimeout(..) | Due::StopTimeout(..) | Due::CheckTimeout(..)
            )
        });
        for id in std::mem::take(&mut self.world.paused).into_keys() {
            self.world.catch_up(id);
        }
        let scenario = self.scenario.clone();
        let mut grace = 0;
        for spec in &scenario.services {
            let Some(service) = self.world.services.get_mut(&spec.node) else { continue };
            service.stays = true;
            let state = service.state;
            // What it is of now, if an upgrade has changed it.
            let spec = scenario.definition(spec.node, service.version).unwrap_or(spec);
            if matches!(state, State::Running(_) | State::Stopping(_)) {
                let hooks = if spec.hooks.pre_stop.is_empty() { 0 } else { PRE_STOP };
                grace = grace.max(spec.runtime.stop_grace.saturating_add(hooks));
            }
            if let State::Running(pid) = state {
                self.stop_service(spec.node, pid);
            }
        }
        // A moment more, in which those that were killed at the end of their grace period end.
        self.world.now.after(grace.saturating_add(1_000_000_000))
    }
}
