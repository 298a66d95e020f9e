//! Instructions of rings that are not ours, and software interrupts.

use bloodhound_abi::consts as c;
use bloodhound_platform::{Platform, Trap, Unsupported, XState};

use super::{BREAK, COMPAT, Case, End, GP, Rule, check, fault, ill};
use crate::{CODE, DATA, Guest, Make};

/// "#GP(0) if the current privilege level is not 0", on all processors (Intel SDM volume 2, AMD APM volume 3); and input
/// and output without permission.
const PROTECTED: [(&str, &[u8]); 51] = [
    ("hlt", b"\xf4"),
    ("cli", b"\xfa"),
    ("sti", b"\xfb"),
    ("in al, 0x60", b"\xe4\x60"),
    ("in eax, 0x80", b"\xe5\x80"),
    ("in al, dx", b"\xec"),
    ("in ax, dx", b"\x66\xed"),
    ("in eax, dx", b"\xed"),
    ("out 0x80, al", b"\xe6\x80"),
    ("out 0xcf, eax", b"\xe7\xcf"),
    ("out dx, al", b"\xee"),
    ("out dx, eax", b"\xef"),
    ("insb", b"\x6c"),
    ("insd", b"\x6d"),
    ("outsb", b"\x6e"),
    ("outsd", b"\x6f"),
    ("rep insb", b"\xf3\x6c"),
    ("rep outsd", b"\xf3\x6f"),
    ("mov rax, cr0", b"\x0f\x20\xc0"),
    ("mov rax, cr2", b"\x0f\x20\xd0"),
    ("mov rax, cr3", b"\x0f\x20\xd8"),
    ("mov rax, cr4", b"\x0f\x20\xe0"),
    ("mov rax, cr8", b"\x44\x0f\x20\xc0"),
    ("mov cr0, rax", b"\x0f\x22\xc0"),
    ("mov cr2, rax", b"\x0f\x22\xd0"),
    ("mov cr3, rax", b"\x0f\x22\xd8"),
    ("mov cr4, rax", b"\x0f\x22\xe0"),
    ("mov cr8, rax", b"\x44\x0f\x22\xc0"),
    ("mov rax, dr0", b"\x0f\x21\xc0"),
    ("mov rax, dr3", b"\x0f\x21\xd8"),
    ("mov rax, dr6", b"\x0f\x21\xf0"),
    ("mov rax, dr7", b"\x0f\x21\xf8"),
    ("mov dr0, rax", b"\x0f\x23\xc0"),
    ("mov dr6, rax", b"\x0f\x23\xf0"),
    ("mov dr7, rax", b"\x0f\x23\xf8"),
    ("lgdt [rdi]", b"\x0f\x01\x17"),
    ("lidt [rdi]", b"\x0f\x01\x1f"),
    ("lldt ax", b"\x0f\x00\xd0"),
    ("ltr ax", b"\x0f\x00\xd8"),
    ("lmsw ax", b"\x0f\x01\xf0"),
    ("clts", b"\x0f\x06"),
    ("invlpg [rdi]", b"\x0f\x01\x3f"),
    ("invd", b"\x0f\x08"),
    ("wbinvd", b"\x0f\x09"),
    ("rdmsr", b"\x0f\x32"),
    ("wrmsr", b"\x0f\x30"),
    ("rdpmc", b"\x0f\x33"),
    ("swapgs", b"\x0f\x01\xf8"),
    ("sysret", b"\x0f\x07"),
    ("sysret to 64 bits", b"\x48\x0f\x07"),
    ("xsetbv", b"\x0f\x01\xd1"),
];

pub fn privileged_instructions<P: Platform>(make: Make<P>) {
    let mut cases = Vec::new();
    for (name, code) in PROTECTED {
        let case = || Case::new(name, code, GP);
        // The registers that they take: nothing, and what would harm most.
        cases.push(case());
        cases.push(case().regs(|regs| {
            (regs.rax, regs.rcx, regs.rdx, regs.rsi) = (u64::MAX, 0xc000_0082, 0x3f8, DATA);
        }));
        cases.push(case().regs(|regs| (regs.rax, regs.rcx, regs.rdx) = (0x8000_0011, CODE, 0xcfc)));
    }
    check(make, &cases);
}

/// What ends in one way here and in another there: by the vendor, by the processor's age, by what a hypervisor below does,
/// or by what Linux emulates. All that counts is that it is one of them and nothing else happens.
pub fn of_uncertain_outcome<P: Platform>(make: Make<P>) {
    let uncertain: [(&str, &[u8], &[End]); 55] = [
        // AMD has no `sysenter` in 64-bit mode. Elsewhere it is the 32-bit system call.
        ("sysenter", b"\x0f\x34", &[COMPAT]),
        ("sysexit", b"\x0f\x35", &[GP]),
        ("sysexit to 64 bits", b"\x48\x0f\x35", &[GP]),
        ("rsm", b"\x0f\xaa", &[]),
        ("monitor", b"\x0f\x01\xc8", &[]),
        ("mwait", b"\x0f\x01\xc9", &[]),
        ("monitorx", b"\x0f\x01\xfa", &[BREAK]),
        ("clac", b"\x0f\x01\xca", &[]),
        ("stac", b"\x0f\x01\xcb", &[]),
        // A hypervisor may answer these, and one writes the other form over them.
        ("vmcall", b"\x0f\x01\xc1", &[GP, BREAK, fault(0)]),
        ("vmmcall", b"\x0f\x01\xd9", &[GP, BREAK, fault(0)]),
        ("vmfunc", b"\x0f\x01\xd4", &[GP]),
        ("vmlaunch", b"\x0f\x01\xc2", &[GP]),
        ("vmresume", b"\x0f\x01\xc3", &[GP]),
        ("vmxoff", b"\x0f\x01\xc4", &[GP]),
        ("vmxon [rdi]", b"\xf3\x0f\xc7\x37", &[GP]),
        ("vmptrld [rdi]", b"\x0f\xc7\x37", &[GP]),
        ("vmread rax, rcx", b"\x0f\x78\xc8", &[GP]),
        ("vmwrite rcx, rax", b"\x0f\x79\xc8", &[GP]),
        ("vmrun", b"\x0f\x01\xd8", &[GP]),
        ("vmload", b"\x0f\x01\xda", &[GP]),
        ("vmsave", b"\x0f\x01\xdb", &[GP]),
        ("stgi", b"\x0f\x01\xdc", &[GP]),
        ("clgi", b"\x0f\x01\xdd", &[GP]),
        ("skinit", b"\x0f\x01\xde", &[GP]),
        ("invlpga", b"\x0f\x01\xdf", &[GP]),
        ("invlpgb", b"\x0f\x01\xfe", &[GP]),
        ("tlbsync", b"\x0f\x01\xff", &[GP]),
        ("invpcid rax, [rdi]", b"\x66\x0f\x38\x82\x07", &[GP]),
        ("invept rax, [rdi]", b"\x66\x0f\x38\x80\x07", &[GP]),
        ("getsec", b"\x0f\x37", &[GP]),
        ("encls", b"\x0f\x01\xcf", &[GP]),
        ("enclu", b"\x0f\x01\xd7", &[GP]),
        ("enclv", b"\x0f\x01\xc0", &[GP]),
        ("pconfig", b"\x0f\x01\xc5", &[GP]),
        ("wrmsrns", b"\x0f\x01\xc6", &[GP]),
        ("wbnoinvd", b"\xf3\x0f\x09", &[GP]),
        ("xgetbv", b"\x0f\x01\xd0", &[GP, BREAK]),
        ("xend", b"\x0f\x01\xd5", &[GP]),
        ("xrstors [rdi]", b"\x0f\xc7\x1f", &[GP]),
        ("xsaves [rdi]", b"\x0f\xc7\x2f", &[GP]),
        ("rdpkru", b"\x0f\x01\xee", &[GP, BREAK]),
        ("wrpkru", b"\x0f\x01\xef", &[GP, BREAK]),
        ("rdpru", b"\x0f\x01\xfd", &[GP, BREAK]),
        ("mov rax, cr1", b"\x0f\x20\xc8", &[GP]),
        ("mov cr7, rax", b"\x0f\x22\xf8", &[GP]),
        ("mov cr15, rax", b"\x44\x0f\x22\xf8", &[GP]),
        ("mov rax, dr4", b"\x0f\x21\xe0", &[GP]),
        ("mov rax, dr8", b"\x44\x0f\x21\xc0", &[GP]),
        // Linux emulates these where the processor has UMIP.
        ("sgdt [rdi]", b"\x0f\x01\x07", &[GP, BREAK]),
        ("sidt [rdi]", b"\x0f\x01\x0f", &[GP, BREAK]),
        ("sldt eax", b"\x0f\x00\xc0", &[GP, BREAK]),
        ("str eax", b"\x0f\x00\xc8", &[GP, BREAK]),
        ("smsw eax", b"\x0f\x01\xe0", &[GP, BREAK]),
        // Without a round to make it may look at the permission first or not.
        ("rep insb, no rounds", b"\x31\xc9\xf3\x6c", &[GP, BREAK]),
    ];
    let cases: Vec<Case> =
        uncertain.iter().map(|(name, code, ends)| Case::new(*name, code, ill(CODE)).or(ends)).collect();
    check(make, &cases);
}

/// `int n` for all n but that of system calls; `int1`, `int3`.
pub fn every_interrupt<P: Platform>(make: Make<P>) {
    let mut cases: Vec<Case> = (0..=255u8)
        .map(|n| match n {
            // The only gates that user code may use.
            3 => Case::new("int 3 in two bytes", b"\xcd\x03", BREAK),
            4 => Case::new("int 4", b"\xcd\x04", GP),
            0x80 => Case::new("int 0x80", b"\xcd\x80", End::Refused(Unsupported::Int80)).rule(Rule::NotAsked),
            _ => Case::new(format!("int {n}"), &[0xcd, n], GP),
        })
        .collect();
    cases.push(Case::new("int3", b"\xcc", BREAK));
    // jmp over the bytes of an interrupt; hlt
    cases.push(Case::new("hlt behind what looks like int 23", b"\xeb\x02\xcd\x17\xf4", GP));
    // The address is behind it; some hypervisors report the instruction itself.
    cases.push(Case::new("int1", b"\xf1", End::Signal(5, c::TRAP_BRKPT as i32, CODE + 1)).or(&[]));
    // As if it were a system call that has just been made.
    let hidden = Case::new("int 0x80 with rcx behind it", b"\xcd\x80", End::Refused(Unsupported::Int80));
    cases.push(hidden.rule(Rule::NotAsked).regs(|regs| (regs.rcx, regs.r11) = (CODE + 2, 0x202)));
    check(make, &cases);
}

/// `wrfsbase` and `wrgsbase`, which the processor that programs see does not have, with bases that Linux gives nobody.
/// Where they work the bases stay, and the task goes on.
pub fn bases_that_no_address_may_have<P: Platform>(make: Make<P>) {
    let mut cases = Vec::new();
    let bases = [0, DATA, 0x7fff_f000_0000, 0x7fff_ffff_f000, 0xffff_8880_0000_0000, u64::MAX - 7, 1 << 63];
    let mut platform = make(None);
    for base in bases {
        for (name, code, load) in
            [("wrfsbase", b"\xf3\x48\x0f\xae\xd0", 0x64), ("wrgsbase", b"\xf3\x48\x0f\xae\xd8", 0x65)]
        {
            let case = Case::new(format!("{name} {base:#x}"), code, ill(0)).regs(|regs| regs.rax = base);
            // The break comes after it.
            cases.push(case.or(&[BREAK, GP]));
            // The same; syscall; mov ecx, [fs:8] or [gs:8]; int3
            let code = [&code[..], b"\x0f\x05", &[load], b"\x8b\x0c\x25\x08\0\0\0\xcc"].concat();
            let mut guest = Guest::on(platform, &code);
            guest.regs.rax = base;
            if guest.run() == Trap::Syscall {
                let shown = if load == 0x64 { guest.regs.fs_base } else { guest.regs.gs_base };
                let end = End::of_trap(guest.run(), guest.regs.rip, &XState::initial());
                let at = base.wrapping_add(8);
                let mapped = at == DATA + 8;
                assert_eq!((shown, end), (base, if mapped { BREAK } else { fault(at) }), "{name} {base:#x}");
            }
            platform = guest.end();
        }
    }
    cases.push(Case::new("rdfsbase", b"\xf3\x48\x0f\xae\xc0", ill(0)).or(&[BREAK]));
    cases.push(Case::new("rdgsbase", b"\xf3\x48\x0f\xae\xc8", ill(0)).or(&[BREAK]));
    drop(platform);
    check(make, &cases);
}
