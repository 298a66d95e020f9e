//! Low guest-physical memory ([`Low`]): the monitor, the requests that it works through, and page tables.
//!
//! Neighbours: `monitor` loads the monitor into it, `tables` builds page tables in it, `vm` shows it to KVM.

use bloodhound_platform::PlatformError;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::layout::{LOW_END, TABLES};

/// Memory from guest-physical 0 to [`LOW_END`]. Sparse: only what is touched takes memory.
pub(crate) struct Low {
    guest: GuestMemoryMmap,
    base: *mut u8,
}

impl Low {
    pub fn new() -> Result<Low, PlatformError> {
        let failed = |_| PlatformError::Host { what: "memory for the monitor", errno: libc::ENOMEM };
        let guest = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), LOW_END as usize)]).map_err(failed)?;
        let base = guest
            .get_host_address(GuestAddress(0))
            .map_err(|_| PlatformError::Internal("low memory has no address"))?;
        Ok(Low { guest, base })
    }

    /// For the loader.
    pub fn guest(&self) -> &GuestMemoryMmap {
        &self.guest
    }

    /// Where `at` is in this process.
    pub fn host_address(&self, at: u64) -> u64 {
        self.base as u64 + at
    }

    /// The word at `at`.
    pub fn read(&self, at: u64) -> u64 {
        // SAFETY: in bounds and aligned (checked); the mapping lives as long as `guest`. The vCPU, which may write
        // accessed bits and trap frames, does not run meanwhile: its only thread is this one.
        unsafe { self.word(at).read_volatile() }
    }

    /// Writes the word at `at`.
    pub fn write(&self, at: u64, value: u64) {
        // SAFETY: as in `read`; nobody holds references into this memory.
        unsafe { self.word(at).write_volatile(value) }
    }

    fn word(&self, at: u64) -> *mut u64 {
        assert!(at.is_multiple_of(8) && at < LOW_END, "low memory has no word at {at:#x}");
        // SAFETY: in bounds of the mapping of LOW_END bytes.
        unsafe { self.base.add(at as usize).cast() }
    }

    /// Makes all page tables zero and gives their memory back. KVM must not show them now.
    pub fn clear_tables(&self) -> Result<(), PlatformError> {
        // SAFETY: a range of our own anonymous mapping, to which there are no references.
        let done = unsafe {
            libc::madvise(
                self.base.add(TABLES as usize).cast(),
                (LOW_END - TABLES) as usize,
                libc::MADV_DONTNEED,
            )
        };
        if done == 0 { Ok(()) } else { Err(crate::sys::last("clearing page tables")) }
    }
}
