//! Instructions whose result differs between platforms or from run to run, as is known ([`differs`]).
//!
//! They show the host (time, processor, random numbers, its descriptor tables), or belong to what one platform can
//! forbid and another cannot. What they do at least, which is not to break out, is tested by `escape`.

use iced_x86::{EncodingKind, Instruction, Mnemonic};

/// Whether this is one of them.
pub(crate) fn differs(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Clac, Cpuid, Hlt, Int, Invlpga, Iret, Iretd, Iretq, Lar, Lfs, Lgs, Lsl, Lss, Monitor, Monitorx,
        Mwait, Mwaitx, Rdfsbase, Rdgsbase, Rdpid, Rdpkru, Rdpmc, Rdpru, Rdrand, Rdseed, Rdtsc, Rdtscp, Retf,
        Sgdt, Sidt, Sldt, Smsw, Stac, Str, Swapgs, Sysenter, Sysexit, Verr, Verw, Vmcall, Vmfunc, Vmmcall,
        Wrfsbase, Wrgsbase, Wrpkru, Xbegin, Xgetbv, Xrstor, Xrstor64, Xrstors, Xrstors64, Xsave, Xsave64,
        Xsavec, Xsavec64, Xsaveopt, Xsaveopt64, Xsaves, Xsaves64, Xsetbv,
    };
    // AVX-512 and its masks are of the host's processor, not of ours.
    let avx512 = instruction.encoding() == EncodingKind::EVEX
        || (0..instruction.op_count()).any(|n| instruction.op_register(n).is_k());
    let far = instruction.is_call_far()
        || instruction.is_call_far_indirect()
        || instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect();
    // XSAVE and its kin write as much as the host has; FXSAVE has one form. Clac and Stac are general protection on one processor and invalid on another.
    let named = matches!(
        instruction.mnemonic(),
        Clac | Cpuid
            | Hlt
            | Int
            | Invlpga
            | Iret
            | Iretd
            | Iretq
            | Lar
            | Lfs
            | Lgs
            | Lsl
            | Lss
            | Monitor
            | Monitorx
            | Mwait
            | Mwaitx
            | Rdfsbase
            | Rdgsbase
            | Rdpid
            | Rdpkru
            | Rdpmc
            | Rdpru
            | Rdrand
            | Rdseed
            | Rdtsc
            | Rdtscp
            | Retf
            | Sgdt
            | Sidt
            | Sldt
            | Smsw
            | Stac
            | Str
            | Swapgs
            | Sysenter
            | Sysexit
            | Verr
            | Verw
            | Vmcall
            | Vmfunc
            | Vmmcall
            | Wrfsbase
            | Wrgsbase
            | Wrpkru
            | Xbegin
            | Xgetbv
            | Xrstor
            | Xrstor64
            | Xrstors
            | Xrstors64
            | Xsave
            | Xsave64
            | Xsavec
            | Xsavec64
            | Xsaveopt
            | Xsaveopt64
            | Xsaves
            | Xsaves64
            | Xsetbv
    );
    named || avx512 || far || segment(instruction)
}

/// Loads a segment register.
fn segment(instruction: &Instruction) -> bool {
    let target = instruction.op0_register();
    target.is_segment_register() && instruction.mnemonic() != Mnemonic::Push
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn what_shows_the_host_is_left_out_and_nothing_else() {
        let differs = |code: &[u8]| super::differs(&Decoder::new(64, code, DecoderOptions::NONE).decode());
        let out: [&[u8]; 8] = [
            b"\x0f\x31",
            b"\x0f\xa2",
            b"\x0f\xc7\xf0",
            b"\xcd\x80",
            b"\x0f\xae\x20",
            b"\x8e\xd8",
            b"\x62\xf1\x7c\x48\x58\xc1",
            b"\xc5\xf8\x90\xc9",
        ];
        for code in out {
            assert!(differs(code), "{code:02x?}");
        }
        let within: [&[u8]; 7] =
            [b"\x0f\x05", b"\xcc", b"\x9d", b"\x8c\xd8", b"\x0f\xae\x00", b"\xc5\xfc\x58\xc1", b"\xf3\xa4"];
        for code in within {
            assert!(!differs(code), "{code:02x?}");
        }
    }
}
