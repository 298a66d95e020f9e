//! The x87, SSE and AVX state of a task ([`XState`]), in the standard format of XSAVE.
//!
//! Only these three components exist in our processor, and their form here is one for all hosts: always marked
//! as present, nothing of the host's in the reserved bytes, and no trace of the last x87 instruction, which not all processors
//! keep. So equal states are equal bytes.

use std::fmt;
use std::sync::Arc;

/// Size of the stored state: 512 bytes legacy area, 64 bytes header, 256 bytes of upper YMM halves.
pub const XSTATE_SIZE: usize = 832;

/// Offset of XSTATE_BV in the header.
const XSTATE_BV: usize = 512;
/// x87, SSE, AVX.
const COMPONENTS: u64 = 7;
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
/// MXCSR after reset: all exceptions masked. Also what a component that is not present means.
const MXCSR_INITIAL: u32 = 0x1f80;
/// The bits of MXCSR that every x86-64 processor has; AMD's misaligned mode (bit 17) is not among them.
const MXCSR_BITS: u32 = 0xffff;
/// FOP, FIP (FCS) and FDP (FDS): opcode and addresses of the last x87 instruction.
const LAST_INSTRUCTION: std::ops::Range<usize> = 6..24;
/// FCW after FNINIT.
const FCW_INITIAL: u16 = 0x037f;

/// The x87, SSE and AVX state of a task. Cloning shares it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct XState(Arc<[u8; XSTATE_SIZE]>);

impl XState {
    /// The state that a program starts with: FNINIT, MXCSR 0x1f80, all registers zero.
    #[must_use]
    pub fn initial() -> XState {
        XState(Arc::new(initial_bytes()))
    }

    /// Takes an XSAVE area in standard format (or the 512 bytes of FXSAVE) from the host or from a signal frame.
    ///
    /// Components that it does not have are initial; the rest is brought into the form described above, so any
    /// input gives a loadable state. `None` if there are less than 512 bytes.
    #[must_use]
    pub fn from_area(area: &[u8]) -> Option<XState> {
        let legacy = area.get(..512)?;
        let present = match area.get(XSTATE_BV..XSTATE_BV + 8) {
            Some(raw) => u64::from_le_bytes(raw.try_into().ok()?),
            None => 3,
        };
        let mut out = initial_bytes();
        if present & 1 != 0 {
            out[..MXCSR].copy_from_slice(&legacy[..MXCSR]);
            canonical_x87(&mut out);
            // Eight registers of 10 bytes in slots of 16; the rest of a slot is reserved.
            for slot in (32..160).step_by(16) {
                out[slot..slot + 10].copy_from_slice(&legacy[slot..slot + 10]);
            }
        }
        if present & 2 != 0 {
            out[160..416].copy_from_slice(&legacy[160..416]);
        }
        // MXCSR is saved whenever SSE or AVX is asked for, whether in use or not (Intel SDM 13.7).
        let raw = u32::from_le_bytes(legacy[MXCSR..MXCSR + 4].try_into().ok()?);
        if present & 6 != 0 {
            out[MXCSR..MXCSR + 4].copy_from_slice(&(raw & MXCSR_BITS).to_le_bytes());
        }
        if present & 4 != 0
            && let Some(upper) = area.get(576..XSTATE_SIZE)
        {
            out[576..].copy_from_slice(upper);
        }
        Some(XState(Arc::new(out)))
    }

    /// The state as an XSAVE area in standard format with XSTATE_BV = 7 (x87, SSE, AVX). Offsets are those of
    /// every x86-64 processor: legacy 0, header 512, AVX 576.
    #[must_use]
    pub fn area(&self) -> &[u8; XSTATE_SIZE] {
        &self.0
    }

    /// The control and status register of SSE.
    #[must_use]
    pub fn mxcsr(&self) -> u32 {
        u32::from_le_bytes([self.0[MXCSR], self.0[MXCSR + 1], self.0[MXCSR + 2], self.0[MXCSR + 3]])
    }
}

fn initial_bytes() -> [u8; XSTATE_SIZE] {
    let mut out = [0; XSTATE_SIZE];
    out[..2].copy_from_slice(&FCW_INITIAL.to_le_bytes());
    out[MXCSR..MXCSR + 4].copy_from_slice(&MXCSR_INITIAL.to_le_bytes());
    out[MXCSR_MASK..MXCSR_MASK + 4].copy_from_slice(&MXCSR_BITS.to_le_bytes());
    out[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&COMPONENTS.to_le_bytes());
    out
}

/// Brings the reserved and the derived bits of the control word, status word and tag word into the form that the processor
/// gives them when it loads and stores them, and forgets the last instruction.
fn canonical_x87(area: &mut [u8; XSTATE_SIZE]) {
    // Bit 6 reads as one; 7 and 13 to 15 as zero.
    area[0] = area[0] & 0x3f | 0x40;
    area[1] &= 0x1f;
    // "Error summary": an exception that is not masked; "busy" is the same.
    let pending = area[2] & !area[0] & 0x3f != 0;
    let summary = if pending { 0x80 } else { 0 };
    area[2] = area[2] & 0x7f | summary;
    area[3] = area[3] & 0x7f | summary;
    area[5] = 0;
    // Where the last instruction stood, its operand and its opcode. Processors of AMD do not keep them over the host's task
    // switches ("the fxsave leak" of arch/x86/kernel/fpu/core.c), which come at any time.
    area[LAST_INSTRUCTION].fill(0);
}

impl Default for XState {
    fn default() -> XState {
        XState::initial()
    }
}

impl fmt::Debug for XState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = self.0.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        write!(f, "XState {{ mxcsr: {:#x}, fnv: {sum:016x} }}", self.mxcsr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_components_are_initial() {
        // As XSAVE leaves it for a task that never used the registers: garbage where nothing is present.
        let mut area = [0xee; 2696];
        area[XSTATE_BV..XSTATE_BV + 8].fill(0);
        assert_eq!(XState::from_area(&area), Some(XState::initial()));
    }

    #[test]
    fn a_state_survives_its_own_area_and_host_bytes_do_not() {
        let mut area = [0; 2696];
        area[..XSTATE_SIZE].copy_from_slice(XState::initial().area());
        area[160] = 0x42; // xmm0
        area[576] = 0x43; // ymm0's upper half
        area[32] = 0x44; // st0
        area[28..32].copy_from_slice(&0x2_ffffu32.to_le_bytes());
        area[6..24].fill(0xff); // what and where the last x87 instruction was
        area[464..472].fill(0xff); // the host's feature mask in the software bytes
        area[1000] = 1; // AVX-512
        let state = XState::from_area(&area).unwrap();
        assert_eq!(XState::from_area(state.area()), Some(state.clone()));
        let out = state.area();
        assert_eq!((out[160], out[576], out[32], out[464]), (0x42, 0x43, 0x44, 0));
        assert_eq!(out[28..32], 0xffffu32.to_le_bytes());
        assert_eq!(out[6..24], [0; 18]);
        assert_ne!(state, XState::initial());
    }

    #[test]
    fn fxsave_area_is_enough_and_less_is_not() {
        let fxsave = &XState::initial().area()[..512].to_vec();
        assert_eq!(XState::from_area(fxsave), Some(XState::initial()));
        assert_eq!(XState::from_area(&fxsave[..511]), None);
    }
}
