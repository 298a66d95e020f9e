//! What a processor reports of application code ([`Exception`], [`Access`]), and the signal that Linux makes of it: the table
//! of signals and `si_code`s of arch/x86/kernel/traps.c.
//!
//! Neighbours: platforms fill in an [`Exception`] as the processor or the host's kernel gives it, the machine loop asks for its
//! signal, the kernel shows both in the signal frame.

use crate::consts as c;

/// How memory was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or an instruction that both reads and writes.
    Write,
    /// An instruction fetch.
    Exec,
}

/// Vectors of exceptions (Intel SDM, volume 3, table 6-1).
#[allow(missing_docs)] // the architecture's names
pub mod vector {
    pub const DE: u8 = 0;
    pub const DB: u8 = 1;
    pub const BP: u8 = 3;
    pub const OF: u8 = 4;
    pub const BR: u8 = 5;
    pub const UD: u8 = 6;
    pub const TS: u8 = 10;
    pub const NP: u8 = 11;
    pub const SS: u8 = 12;
    pub const GP: u8 = 13;
    pub const PF: u8 = 14;
    pub const MF: u8 = 16;
    pub const AC: u8 = 17;
    pub const XM: u8 = 19;
}

/// Bits of a page fault's error code (Intel SDM, volume 3, 4.7).
#[allow(missing_docs)] // the architecture's names
pub mod page_fault {
    pub const PRESENT: u32 = 1;
    pub const WRITE: u32 = 1 << 1;
    pub const USER: u32 = 1 << 2;
    pub const RESERVED: u32 = 1 << 3;
    pub const FETCH: u32 = 1 << 4;
}

/// An exception that application code raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exception {
    /// Which one: `trapno` of a signal frame. See [`vector`].
    pub vector: u8,
    /// The processor's error code, 0 for exceptions that have none: `err` of a signal frame.
    pub error_code: u32,
    /// What `si_addr` shows: of a page fault the address that was accessed (CR2), of #DE, #UD, #MF, #XM and #DB that of the
    /// instruction, of all others 0.
    pub address: u64,
}

impl Exception {
    /// `int3`. Linux tells of no address.
    pub const BREAKPOINT: Exception = Exception { vector: vector::BP, error_code: 0, address: 0 };

    /// A general protection fault, with the selector or interrupt that it is about, or 0.
    #[must_use]
    pub const fn general_protection(error_code: u32) -> Exception {
        Exception { vector: vector::GP, error_code, address: 0 }
    }

    /// A fault without an error code, at an instruction.
    #[must_use]
    pub const fn at(vector: u8, address: u64) -> Exception {
        Exception { vector, error_code: 0, address }
    }

    /// The signal that Linux makes of it (arch/x86/kernel/traps.c).
    #[must_use]
    pub fn signal(&self) -> u32 {
        let signal = match self.vector {
            vector::DE | vector::MF | vector::XM => c::SIGFPE,
            vector::DB | vector::BP => c::SIGTRAP,
            vector::UD => c::SIGILL,
            vector::NP | vector::SS | vector::AC => c::SIGBUS,
            _ => c::SIGSEGV,
        };
        signal as u32
    }

    /// `si_code` of that signal. `xsave` gives the task's x87 and SSE registers in the form of XSAVE; it is asked for #MF and
    /// #XM only, whose code stands there. A page fault counts as one of an address where nothing is mapped; #DB as one of
    /// `int1`, not as a single step.
    #[must_use]
    pub fn si_code<'a>(&self, xsave: impl FnOnce() -> &'a [u8]) -> i32 {
        let code = match self.vector {
            vector::DE => c::FPE_INTDIV,
            vector::DB => c::TRAP_BRKPT,
            vector::UD => c::ILL_ILLOPN,
            vector::AC => c::BUS_ADRALN,
            vector::PF => c::SEGV_MAPERR,
            vector::MF => raised_by_x87(xsave()),
            vector::XM => raised_by_sse(xsave()),
            // "Sent by the kernel": force_sig(), without more information.
            _ => c::SI_KERNEL,
        };
        code as i32
    }
}

/// #MF: what the status word says and the control word does not mask.
fn raised_by_x87(xsave: &[u8]) -> u64 {
    let half = |at: usize| u32::from(u16::from_le_bytes([xsave[at], xsave[at + 1]]));
    float_code(half(2) & !half(0))
}

/// #XM: the flags of MXCSR that its masks, seven bits further up, do not mask.
fn raised_by_sse(xsave: &[u8]) -> u64 {
    let mxcsr = u32::from_le_bytes([xsave[24], xsave[25], xsave[26], xsave[27]]);
    float_code(mxcsr & !(mxcsr >> 7))
}

/// In the order in which Linux looks at the bits (fpu__exception_code).
fn float_code(raised: u32) -> u64 {
    let table = [
        (0x01, c::FPE_FLTINV),
        (0x04, c::FPE_FLTDIV),
        (0x08, c::FPE_FLTOVF),
        // Denormal and underflow.
        (0x12, c::FPE_FLTUND),
        (0x20, c::FPE_FLTRES),
    ];
    table.into_iter().find_map(|(bits, code)| (raised & bits != 0).then_some(code)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_those_of_linux() {
        let of = |vector| {
            let exception = Exception { vector, ..Exception::default() };
            (u64::from(exception.signal()), exception.si_code(|| panic!("no state is needed")) as u64)
        };
        assert_eq!(of(vector::DE), (c::SIGFPE, c::FPE_INTDIV));
        assert_eq!(of(vector::DB), (c::SIGTRAP, c::TRAP_BRKPT));
        assert_eq!(of(vector::BP), (c::SIGTRAP, c::SI_KERNEL));
        assert_eq!(of(vector::UD), (c::SIGILL, c::ILL_ILLOPN));
        assert_eq!(of(vector::NP), (c::SIGBUS, c::SI_KERNEL));
        assert_eq!(of(vector::SS), (c::SIGBUS, c::SI_KERNEL));
        assert_eq!(of(vector::AC), (c::SIGBUS, c::BUS_ADRALN));
        for vector in [vector::OF, vector::BR, vector::TS, vector::GP] {
            assert_eq!(of(vector), (c::SIGSEGV, c::SI_KERNEL), "vector {vector}");
        }
    }

    #[test]
    fn floating_point_codes_stand_in_the_state() {
        let code = |vector, fcw: u16, fsw: u16, mxcsr: u32| {
            let mut area = [0; 512];
            area[..2].copy_from_slice(&fcw.to_le_bytes());
            area[2..4].copy_from_slice(&fsw.to_le_bytes());
            area[24..28].copy_from_slice(&mxcsr.to_le_bytes());
            let exception = Exception { vector, ..Exception::default() };
            (exception.signal() as u64, exception.si_code(|| &area) as u64)
        };
        // Division by zero in x87, masked in SSE, and the other way round.
        assert_eq!(code(vector::MF, 0x37b, 4, 0x1f80), (c::SIGFPE, c::FPE_FLTDIV));
        assert_eq!(code(vector::XM, 0x37f, 4, 0x1d84), (c::SIGFPE, c::FPE_FLTDIV));
        assert_eq!(code(vector::MF, 0x37e, 1, 0x1f80), (c::SIGFPE, c::FPE_FLTINV));
        assert_eq!(code(vector::XM, 0x37f, 0, 0x1e82), (c::SIGFPE, c::FPE_FLTUND), "denormal");
        assert_eq!(code(vector::XM, 0x37f, 0, 0x0fa0), (c::SIGFPE, c::FPE_FLTRES));
        assert_eq!(code(vector::XM, 0x37f, 0, 0x1fa0), (c::SIGFPE, 0), "masked");
    }
}
