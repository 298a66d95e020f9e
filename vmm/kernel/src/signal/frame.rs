//! The frame that a signal handler runs on: Linux's `struct rt_sigframe` with a full XSAVE area, written at delivery and
//! read back by rt_sigreturn(2). Neighbour: [`super`] decides what is delivered.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Sigaction, Sigcontext, Siginfo, StackT, Ucontext};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::ctx::{Ctx, Ptr};

/// Byte size of the extended state in a frame: XSAVE standard format with AVX (x87 512 + header 64 + AVX 256).
const XSAVE_SIZE: usize = 832;
/// `FP_XSTATE_MAGIC1` and `2` (asm/sigcontext.h).
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;

impl Ctx<'_> {
    /// Writes the rt_sigframe and points the task at the handler.
    pub(super) fn push_frame(&mut self, signo: u32, info: &Siginfo, action: &Sigaction) -> Result<(), Errno> {
        let task = self.task();
        let (regs, altstack) = (task.regs, task.altstack);
        let mask = task.restore_mask.unwrap_or(task.sigmask);
        let mut sp = regs.rsp.wrapping_sub(128);
        let on_alt = on_stack(&altstack, regs.rsp);
        let usable = altstack.flags as u64 & c::SS_DISABLE == 0;
        if action.flags & c::SA_ONSTACK != 0 && usable && !on_alt {
            sp = altstack.sp.wrapping_add(altstack.size);
        }
        let xstate = self.xstate_bytes();
        let fp = sp.wrapping_sub(XSAVE_SIZE as u64 + 4) & !63;
        let mut fp_bytes = xstate;
        let sw = [MAGIC1.to_le_bytes(), ((XSAVE_SIZE + 4) as u32).to_le_bytes()];
        fp_bytes[464..468].copy_from_slice(&sw[0]);
        fp_bytes[468..472].copy_from_slice(&sw[1]);
        fp_bytes[472..480].copy_from_slice(&7u64.to_le_bytes());
        fp_bytes[480..484].copy_from_slice(&(XSAVE_SIZE as u32).to_le_bytes());
        fp_bytes.extend_from_slice(&MAGIC2.to_le_bytes());
        let size = (8 + size_of::<Ucontext>() + size_of::<Siginfo>()) as u64;
        let frame = (fp.wrapping_sub(size) & !15).wrapping_sub(8);
        let mut uc = Ucontext::new_zeroed();
        // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
        uc.flags = 7;
        uc.stack = altstack;
        if on_alt {
            uc.stack.flags |= c::SS_ONSTACK as i32;
        }
        uc.sigmask = mask;
        uc.mcontext = context(&regs, fp);
        // Every frame shows the thread's last exception, whatever its signal.
        let exception = self.task().exception;
        (uc.mcontext.trapno, uc.mcontext.err, uc.mcontext.cr2) =
            (exception.trapno, exception.err, exception.cr2);
        self.write_bytes(fp, &fp_bytes)?;
        self.write_bytes(frame, &action.restorer.to_le_bytes())?;
        self.write_bytes(frame + 8, uc.as_bytes())?;
        let info_at = frame + 8 + size_of::<Ucontext>() as u64;
        self.write_bytes(info_at, info.as_bytes())?;
        if altstack.flags as u64 & c::SS_AUTODISARM != 0 {
            self.task_mut().altstack.flags = c::SS_DISABLE as i32;
        }
        let task = self.task_mut();
        task.xstate = None;
        task.xstate_dirty = true;
        let r = &mut task.regs;
        (r.rdi, r.rsi, r.rdx) = (u64::from(signo), info_at, frame + 8);
        (r.rax, r.rsp, r.rip, r.orig_rax) = (0, frame, action.handler, u64::MAX);
        // Direction, resume and trap flags are clear in a handler.
        r.eflags &= !0x1_0500;
        Ok(())
    }

    fn xstate_bytes(&self) -> Vec<u8> {
        let mut bytes = match &self.task().xstate {
            Some(x) => x.as_ref().clone(),
            None => initial_xstate(),
        };
        bytes.resize(XSAVE_SIZE, 0);
        bytes
    }

    /// rt_sigreturn(2): back to the state in the frame at the stack pointer.
    pub(crate) fn sigreturn(&mut self) -> Result<(), Stop> {
        let frame = self.task().regs.rsp.wrapping_sub(8);
        let uc: Ucontext = self.read_obj(Ptr(frame.wrapping_add(8)))?;
        let m = uc.mcontext;
        if m.fpstate != 0 {
            let mut bytes = vec![0; XSAVE_SIZE];
            self.read_bytes(m.fpstate, &mut bytes)?;
            let magic = u32::from_le_bytes([bytes[464], bytes[465], bytes[466], bytes[467]]);
            if magic != MAGIC1 {
                bytes[512..].fill(0);
                bytes[512] = 3;
            }
            bytes[464..512].fill(0);
            sanitise_xstate(&mut bytes);
            self.task_mut().xstate = Some(std::sync::Arc::new(bytes));
        } else {
            self.task_mut().xstate = None;
        }
        let task = self.task_mut();
        task.xstate_dirty = true;
        task.sigmask = uc.sigmask & !UNBLOCKABLE;
        task.altstack = uc.stack;
        task.altstack.flags &= !(c::SS_ONSTACK as i32);
        let r = &mut task.regs;
        (r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15) =
            (m.r8, m.r9, m.r10, m.r11, m.r12, m.r13, m.r14, m.r15);
        (r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx) = (m.rdi, m.rsi, m.rbp, m.rbx, m.rdx, m.rax, m.rcx);
        (r.rsp, r.rip) = (m.rsp, m.rip);
        // Only the flags user code may change (FIX_EFLAGS in arch/x86).
        const USER_FLAGS: u64 = 0x0005_0dd5;
        r.eflags = (m.eflags & USER_FLAGS) | 0x202;
        r.orig_rax = u64::MAX;
        Ok(())
    }
}

/// Whether a stack pointer is on the alternate signal stack (`__on_sig_stack`).
pub(crate) fn on_stack(stack: &StackT, sp: u64) -> bool {
    stack.size > 0 && sp > stack.sp && sp - stack.sp <= stack.size
}

/// Header bits a processor would reject are cleared, so that no frame can break the platform.
fn sanitise_xstate(bytes: &mut [u8]) {
    // MXCSR: reserved bits must be zero.
    let mxcsr = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) & 0xffff;
    bytes[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    bytes[512] &= 7;
    bytes[513..576].fill(0);
}

/// The state after FNINIT with MXCSR 0x1f80.
pub fn initial_xstate() -> Vec<u8> {
    let mut bytes = vec![0; XSAVE_SIZE];
    bytes[0] = 0x7f;
    bytes[1] = 0x03;
    bytes[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    bytes[512] = 3;
    bytes
}

fn context(r: &bloodhound_abi::Regs, fpstate: u64) -> Sigcontext {
    Sigcontext {
        r8: r.r8,
        r9: r.r9,
        r10: r.r10,
        r11: r.r11,
        r12: r.r12,
        r13: r.r13,
        r14: r.r14,
        r15: r.r15,
        rdi: r.rdi,
        rsi: r.rsi,
        rbp: r.rbp,
        rbx: r.rbx,
        rdx: r.rdx,
        rax: r.rax,
        rcx: r.rcx,
        rsp: r.rsp,
        rip: r.rip,
        eflags: r.eflags,
        cs: r.cs as u16,
        ss: r.ss as u16,
        fpstate,
        ..Sigcontext::default()
    }
}
