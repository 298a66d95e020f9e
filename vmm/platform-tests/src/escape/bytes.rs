//! Instruction bytes: invalid, too long, crossing into pages that are not there, changing while they run.

use bloodhound_platform::{Platform, Prot};

use super::{BREAK, Case, GP, check, fault, ill};
use crate::{CODE, DATA, Make, PAGE};

/// A second mapping of the code page.
const ALIAS: u64 = 0x48_0000;

/// SIGILL on all processors.
const ILLEGAL: [(&str, &[u8]); 41] = [
    ("ud2", b"\x0f\x0b"),
    ("ud1 eax, eax", b"\x0f\xb9\xc0"),
    ("ud0 eax, eax", b"\x0f\xff\xc0"),
    ("into", b"\xce"),
    ("push es", b"\x06"),
    ("pop es", b"\x07"),
    ("push cs", b"\x0e"),
    ("push ss", b"\x16"),
    ("push ds", b"\x1e"),
    ("pop ds", b"\x1f"),
    ("daa", b"\x27"),
    ("das", b"\x2f"),
    ("aaa", b"\x37"),
    ("aas", b"\x3f"),
    ("pusha", b"\x60"),
    ("popa", b"\x61"),
    ("add in its second form", b"\x82\xc0\x01"),
    ("aam", b"\xd4\x0a"),
    ("aad", b"\xd5\x0a"),
    ("salc", b"\xd6"),
    ("lock nop", b"\xf0\x90"),
    ("lock mov", b"\xf0\x89\x07"),
    ("lock add to a register", b"\xf0\x01\xc0"),
    ("lock cmp", b"\xf0\x39\x07"),
    ("lock call", b"\xf0\xe8\0\0\0\0"),
    ("lock syscall", b"\xf0\x0f\x05"),
    ("lock rdtsc", b"\xf0\x0f\x31"),
    ("lock hlt", b"\xf0\xf4"),
    ("lea of a register", b"\x8d\xc0"),
    ("group 8 without a member", b"\x0f\xba\xc0\x01"),
    ("cmpxchg8b of a register", b"\x0f\xc7\xc8"),
    ("group 5 without a member", b"\xff\xff"),
    ("group 11 without a member", b"\xc7\xc8\0\0\0\0"),
    ("rex.w push es", b"\x48\x06"),
    ("vex after rex", b"\x48\xc5\xf8\x77"),
    ("vex after an operand size", b"\x66\xc5\xf8\x77"),
    ("fxsave of a register", b"\x0f\xae\xc0"),
    ("clflush of a prefix", b"\xf3\x0f\xae\x3f"),
    ("0f 04", b"\x0f\x04"),
    ("0f 0a", b"\x0f\x0a"),
    ("0f 36", b"\x0f\x36"),
];

pub fn illegal_instructions<P: Platform>(make: Make<P>) {
    let cases: Vec<Case> = ILLEGAL.iter().map(|(name, code)| Case::new(*name, code, ill(CODE))).collect();
    check(make, &cases);
}

/// Code that ends with its page.
fn at_the_end(name: &str, code: &[u8], end: super::End) -> Case {
    let mut case = Case::new(name, code, end);
    let start = PAGE as usize - code.len();
    let page = &mut case.program.frames[0];
    page.fill(0xcc);
    page[start..].copy_from_slice(code);
    case.regs(|regs| regs.rip = CODE + start as u64)
}

pub fn long_and_crossing_instructions<P: Platform>(make: Make<P>) {
    let prefixed = |count: usize, rest: &[u8]| {
        let mut code = vec![0x66; count];
        code.extend_from_slice(rest);
        code
    };
    let mut cases = vec![
        Case::new("15 bytes", &prefixed(14, b"\x90"), BREAK),
        Case::new("16 bytes", &prefixed(15, b"\x90"), GP),
        Case::new("17 bytes", &prefixed(16, b"\x90"), GP),
        Case::new("nothing but prefixes", &prefixed(4096, b""), GP),
        Case::new("16 bytes that end with rdtsc", &prefixed(14, b"\x0f\x31"), GP),
        Case::new("prefetch of wild memory", b"\x0f\x18\x08\x0f\x0d\x08", BREAK)
            .regs(|regs| regs.rax = 0xffff_8880_0000_0000),
        Case::new("nop of wild memory", b"\x0f\x1f\x00", BREAK).regs(|regs| regs.rax = 1 << 63),
        Case::new("clflush of wild memory", b"\x0f\xae\x38", fault(0xffff_8880_0000_0000))
            .regs(|regs| regs.rax = 0xffff_8880_0000_0000),
    ];
    // The rest of the instruction would be in the next page, which is missing, or may not be executed.
    let cut: [(&str, &[u8]); 6] = [
        ("mov eax, [rdi + disp]", b"\x8b\x87"),
        ("mov rax, imm64", b"\x48\xb8\x01"),
        ("jmp rel32", b"\xe9\x00"),
        ("an operand size", b"\x66"),
        ("two-byte opcode", b"\x0f"),
        ("int", b"\xcd"),
    ];
    let next = CODE + PAGE;
    for (name, code) in cut {
        cases.push(at_the_end(name, code, fault(next)));
        let mut guarded = at_the_end(name, code, fault(next));
        guarded.program.pages.push((next, 1, Prot::RW));
        cases.push(guarded);
    }
    cases.push(at_the_end("running off the end", b"\x90\x90", fault(next)));
    // An instruction that is whole, and the page behind it missing.
    cases.push(at_the_end("ud2 at the end", b"\x0f\x0b", ill(next - 2)));
    cases.push(at_the_end("hlt at the end", b"\xf4", GP));
    cases.push(at_the_end("int3 at the end", b"\xcc", BREAK));
    // Across two pages that are both there: mov eax, [rdi + 0]; int3
    let mut whole = at_the_end("across pages", b"\x8b\x87", BREAK).data(b"\0\0\0\0\xcc");
    whole.program.pages.push((next, 1, Prot::RX));
    cases.push(whole);
    check(make, &cases);
}

pub fn self_modifying_code<P: Platform>(make: Make<P>) {
    let rwx = |name: &str, code: &[u8], end| {
        let mut case = Case::new(name, code, end);
        case.program.pages[0].2 = Prot::RWX;
        case
    };
    let aliased = |name: &str, code: &[u8], end| {
        let mut case = Case::new(name, code, end);
        case.program.pages.push((ALIAS, 0, Prot::RW));
        case.regs(|regs| regs.rdi = ALIAS)
    };
    let cases = [
        // mov byte [rip], 0x90, over the hlt that comes next
        rwx("over the next instruction", b"\xc6\x05\0\0\0\0\x90\xf4\x90", BREAK),
        // mov word [rip], 0x0b0f: a ud2 over nops
        rwx("an invalid one over the next", b"\x66\xc7\x05\0\0\0\0\x0f\x0b\x90\x90\x90", ill(CODE + 9)),
        // inc byte [rip]: hlt (f4) becomes cmc (f5)
        rwx("the next one's opcode", b"\xfe\x05\0\0\0\0\xf4", BREAK),
        // mov ecx, 4; loop: xor byte [there], 1; jmp there; there: clc or stc; adc edx, 0; dec ecx; jne loop
        rwx(
            "a loop that changes itself",
            b"\xb9\x04\0\0\0\x80\x35\x02\0\0\0\x01\xeb\x00\xf8\x83\xd2\x00\xff\xc9\x75\xef",
            BREAK,
        ),
        // mov byte [rdi + 3 + 2], 0x90; jmp over nothing; hlt
        aliased("through another mapping", b"\xc6\x47\x06\x90\xeb\x00\xf4\x90", BREAK),
        aliased(
            "an invalid one through another mapping",
            b"\x66\xc7\x47\x08\x0f\x0b\xeb\x00\x90\x90",
            ill(CODE + 8),
        ),
        Case::new("a page that is not writable", b"\xc6\x05\0\0\0\0\x90\xf4", fault(CODE + 7)),
        rwx("from the data page", b"\xff\xe7", fault(DATA)),
    ];
    check(make, &cases);
}
