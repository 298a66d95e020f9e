//! The vDSO: clock reads without a trap.

use crate::mm::Mm;
use crate::node::Node;

impl Node {
    /// Maps the vDSO into a fresh address space; its address for AT_SYSINFO_EHDR.
    pub(crate) fn map_vdso(&mut self, _mm: &mut Mm) -> Option<u64> {
        None
    }
}
