//! Segment selectors: loading them, far transfers, returns from interrupts, 32-bit code.
//!
//! Linux's descriptors (asm/segment.h): 0x08 32-bit kernel code, 0x10 kernel code, 0x18 kernel data, 0x20 32-bit user
//! code, 0x28 user data, 0x30 user code, 0x40 the task state, 0x60 to 0x70 thread areas, 0x78 the processor's number.

use bloodhound_platform::{Access, Mapping, Platform, Regs, SpaceId, Stops, TaskKey, Trap, XState};

use super::{BREAK, COMPAT, Case, GP, Rule, SS, check, fault, ill};
use crate::{CODE, DATA, Guest, Make, PAGE, STACK, run, steps};

/// Where far transfers go: some way into the code page, where `int3` is.
const TARGET: u64 = CODE + 0x100;

const SELECTORS: [u16; 25] = [
    0, 1, 3, 0x08, 0x0b, 0x10, 0x13, 0x18, 0x1b, 0x20, 0x23, 0x28, 0x2b, 0x30, 0x33, 0x38, 0x40, 0x43, 0x48,
    0x60, 0x63, 0x78, 0x7b, 0xfff8, 0xffff,
];

/// 64-bit user code: the RPL is not looked at as long as it is not above the CPL.
fn is_code(selector: u16) -> bool {
    selector & !3 == 0x30
}

/// 32-bit user code, which a platform may have or not.
fn is_compat(selector: u16) -> bool {
    selector & !3 == 0x20
}

pub fn selectors<P: Platform>(make: Make<P>) {
    let loads: [(&str, &[u8], bool); 9] = [
        ("mov ds, eax", b"\x8e\xd8", false),
        ("mov es, eax", b"\x8e\xc0", false),
        ("mov fs, eax", b"\x8e\xe0", false),
        ("mov gs, eax", b"\x8e\xe8", false),
        ("mov ss, eax", b"\x8e\xd0", true),
        ("push rax; pop fs", b"\x50\x0f\xa1", false),
        ("push rax; pop gs", b"\x50\x0f\xa9", false),
        ("lfs eax, [rdi]", b"\x0f\xb4\x07", false),
        ("lss eax, [rdi]", b"\x0f\xb2\x07", true),
    ];
    let mut cases = Vec::new();
    for (name, code, stack) in loads {
        for selector in SELECTORS {
            let end = match selector {
                0x2b => BREAK,
                _ if stack => GP,
                // Null, user data, user code, which is readable, and the processor's number.
                0..=3 | 0x28 | 0x30 | 0x33 | 0x78 | 0x7b => BREAK,
                _ => GP,
            };
            let mut far = vec![0; 6];
            far[4..].copy_from_slice(&selector.to_le_bytes());
            let case = Case::new(format!("{name} with {selector:#x}"), code, end);
            let case = case.data(&far).regs(|regs| regs.rax = u64::from(selector));
            // Of this a platform may have no descriptor.
            cases.push(if is_compat(selector) && !stack { case.or(&[BREAK]) } else { case });
        }
    }
    cases.push(Case::new("mov cs, eax", b"\x8e\xc8", ill(CODE)).regs(|regs| regs.rax = 0x33));
    cases.push(Case::new("mov to segment register 6", b"\x8e\xf0", ill(CODE)));
    for (name, code) in [
        ("verr ax", &b"\x0f\x00\xe0"[..]),
        ("verw ax", b"\x0f\x00\xe8"),
        ("lar ecx, ax", b"\x0f\x02\xc8"),
        ("lsl ecx, ax", b"\x0f\x03\xc8"),
    ] {
        for selector in SELECTORS {
            let case = Case::new(format!("{name} with {selector:#x}"), code, BREAK);
            cases.push(case.or(&[]).regs(|regs| regs.rax = u64::from(selector)));
        }
    }
    check(make, &cases);
}

pub fn far_transfers<P: Platform>(make: Make<P>) {
    let transfers: [(&str, &[u8]); 4] = [
        ("far call", b"\xff\x1f"),
        ("far jump", b"\xff\x2f"),
        // push selector; push target; retf
        ("far return, 64 bits", b"\x50\x51\x48\xcb"),
        ("far return, 64 bits, with an argument", b"\x50\x51\x48\xca\x10\x00"),
    ];
    let mut cases = Vec::new();
    for (name, code) in transfers {
        for selector in SELECTORS {
            let far_return = name.starts_with("far return");
            let end = match is_code(selector) {
                // A return needs the RPL to be no lower than the CPL.
                true if !far_return || selector & 3 == 3 => BREAK,
                _ => GP,
            };
            let mut far = (TARGET as u32).to_le_bytes().to_vec();
            far.extend_from_slice(&selector.to_le_bytes());
            let case = Case::new(format!("{name} to {selector:#x}"), code, end).data(&far);
            let case = case.regs(|regs| (regs.rax, regs.rcx) = (u64::from(selector), TARGET));
            // A call pushes with 32 bits of the stack pointer there.
            let compat = [COMPAT, fault(STACK as u32 as u64)];
            cases.push(if is_compat(selector) { case.or(&compat).rule(Rule::NotAsked) } else { case });
        }
    }
    // With a wild target: the processors differ in whether the transfer or the fetch faults.
    for target in [0x8000_0000_0000_0000u64, 0xffff_8880_0000_0000, 0] {
        let case = Case::new(format!("far return to {target:#x}"), b"\x50\x51\x48\xcb", fault(target));
        cases.push(case.or(&[GP]).regs(|regs| (regs.rax, regs.rcx) = (0x33, target)));
    }
    for (name, code) in
        [("direct far call", b"\x9a\0\0\0\0\x33\0"), ("direct far jump", b"\xea\0\0\0\0\x33\0")]
    {
        cases.push(Case::new(name, code, ill(CODE)));
    }
    cases.push(Case::new("far call through wild memory", b"\xff\x18", GP).regs(|regs| regs.rax = 1 << 63));
    cases.push(Case::new("far call through registers", b"\xff\xd8", ill(CODE)));
    check(make, &cases);
}

/// Frames for `iretq`: rip, cs, flags, rsp, ss.
pub fn interrupt_returns<P: Platform>(make: Make<P>) {
    let good = [TARGET, 0x33, 0x202, STACK + 0x400, 0x2b];
    let with = |index: usize, value: u64| {
        let mut frame = good;
        frame[index] = value;
        frame
    };
    let frame_case = |name: String, frame: [u64; 5], end| {
        let raw: Vec<u8> = frame.iter().flat_map(|word| word.to_le_bytes()).collect();
        Case::new(name, b"\x48\xcf", end).data(&raw).regs(|regs| regs.rsp = DATA)
    };
    let mut cases = vec![frame_case("to itself".into(), good, BREAK)];
    for selector in SELECTORS.into_iter().filter(|&selector| !is_compat(selector)) {
        let end = if selector == 0x33 { BREAK } else { GP };
        cases.push(frame_case(format!("cs {selector:#x}"), with(1, u64::from(selector)), end));
    }
    for selector in SELECTORS {
        let end = if selector == 0x2b { BREAK } else { GP };
        cases.push(frame_case(format!("ss {selector:#x}"), with(4, u64::from(selector)), end));
    }
    cases.push(frame_case("both of the kernel's".into(), [TARGET, 0x10, 0x3202, STACK, 0x18], GP));
    // IOPL, VIF, VIP, VM and IF are not ours to set.
    for flags in [0, 2, 0x3000, 0x3202, 0x1a_0202, 0x2_0202, 0x24_0cd7, 0xffff_ffff_ffff_beff] {
        cases.push(frame_case(format!("flags {flags:#x}"), with(2, flags), BREAK));
    }
    for rip in [1u64 << 63, 0x4141_4141_4141_4141] {
        cases.push(frame_case(format!("to {rip:#x}"), with(0, rip), GP));
    }
    for rip in [0, 0xfee0_0000, 0xffff_ffff_8000_0000] {
        cases.push(frame_case(format!("to {rip:#x}"), with(0, rip), fault(rip)));
    }
    for rsp in [0, 1 << 63, 0xffff_ffff_8000_0000] {
        cases.push(frame_case(format!("rsp {rsp:#x}"), with(3, rsp), BREAK));
    }
    // With the nested-task flag it would be a task switch: push 0x4202; popfq; iretq
    let nested = Case::new("nested task", b"\x68\x02\x42\0\0\x9d\x48\xcf", GP);
    cases.push(nested);
    let nowhere = Case::new("frame nowhere", b"\x48\xcf", SS).or(&[GP]).regs(|regs| regs.rsp = 1 << 63);
    cases.push(nowhere);
    let unmapped = Case::new("frame not mapped", b"\x48\xcf", fault(0xfee0_0000)).or(&[]);
    cases.push(unmapped.regs(|regs| regs.rsp = 0xfee0_0000));
    check(make, &cases);
}

/// 32-bit code is refused, also when it runs until the watchdog looks; or its segment is not there at all.
pub fn compatibility_mode<P: Platform>(make: Make<P>) {
    let inner: [(&str, &[u8]); 5] = [
        ("int 0x80", b"\xb8\x14\0\0\0\xcd\x80"),
        ("syscall", b"\xb8\x27\0\0\0\x0f\x05"),
        ("sysenter", b"\x0f\x34"),
        ("invalid", b"\x0f\x0b"),
        ("a loop", b"\xeb\xfe"),
    ];
    let cases: Vec<Case> = inner
        .iter()
        .map(|(name, inner)| {
            let mut code = b"\x50\x51\x48\xcb".to_vec();
            code.resize((TARGET - CODE) as usize, 0xcc);
            code.extend_from_slice(inner);
            let mut case = Case::new(String::new(), &code, COMPAT).or(&[GP]).rule(Rule::NotAsked);
            case.name = format!("32-bit code: {name}");
            case.regs(|regs| (regs.rax, regs.rcx) = (0x23, TARGET))
        })
        .collect();
    check(make, &cases);
}

/// What a task loaded into ds to gs is there until it traps; that the watchdog looked in between does not show.
pub fn selectors_stay_between_traps<P: Platform>(make: Make<P>) {
    // mov ds, eax; mov es, eax; mov ecx, 1 << 30; loop: dec ecx; jne loop; mov ebx, ds; mov edx, es; syscall
    let code = b"\x8e\xd8\x8e\xc0\xb9\0\0\0\x40\xff\xc9\x75\xfc\x8c\xdb\x8c\xc2\x0f\x05";
    let mut guest = Guest::new(make, code);
    guest.regs.rax = 0x2b;
    loop {
        let trap =
            guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut Stops::default()).unwrap();
        match trap {
            Trap::BudgetSpent => {
                guest.probe();
            }
            Trap::PageFault { .. } => guest.map(CODE),
            other => {
                assert_eq!((other, guest.regs.rbx, guest.regs.rdx), (Trap::Syscall, 0x2b, 0x2b));
                break;
            }
        }
    }
}

/// Bases that a task starts with.
const BASES: (u64, u64) = (DATA + 0x100, DATA + 0x200);

/// Ways to load fs and gs with eax, or with what rdi points at, and whether it is fs.
const LOADS: [(&str, &[u8], bool); 6] = [
    ("mov fs, eax", b"\x8e\xe0", true),
    ("mov gs, eax", b"\x8e\xe8", false),
    ("push rax; pop fs", b"\x50\x0f\xa1", true),
    ("push rax; pop gs", b"\x50\x0f\xa9", false),
    ("lfs eax, [rdi]", b"\x0f\xb4\x07", true),
    ("lgs eax, [rdi]", b"\x0f\xb5\x07", false),
];

/// A guest about to load a selector and then to do something.
fn loading<P: Platform>(platform: P, load: &[u8], selector: u16, end: &[u8]) -> Guest<P> {
    let mut guest = Guest::on(platform, &[load, end].concat());
    for page in [CODE, DATA, STACK] {
        guest.map(page);
    }
    guest.pages[&DATA].0.write_shared(4, &selector.to_le_bytes());
    let rax = u64::from(selector);
    guest.regs = Regs { rax, rdi: DATA, fs_base: BASES.0, gs_base: BASES.1, ..guest.regs };
    guest
}

/// Loading fs or gs makes its base 0, or with a null selector on old processors leaves it; the other one's stays. That shows
/// at the next trap, and it stays so.
pub fn a_loaded_selector_has_its_base<P: Platform>(make: Make<P>) {
    let mut platform = make(None);
    for (name, load, fs) in LOADS {
        for selector in [0, 3, 0x2b, 0x33] {
            // syscall; ud2; int3; a page fault; none of them but a loop that the watchdog ends
            for end in [&b"\x0f\x05"[..], b"\x0f\x0b", b"\xcc", b"\x8b\x04\x25\0\0\0\0", b"\xeb\xfe"] {
                let what = format!("{name} with {selector:#x}, {end:02x?}");
                let mut guest = loading(platform, load, selector, end);
                let trap = guest
                    .platform
                    .run(guest.space, guest.task, &mut guest.regs, &mut Stops::default())
                    .expect("run");
                assert!(end != b"\xeb\xfe" || trap == Trap::BudgetSpent, "{what}: {trap:x?}");
                let now = (guest.regs.fs_base, guest.regs.gs_base);
                let want = if fs { (0, BASES.1) } else { (BASES.0, 0) };
                assert!(now == want || selector < 4 && now == BASES, "{what}: {now:x?}");
                platform = stays(guest, &what);
            }
        }
    }
}

/// What a guest shows at a trap is what it has afterwards, also if another task has run in between; and it can be given
/// other bases.
fn stays<P: Platform>(mut guest: Guest<P>, what: &str) -> P {
    let shown = (guest.regs.fs_base, guest.regs.gs_base);
    // mov ecx, fs:[8]; mov ecx, gs:[16]; syscall
    let code = b"\x64\x8b\x0c\x25\x08\0\0\0\x65\x8b\x0c\x25\x10\0\0\0\x0f\x05";
    guest.pages[&CODE].0.write_shared(0x200, code);
    for bases in [shown, shown, (DATA + 0x300, DATA + 0x400)] {
        let regs = Regs { fs_base: bases.0, gs_base: bases.1, ..guest.regs };
        for (rip, addr) in [(CODE + 0x200, bases.0 + 8), (CODE + 0x208, bases.1 + 16)] {
            let mut regs = Regs { rip, ..regs };
            let trap = run(&mut guest.platform, guest.space, guest.task, &mut regs);
            let want = match addr & !(PAGE - 1) == DATA {
                // On to the next one, or to the call.
                true if rip == CODE + 0x200 && bases.1 < DATA => {
                    Trap::PageFault { addr: bases.1 + 16, access: Some(Access::Read), rip: CODE + 0x208 }
                }
                true => Trap::Syscall,
                false => Trap::PageFault { addr, access: Some(Access::Read), rip },
            };
            assert_eq!((trap, (regs.fs_base, regs.gs_base)), (want, bases), "{what}");
        }
        // Somebody else, with bases of its own and selectors that he loads: mov fs, eax; mov gs, eax; syscall
        let (space, task) = (SpaceId(77), TaskKey(77));
        guest.platform.load_xstate(space, task, &XState::initial()).expect("load_xstate");
        let (frame, prot) = &guest.pages[&CODE];
        frame.write_shared(0x300, b"\x0f\x05\x8e\xe0\x8e\xe8\x0f\x05");
        let mapping = Mapping { addr: CODE, frame_offset: frame.offset(), pages: 1, prot: *prot };
        guest.platform.map(space, &[mapping]);
        let mut other =
            Regs { rip: CODE + 0x300, rax: 0x2b, fs_base: 0x1234, gs_base: 0x5678, ..Regs::default() };
        for want in [(0x1234, 0x5678), (0, 0)] {
            let trap = run(&mut guest.platform, space, task, &mut other);
            assert_eq!(
                (trap, (other.fs_base, other.gs_base)),
                (Trap::Syscall, want),
                "{what}, somebody else"
            );
            other.rax = 0x2b;
        }
        guest.platform.drop_space(space);
    }
    guest.end()
}

/// The same by single steps.
pub fn a_step_over_a_load_shows_its_base<P: Platform>(make: Make<P>) {
    let mut platform = make(None);
    if !steps(&platform.abilities(), "a_step_over_a_load_shows_its_base") {
        return;
    }
    for selector in [0x2b, 0x33] {
        // mov fs, eax; nop; mov gs, eax; syscall
        let mut guest = loading(platform, b"\x8e\xe0\x90\x8e\xe8", selector, b"\x0f\x05");
        for want in [(0, BASES.1), (0, BASES.1), (0, 0), (0, 0)] {
            let trap = guest.platform.step(guest.space, guest.task, &mut guest.regs).expect("step");
            assert!(matches!(trap, Trap::Step | Trap::Syscall), "{trap:x?}");
            assert_eq!(
                (guest.regs.fs_base, guest.regs.gs_base),
                want,
                "{selector:#x} at {:#x}",
                guest.regs.rip
            );
        }
        platform = guest.end();
    }
}
