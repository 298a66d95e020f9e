//! Answers to page faults: what the platform maps then. Beside the page and its neighbours, this is what the program is expected to
//! touch next ([`Node::take_ahead`]); of large files only what some program touched before ([`UsedPages`]).
//!
//! Which pages a platform shows changes no run. All that this takes of the world is which ranges a program is expected to touch, which says
//! nothing to programs.
//!
//! Neighbours: [`crate::step`], which gets here by a trap; [`crate::code_view`], which puts other frames in the place of code.

use std::collections::BTreeSet;

use bloodhound_abi::exception::Exception;
use bloodhound_abi::exception::vector;
use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::mm::fault::{Fault, PageMapping};
use bloodhound_kernel::mm::{Access, PAGE};
use bloodhound_kernel::node::{MachineId, Node};
use bloodhound_kernel::signal::fault_info;
use bloodhound_net::NodeId;
use bloodhound_platform::{Platform, SpaceId};

use crate::code_view::file_of;
use crate::convert;
use crate::machine::Machine;
use crate::step::Ran;

/// Pages that are noted together: frames of neighbours in a file are neighbours.
const TOGETHER: u64 = 16 * PAGE;
/// What is noted at most.
const MOST: usize = 1 << 20;

/// Which pages of unchanged files programs have touched, by the offsets of their frames. What one program touched of a file, the next
/// one that maps it touches as well. Should a frame be used for something else meanwhile, a page is mapped for nothing.
#[derive(Default)]
pub(crate) struct UsedPages(BTreeSet<u64>);

impl UsedPages {
    /// Notes the pages that are mapped because of a fault; all are of one mapping.
    fn note(&mut self, node: &Node, mm: MmId, pages: &[PageMapping]) {
        let of_file = pages.first().is_some_and(|first| file_of(node, mm, first.addr).is_some());
        if of_file && self.0.len() < MOST {
            self.0.extend(pages.iter().filter(|page| !page.write).map(|page| page.frame / TOGETHER));
        }
    }

    fn has(&self, frame: u64) -> bool {
        self.0.contains(&(frame / TOGETHER))
    }
}

impl Machine {
    /// Answers a page fault: maps the page and its neighbours, or gives the task a signal.
    pub(crate) fn page_fault(
        &mut self,
        id: MachineId,
        tid: Tid,
        (mm, space): (MmId, SpaceId),
        addr: u64,
        access: Option<Access>,
    ) -> Option<Ran> {
        // `None`: the platform does not know what kind of access it was. It is then answered as a read. If it was a write, it
        // faults again on the page that is mapped by then, and that fault is known to be a write.
        let access = access.unwrap_or(Access::Read);
        match self.world.node_mut(id).page_fault_of(tid, mm, addr, access) {
            Fault::Map(mut pages) => {
                for (space, page) in self.code.take_surplus() {
                    self.platform.unmap(SpaceId(space), page, PAGE);
                }
                let node = self.world.node_mut(id);
                for (at, len) in node.mms[mm].invalid.drain(..) {
                    self.platform.unmap(space, at, len);
                }
                let service = self.service_of(id, tid);
                self.used.note(&self.world.nodes[&id], mm, &pages);
                self.map_pages(id, (mm, space), service, &mut pages);
                self.map_ahead(id, tid, (mm, space));
                self.relieve(id, tid)
            }
            Fault::Signal(signo, code, at) => {
                let error_code = self.world.nodes[&id].fault_error(mm, addr, access);
                let exception = Exception { vector: vector::PF, error_code, address: addr };
                Some(self.fault_signal(id, tid, fault_info(signo, code, at), exception))
            }
        }
    }

    /// Makes paths those that the task sees, where somebody asks for them: which service it is of.
    fn service_of(&mut self, id: MachineId, tid: Tid) -> NodeId {
        let node = self.world.node_mut(id);
        let container = node.container_of_any(node.task(tid).pid);
        let (service, mounts) = (container.id, container.mounts);
        if self.code.observer().is_some() {
            node.vfs.enter_namespace(mounts);
        }
        service
    }

    /// Lets the platform map pages, which are all of one mapping.
    fn map_pages(
        &mut self,
        id: MachineId,
        (mm, space): (MmId, SpaceId),
        service: NodeId,
        pages: &mut [PageMapping],
    ) {
        self.code.replace(&self.world.nodes[&id], mm, service, pages);
        convert::mappings(pages, &mut self.scratch);
        self.platform.map(space, &self.scratch);
    }

    /// Lets the platform map what the program is expected to touch next.
    pub(crate) fn map_ahead(&mut self, id: MachineId, tid: Tid, (mm, space): (MmId, SpaceId)) {
        if !self.world.nodes[&id].mms[mm].expects() {
            return;
        }
        let service = self.service_of(id, tid);
        let used = &self.used;
        let ahead = self.world.node_mut(id).take_ahead(mm, |frame| used.has(frame));
        for mut pages in ahead {
            self.map_pages(id, (mm, space), service, &mut pages);
        }
    }
}
