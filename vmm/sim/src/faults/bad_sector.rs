//! A bad sector: the disk of a machine cannot read a block of a file of a service any more, until all of it is written anew, or everything is healed. Which
//! file and which of its blocks is drawn; it is looked up when the sector goes bad ([`bloodhound_vfs::Vfs::block_to_lose`]).

use bloodhound_abi::SimTime;
use bloodhound_decisions::WORD;
use bloodhound_net::NodeId;
use bloodhound_vfs::{Ino, PAGE};

use super::disk_quota::place;
use super::{DiskPlace, Draw, Names, Room};
use crate::machine::Machine;
use crate::notice::{Notice, Target};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSector {
    /// Where. Of a volume that several machines have, it is the one of the service that stands for them.
    pub place: DiskPlace,
    /// Which file, modulo how many there are.
    pub file: u64,
    /// Which of its blocks, modulo how many it has.
    pub block: u64,
}

impl BadSector {
    fn hit(&self, machine: &Machine) -> Option<(Ino, u64)> {
        let (_, mounts) = place(machine, self.place.node);
        let node = machine.world.machine_of(self.place.node);
        let on = (mounts, self.place.volume());
        node.vfs.block_to_lose(on, &|ino| node.is_locked_in_memory(ino), (self.file, self.block))
    }
}

impl Room for BadSector {
    fn draw(draw: &mut Draw<'_>) -> Option<BadSector> {
        let place = DiskPlace::draw(draw)?;
        Some(BadSector { place, file: draw.choose("file", WORD), block: draw.choose("block", WORD) })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.place.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        self.hit(machine).is_none().then_some("it has written no file whose data is on the disk")
    }

    fn describe(&self, name: Names<'_>, _: u64) -> String {
        format!("a sector of {} goes bad (EIO, SIGBUS)", self.place.describe(name))
    }

    fn begin(&self, machine: &mut Machine, _: usize, _: SimTime) {
        let Some((ino, block)) = self.hit(machine) else { return };
        let (id, mounts) = place(machine, self.place.node);
        let node = machine.world.node_mut(id);
        node.vfs.enter_namespace(mounts);
        let path = node.vfs.path_of(node.vfs.root(), ino);
        node.vfs.go_bad(ino, block);
        node.drop_moved_pages();
        machine.note(Some(self.place.node), Notice::Target(Target::Block(path, block * PAGE)));
        machine.node_changed(id);
    }

    fn end(&self, _: &mut Machine, _: usize) -> bool {
        false
    }
}
