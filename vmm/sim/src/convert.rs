//! Between the kernel's and the platform's views of one thing: registers, extended state, page mappings. The kernel
//! does not know the platform, so this is the only place where both meet.

use std::sync::Arc;

use bloodhound_abi::Regs;
use bloodhound_kernel::mm::fault::PageMapping;
use bloodhound_platform as platform;

/// Kernel registers for the platform.
pub fn to_platform(r: &Regs) -> platform::Regs {
    platform::Regs {
        rax: r.rax,
        rbx: r.rbx,
        rcx: r.rcx,
        rdx: r.rdx,
        rsi: r.rsi,
        rdi: r.rdi,
        rbp: r.rbp,
        rsp: r.rsp,
        r8: r.r8,
        r9: r.r9,
        r10: r.r10,
        r11: r.r11,
        r12: r.r12,
        r13: r.r13,
        r14: r.r14,
        r15: r.r15,
        rip: r.rip,
        rflags: r.eflags,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
        orig_rax: r.orig_rax,
    }
}

/// The platform's registers into the kernel's; segments keep their fixed values.
pub fn from_platform(p: &platform::Regs, r: &mut Regs) {
    (r.rax, r.rbx, r.rcx, r.rdx) = (p.rax, p.rbx, p.rcx, p.rdx);
    (r.rsi, r.rdi, r.rbp, r.rsp) = (p.rsi, p.rdi, p.rbp, p.rsp);
    (r.r8, r.r9, r.r10, r.r11) = (p.r8, p.r9, p.r10, p.r11);
    (r.r12, r.r13, r.r14, r.r15) = (p.r12, p.r13, p.r14, p.r15);
    (r.rip, r.eflags, r.orig_rax) = (p.rip, p.rflags, p.orig_rax);
    (r.fs_base, r.gs_base) = (p.fs_base, p.gs_base);
}

/// Saved extended state as the kernel keeps it.
pub fn xstate_bytes(x: &platform::XState) -> Arc<Vec<u8>> {
    Arc::new(x.area().to_vec())
}

/// Extended state for the platform; `None` is the initial one.
pub fn xstate(bytes: Option<&Arc<Vec<u8>>>) -> platform::XState {
    bytes.and_then(|b| platform::XState::from_area(b)).unwrap_or_default()
}

/// Page mappings for the platform, neighbours joined into runs.
pub fn mappings(pages: &[PageMapping], out: &mut Vec<platform::Mapping>) {
    out.clear();
    for p in pages {
        let prot = platform::Prot { read: true, write: p.write, exec: p.exec };
        if let Some(last) = out.last_mut() {
            let bytes = u64::from(last.pages) * 4096;
            if last.prot == prot && last.addr + bytes == p.addr && last.frame_offset + bytes == p.frame {
                last.pages += 1;
                continue;
            }
        }
        out.push(platform::Mapping { addr: p.addr, frame_offset: p.frame, pages: 1, prot });
    }
}
