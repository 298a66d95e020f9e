//! The arena behind [`crate::Frame`]: one sparse memfd, a side table of counts, and the free lists.
//!
//! Key items: [`alloc_zeroed`], [`retain`], [`release`]; [`Stats`]. A frame's number is its page number in the
//! memfd; page 0 is never used, so that numbers are non-zero.
//!
//! Every thread keeps a small cache of free frames, because workers allocate and free all the time; the global
//! list behind a lock is touched once per [`BATCH`] frames.

use std::cell::Cell;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::FRAME_SIZE;

/// Size of the memory file in bytes. Sparse: only what is touched takes memory.
const ARENA_BYTES: usize = 64 << 30;
const ARENA_FRAMES: u32 = (ARENA_BYTES / FRAME_SIZE) as u32;
/// How many frames move between a thread's cache and the global list at once. Fresh frames are also populated
/// in this number: one `madvise` instead of a page fault each (a fault costs several microseconds in a VM).
const BATCH: usize = 64;
/// Counts above this abort, as `Arc` does: it takes a leak of two thousand million handles to get there.
const MAX_COUNT: u32 = i32::MAX as u32;

struct Arena {
    fd: OwnedFd,
    base: NonNull<u8>,
    counts: NonNull<AtomicU32>,
    shared: Mutex<Shared>,
    /// How many frames are on the list of free ones.
    free: AtomicU64,
    zero: OnceLock<NonZeroU32>,
}

// SAFETY: `base` and `counts` are mappings that live as long as the process. The counts are atomics; the bytes
// are reached through handles, whose rules are in the crate's text. The rest is Sync by itself.
unsafe impl Sync for Arena {}
// SAFETY: as above; nothing is tied to the thread that made it.
unsafe impl Send for Arena {}

struct Shared {
    /// Freed frames with old contents.
    free: Vec<NonZeroU32>,
    /// Freed frames whose memory the host has back.
    punched: Vec<NonZeroU32>,
    /// The first frame that was never used.
    next: u32,
}

static ARENA: OnceLock<Arena> = OnceLock::new();

/// Makes the arena unless it is there, so that a host that cannot provide one is told about early.
///
/// Without this call the first frame makes it, and panics where this would return an error.
///
/// # Errors
/// What `memfd_create(2)`, `ftruncate(2)` or `mmap(2)` say; ENOMEM when `ulimit -v` forbids 64 GiB of address
/// space.
pub fn init() -> io::Result<()> {
    if ARENA.get().is_none() {
        let made = Arena::new()?;
        // Another thread may have been faster; then ours is unmapped by its Drop.
        let _ = ARENA.set(made);
    }
    Ok(())
}

fn arena() -> &'static Arena {
    match ARENA.get() {
        Some(arena) => arena,
        None => {
            if let Err(error) = init() {
                panic!("cannot make the frame store (64 GiB of sparse shared memory): {error}");
            }
            ARENA.get().expect("init sets it")
        }
    }
}

/// The memory file that all frames live in, for mapping them into other processes.
#[must_use]
pub fn arena_fd() -> BorrowedFd<'static> {
    use std::os::fd::AsFd;
    arena().fd.as_fd()
}

/// Where the memory file lies in this process, and its size in bytes: for platforms that show it to a virtual machine.
/// It stays there as long as the process lives.
#[must_use]
pub fn arena_region() -> (NonNull<u8>, usize) {
    (arena().base, ARENA_BYTES)
}

/// Counts of frames, for reports and tests. Depends on the host's history: no part of any world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Frames that were handed out at least once or lie in a thread's cache of fresh ones.
    pub high_water: u64,
    /// Frames on the global free list (the threads' caches are not counted).
    pub free: u64,
    /// Frames with at least one handle. Counted by a walk: slow, for tests and `doctor`.
    pub live: u64,
}

/// Bytes of free frames, as far as threads do not keep them: memory that the host has given and nobody uses.
#[must_use]
pub fn free_bytes() -> u64 {
    arena().free.load(Ordering::Relaxed) * FRAME_SIZE as u64
}

/// How many frames more this thread has taken than given back, as far as the global list knows: about what its worlds hold.
#[must_use]
pub fn held_by_thread() -> Arc<AtomicI64> {
    HELD.with(Arc::clone)
}

/// How many frames more this thread has taken into use than given back, exactly: what lies free in its own cache is not counted.
#[must_use]
pub fn used_by_thread() -> i64 {
    let cached = with_cache(|cache| (cache.dirty.len() + cache.fresh.len()) as i64);
    held_by_thread().load(Ordering::Relaxed) - cached
}

/// Gives the memory of free frames back to the host; how many bytes.
///
/// Whoever allocates meanwhile takes frames that were never used, so it should not be called often.
pub fn trim() -> u64 {
    let arena = arena();
    let mut free = {
        let mut shared = arena.lock();
        arena.free.store(0, Ordering::Relaxed);
        std::mem::take(&mut shared.free)
    };
    free.sort_unstable();
    let mut given = 0;
    for run in free.chunk_by(|a, b| a.get() + 1 == b.get()) {
        let (from, len) = (u64::from(run[0].get()) * FRAME_SIZE as u64, (run.len() * FRAME_SIZE) as u64);
        // SAFETY: plain call on our own memory file; the frames of the range are free, so no handle reads or writes them.
        let punched = unsafe {
            libc::fallocate(
                arena.fd.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                from as libc::off_t,
                len as libc::off_t,
            )
        };
        given += if punched == 0 { len } else { 0 };
    }
    let mut shared = arena.lock();
    shared.punched.append(&mut free);
    given
}

/// Counts of frames now.
#[must_use]
pub fn stats() -> Stats {
    let arena = arena();
    let (free, next) = {
        let shared = arena.lock();
        ((shared.free.len() + shared.punched.len()) as u64, shared.next)
    };
    let live = (1..next).filter(|&n| arena.count_of(n).load(Ordering::Relaxed) != 0).count() as u64;
    Stats { high_water: u64::from(next - 1), free, live }
}

impl Arena {
    fn new() -> io::Result<Arena> {
        // SAFETY: the name is a NUL-terminated literal; the call has no other memory effects.
        let raw = unsafe { libc::memfd_create(c"bloodhound-frames".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: plain call on an fd that we own.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), ARENA_BYTES as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let base = map(ARENA_BYTES, libc::MAP_SHARED, fd.as_raw_fd())?;
        let table = ARENA_FRAMES as usize * size_of::<AtomicU32>();
        let counts = match map(table, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1) {
            Ok(counts) => counts.cast(),
            Err(error) => {
                // SAFETY: our own mapping of exactly this size, made above and not yet given out.
                unsafe { libc::munmap(base.as_ptr().cast(), ARENA_BYTES) };
                return Err(error);
            }
        };
        let shared = Mutex::new(Shared { free: Vec::new(), punched: Vec::new(), next: 1 });
        Ok(Arena { fd, base, counts, shared, free: AtomicU64::new(0), zero: OnceLock::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // The lists are consistent at every point where code can panic, so a poisoned lock is usable.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_of(&self, index: u32) -> &AtomicU32 {
        debug_assert!(index < ARENA_FRAMES);
        // SAFETY: the table has ARENA_FRAMES entries, zero-filled by mmap, and `index` is below that: frame
        // numbers are only made in `fresh`, which checks.
        unsafe { &*self.counts.as_ptr().add(index as usize) }
    }

    fn pointer(&self, index: u32) -> *mut u8 {
        // SAFETY: in the mapping, for the same reason as in `count_of`.
        unsafe { self.base.as_ptr().add(index as usize * FRAME_SIZE) }
    }

    /// Takes `BATCH` never-used frames, populated; the first number.
    fn fresh(&self, shared: &mut Shared) -> u32 {
        let first = shared.next;
        assert!(first <= ARENA_FRAMES - BATCH as u32, "the frame store is full: 64 GiB of frames are in use");
        shared.next += BATCH as u32;
        // SAFETY: advice on our own mapping. A kernel without MADV_POPULATE_WRITE (before 5.14) says EINVAL
        // and the pages come by faults as ever, so the result does not matter.
        unsafe {
            libc::madvise(self.pointer(first).cast(), BATCH * FRAME_SIZE, libc::MADV_POPULATE_WRITE);
        }
        first
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Only for an arena that lost the race in `init`: the one in the static lives for ever.
        // SAFETY: our own mappings of exactly these sizes; no frame was made from them.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), ARENA_BYTES);
            libc::munmap(self.counts.as_ptr().cast(), ARENA_FRAMES as usize * size_of::<AtomicU32>());
        }
    }
}

fn map(len: usize, kind: libc::c_int, fd: libc::c_int) -> io::Result<NonNull<u8>> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the host kernel's choice touches no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, kind | libc::MAP_NORESERVE, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned address zero"))
}

/// A thread's free frames. `fresh` ones were never used and are zero.
struct Cache {
    dirty: Vec<NonZeroU32>,
    fresh: std::ops::Range<u32>,
}

impl Cache {
    const EMPTY: Cache = Cache { dirty: Vec::new(), fresh: 0..0 };
}

impl Drop for Cache {
    fn drop(&mut self) {
        if self.dirty.is_empty() && self.fresh.is_empty() {
            return;
        }
        let mut shared = arena().lock();
        shared.free.append(&mut self.dirty);
        // Fresh ones go to the list of dirty ones: the next owner zeroes them once more, at a thread's end only.
        shared.free.extend(self.fresh.by_ref().filter_map(NonZeroU32::new));
        arena().free.store(shared.free.len() as u64, Ordering::Relaxed);
    }
}

thread_local! {
    static CACHE: Cell<Cache> = const { Cell::new(Cache::EMPTY) };
    static HELD: Arc<AtomicI64> = Arc::default();
}

/// Runs `work` on this thread's cache, or on an empty one when the thread is past its end (a handle that is
/// dropped by another thread-local's destructor); that one then gives all it has to the global list.
fn with_cache<T>(work: impl FnOnce(&mut Cache) -> T) -> T {
    let mut cache = CACHE.try_with(|cell| cell.replace(Cache::EMPTY)).unwrap_or(Cache::EMPTY);
    let result = work(&mut cache);
    // On error the closure is dropped with the cache in it, which gives the frames back.
    let _ = CACHE.try_with(move |cell| cell.set(cache));
    result
}

/// A free frame: its number and whether it is known to be zero. The count is not yet set.
fn take(cache: &mut Cache) -> (NonZeroU32, bool) {
    loop {
        if let Some(index) = cache.dirty.pop() {
            return (index, false);
        }
        if let Some(index) = cache.fresh.next().and_then(NonZeroU32::new) {
            return (index, true);
        }
        let arena = arena();
        let mut shared = arena.lock();
        let _ = HELD.try_with(|held| held.fetch_add(BATCH as i64, Ordering::Relaxed));
        let at = shared.free.len().saturating_sub(BATCH);
        cache.dirty.extend(shared.free.drain(at..));
        arena.free.store(shared.free.len() as u64, Ordering::Relaxed);
        if cache.dirty.is_empty() {
            let at = shared.punched.len().saturating_sub(BATCH);
            cache.dirty.extend(shared.punched.drain(at..));
        }
        if cache.dirty.is_empty() {
            let first = arena.fresh(&mut shared);
            cache.fresh = first..first + BATCH as u32;
        }
    }
}

fn adopt(index: NonZeroU32) -> NonZeroU32 {
    let before = arena().count_of(index.get()).swap(1, Ordering::Relaxed);
    assert_eq!(before, 0, "a free frame has handles");
    index
}

/// A new frame with zeros and a count of 1.
pub(crate) fn alloc_zeroed() -> NonZeroU32 {
    let (index, zero) = with_cache(take);
    if !zero {
        // SAFETY: the frame is free: no handle, hence no reference and no mapping that is still used.
        unsafe { std::ptr::write_bytes(pointer(index), 0, FRAME_SIZE) };
    }
    adopt(index)
}

/// A new frame with whatever contents and a count of 1; the caller fills it before anyone sees it.
pub(crate) fn alloc_dirty() -> NonZeroU32 {
    adopt(with_cache(take).0)
}

/// The number of the frame of zeros that all share. The arena itself holds one handle for ever.
pub(crate) fn shared_zero() -> NonZeroU32 {
    // Two handles: `is_unique` must be false even for the single visible one.
    *arena().zero.get_or_init(|| {
        let index = alloc_zeroed();
        retain(index);
        index
    })
}

/// One more handle.
pub(crate) fn retain(index: NonZeroU32) {
    // Relaxed as in `Arc::clone`: a new handle is made from an existing one.
    let before = arena().count_of(index.get()).fetch_add(1, Ordering::Relaxed);
    assert!(before != 0 && before < MAX_COUNT, "a frame's handle count is corrupt");
}

/// One handle less; the last one frees the frame.
pub(crate) fn release(index: NonZeroU32) {
    // Release: what this handle's owner wrote happens before the frame's reuse; the fence pairs with it.
    let before = arena().count_of(index.get()).fetch_sub(1, Ordering::Release);
    debug_assert!(before != 0, "a frame was freed twice");
    if before == 1 {
        std::sync::atomic::fence(Ordering::Acquire);
        with_cache(|cache| give_back(cache, index));
    }
}

fn give_back(cache: &mut Cache, index: NonZeroU32) {
    cache.dirty.push(index);
    if cache.dirty.len() >= 2 * BATCH {
        let at = cache.dirty.len() - BATCH;
        let mut shared = arena().lock();
        shared.free.extend(cache.dirty.drain(at..));
        arena().free.store(shared.free.len() as u64, Ordering::Relaxed);
        let _ = HELD.try_with(|held| held.fetch_sub(BATCH as i64, Ordering::Relaxed));
    }
}

/// How many handles there are.
pub(crate) fn count(index: NonZeroU32) -> u32 {
    // Acquire pairs with the Release in `release`: who sees 1 also sees what former holders wrote.
    arena().count_of(index.get()).load(Ordering::Acquire)
}

/// Where the frame's bytes are in this process.
pub(crate) fn pointer(index: NonZeroU32) -> *mut u8 {
    arena().pointer(index.get())
}

/// Where a range of the memory file is in this process, if it lies in the arena and not in page 0.
pub(crate) fn range(at: u64, len: usize) -> Option<*mut u8> {
    let end = at.checked_add(len as u64)?;
    if at < FRAME_SIZE as u64 || end > ARENA_BYTES as u64 {
        return None;
    }
    // SAFETY: in bounds of the mapping, by the check.
    Some(unsafe { arena().base.as_ptr().add(at as usize) })
}
