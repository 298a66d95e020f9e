//! Copies between the kernel and programs, with the protection checks of the CPU (copy_from_user's place). A bad
//! address is EFAULT. The platform's mappings see the same frames, so nothing has to be flushed; a page that had to be
//! copied on write is queued for invalidation.

use bloodhound_abi::Errno;
use bloodhound_frames::Frame;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Access, Backing, PAGE, Vma};
use crate::ctx::Ctx;
use crate::ids::{MmId, Tid};
use crate::node::Node;

/// By whose right memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// Its own: the protection of the mapping counts.
    OfProgram,
    /// That of who may trace it (FOLL_FORCE).
    OfDebugger,
}

/// What a frame has from `inside` on; one that does not exist yet has zeroes.
fn read_frame(frame: Option<Frame>, inside: usize, out: &mut [u8]) {
    match frame {
        Some(frame) => frame.read(inside, out),
        None => out.fill(0),
    }
}

impl Ctx<'_> {
    /// Fills `out` from `addr`.
    pub fn read_bytes(&mut self, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        let mm = self.process().mm;
        self.read_bytes_of(mm, addr, out)
    }

    /// Fills `out` from `addr` of another address space.
    pub fn read_bytes_of(&mut self, mm: MmId, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        self.reach(mm, addr, out.len());
        self.node.copy_from_user(mm, addr, out)?;
        self.moved.read(out);
        Ok(())
    }

    /// Copies `data` to `addr`.
    pub fn write_bytes(&mut self, addr: u64, data: &[u8]) -> Result<(), Errno> {
        let mm = self.process().mm;
        self.write_bytes_of(mm, addr, data)
    }

    /// Copies `data` to `addr` of another address space.
    pub fn write_bytes_of(&mut self, mm: MmId, addr: u64, data: &[u8]) -> Result<(), Errno> {
        self.reach(mm, addr, data.len());
        let mut done = 0;
        while done < data.len() {
            let at = addr.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            let inside = (at % PAGE) as usize;
            let n = (data.len() - done).min(PAGE as usize - inside);
            let chunk = &data[done..done + n];
            self.node.with_frame_for_write(mm, at, Right::OfProgram, |f| f.write_shared(inside, chunk))?;
            done += n;
        }
        self.moved.written(data);
        Ok(())
    }

    /// A copy begins: what is mapped above may grow down to it, as it does for an access of the program's.
    fn reach(&mut self, mm: MmId, addr: u64, len: usize) {
        if len > 0 && self.node.mms[mm].find(addr).is_none() {
            self.node.grow_down(mm, addr);
        }
    }

    /// Copies a structure to `to`, of which the run's digest has `told` instead.
    pub(crate) fn write_stat<T: IntoBytes + Immutable>(
        &mut self,
        to: crate::ctx::Ptr,
        shown: &T,
        told: &T,
    ) -> Result<(), Errno> {
        let before = self.moved;
        self.write_obj(to, shown)?;
        self.moved = before;
        self.moved.written(told.as_bytes());
        Ok(())
    }

    /// Whether `len` bytes at `addr` may be accessed so; EFAULT if not. For calls that must not begin otherwise.
    pub fn check_user(&mut self, addr: u64, len: u64, access: Access) -> Result<(), Errno> {
        if len == 0 {
            return Ok(());
        }
        let end = addr.checked_add(len).ok_or(Errno::EFAULT)?;
        let id = self.process().mm;
        self.reach(id, addr, len as usize);
        let mm = self.mm();
        let mut at = addr;
        while at < end {
            at = mm.check(at, access).map_err(|_| Errno::EFAULT)?.end;
        }
        Ok(())
    }

    /// How many of the `len` bytes at `addr` may be accessed so, up to the first that may not.
    pub fn accessible(&mut self, addr: u64, len: u64, access: Access) -> u64 {
        let (end, id) = (addr.saturating_add(len), self.process().mm);
        self.reach(id, addr, len as usize);
        let mut at = addr;
        while at < end {
            let Ok(vma) = self.node.mms[id].check(at, access) else { break };
            let mut stop = vma.end;
            match vma.backing {
                // "SIGBUS: Attempted access to a page of the buffer that lies beyond the end of the mapped file" (mmap(2)).
                Backing::File { ino, offset } => {
                    let size = self.node.vfs.size(ino).next_multiple_of(PAGE);
                    stop = stop.min(vma.start + size.saturating_sub(offset));
                }
                Backing::Special(_) if access == Access::Write => break,
                _ => {}
            }
            if stop <= at {
                break;
            }
            at = stop.min(end);
        }
        at - addr
    }

    /// Reads a structure.
    pub fn read_obj<T: FromBytes + IntoBytes>(&mut self, ptr: crate::ctx::Ptr) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.read_bytes(ptr.0, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes a structure.
    pub fn write_obj<T: IntoBytes + Immutable>(
        &mut self,
        ptr: crate::ctx::Ptr,
        value: &T,
    ) -> Result<(), Errno> {
        self.write_bytes(ptr.0, value.as_bytes())
    }

    /// Reads `count` structures.
    pub fn read_vec<T: FromBytes + IntoBytes + Clone>(
        &mut self,
        addr: u64,
        count: usize,
    ) -> Result<Vec<T>, Errno> {
        let mut out = Vec::with_capacity(count.min(4096));
        for i in 0..count {
            out.push(self.read_obj(crate::ctx::Ptr(addr + (i * size_of::<T>()) as u64))?);
        }
        Ok(out)
    }

    /// Reads a NUL-terminated string of at most `max` bytes (without the NUL); `too_long` when there is no NUL.
    pub fn read_cstr(&mut self, addr: u64, max: usize, too_long: Errno) -> Result<Vec<u8>, Errno> {
        let mut out = Vec::new();
        let mut at = addr;
        loop {
            let room = (PAGE - at % PAGE) as usize;
            let mut chunk = vec![0; room];
            let mm = self.process().mm;
            self.node.copy_from_user(mm, at, &mut chunk)?;
            if let Some(end) = chunk.iter().position(|b| *b == 0) {
                out.extend_from_slice(&chunk[..end]);
                // What lies behind the string is none of the call's business.
                self.moved.read(&out);
                return if out.len() > max { Err(too_long) } else { Ok(out) };
            }
            out.extend_from_slice(&chunk);
            if out.len() > max {
                return Err(too_long);
            }
            at = at.checked_add(room as u64).ok_or(Errno::EFAULT)?;
        }
    }

    /// Reads a path: ENAMETOOLONG beyond PATH_MAX (4096 with the NUL).
    pub fn read_path(&mut self, path: crate::ctx::Path) -> Result<Vec<u8>, Errno> {
        self.read_cstr(path.0, 4095, Errno::ENAMETOOLONG)
    }
}

impl Node {
    /// Fills `out` from `addr` of an address space.
    pub(crate) fn copy_from_user(&self, mm: MmId, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < out.len() {
            let at = addr.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            let inside = (at % PAGE) as usize;
            let n = (out.len() - done).min(PAGE as usize - inside);
            let frame = self.frame_for_read(mm, at, Right::OfProgram)?;
            read_frame(frame, inside, &mut out[done..done + n]);
            done += n;
        }
        Ok(())
    }

    /// Fills `out` from the memory of a task's process, for whoever looks on: no call does it, and nobody is told.
    pub fn peek(&self, tid: Tid, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        let mm = self.process(self.task(tid).pid).mm;
        self.copy_from_user(mm, addr, out)
    }

    /// Puts bytes of one page into the memory of a task's process, as an instruction of its own would: no call does it, and nobody is told. EFAULT
    /// also where the bytes are not all in one page.
    pub fn poke(&mut self, tid: Tid, addr: u64, data: &[u8]) -> Result<(), Errno> {
        let inside = (addr % PAGE) as usize;
        if inside + data.len() > PAGE as usize {
            return Err(Errno::EFAULT);
        }
        let mm = self.process(self.task(tid).pid).mm;
        self.with_frame_for_write(mm, addr, Right::OfProgram, |frame| frame.write_shared(inside, data))
    }

    /// Fills `out`, all of one page, as a debugger does: whatever the protection is.
    pub(crate) fn force_read(&self, mm: MmId, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        let frame = self.frame_for_read(mm, addr, Right::OfDebugger)?;
        read_frame(frame, (addr % PAGE) as usize, out);
        Ok(())
    }

    /// Puts bytes, all of one page, as a debugger does: private pages that may not be written get a copy of their own.
    pub(crate) fn force_write(&mut self, mm: MmId, addr: u64, data: &[u8]) -> Result<(), Errno> {
        let inside = (addr % PAGE) as usize;
        self.with_frame_for_write(mm, addr, Right::OfDebugger, |frame| frame.write_shared(inside, data))
    }

    /// The mapping at an address, if it may be accessed so.
    fn accessible_vma(&self, mm: MmId, addr: u64, access: Access, right: Right) -> Result<&Vma, Errno> {
        let mm = &self.mms[mm];
        let vma = match right {
            Right::OfProgram => return mm.check(addr, access).map_err(|_| Errno::EFAULT),
            Right::OfDebugger => mm.find(addr).ok_or(Errno::EFAULT)?,
        };
        // check_vma_flags of Linux, with FOLL_FORCE: "ptrace can read any mapping, and write a COW mapping".
        let writable = vma.prot & bloodhound_abi::consts::PROT_WRITE != 0 || !vma.shared && vma.may_write;
        if access == Access::Read || writable { Ok(vma) } else { Err(Errno::EFAULT) }
    }

    /// Shows `act` the frame that a write changes.
    fn with_frame_for_write(
        &mut self,
        mm: MmId,
        addr: u64,
        right: Right,
        act: impl FnOnce(&Frame),
    ) -> Result<(), Errno> {
        let vma = self.accessible_vma(mm, addr, Access::Write, right)?.clone();
        let (page, into) = (addr / PAGE, addr - vma.start);
        match vma.backing {
            Backing::Shm { id, offset } => {
                let index = (offset + into) / PAGE;
                if !self.shm[id].has(index) {
                    return Err(Errno::EFAULT);
                }
                act(self.shm_page(id, index));
            }
            Backing::File { ino, offset } if vma.shared => {
                let index = (offset + into) / PAGE;
                let now = self.own_time();
                let frame = self.vfs.page_mut(ino, index, now)?.ok_or(Errno::EFAULT)?;
                act(&frame);
                drop(frame);
                self.drop_moved_pages();
            }
            Backing::Special(_) => return Err(Errno::EFAULT),
            Backing::Anon | Backing::File { .. } => {
                if !vma.marks.anon.has_pages() {
                    self.mms[mm].gets_pages(page * PAGE);
                }
                if self.mms[mm].pages.get(page).is_none() {
                    if let Backing::File { ino, offset } = vma.backing {
                        let source = self.vfs.page(ino, (offset + into) / PAGE);
                        let frame = Frame::from_bytes(source.ok_or(Errno::EFAULT)?.bytes());
                        self.mms[mm].pages.set(page, frame);
                    } else {
                        self.fill_block(mm, &vma, page * PAGE, true, Access::Write);
                        // By a debugger's right: a mapping that may not be written makes no pages itself.
                        if self.mms[mm].pages.get(page).is_none() {
                            self.mms[mm].pages.set(page, Frame::zeroed());
                        }
                    }
                    self.mms[mm].invalidate(page * PAGE, PAGE);
                }
                let exec = vma.prot & bloodhound_abi::consts::PROT_EXEC != 0;
                let uncoded = exec && self.mms[mm].pages.write_code(page);
                let (frame, copied) = self.mms[mm].pages.make_exclusive(page).ok_or(Errno::EFAULT)?;
                act(frame);
                if copied || uncoded {
                    self.mms[mm].invalidate(page * PAGE, PAGE);
                }
                self.settle(mm);
            }
        }
        Ok(())
    }

    /// The frame that a read sees, `None` for a page of zeroes that does not exist yet.
    fn frame_for_read(&self, mm: MmId, addr: u64, right: Right) -> Result<Option<Frame>, Errno> {
        let vma = self.accessible_vma(mm, addr, Access::Read, right)?;
        if let Some(frame) = self.mms[mm].pages.get(addr / PAGE) {
            return Ok(Some(frame.clone()));
        }
        let into = addr - vma.start;
        match vma.backing {
            Backing::Anon => Ok(None),
            Backing::File { ino, offset } => {
                let page = self.vfs.page(ino, (offset + into) / PAGE);
                page.map(Some).ok_or(Errno::EFAULT)
            }
            Backing::Shm { id, offset } => {
                let (shm, index) = (&self.shm[id], (offset + into) / PAGE);
                if shm.has(index) { Ok(shm.pages.get(&index).cloned()) } else { Err(Errno::EFAULT) }
            }
            Backing::Special("[vvar]") => Ok(self.vvar.clone()),
            Backing::Special(_) => Ok(self.mms[mm].vdso.get((into / PAGE) as usize).cloned()),
        }
    }
}
