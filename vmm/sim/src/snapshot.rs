//! Snapshots: what only the platform holds comes back into the world, the world is cloned; and a world takes the place
//! of another, with all mappings kept that are the same in both.
//!
//! Neighbours: [`crate::machine`] (the loop), `bloodhound_kernel::mm::shown` (which pages are the same).

use std::collections::BTreeSet;

use bloodhound_kernel::ids::MmId;
use bloodhound_kernel::mm::Mm;
use bloodhound_kernel::mm::shown::Shown;
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_platform::{Mapping, Platform, SpaceId};

use crate::code_view::CodeView;
use crate::machine::{Machine, MachineError};
use crate::world::World;

/// Runs of pages that a forked space takes over from its parent, at most: a child that soon calls execve needs few.
const INHERITED: usize = 96;

impl Machine {
    /// Saves everything that only the platform holds into the world and write-protects its mappings, so that the world
    /// can be cloned.
    ///
    /// # Errors
    /// Host errors.
    pub fn detach(&mut self) -> Result<(), MachineError> {
        let ids: Vec<MachineId> = self.world.nodes.keys().copied().collect();
        for id in ids {
            self.fetch_all_vectors(id)?;
            for (_, mm) in self.world.nodes[&id].mms.iter() {
                self.platform.write_protect(SpaceId(mm.space));
            }
        }
        Ok(())
    }

    /// A clone of the world.
    ///
    /// # Errors
    /// Host errors.
    pub fn snapshot(&mut self) -> Result<World, MachineError> {
        self.detach()?;
        Ok(self.world.clone())
    }

    /// Replaces the world, which is returned. Spaces keep their host resources and those mappings which are right for the
    /// new world too.
    pub fn restore(&mut self, world: World) -> World {
        // The old world holds its frames until the end of the comparison: a frame's number means one content.
        let old = std::mem::replace(&mut self.world, world);
        self.hung = None;
        let (mut unused, mut kept) = (self.spaces.names(), BTreeSet::new());
        let mut mapped = Vec::new();
        for node in self.world.nodes.values() {
            for (_, mm) in node.mms.iter().filter(|(_, mm)| unused.remove(&mm.space)) {
                let space = SpaceId(mm.space);
                // Both worlds may be others' clones: nothing may be written in place.
                self.platform.write_protect(space);
                mapped.clear();
                self.platform.mapped(space, &mut mapped);
                for (addr, len) in differing(node, mm, &mapped, &self.code) {
                    self.platform.unmap(space, addr, len);
                }
                kept.insert(mm.space);
            }
        }
        for space in self.spaces.split(&kept) {
            self.code.forget(space);
            self.platform.drop_space(SpaceId(space));
        }
        old
    }

    /// Begins a forked space with what its parent shows, read-only: cheaper than a fault for each of its pages.
    pub(crate) fn inherit(&mut self, id: MachineId, space: SpaceId, mm: MmId) {
        let node = &self.world.nodes[&id];
        let mm = &node.mms[mm];
        let Some(parent) = mm.parent else { return };
        let mut mapped = std::mem::take(&mut self.scratch);
        mapped.clear();
        self.platform.mapped(SpaceId(parent), &mut mapped);
        // The stack, the libraries: what is high up is what every child needs.
        let few = mapped.len().saturating_sub(INHERITED);
        mapped.drain(..few);
        mapped.iter_mut().for_each(|m| m.prot.write = false);
        let stale = differing(node, mm, &mapped, &self.code);
        self.platform.map(space, &mapped);
        for (addr, len) in stale {
            self.platform.unmap(space, addr, len);
        }
        self.scratch = mapped;
    }
}

/// Ranges (address, bytes) of what a platform has mapped that are something else in `mm`.
fn differing(node: &Node, mm: &Mm, mapped: &[Mapping], code: &CodeView) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for m in mapped {
        let shown =
            Shown { addr: m.addr, pages: u64::from(m.pages), frame: m.frame_offset, exec: m.prot.exec };
        let stands_for = |page, shown| code.stands_for(page, shown);
        node.stale(mm, shown, stands_for, |addr, len| match out.last_mut() {
            Some((at, n)) if *at + *n == addr => *n += len,
            _ => out.push((addr, len)),
        });
    }
    out
}
