//! `sgdt`, `sidt`, `smsw`, `str` and `sldt` where the processor has UMIP: Linux answers them with constants, in a way of its
//! own, and so does every platform. Where it does not have it, or a KVM does not give it on, the cases are left out.

use bloodhound_frames::Frame;
use bloodhound_platform::{Access, Exception, Mapping, Platform, Prot, Regs, Spin, Stops, Trap};

use super::{BREAK, Case, End, GP, Rule, TRAP_TRACE, check, fault, ill};
use crate::native::{Observed, observe};
use crate::{CODE, DATA, Guest, Make, Oddity, PAGE, STACK, left_out, run, steps};

const GDT: u64 = 0xffff_ffff_fffe_0000;
const TF: u64 = 1 << 8;
/// mov rax, [rdi]; mov rbx, [rdi + 8]: what was stored, and what not.
const SHOW: &[u8] = b"\x48\x8b\x07\x48\x8b\x5f\x08";

/// Whether both the host's Linux and the platform answer `sgdt`; if not, says that `case` is left out.
fn answered<P: Platform>(make: Make<P>, case: &str) -> bool {
    // sgdt [rdi]; mov rax, [rdi + 2]
    let probe = Case::new("sgdt", b"\x0f\x01\x07\x48\x8b\x47\x02", BREAK);
    let mut guest = Guest::new(make, &probe.program.frames[0][..64]);
    guest.regs.rdi = DATA;
    let here = guest.run() == Trap::Exception(Exception::BREAKPOINT) && guest.regs.rax == GDT;
    let there = matches!(observe(&probe.program), Observed::Signal { regs, .. } if regs.rax == GDT);
    match (here, there) {
        (true, true) => return true,
        (_, false) => left_out(case, "the host's processor has no UMIP"),
        (false, true) => {
            // Only an ordinary KVM may keep it from its machines.
            let odd = Oddity::of(&guest.platform.abilities());
            assert_ne!(odd, Oddity::SoftwareKvm, "{:x?}", guest.regs);
            left_out(case, "this platform's processor has no UMIP");
        }
    }
    false
}

/// Registers that show which half of them was written, and where operands lie.
fn filled(case: Case) -> Case {
    case.regs(|regs| {
        (regs.rax, regs.rcx, regs.r8) = (0x1111_1111_2222_2222, 8, 0x3333_3333_4444_4444);
        (regs.r12, regs.r13, regs.r15) = (DATA + 0x20, DATA + 0x40, u64::MAX);
        (regs.rbp, regs.rdi) = (DATA + 0x80, DATA);
    })
    .data(&[0x5a; 0x200])
}

fn registers() -> Vec<Case> {
    let forms: [(&str, u8, u8); 3] = [("smsw", 1, 0xe0), ("str", 0, 0xc8), ("sldt", 0, 0xc0)];
    let prefixes: [&[u8]; 10] = [
        b"",
        b"\x66",
        b"\x48",
        b"\x66\x48",
        b"\x41",
        b"\x66\x41",
        b"\x4f",
        b"\x67",
        b"\xf3",
        b"\x64\x65\xf2",
    ];
    let mut cases = Vec::new();
    for (name, opcode, modrm) in forms {
        for prefix in prefixes {
            // rax and r8, rsp and r12, rdi and r15.
            for register in [0, 4, 7] {
                let code = [prefix, &[0x0f, opcode, modrm | register]].concat();
                cases.push(filled(Case::new(name, &code, BREAK)));
            }
        }
    }
    cases
}

/// The five with an operand in memory: opcode, and the digit in ModRM.
const STORES: [(&str, u8, u8); 5] =
    [("sgdt", 1, 0), ("sidt", 1, 1), ("smsw", 1, 4), ("sldt", 0, 0), ("str", 0, 1)];

fn memory() -> Vec<Case> {
    // Prefixes; ModRM without its digit, and what follows it.
    let operands: [(&[u8], &[u8]); 18] = [
        (b"", b"\x07"),
        (b"\x66", b"\x07"),
        (b"\x48", b"\x07"),
        (b"\x66\x4a", b"\x07"),
        (b"\x67", b"\x07"),
        (b"\xf2", b"\x07"),
        (b"\xf3\x66", b"\x07"),
        (b"\x2e", b"\x07"),
        (b"\x65", b"\x07"),
        (b"\x65\x65\x65", b"\x07"),
        (b"", b"\x47\x03"),
        (b"", b"\x87\x03\0\0\0"),
        // [rbp + 5], [rdi + rcx * 1], [disp32], [r12], [r13], [rdi + r12 * 1 - DATA]
        (b"", b"\x45\x05"),
        (b"", b"\x04\x0f"),
        (b"", b"\x04\x25\x04\0\x50\0"),
        (b"\x41", b"\x04\x24"),
        (b"\x41", b"\x45\x01"),
        (b"\x42", b"\x84\x27\0\0\xb0\xff"),
    ];
    let mut cases = Vec::new();
    for (name, opcode, digit) in STORES {
        for (prefixes, operand) in operands {
            let mut code = [prefixes, &[0x0f, opcode], operand, SHOW].concat();
            code[prefixes.len() + 2] |= digit << 3;
            cases.push(filled(Case::new(name, &code, BREAK)));
        }
        // [rip + disp32], of an instruction of seven bytes: to the data, and over what comes next.
        let mut code = [&[0x0f, opcode, 5 | digit << 3], &(DATA - CODE - 7).to_le_bytes()[..4]].concat();
        code.extend_from_slice(SHOW);
        cases.push(filled(Case::new(name, &code, BREAK)));
        let read_only = Case::new(name, &[0x0f, opcode, 5 | digit << 3, 0, 0, 0, 0], fault(CODE + 7));
        cases.push(read_only);
    }
    // sgdt over the instructions behind it, which become add [rax], al twice and an invalid one.
    let mut over = Case::new("sgdt over code", b"\x0f\x01\x05\0\0\0\0", ill(CODE + 11));
    over.program.pages[0].2 = Prot::RWX;
    cases.push(over.regs(|regs| regs.rax = DATA));
    cases
}

fn faults() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, opcode, digit) in STORES {
        let code = [0x0f, opcode, 7 | digit << 3];
        let at = |addr: u64, end| {
            Case::new(format!("{name} to {addr:#x}"), &code, end).regs(|regs| regs.rdi = addr)
        };
        // Linux does not tell what is not canonical from what is not mapped, and takes -1 for an error of its own.
        for addr in [
            0,
            CODE + 64,
            DATA - 1,
            DATA + PAGE,
            0x7fff_ffff_effb,
            0x7fff_ffff_f000,
            1 << 47,
            1 << 63,
            0x4141_4141_4141_4141,
            0xffff_8880_0000_0000,
            0xffff_ffff_ff60_0000,
            u64::MAX - 1,
            u64::MAX - 9,
        ] {
            cases.push(at(addr, fault(addr)));
        }
        cases.push(at(u64::MAX, GP));
        // Linux tells where the operand begins, a platform what is missing.
        cases.push(at(DATA + PAGE - 1, fault(DATA + PAGE)).or(&[]));
        let stack = [0x0f, opcode, 4 | digit << 3, 0x24];
        let wild = Case::new(format!("{name} to a wild stack"), &stack, fault(1 << 63));
        cases.push(wild.regs(|regs| regs.rsp = 1 << 63));
    }
    cases
}

/// Bytes that Linux's decoder and the processor see in different ways, and ends of pages.
fn bytes() -> Vec<Case> {
    let understood: [&[u8]; 4] = [
        b"\x66\x3e\xf2\x0f\x01\x07",
        b"\x66\xf2\xf3\x67\x0f\x01\x07",
        b"\x3e\x66\xf2\xf3\x3e\x0f\x01\x07",
        b"\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x0f\x01\xe0",
    ];
    let not: [&[u8]; 7] = [
        b"\x2e\x3e\x0f\x01\x07",
        b"\x64\x65\x0f\x01\x07",
        b"\x66\xf2\x3e\x0f\x01\x07",
        b"\x66\xf2\xf3\x67\x2e\x0f\x01\xe0",
        b"\x48\x66\x0f\x01\xe0",
        b"\x48\x48\x0f\x01\xe0",
        b"\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x0f\x01\xe0",
    ];
    let mut cases: Vec<Case> = understood
        .iter()
        .map(|code| filled(Case::new("understood", &[code, SHOW].concat(), BREAK)))
        .collect();
    cases.extend(not.iter().map(|code| filled(Case::new("not understood", code, GP))));
    for (name, opcode, digit) in STORES {
        cases.push(Case::new(format!("lock {name}"), &[0xf0, 0x0f, opcode, 7 | digit << 3], ill(CODE)));
    }
    // Behind what looks like an interrupt: jmp over it.
    let behind = Case::new("behind what looks like int 23", b"\xeb\x02\xcd\x17\x0f\x01\xe0", BREAK);
    cases.push(filled(behind));
    // To the end of the page, and beyond it.
    for (code, whole) in [(&b"\x0f\x01\x07"[..], true), (b"\x0f\x01\xe0", true), (b"\x0f\x01\x47", false)] {
        let mut case = Case::new("the end of a page", &[], fault(CODE + PAGE));
        let start = PAGE as usize - code.len();
        case.program.frames[0][start..].copy_from_slice(code);
        case.name = format!("at the end of a page, {}", if whole { "whole" } else { "cut" });
        cases.push(case.regs(|regs| regs.rip = CODE + start as u64));
    }
    cases
}

/// The trap flag and the alignment check: the step that Linux does itself is none, and its store is no user's.
fn flags() -> Vec<Case> {
    let step = |name: &str, code: &[u8], behind: u64| {
        let code = [&b"\x68\0\x01\0\0\x9d"[..], code].concat();
        Case::new(name, &code, End::Signal(5, TRAP_TRACE, CODE + 6 + behind))
    };
    vec![
        step("sgdt; nop; nop", b"\x0f\x01\x07\x90\x90", 4),
        step("smsw eax; sidt; nop; nop", b"\x0f\x01\xe0\x0f\x01\x0f\x90\x90", 7),
        step("str; sldt; nop; nop", b"\x0f\x00\x0f\x0f\x00\x07\x90\x90", 7),
        step("sgdt; pushfq; nop", b"\x0f\x01\x07\x9c\x90", 4),
        // The flag is cleared again by what is stepped over.
        step("sgdt; push 2; popfq", b"\x0f\x01\x07\x6a\x02\x9d\x90", 5),
        Case::new("a step that cannot store", b"\x68\0\x01\0\0\x9d\x0f\x01\x07", fault(0))
            .regs(|regs| regs.rdi = 0),
        // push 0x40000; popfq; sgdt [rdi]
        Case::new("not aligned", b"\x68\0\0\x04\0\x9d\x0f\x01\x07", BREAK).regs(|regs| regs.rdi = DATA + 1),
    ]
}

pub fn what_umip_forbids<P: Platform>(make: Make<P>) {
    if !answered(make, "what_umip_forbids") {
        return;
    }
    let mut cases = registers();
    for more in [memory(), faults(), bytes(), flags()] {
        cases.extend(more);
    }
    // Where a platform may have pages of its own.
    for addr in [bloodhound_platform::GUEST_TOP, bloodhound_platform::GUEST_TOP + PAGE, 0x7fff_ffff_e000] {
        let case = Case::new(format!("sgdt to {addr:#x}"), b"\x0f\x01\x07", fault(addr));
        cases.push(case.rule(Rule::NotAsked).regs(|regs| regs.rdi = addr));
    }
    check(make, &cases);
}

/// A store over the end of a page, into pages that come when they are asked for and that may be shared.
pub fn a_forbidden_store_is_repeated<P: Platform>(make: Make<P>) {
    if !answered(make, "a_forbidden_store_is_repeated") {
        return;
    }
    // sgdt fs:[rdi]; str gs:[rdi]; syscall
    let mut guest = Guest::new(make, b"\x64\x0f\x01\x07\x65\x0f\x00\x0f\x0f\x05");
    guest.map(CODE);
    let at = DATA + PAGE - 5;
    guest.regs = Regs { rdi: at - 0x100, fs_base: 0x100, gs_base: 0x201, ..guest.regs };
    let frames = [Frame::from_slice(&[0x5a; PAGE as usize]), Frame::from_slice(&[0x5a; PAGE as usize])];
    let mapping = |n: usize, prot| {
        let addr = DATA + n as u64 * PAGE;
        Mapping { addr, frame_offset: frames[n].offset(), pages: 1, prot }
    };
    let write = |addr| Trap::PageFault { addr, access: Some(Access::Write), rip: CODE };
    let fails = |guest: &mut Guest<P>, addr| {
        let before = guest.regs;
        let trap = run(&mut guest.platform, guest.space, guest.task, &mut guest.regs);
        assert_eq!((trap, guest.regs), (write(addr), before));
    };
    fails(&mut guest, at);
    guest.platform.map(guest.space, &[mapping(0, Prot::RW), mapping(1, Prot::RW)]);
    // As if the world had been cloned: neither page is to be written.
    guest.platform.write_protect(guest.space);
    fails(&mut guest, at);
    let untouched = |n: usize| frames[n].bytes().iter().all(|&byte| byte == 0x5a);
    assert!(untouched(0) && untouched(1));
    guest.platform.map(guest.space, &[mapping(0, Prot::RW)]);
    fails(&mut guest, DATA + PAGE);
    assert!(untouched(1));
    guest.platform.unmap(guest.space, DATA + PAGE, PAGE);
    fails(&mut guest, DATA + PAGE);
    guest.platform.map(guest.space, &[mapping(1, Prot::RW)]);
    assert_eq!(guest.syscall(), 0);
    assert_eq!(guest.regs.rip, CODE + 10);
    assert_eq!(frames[0].bytes()[4090..], *b"\x5a\0\0\0\0\xfe");
    assert_eq!(frames[1].bytes()[..6], *b"\xff\xff\xff\xff\xff\x5a");
    // The other one, to gs:[DATA + PAGE + 0xfc].
    assert_eq!(frames[1].bytes()[0xfb..0xff], *b"\x5a\x40\x00\x5a");
}

/// One that would store over itself, in a page that may not be executed: the fetch is what faults.
pub fn a_forbidden_store_is_fetched_first<P: Platform>(make: Make<P>) {
    // sgdt [rip - 7]; smsw [rip - 7]
    for code in [b"\x0f\x01\x05\xf9\xff\xff\xff", b"\x0f\x01\x25\xf9\xff\xff\xff"] {
        let mut guest = Guest::new(make, b"");
        guest.pages[&DATA].0.write_shared(0, code);
        guest.map(DATA);
        guest.regs.rip = DATA;
        let trap = run(&mut guest.platform, guest.space, guest.task, &mut guest.regs);
        assert_eq!(trap, Trap::PageFault { addr: DATA, access: Some(Access::Exec), rip: DATA });
    }
}

/// A platform's own step over one of them takes the next instruction as well, and shows nothing of its trap flag.
pub fn a_step_over_what_umip_forbids<P: Platform>(make: Make<P>) {
    if !answered(make, "a_step_over_what_umip_forbids") {
        return;
    }
    // sgdt [rdi]; smsw eax; pushfq; str ebx; push 0x202; sldt ecx; popfq; sidt [rdi]; syscall
    let code =
        b"\x0f\x01\x07\x0f\x01\xe0\x9c\x0f\x00\xcb\x68\x02\x02\0\0\x0f\x00\xc1\x9d\x0f\x01\x0f\x0f\x05";
    let mut guest = Guest::new(make, code);
    if !steps(&guest.platform.abilities(), "a_step_over_what_umip_forbids") {
        return;
    }
    for page in [CODE, DATA, STACK] {
        guest.map(page);
    }
    (guest.regs.rdi, guest.regs.rax) = (DATA, u64::MAX);
    let mut step = || {
        let trap = guest.platform.step(guest.space, guest.task, &mut guest.regs).expect("step");
        (trap, guest.regs.rip - CODE, guest.regs.rflags & TF)
    };
    assert_eq!(step(), (Trap::Step, 7, 0));
    assert_eq!(step(), (Trap::Step, 15, 0));
    assert_eq!(step(), (Trap::Step, 19, 0));
    assert_eq!(step(), (Trap::Syscall, 24, 0));
    let regs = guest.regs;
    assert_eq!(
        (regs.orig_rax, regs.rbx, regs.rcx, regs.r11 & TF),
        (0xffff_ffff_8005_0033, 0x40, CODE + 24, 0)
    );
    let pushed = guest.pages[&STACK].0.load_u64(PAGE as usize - 8);
    assert_eq!(pushed & TF, 0, "pushfq behind two of them");
}

/// A loop of them is a loop like others: it ends, and as it is not known what it writes it is never taken for one without
/// side effects.
pub fn a_loop_of_what_umip_forbids<P: Platform>(make: Make<P>) {
    if !answered(make, "a_loop_of_what_umip_forbids") {
        return;
    }
    // loop: smsw eax; add dword [rdi], 1; cmp dword [rdi], 3000; jne loop; syscall
    let code = b"\x0f\x01\xe0\x83\x07\x01\x81\x3f\xb8\x0b\0\0\x75\xf2\x0f\x05";
    let mut guest = Guest::new(make, code);
    guest.regs.rdi = DATA;
    guest.map(CODE);
    guest.map(DATA);
    assert_eq!(guest.probe(), Spin::Progressing);
    loop {
        match guest
            .platform
            .run(guest.space, guest.task, &mut guest.regs, &mut Stops::default())
            .expect("run")
        {
            Trap::BudgetSpent => {
                assert_eq!(guest.probe(), Spin::Progressing);
            }
            trap => {
                assert_eq!((trap, guest.pages[&DATA].0.load_u64(0)), (Trap::Syscall, 3000));
                break;
            }
        }
    }
    // Without end, and without anything between two of them: sgdt [rdi]; jmp to it
    let mut guest = Guest::on(guest.end(), b"\x0f\x01\x07\xeb\xfb");
    guest.regs.rdi = DATA;
    guest.map(CODE);
    guest.map(DATA);
    for _ in 0..3 {
        let trap =
            guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut Stops::default()).expect("run");
        assert_eq!(trap, Trap::BudgetSpent);
        assert_eq!(guest.probe(), Spin::Progressing);
    }
}
