//! The frame that a signal handler runs on: Linux's `struct rt_sigframe` with a full XSAVE area, written at delivery.
//! Neighbours: [`super`] decides what is delivered, [`super::restore`] reads frames back.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Sigaction, Sigcontext, Siginfo, StackT, Ucontext};
use zerocopy::{FromZeros, IntoBytes};

use crate::ctx::Ctx;
use crate::task::{Selectors, Vectors};

/// Byte size of the extended state in a frame: XSAVE standard format with AVX (x87 512 + header 64 + AVX 256).
pub(super) const XSAVE_SIZE: usize = 832;
/// `FP_XSTATE_MAGIC1` and `2` (asm/sigcontext.h).
pub(super) const MAGIC1: u32 = 0x4650_5853;
pub(super) const MAGIC2: u32 = 0x4650_5845;

impl Ctx<'_> {
    /// Writes the rt_sigframe and points the task at the handler.
    pub(super) fn push_frame(&mut self, signo: u32, info: &Siginfo, action: &Sigaction) -> Result<(), Errno> {
        // "if (ksig->ka.sa.sa_flags & SA_RESTORER) ... else return -EFAULT" (arch/x86): the C library always gives one.
        if action.flags & c::SA_RESTORER == 0 {
            return Err(Errno::EFAULT);
        }
        let task = self.task();
        let (regs, altstack) = (task.regs, task.altstack);
        let mask = task.restore_mask.unwrap_or(task.sigmask);
        // Leaf functions use 128 bytes below their stack pointer (the red zone of the ABI).
        let mut sp = regs.rsp.wrapping_sub(128);
        let enters = action.flags & c::SA_ONSTACK != 0 && altstack.size > 0 && !on_alternate(&altstack, sp);
        if enters {
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
        // "If we are on the alternate signal stack and would overflow it, don't."
        if (enters || on_alternate(&altstack, regs.rsp)) && !on_stack(&altstack, frame) {
            return Err(Errno::EFAULT);
        }
        let mut uc = Ucontext::new_zeroed();
        // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
        uc.flags = 7;
        uc.stack = altstack;
        uc.sigmask = mask;
        uc.mcontext = context(&regs, self.task().selectors, fp);
        // Every frame shows the thread's last exception, whatever its signal.
        let task = self.task();
        uc.mcontext.trapno = u64::from(task.exception.vector);
        uc.mcontext.err = u64::from(task.exception.error_code);
        uc.mcontext.cr2 = task.cr2;
        self.write_bytes(fp, &fp_bytes)?;
        self.write_bytes(frame, &action.restorer.to_le_bytes())?;
        self.write_bytes(frame + 8, uc.as_bytes())?;
        let info_at = frame + 8 + size_of::<Ucontext>() as u64;
        // "if (ksig->ka.sa.sa_flags & SA_SIGINFO)" (arch/x86): without the flag the place stays as the program left it.
        if action.flags & c::SA_SIGINFO != 0 {
            self.write_bytes(info_at, info.as_bytes())?;
        }
        if altstack.flags as u32 as u64 & c::SS_AUTODISARM != 0 {
            self.task_mut().altstack = StackT { flags: c::SS_DISABLE as i32, ..StackT::default() };
        }
        let task = self.task_mut();
        task.vectors = Vectors::INITIAL;
        task.selectors = Selectors::default();
        let r = &mut task.regs;
        (r.rdi, r.rsi, r.rdx) = (u64::from(signo), info_at, frame + 8);
        (r.rax, r.rsp, r.rip, r.orig_rax) = (0, frame, action.handler, u64::MAX);
        // Direction, resume and trap flags are clear in a handler.
        r.rflags &= !0x1_0500;
        Ok(())
    }

    fn xstate_bytes(&self) -> Vec<u8> {
        let mut bytes = match self.task().vectors.held() {
            Some(x) => x.as_ref().clone(),
            None => initial_xstate(),
        };
        bytes.resize(XSAVE_SIZE, 0);
        bytes
    }
}

/// Whether a stack pointer is on the alternate signal stack (`__on_sig_stack`).
pub(crate) fn on_stack(stack: &StackT, sp: u64) -> bool {
    stack.size > 0 && sp > stack.sp && sp - stack.sp <= stack.size
}

/// The same as it counts for a new signal: a stack that is disarmed at delivery is never in use (`on_sig_stack`).
pub(crate) fn on_alternate(stack: &StackT, sp: u64) -> bool {
    stack.flags as u32 as u64 & c::SS_AUTODISARM == 0 && on_stack(stack, sp)
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

fn context(r: &bloodhound_abi::Regs, selectors: Selectors, fpstate: u64) -> Sigcontext {
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
        eflags: r.rflags,
        cs: selectors.cs,
        ss: selectors.ss,
        fpstate,
        ..Sigcontext::default()
    }
}
