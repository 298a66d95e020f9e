//! Back from a signal handler: rt_sigreturn(2), which trusts nothing that it finds in the frame. What the processor would
//! refuse to load is SIGSEGV here as well; the checks are in the order of Linux's, because what was loaded before shows.
//!
//! Neighbour: [`super::frame`] writes frames.

use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{StackT, Ucontext};

use super::frame::{MAGIC1, MAGIC2, XSAVE_SIZE, on_alternate};
use super::*;
use crate::ctx::{Ctx, Ptr};
use crate::task::{Selectors, Vectors};

/// `MINSIGSTKSZ`.
const LEAST_STACK: u64 = 2048;
/// First address that is not user space's for copies (`TASK_SIZE_MAX`).
const USER_END: u64 = 0x7fff_ffff_f000;
/// The flags that a frame gives back (FIX_EFLAGS): AC, OF, DF, TF, SF, ZF, AF, PF, CF, RF. Others stay as they are.
const FRAME_FLAGS: u64 = 0x5_0dd5;
/// `UC_STRICT_RESTORE_SS`.
const STRICT_SS: u64 = 4;
/// 32-bit user code.
const COMPAT_CS: u16 = 0x23;

/// Offsets in the FXSAVE area and the header of XSAVE behind it.
const MXCSR: usize = 24;
const MAGIC: usize = 464;
const EXTENDED: usize = 468;
const FEATURES: usize = 472;
const STATE_SIZE: usize = 480;
const LEGACY: usize = 512;
const XSTATE_BV: usize = LEGACY;
const XCOMP_BV: usize = LEGACY + 8;
const AVX: usize = LEGACY + 64;
/// x87, SSE, AVX as bits of XSTATE_BV: all that the processor has which programs see.
const X87: u64 = 1;
const SSE: u64 = 2;
const YMM: u64 = 4;
/// Bits that MXCSR has.
const MXCSR_BITS: u32 = 0xffff;

impl Ctx<'_> {
    /// rt_sigreturn(2): takes the state of the frame at the stack pointer. An error is Linux's `badframe`: SIGSEGV.
    pub(crate) fn sigreturn(&mut self) -> Result<(), Stop> {
        // What a bad frame leaves.
        self.task_mut().regs.rax = 0;
        self.task_mut().regs.orig_rax = u64::MAX;
        let frame = self.task().regs.rsp.wrapping_sub(8);
        let uc: Ucontext = self.read_obj(Ptr(frame.wrapping_add(8)))?;
        let m = uc.mcontext;
        if m.cs | 3 == COMPAT_CS {
            return Err(Stop::Unsupported("rt_sigreturn to 32-bit code".into()));
        }
        self.task_mut().sigmask = uc.sigmask & !UNBLOCKABLE;
        // Before the registers since Linux 6.12: a handler on the alternate stack cannot change it. "Squash all but EFAULT",
        // and that is none here.
        let _squashed = self.set_altstack(uc.stack, frame.wrapping_add(8));
        let r = &mut self.task_mut().regs;
        (r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15) =
            (m.r8, m.r9, m.r10, m.r11, m.r12, m.r13, m.r14, m.r15);
        (r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx) = (m.rdi, m.rsi, m.rbp, m.rbx, m.rdx, m.rax, m.rcx);
        (r.rsp, r.rip) = (m.rsp, m.rip);
        r.rflags = r.rflags & !FRAME_FLAGS | m.eflags & FRAME_FLAGS;
        // With the lowest privilege; what remains wrong is found on the way to user code.
        let mut selectors = Selectors { cs: m.cs | 3, ss: m.ss | 3 };
        let right = Selectors::default();
        if uc.flags & STRICT_SS == 0 && selectors.cs == right.cs {
            selectors.ss = right.ss;
        }
        self.task_mut().selectors = selectors;
        let state = self.frame_state(m.fpstate);
        // After an error the state is initial.
        self.task_mut().vectors = Vectors::Held(state.as_ref().ok().cloned().flatten());
        if let Err(e) = state {
            self.task_mut().regs.rax = 0;
            return Err(e.into());
        }
        Ok(())
    }

    /// The extended state that a frame points to; `None` is the initial one. EFAULT also stands for what `xrstor` would
    /// refuse.
    fn frame_state(&mut self, at: u64) -> Result<Option<Arc<Vec<u8>>>, Errno> {
        if at == 0 {
            return Ok(None);
        }
        let end = at.checked_add(XSAVE_SIZE as u64 + 4).ok_or(Errno::EFAULT)?;
        // `xrstor` and `fxrstor` want their operands aligned (to 64 and to 16 bytes).
        if end > USER_END || !at.is_multiple_of(16) {
            return Err(Errno::EFAULT);
        }
        let mut bytes = initial_xstate();
        // Not counted among the bytes that the call copied ([`Ctx::moved`]): parts of the saved state that mean nothing, such as
        // the address of the last x87 instruction, are the processor's.
        let mm = self.process().mm;
        self.node.copy_from_user(mm, at, &mut bytes[..LEGACY])?;
        let size = word(&bytes, STATE_SIZE);
        let extended = word(&bytes, MAGIC) == MAGIC1
            && (AVX as u32..=XSAVE_SIZE as u32).contains(&size)
            && size <= word(&bytes, EXTENDED)
            && self.read_obj::<u32>(Ptr(at + u64::from(size)))? == MAGIC2;
        let wanted = match extended {
            true => long(&bytes, FEATURES) & (X87 | SSE | YMM),
            // The old format.
            false => X87 | SSE,
        };
        let mut present = wanted;
        if extended {
            if !at.is_multiple_of(64) {
                return Err(Errno::EFAULT);
            }
            self.node.copy_from_user(mm, at, &mut bytes)?;
            present &= long(&bytes, XSTATE_BV);
            // "#GP if XSTATE_BV sets a bit that is not set in XCR0 [or] bytes 23:8 of the header are not all zero" (Intel
            // SDM 13.8.1, without XSAVEC).
            if long(&bytes, XSTATE_BV) > 7 || bytes[XCOMP_BV..XCOMP_BV + 16].iter().any(|b| *b != 0) {
                return Err(Errno::EFAULT);
            }
        }
        // MXCSR is loaded with SSE or AVX, whether these are present or not.
        if wanted & (SSE | YMM) != 0 && word(&bytes, MXCSR) & !MXCSR_BITS != 0 {
            return Err(Errno::EFAULT);
        }
        Ok(Some(Arc::new(loaded(bytes, wanted, present))))
    }

    /// Sets the alternate stack as sigaltstack(2) does for a task whose stack pointer is `sp`.
    pub(crate) fn set_altstack(&mut self, new: StackT, sp: u64) -> Result<(), Errno> {
        // "EPERM An attempt was made to change the alternate signal stack while it was active."
        if on_alternate(&self.task().altstack, sp) {
            return Err(Errno::EPERM);
        }
        let flags = new.flags as u32 as u64;
        if !matches!(flags & !c::SS_AUTODISARM, 0 | c::SS_ONSTACK | c::SS_DISABLE) {
            return Err(Errno::EINVAL);
        }
        let none = flags & c::SS_DISABLE != 0;
        if !none && new.size < LEAST_STACK {
            return Err(Errno::ENOMEM);
        }
        self.task_mut().altstack = match none {
            true => StackT { flags: new.flags, ..StackT::default() },
            false => StackT { pad: 0, ..new },
        };
        Ok(())
    }
}

impl Node {
    /// Whether the processor would refuse the selectors that the task goes back to user code with: the error code of that
    /// general protection fault.
    pub(super) fn bad_selector(&self, tid: Tid) -> Option<u32> {
        let (is, right) = (self.task(tid).selectors, Selectors::default());
        // The table and the index, without the privilege.
        let wrong = |selector: u16, right: u16| (selector != right).then_some(u32::from(selector & !3));
        wrong(is.cs, right.cs).or_else(|| wrong(is.ss, right.ss))
    }
}

/// The state after loading the components `present` of `wanted` from `bytes`; all others are initial.
fn loaded(bytes: Vec<u8>, wanted: u64, present: u64) -> Vec<u8> {
    let mut out = initial_xstate();
    let mut copy = |from: usize, to: usize| out[from..to].copy_from_slice(&bytes[from..to]);
    if present & X87 != 0 {
        copy(0, MXCSR);
        copy(32, 160);
    }
    if present & SSE != 0 {
        copy(160, 416);
    }
    if present & YMM != 0 {
        copy(AVX, XSAVE_SIZE);
    }
    // Components that were not asked for are initialised behind, in the compact format, where MXCSR belongs to SSE alone.
    if wanted & SSE != 0 {
        copy(MXCSR, MXCSR + 4);
    }
    out[XSTATE_BV] = (X87 | SSE | YMM) as u8;
    out
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
