//! The frame store: reference-counted 4 KiB pages over one memfd.
//!
//! A [`Frame`] is to a page what `Arc<[u8; 4096]>` is to an array, with one difference: the bytes live in a
//! memory file of this process ([`arena_fd`]) at a known place ([`Frame::offset`]), so a platform can map the
//! same bytes into an application's address space. Cloning a world clones handles; a write goes to a copy
//! ([`Frame::make_unique`]) unless the handle is the only one.
//!
//! Neighbours: the kernel's `Mm` and page cache hold frames; `bloodhound-platform` maps them by offset.
//!
//! # Who may write, and when
//!
//! A frame's bytes are written in three ways:
//! 1. through `&mut [u8; 4096]`, which needs the only handle ([`Frame::bytes_mut`], [`Frame::make_unique`]);
//! 2. through [`Frame::write_shared`], for objects that several handles name on purpose (`MAP_SHARED` pages,
//!    shared memory segments);
//! 3. by application code whose address space maps the frame writable;
//! 4. one byte at a time through [`Frame::replace_byte`], in frames that show code to processors and that no world has. They may
//!    be executed and read by others meanwhile.
//!
//! No two of the first three ever overlap in time: one host thread (the worker that owns the world) runs either the
//! kernel or the application, never both, and a frame that a world may write is reachable from that world only
//! (`is_unique` is what makes a private writable mapping legal; a shared object's frames are copied when a
//! world is cloned and then written). So a `&[u8; 4096]` from [`Frame::bytes`] must not be kept over a run of
//! the application nor over a `write_shared` of the same frame; the borrow is meant for one copy or compare.

mod arena;

pub use arena::{
    Stats, arena_fd, arena_region, free_bytes, held_by_thread, init, stats, trim, used_by_thread,
};

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

/// Size of a frame in bytes: the x86-64 page size.
pub const FRAME_SIZE: usize = 4096;

/// The bytes of a frame.
pub type FrameBytes = [u8; FRAME_SIZE];

/// A counted handle of one 4 KiB frame. Four bytes, and so is `Option<Frame>`.
///
/// Equality and hash are those of the contents; [`Frame::same`] compares identity. The number of a frame
/// depends on the host's history and must never reach a world's digest, which is why `Debug` does not show it.
pub struct Frame(NonZeroU32);

impl Frame {
    /// A new frame of zeros, with this handle as the only one.
    #[must_use]
    pub fn zeroed() -> Frame {
        Frame(arena::alloc_zeroed())
    }

    /// `count` new frames of zeros, by rising offset and as contiguous as can be had: a platform maps neighbours
    /// at once, and more cheaply. For consecutive pages that are made together, such as around a fault.
    #[must_use]
    pub fn zeroed_run(count: usize) -> Vec<Frame> {
        let mut frames: Vec<Frame> = (0..count).map(|_| Frame::zeroed()).collect();
        frames.sort_unstable_by_key(|frame| frame.0);
        frames
    }

    /// A handle of the one frame of zeros that everyone shares: what a read of untouched anonymous memory maps.
    ///
    /// It is never unique, so every writer copies it.
    #[must_use]
    pub fn shared_zero() -> Frame {
        let index = arena::shared_zero();
        arena::retain(index);
        Frame(index)
    }

    /// A new frame with a copy of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &FrameBytes) -> Frame {
        let frame = Frame(arena::alloc_dirty());
        // SAFETY: the frame is fresh: no other handle, no mapping, so nothing else reads or writes it; `bytes`
        // may lie in the arena but in another frame, since the new one was free a moment ago.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), arena::pointer(frame.0), FRAME_SIZE) };
        frame
    }

    /// New frames with copies of `sources`, by rising offset and as contiguous as can be had.
    #[must_use]
    pub fn copied_run<'a>(sources: impl ExactSizeIterator<Item = &'a FrameBytes>) -> Vec<Frame> {
        let mut frames: Vec<Frame> = (0..sources.len()).map(|_| Frame(arena::alloc_dirty())).collect();
        frames.sort_unstable_by_key(|frame| frame.0);
        for (frame, source) in frames.iter().zip(sources) {
            frame.write_shared(0, source);
        }
        frames
    }

    /// A new frame that starts with `data` (at most 4096 bytes; the rest is ignored) and is zero behind it.
    #[must_use]
    pub fn from_slice(data: &[u8]) -> Frame {
        let mut frame = Frame::zeroed();
        let len = data.len().min(FRAME_SIZE);
        frame.make_unique()[..len].copy_from_slice(&data[..len]);
        frame
    }

    /// The bytes, to be read at once (see the module's text for how long the borrow may live).
    #[must_use]
    pub fn bytes(&self) -> &FrameBytes {
        // SAFETY: the arena is mapped for the life of the process and a frame is 4096 initialised bytes in it
        // (a memfd reads as zeros). It is not freed while this handle lives. No `&mut` to it can exist: that
        // needs the only handle, mutably borrowed. Writers of kinds 2 and 3 do not run during the borrow.
        unsafe { &*arena::pointer(self.0).cast::<FrameBytes>() }
    }

    /// The bytes for writing, if this is the only handle.
    ///
    /// The caller must know that no other address space than its own maps the frame; the handle count is what
    /// it knows that by.
    pub fn bytes_mut(&mut self) -> Option<&mut FrameBytes> {
        // SAFETY: the count is 1 and this handle is borrowed mutably, so no other reference can be made while
        // the result lives. Application code which maps the frame does not run meanwhile.
        self.is_unique().then(|| unsafe { &mut *arena::pointer(self.0).cast::<FrameBytes>() })
    }

    /// Whether this is the only handle: the condition for a private writable mapping.
    ///
    /// With `&self` in hand nobody else can clone this handle, except through another `&self` of the same
    /// value, so the answer `true` stays true as long as the owner does not clone.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        arena::count(self.0) == 1
    }

    /// Copies the frame if it is shared, so that this is the only handle; then its bytes for writing.
    ///
    /// After a copy [`Frame::offset`] differs: mappings of the old frame have to be replaced.
    pub fn make_unique(&mut self) -> &mut FrameBytes {
        if !self.is_unique() {
            *self = Frame::from_bytes(self.bytes());
        }
        // SAFETY: as in `bytes_mut`: the count is 1 and the handle is borrowed mutably.
        unsafe { &mut *arena::pointer(self.0).cast::<FrameBytes>() }
    }

    /// Where the frame begins in the memory file of [`arena_fd`], in bytes; a multiple of 4096, never 0.
    #[must_use]
    pub fn offset(&self) -> u64 {
        u64::from(self.0.get()) * FRAME_SIZE as u64
    }

    /// Whether both handles name one frame.
    #[must_use]
    pub fn same(&self, other: &Frame) -> bool {
        self.0 == other.0
    }

    /// Whether this is a handle of [`Frame::shared_zero`].
    #[must_use]
    pub fn is_shared_zero(&self) -> bool {
        self.0 == arena::shared_zero()
    }

    /// Copies `out.len()` bytes from offset `at`.
    ///
    /// # Panics
    /// If `at + out.len()` exceeds 4096.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        check(at, out.len());
        // SAFETY: the range lies in the frame (checked). `out` is a Rust slice, hence not memory that someone
        // writes meanwhile; should it be part of this very frame, then the caller held its only handle mutably
        // and could not pass `&self` too. A raw copy makes no reference, so application mappings are no alias.
        unsafe { std::ptr::copy_nonoverlapping(arena::pointer(self.0).add(at), out.as_mut_ptr(), out.len()) };
    }

    /// Writes `data` at offset `at` for everyone who shares the frame, without a copy.
    ///
    /// For objects that are shared by intent only: a private page needs [`Frame::make_unique`].
    ///
    /// # Panics
    /// If `at + data.len()` exceeds 4096.
    pub fn write_shared(&self, at: usize, data: &[u8]) {
        check(at, data.len());
        // SAFETY: the range lies in the frame (checked). A raw copy makes no reference; no borrow of the bytes
        // is alive, by the rule in the module's text (kernel code is one thread per world). `copy` (memmove)
        // because `data` may come from the same frame (write(2) from a page to itself).
        unsafe { std::ptr::copy(data.as_ptr(), arena::pointer(self.0).add(at), data.len()) };
    }

    /// Replaces one byte for everyone who is shown the frame, while others may execute it: they see the old byte or the new one. For
    /// frames of code that no world has (writers of kind 4); nobody borrows their bytes once they are shown.
    ///
    /// # Panics
    /// If `at` is not below 4096.
    pub fn replace_byte(&self, at: usize, byte: u8) {
        check(at, 1);
        // SAFETY: in bounds (checked); lives as long as the handle. Whoever else reads the frame does so by raw copies or as a
        // processor that executes it, to which a store of one byte is atomic; writers of the other kinds have no such frames.
        let shown = unsafe { std::sync::atomic::AtomicU8::from_ptr(arena::pointer(self.0).add(at)) };
        shown.store(byte, std::sync::atomic::Ordering::Release);
    }

    /// The little-endian 32-bit word at `at`, a multiple of 4: a futex word, for example.
    ///
    /// # Panics
    /// If `at` is no multiple of 4 or not below 4096.
    #[must_use]
    pub fn load_u32(&self, at: usize) -> u32 {
        self.atomic_u32(at).load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Writes the 32-bit word at `at` for everyone who shares the frame.
    ///
    /// # Panics
    /// If `at` is no multiple of 4 or not below 4096.
    pub fn store_u32(&self, at: usize, value: u32) {
        self.atomic_u32(at).store(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// If the 32-bit word at `at` equals `old`, writes `new`; the word as it was.
    ///
    /// # Panics
    /// If `at` is no multiple of 4 or not below 4096.
    pub fn compare_exchange_u32(&self, at: usize, old: u32, new: u32) -> Result<u32, u32> {
        use std::sync::atomic::Ordering::Relaxed;
        self.atomic_u32(at).compare_exchange(old, new, Relaxed, Relaxed)
    }

    /// The little-endian 64-bit word at `at`, a multiple of 8.
    ///
    /// # Panics
    /// If `at` is no multiple of 8 or not below 4096.
    #[must_use]
    pub fn load_u64(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8), "unaligned 64-bit word");
        let mut raw = [0; 8];
        self.read(at, &mut raw);
        u64::from_le_bytes(raw)
    }

    fn atomic_u32(&self, at: usize) -> &std::sync::atomic::AtomicU32 {
        assert!(at.is_multiple_of(4), "unaligned 32-bit word");
        check(at, 4);
        // SAFETY: in bounds and aligned (checked; frames are page-aligned); lives as long as the handle. Atomic
        // access is allowed beside other atomic access, and everything else is excluded by the module's rule.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(arena::pointer(self.0).add(at).cast()) }
    }
}

/// Copies bytes from offset `at` of the memory file: how a platform reads an application's memory, of which it
/// knows the frames' offsets but holds no handles. `None` if the range leaves the arena.
///
/// What it reads is only meaningful while the world holds the frame.
#[must_use]
pub fn read_at(at: u64, out: &mut [u8]) -> Option<()> {
    let from = arena::range(at, out.len())?;
    // SAFETY: the range lies in the arena (checked). A raw copy makes no reference; writers do not run meanwhile,
    // by the rule in the module's text. `out` is exclusive Rust memory; should it be a frame's, `copy` allows it.
    unsafe { std::ptr::copy(from, out.as_mut_ptr(), out.len()) };
    Some(())
}

/// Writes bytes at offset `at` of the memory file: what an application with a writable mapping does. For
/// platforms that interpret. `None` if the range leaves the arena.
#[must_use]
pub fn write_at(at: u64, data: &[u8]) -> Option<()> {
    let to = arena::range(at, data.len())?;
    // SAFETY: as in `read_at`; this stands for the application's own write, which happens only while no kernel
    // code runs and so no borrow of the bytes is alive.
    unsafe { std::ptr::copy(data.as_ptr(), to, data.len()) };
    Some(())
}

fn check(at: usize, len: usize) {
    assert!(at <= FRAME_SIZE && len <= FRAME_SIZE - at, "access of {len} bytes at {at} leaves the frame");
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        arena::retain(self.0);
        Frame(self.0)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        arena::release(self.0);
    }
}

impl Default for Frame {
    fn default() -> Frame {
        Frame::shared_zero()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Frame")
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Frame) -> bool {
        self.same(other) || self.bytes() == other.bytes()
    }
}

impl Eq for Frame {}

impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.bytes());
    }
}

#[cfg(test)]
mod tests;
