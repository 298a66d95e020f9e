//! Buffers of a program: where the bytes of a call come from or go to, as `iov_iter` of Linux. A call reads its vectors once, when
//! it begins, and keeps them while it sleeps.
//!
//! A buffer may be bad in its middle. Linux then moves the part before it, or as much of that as comes in whole units: bytes of a
//! file, buffers of a pipe, messages of a socket. [`Ctx::good`] says how much can be moved, before anything changes.

use std::borrow::Cow;

use bloodhound_abi::Errno;
use bloodhound_abi::structs::Iovec;
use smallvec::SmallVec;

use crate::ctx::{Ctx, Ptr, err};
use crate::mm::{Access, PAGE};
use crate::wait::SysResult;

/// Linux moves at most this much at once (MAX_RW_COUNT).
pub const MAX_RW: u64 = 0x7fff_f000;
/// TASK_SIZE_MAX: no program has memory from here on.
const USER_END: u64 = 0x7fff_ffff_f000;
/// UIO_MAXIOV: most vectors of a call.
pub const IOV_MAX: u64 = 1024;

/// Buffers of a program, together at most [`MAX_RW`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    iovs: SmallVec<[Iovec; 1]>,
    len: u64,
    /// They are the kernel's own ([`Ctx::inside`]), and there are no addresses.
    kernel: bool,
}

impl Buffers {
    /// Several buffers; what is beyond [`MAX_RW`] does not count.
    fn new(mut iovs: SmallVec<[Iovec; 1]>) -> Buffers {
        let mut len = 0;
        for v in &mut iovs {
            v.len = v.len.min(MAX_RW - len);
            len += v.len;
        }
        Buffers { iovs, len, kernel: false }
    }

    /// One buffer. "EFAULT: buf is outside your accessible address space": where no program has memory that is so before
    /// anything else is looked at, even for a length of 0 (`access_ok`).
    pub fn one(base: Ptr, len: u64) -> Result<Buffers, Errno> {
        access_ok(base.0, len)?;
        Ok(Buffers::new(SmallVec::from_elem(Iovec { base: base.0, len }, 1)))
    }

    /// A buffer of the kernel: what is copied there is found in [`Ctx::inside`].
    pub(crate) fn kernel(len: u64) -> Buffers {
        Buffers { iovs: SmallVec::new(), len, kernel: true }
    }

    /// Addresses and lengths of what lies in one page each.
    pub(crate) fn by_page(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pieces(0, self.len).flat_map(|(base, len)| {
            let (first, end) = (base, base + len);
            let starts = std::iter::successors(Some(first), |at| Some((at / PAGE + 1) * PAGE));
            starts.take_while(move |at| *at < end).map(move |at| (at, ((at / PAGE + 1) * PAGE).min(end) - at))
        })
    }

    /// Bytes of all buffers.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no room for a byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes that file operations which know no vectors are given next, after `done` bytes (`do_loop_readv_writev`): what is left
    /// of a buffer. The first buffer counts even if it is empty, later ones that are empty are passed over.
    pub(crate) fn next_vector(&self, done: u64) -> u64 {
        match (done, self.iovs.first()) {
            _ if self.kernel => self.len - done,
            (0, Some(first)) => first.len,
            _ => self.pieces(done, self.len - done).next().map_or(0, |(_, len)| len),
        }
    }

    /// Whether all addresses are multiples of one number, and all lengths of another.
    pub(crate) fn is_aligned(&self, address: u64, length: u64) -> bool {
        self.pieces(0, self.len).all(|(base, len)| base.is_multiple_of(address) && len.is_multiple_of(length))
    }

    /// Addresses and lengths of the bytes `from..from + len`.
    pub(crate) fn pieces(&self, from: u64, len: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (mut skip, mut left) = (from, len.min(self.len.saturating_sub(from)));
        self.iovs.iter().filter_map(move |v| {
            let start = skip.min(v.len);
            skip -= start;
            let n = (v.len - start).min(left);
            left -= n;
            (n > 0).then_some((v.base.wrapping_add(start), n))
        })
    }
}

/// Where the bytes of a write are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the program.
    User(Buffers),
    /// In the kernel.
    Kernel(Vec<u8>),
}

impl Source {
    /// How many there are.
    pub fn len(&self) -> u64 {
        match self {
            Source::User(buffers) => buffers.len(),
            Source::Kernel(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`Buffers::next_vector`].
    pub(crate) fn next_vector(&self, done: u64) -> u64 {
        match self {
            Source::User(buffers) => buffers.next_vector(done),
            Source::Kernel(bytes) => bytes.len() as u64 - done,
        }
    }
}

/// `access_ok`: whether the range lies where programs can have memory.
pub(crate) fn access_ok(base: u64, len: u64) -> Result<(), Errno> {
    if len <= USER_END && base <= USER_END - len { Ok(()) } else { Err(Errno::EFAULT) }
}

impl Ctx<'_> {
    /// The vectors of readv(2) and its kind. EINVAL for too many or a negative length, EFAULT.
    pub(crate) fn read_buffers(&mut self, iov: Ptr, count: u64) -> SysResult<Buffers> {
        let iovs = self.read_vectors(iov, count)?;
        for v in &iovs {
            access_ok(v.base, v.len)?;
        }
        Ok(Buffers::new(iovs.into()))
    }

    /// An array of vectors, which may be those of another process.
    pub(crate) fn read_vectors(&mut self, iov: Ptr, count: u64) -> SysResult<Vec<Iovec>> {
        if count > IOV_MAX {
            return err(Errno::EINVAL);
        }
        let iovs: Vec<Iovec> = self.read_vec(iov.0, count as usize)?;
        // "EINVAL: The sum of the iov_len values overflows an ssize_t value" (readv(2)): of one value only, since 1024 lengths
        // that an address space can have do not overflow.
        if iovs.iter().any(|v| v.len > i64::MAX as u64) {
            return err(Errno::EINVAL);
        }
        Ok(iovs)
    }

    /// How many of the bytes `from..from + len` can be accessed, up to the first that cannot.
    pub(crate) fn good(&mut self, buffers: &Buffers, from: u64, len: u64, access: Access) -> u64 {
        if buffers.kernel {
            return len.min(buffers.len.saturating_sub(from));
        }
        let mut good = 0;
        for (base, n) in buffers.pieces(from, len) {
            let here = self.accessible(base, n, access);
            good += here;
            if here < n {
                break;
            }
        }
        good
    }

    /// As [`Ctx::good`], for who moves single bytes: EFAULT if not even the first is good.
    pub(crate) fn good_bytes(
        &mut self,
        buffers: &Buffers,
        from: u64,
        len: u64,
        access: Access,
    ) -> Result<u64, Errno> {
        let len = len.min(buffers.len().saturating_sub(from));
        match self.good(buffers, from, len, access) {
            0 if len > 0 => Err(Errno::EFAULT),
            n => Ok(n),
        }
    }

    /// Copies the bytes `from..from + len` out of the program, all of them or none.
    pub(crate) fn copy_in(&mut self, buffers: &Buffers, from: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let len = len.min(buffers.len().saturating_sub(from));
        // Before memory is taken: a wild length must be EFAULT, and no allocation of 2 GiB.
        if self.good(buffers, from, len, Access::Read) < len {
            return Err(Errno::EFAULT);
        }
        let mut out = vec![0; len as usize];
        let mut at = 0;
        for (base, n) in buffers.pieces(from, len) {
            self.read_bytes(base, &mut out[at..at + n as usize])?;
            at += n as usize;
        }
        Ok(out)
    }

    /// Copies bytes into the program's buffers, from offset `from` on.
    pub(crate) fn copy_out(&mut self, buffers: &Buffers, from: u64, data: &[u8]) -> Result<(), Errno> {
        if buffers.kernel {
            self.inside.truncate(from as usize);
            self.inside.extend_from_slice(data);
            return Ok(());
        }
        let mut at = 0;
        for (base, n) in buffers.pieces(from, data.len() as u64) {
            self.write_bytes(base, &data[at..at + n as usize])?;
            at += n as usize;
        }
        Ok(())
    }

    /// How many bytes of a source can be read, from `from` on and up to `len`.
    pub(crate) fn source_good(&mut self, source: &Source, from: u64, len: u64) -> u64 {
        match source {
            Source::User(buffers) => self.good(buffers, from, len, Access::Read),
            Source::Kernel(bytes) => len.min((bytes.len() as u64).saturating_sub(from)),
        }
    }

    /// The bytes `from..from + len` of a source, all of them or EFAULT.
    pub(crate) fn source_bytes<'a>(
        &mut self,
        source: &'a Source,
        from: u64,
        len: u64,
    ) -> Result<Cow<'a, [u8]>, Errno> {
        match source {
            Source::User(buffers) => Ok(Cow::Owned(self.copy_in(buffers, from, len)?)),
            Source::Kernel(bytes) => {
                let end = (from + len).min(bytes.len() as u64) as usize;
                Ok(Cow::Borrowed(&bytes[from as usize..end]))
            }
        }
    }
}
