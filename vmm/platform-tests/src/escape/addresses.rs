//! Wild jumps, calls, returns, loads, stores and stacks.

use bloodhound_platform::{GUEST_TOP, Platform, Prot, Regs, SpaceId};

use super::{BREAK, Case, End, GP, Rule, SS, Witness, check, fault};
use crate::{CODE, DATA, Make, PAGE, STACK};

/// End of the user half as Linux has it, and of what is canonical.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;

/// Of Linux's kernel half (Documentation/arch/x86/x86_64/mm.rst), but for the vsyscall page.
const KERNEL: [u64; 24] = [
    0xffff_8000_0000_0000,
    0xffff_8000_0000_1000,
    0xffff_8080_0000_0000,
    0xffff_8880_0000_0000,
    0xffff_8880_0010_0000,
    0xffff_a000_0000_0000,
    0xffff_c900_0000_0000,
    0xffff_d000_0000_0010,
    0xffff_ea00_0000_0000,
    0xffff_ec00_0000_0000,
    0xffff_fe00_0000_0000,
    0xffff_fe00_0000_1000,
    0xffff_fe00_0000_3000,
    0xffff_ff00_0000_0000,
    0xffff_ff7f_ffff_f000,
    0xffff_ffef_0000_0000,
    0xffff_ffff_0000_0000,
    0xffff_ffff_8000_0000,
    0xffff_ffff_8100_0000,
    0xffff_ffff_c000_0000,
    0xffff_ffff_ff5f_f000,
    0xffff_ffff_ff60_1000,
    0xffff_ffff_ffff_f000,
    0xffff_ffff_ffff_fff8,
];

/// Where nothing is mapped in any program: page zero, the local and the I/O APIC, the VGA window, PCI, all as addresses of
/// the guest's; beyond the stacks.
const USER: [u64; 14] = [
    0,
    8,
    0x1000,
    0xa_0000,
    0xb_8000,
    0xf_fff0,
    0xe000_0000,
    0xf000_0000,
    0xfec0_0000,
    0xfee0_0000,
    0xffff_fff0,
    0x1_0000_0000,
    0x80_0000_0000,
    0x1234_5678_9000,
];

/// Not canonical with four levels of page tables, nor with five.
const NON_CANONICAL: [u64; 7] = [
    0x8000_0000_0000_0000,
    0x7fff_ffff_ffff_fff8,
    0x0100_0000_0000_0000,
    0xfe00_0000_0000_0000,
    0xdead_beef_dead_bee8,
    0x4141_4141_4141_4140,
    0xf0f0_0000_0000_1000,
];

/// Not canonical with four levels only.
const NON_CANONICAL_48: [u64; 5] = [
    0x0000_8000_0000_0000,
    0x0000_8000_0000_1000,
    0x0000_ffff_ffff_fff8,
    0xffff_0000_0000_0000,
    0xffff_7fff_ffff_fff8,
];

/// Accesses of memory at rax: name, code, by the stack pointer or not, from rax to the address that is accessed.
const ACCESSES: [(&str, &[u8], bool, i64); 10] = [
    ("load", b"\x8b\x08", false, 0),
    ("store", b"\x89\x08", false, 0),
    ("add to memory", b"\xff\x00", false, 0),
    ("locked compare and exchange", b"\x48\x89\xc7\xf0\x0f\xb1\x0f", false, 0),
    ("string move", b"\x48\x89\xc7\xa4", false, 0),
    ("vector load", b"\x0f\x10\x00", false, 0),
    ("push", b"\x48\x89\xc4\x51", true, -8),
    ("pop", b"\x48\x89\xc4\x59", true, 0),
    ("return", b"\x48\x89\xc4\xc3", true, 0),
    ("call", b"\x48\x89\xc4\xe8\0\0\0\0", true, -8),
];

fn canonical(addr: u64) -> bool {
    (addr as i64) << 16 >> 16 == addr as i64
}

/// The end of an access at `addr`.
fn end_of_access(addr: u64, by_stack: bool) -> End {
    match (canonical(addr), by_stack) {
        (true, _) => fault(addr),
        (false, true) => SS,
        (false, false) => GP,
    }
}

fn accesses(addresses: &[u64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &addr in addresses {
        for (name, code, by_stack, offset) in ACCESSES {
            // `movsb` reads from rsi, which is mapped.
            let end = end_of_access(addr.wrapping_add_signed(offset), by_stack);
            let case = Case::new(format!("{name} at {addr:#x}"), code, end);
            cases.push(case.regs(|regs| (regs.rax, regs.rsi) = (addr, DATA)));
        }
    }
    cases
}

/// Ways to get to rax.
const JUMPS: [(&str, &[u8]); 3] = [("jump", b"\xff\xe0"), ("call", b"\xff\xd0"), ("return", b"\x50\xc3")];

fn jumps(addresses: &[u64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &addr in addresses {
        for (name, code) in JUMPS {
            // Where rip is after a jump to what is not canonical depends on the vendor; the registers are compared.
            let end = if canonical(addr) { fault(addr) } else { GP };
            cases.push(Case::new(format!("{name} to {addr:#x}"), code, end).regs(|regs| regs.rax = addr));
        }
    }
    cases
}

pub fn jumps_and_calls<P: Platform>(make: Make<P>) {
    let mut cases = jumps(&KERNEL);
    cases.extend(jumps(&USER));
    cases.extend(jumps(&NON_CANONICAL));
    // With five levels of page tables these fault.
    cases.extend(
        NON_CANONICAL_48.iter().flat_map(|&addr| jumps(&[addr])).map(|case| case.or(&[GP, fault(0)])),
    );
    // Pages that may not be executed.
    cases.extend(jumps(&[DATA, DATA + 0xfff, STACK]));
    // The vsyscall page off its entries.
    let off = jumps(&[0xffff_ffff_ff60_0001, 0xffff_ffff_ff60_0c00, 0xffff_ffff_ff60_0fff]);
    // Linux emulates the page, if it does, by faults of its own.
    cases.extend(off.into_iter().map(|case| case.or(&[GP])));
    check(make, &cases);
}

pub fn kernel_addresses<P: Platform>(make: Make<P>) {
    let mut cases = accesses(&KERNEL[1..]);
    // A push there begins below what is canonical.
    let first = accesses(&KERNEL[..1]);
    cases.extend(first.into_iter().map(|case| match case.ends[0] {
        SS => case.or(&[fault(0)]),
        _ => case,
    }));
    check(make, &cases);
}

pub fn unmapped_user_addresses<P: Platform>(make: Make<P>) {
    let mut cases = accesses(&USER);
    cases.extend(accesses(&[TASK_SIZE, TASK_SIZE + 0xff0]));
    // Across the end of the page before.
    let across = Case::new("load across the end of a page", b"\x8b\x08", fault(DATA + PAGE));
    cases.push(across.regs(|regs| regs.rax = DATA + PAGE - 2));
    // Code may not be written.
    let code = Case::new("store to code", b"\x89\x08", fault(CODE + 64));
    cases.push(code.regs(|regs| regs.rax = CODE + 64));
    check(make, &cases);
}

pub fn non_canonical_addresses<P: Platform>(make: Make<P>) {
    let mut cases = accesses(&NON_CANONICAL);
    cases.extend(accesses(&NON_CANONICAL_48).into_iter().map(|case| case.or(&[fault(0)])));
    // Across the end of what is canonical, and round the end of everything.
    for addr in [0x7fff_ffff_fffe, u64::MAX - 1] {
        let case = Case::new(format!("load at {addr:#x}"), b"\x8b\x08", GP);
        cases.push(case.or(&[fault(0)]).regs(|regs| regs.rax = addr));
    }
    check(make, &cases);
}

/// Stacks that are switched to somewhere, and what uses them.
pub fn wild_stacks<P: Platform>(make: Make<P>) {
    let acts: [(&str, &[u8], i64); 8] = [
        ("push", b"\x50", -8),
        ("pushfq", b"\x9c", -8),
        ("pop", b"\x59", 0),
        ("popfq", b"\x9d", 0),
        ("call", b"\xe8\0\0\0\0", -8),
        ("ret", b"\xc3", 0),
        ("enter", b"\xc8\x00\x01\x00", -8),
        ("retfq", b"\x48\xcb", 0),
    ];
    let mut cases = Vec::new();
    for rsp in
        [0, 4096, 0xfee0_0000, 0xffff_8880_0000_1000, 0xffff_ffff_ff60_1000, 1 << 63, 0x4141_4141_4141_4141]
    {
        for (name, code, offset) in acts {
            let end = end_of_access(u64::wrapping_add_signed(rsp, offset), true);
            // The processors differ in which of the two words of a far return they read first.
            let case = Case::new(format!("{name} with rsp {rsp:#x}"), code, end).regs(|regs| regs.rsp = rsp);
            cases.push(if name == "retfq" { case.or(&[]) } else { case });
        }
    }
    // A stack in code, which is readable and not writable.
    for (name, code, offset) in acts.into_iter().filter(|act| act.2 < 0) {
        let end = fault((CODE + 0x800).wrapping_add_signed(offset));
        let case = Case::new(format!("{name} with rsp in code"), code, end);
        cases.push(case.regs(|regs| regs.rsp = CODE + 0x800));
    }
    let odd = Case::new("an odd stack is no fault", b"\x50\x59", BREAK);
    cases.push(odd.regs(|regs| regs.rsp = STACK + 0x801));
    check(make, &cases);
}

/// Registers that no program could have set, as a return from a signal may load them.
pub fn wild_starts<P: Platform>(make: Make<P>) {
    let mut cases = Vec::new();
    for addr in [0, 0xfee0_0000, TASK_SIZE, 0xffff_8880_0000_0000, 0xffff_ffff_8100_0000, u64::MAX] {
        cases.push(Case::new(format!("start at {addr:#x}"), b"", fault(addr)).regs(|regs| regs.rip = addr));
    }
    for addr in NON_CANONICAL {
        cases.push(Case::new(format!("start at {addr:#x}"), b"", GP).regs(|regs| regs.rip = addr));
    }
    for rsp in [0, 0x8000_0000_0000_0000, 0xffff_8880_0000_0000, 0x1234] {
        cases.push(Case::new(format!("start with rsp {rsp:#x}"), b"\x90", BREAK).regs(|regs| regs.rsp = rsp));
    }
    check(make, &cases);
}

/// From [`GUEST_TOP`] up a platform may have pages of its own. They cannot be written, and what can be read or executed is
/// the same in each space, whatever it maps and did before.
pub fn the_platforms_own_addresses<P: Platform>(make: Make<P>) {
    let mut witness = Witness::new(make(None));
    let mut space = 1000;
    let mut attack = |case: &Case, busy: bool| {
        space += 1;
        let mut program = case.program.clone();
        if busy {
            program.pages.extend((0..64).map(|n| (0x10_0000_0000 + n * 2 * PAGE, 1, Prot::RW)));
        }
        let (end, _, regs) = witness.attack(SpaceId(space), &program);
        witness.works(&case.name);
        (end, regs)
    };
    let pages = (0..8).chain([0x10, 0x100, 0xffe]).map(|page| GUEST_TOP + page * PAGE);
    for addr in pages.flat_map(|page| [0, 8, 0x58, 0x60, 0x68, 0x400, 0xff8].map(|offset| page + offset)) {
        for (name, code) in [("load", &b"\x48\x8b\x08"[..]), ("jump", b"\xff\xe0"), ("call", b"\xff\xd0")] {
            let case = Case::new(format!("{name} at {addr:#x}"), code, fault(addr)).rule(Rule::NotAsked);
            let case = case.regs(|regs| regs.rax = addr);
            let (end, regs) = attack(&case, false);
            assert_eq!(attack(&case, true), (end, regs), "{} depends on what is mapped", case.name);
            let stayed = Regs { rip: regs.rip, rcx: regs.rcx, rsp: regs.rsp, ..case.program.regs };
            let harmless = end == fault(addr) || name == "load" && end == BREAK && regs == stayed;
            assert!(harmless || name != "load", "{}: {end:x?} {regs:x?}", case.name);
        }
        for (name, code) in [("store", &b"\x48\x89\x08"[..]), ("add to memory", b"\x48\xff\x00")] {
            let case = Case::new(format!("{name} at {addr:#x}"), code, fault(addr));
            let case = case.regs(|regs| regs.rax = addr);
            let (end, _) = attack(&case, true);
            assert_eq!(end, fault(addr), "{}", case.name);
        }
    }
}
