//! Decoding by Linux's rules, what is stored where, and where it is not. What Linux itself does was asked for all of this
//! (`vmm/platform-tests`, `escape`).

use bloodhound_frames::Frame;

use super::*;
use crate::{Mapping, Prot};

const CODE: u64 = 0x1000;
const DATA: u64 = 0x7000;
const FILL: u64 = 0x1111_1111_1111_1111;

/// Code, and two pages of data behind each other, of which the second may lack permission or be missing.
struct Pages {
    memory: Extents,
    code: Frame,
    data: [Frame; 2],
}

impl Pages {
    fn new(code: &[u8], second: Option<Prot>) -> Pages {
        let mut pages = Pages {
            memory: Extents::default(),
            code: Frame::from_slice(code),
            data: [Frame::from_slice(&[0x11; 4096]), Frame::from_slice(&[0x11; 4096])],
        };
        let parts = [
            (CODE, &pages.code, Some(Prot::RX)),
            (DATA, &pages.data[0], Some(Prot::RW)),
            (DATA + PAGE, &pages.data[1], second),
        ];
        for (addr, frame, prot) in parts {
            let Some(prot) = prot else { continue };
            pages.memory.insert(&Mapping { addr, frame_offset: frame.offset(), pages: 1, prot });
        }
        pages
    }

    fn bytes(&self, from: usize, len: usize) -> Vec<u8> {
        let all = [self.data[0].bytes().as_slice(), self.data[1].bytes().as_slice()].concat();
        all[from..from + len].to_vec()
    }
}

fn start() -> Regs {
    Regs { rip: CODE, rax: FILL, rdi: DATA + 8, r15: FILL, ..Regs::default() }
}

/// Runs one instruction with a page of data that may be written.
fn one(code: &[u8]) -> (Option<Emulated>, Regs, Pages) {
    let pages = Pages::new(code, Some(Prot::RW));
    let mut regs = start();
    (emulate(&pages.memory, &mut regs), regs, pages)
}

#[test]
fn registers_keep_what_the_operand_size_leaves() {
    let cases: [(&[u8], u64); 12] = [
        (b"\x0f\x01\xe0", 0x1111_1111_8005_0033),
        (b"\x66\x0f\x01\xe0", 0x1111_1111_1111_0033),
        (b"\x66\x66\x0f\x01\xe0", 0x1111_1111_1111_0033),
        (b"\x48\x0f\x01\xe0", 0x8005_0033),
        (b"\x66\x48\x0f\x01\xe0", 0x8005_0033),
        (b"\x0f\x00\xc8", 0x1111_1111_0000_0040),
        (b"\x66\x0f\x00\xc8", 0x1111_1111_1111_0040),
        (b"\x48\x0f\x00\xc8", 0x40),
        (b"\x0f\x00\xc0", 0x1111_1111_0000_0000),
        (b"\x66\x0f\x00\xc0", 0x1111_1111_1111_0000),
        (b"\x48\x0f\x00\xc0", 0),
        // Several segments do not matter without memory.
        (b"\x64\x65\xf3\x0f\x00\xc0", 0x1111_1111_0000_0000),
    ];
    for (code, rax) in cases {
        let (done, regs, _) = one(code);
        let want = Regs { rax, rip: CODE + code.len() as u64, ..start() };
        assert_eq!((done, regs), (Some(Emulated::Done), want), "{code:02x?}");
    }
    let (_, regs, _) = one(b"\x49\x0f\x01\xe7");
    assert_eq!(regs, Regs { r15: 0x8005_0033, rip: CODE + 4, ..start() });
}

#[test]
fn memory_gets_ten_bytes_or_two_whatever_the_operand_size() {
    let table = |base: u64| [&[0, 0][..], &base.to_le_bytes()].concat();
    let cases: [(&[u8], Vec<u8>); 8] = [
        (b"\x0f\x01\x07", table(0xffff_ffff_fffe_0000)),
        (b"\x66\x0f\x01\x07", table(0xffff_ffff_fffe_0000)),
        (b"\x48\x0f\x01\x0f", table(0xffff_ffff_ffff_0000)),
        (b"\x0f\x01\x27", vec![0x33, 0]),
        (b"\x48\x0f\x01\x27", vec![0x33, 0]),
        (b"\x66\x0f\x00\x07", vec![0, 0]),
        (b"\x0f\x00\x0f", vec![0x40, 0]),
        (b"\x48\x0f\x00\x0f", vec![0x40, 0]),
    ];
    for (code, mut stored) in cases {
        let (done, regs, pages) = one(code);
        assert_eq!((done, regs.rip), (Some(Emulated::Done), CODE + code.len() as u64), "{code:02x?}");
        stored.resize(16, 0x11);
        assert_eq!(pages.bytes(8, 16), stored, "{code:02x?}");
        assert_eq!(pages.bytes(0, 8), [0x11; 8], "{code:02x?}");
    }
}

#[test]
fn addresses_are_those_of_the_instruction() {
    let regs = Regs {
        rax: DATA,
        rcx: 3,
        rbx: 0xffff_ffff_0000_7000,
        rbp: DATA,
        rsp: DATA,
        r12: 0x10,
        r13: DATA,
        fs_base: 0x100,
        gs_base: 0x200,
        ..start()
    };
    // smsw, each time to another place.
    let cases: [(&[u8], u64); 14] = [
        (b"\x0f\x01\x20", DATA),
        (b"\x0f\x01\x60\x10", DATA + 0x10),
        (b"\x0f\x01\xa0\x00\x01\0\0", DATA + 0x100),
        (b"\x0f\x01\x64\x88\x04", DATA + 16),
        // rip, without what REX adds.
        (b"\x41\x0f\x01\x25\xf8\x5f\0\0", CODE + 8 + 0x5ff8),
        // No base; and none of these with REX.
        (b"\x0f\x01\x24\x25\x20\x70\0\0", DATA + 0x20),
        (b"\x41\x0f\x01\x24\x25\x20\x70\0\0", DATA + 0x20),
        (b"\x0f\x01\x24\x24", DATA),
        // r12 as an index, and r13 as a base.
        (b"\x42\x0f\x01\x24\x20", DATA + 0x10),
        (b"\x41\x0f\x01\x65\x08", DATA + 8),
        (b"\x67\x0f\x01\x23", DATA),
        (b"\x64\x0f\x01\x20", DATA + 0x100),
        (b"\x65\x66\x0f\x01\x20", DATA + 0x200),
        (b"\x2e\x0f\x01\x20", DATA),
    ];
    for (code, addr) in cases {
        let pages = Pages::new(code, Some(Prot::RW));
        let mut regs = regs;
        assert_eq!(emulate(&pages.memory, &mut regs), Some(Emulated::Done), "{code:02x?}");
        let at = (addr - DATA) as usize;
        assert_eq!(pages.bytes(at, 3), [0x33, 0, 0x11], "{code:02x?}");
        assert_eq!(regs.rip, CODE + code.len() as u64, "{code:02x?}");
    }
}

#[test]
fn what_linux_does_not_understand_stays_a_fault() {
    let cases: [&[u8]; 14] = [
        b"\x0f\x0b",
        // lgdt; lldt; monitor; vmcall
        b"\x0f\x01\x17",
        b"\x0f\x00\xd0",
        b"\x0f\x01\xc8",
        b"\x0f\x01\xc1",
        // Two segments.
        b"\x2e\x3e\x0f\x01\x07",
        // One, as the last of three, which Linux counts twice.
        b"\x66\xf2\x3e\x0f\x01\x07",
        // Five different prefixes.
        b"\x66\xf2\xf3\x67\x2e\x0f\x01\xe0",
        // REX before another prefix, and twice.
        b"\x48\x66\x0f\x01\xe0",
        b"\x48\x48\x0f\x01\xe0",
        b"",
        // 16 bytes.
        b"\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x0f\x01\xe0",
        // sgdt [-1], the address that means an error.
        b"\x0f\x01\x04\x25\xff\xff\xff\xff",
        b"\x48\xf4",
    ];
    for code in cases {
        let (done, regs, pages) = one(code);
        assert_eq!((done, regs), (None, start()), "{code:02x?}");
        assert_eq!(pages.bytes(0, 64), [0x11; 64], "{code:02x?}");
        assert!(missing(&pages.memory, &start(), DATA + 8).is_none(), "{code:02x?}");
    }
    let forbidden = |code: &[u8]| forbids(&Pages::new(code, None).memory, CODE);
    assert!(forbidden(b"\x2e\x3e\x0f\x01\x07") && forbidden(b"\x48\x66\x0f\x01\xe0"));
    assert!(!forbidden(b"\x0f\x01\x17") && !forbidden(b"\x0f\x00\xd0") && !forbidden(b""));
    // The same with segments that are counted once.
    for code in
        [&b"\x66\x3e\xf2\x0f\x01\x07"[..], b"\x3e\x3e\x3e\x0f\x01\x07", b"\x66\xf2\xf3\x3e\x0f\x01\x07"]
    {
        assert_eq!(one(code).0, Some(Emulated::Done), "{code:02x?}");
    }
}

#[test]
fn the_byte_that_cannot_be_written_faults_and_those_before_it_are_written() {
    let sgdt = b"\x0f\x01\x07";
    let fault = |addr| Trap::PageFault { addr, access: Some(Access::Write), rip: CODE };
    for second in [None, Some(Prot::R), Some(Prot::RX)] {
        let pages = Pages::new(sgdt, second);
        let mut regs = Regs { rdi: DATA + PAGE - 5, ..start() };
        let want = (Some(Emulated::Fault(fault(DATA + PAGE))), regs);
        assert_eq!((emulate(&pages.memory, &mut regs), regs), want, "{second:?}");
        assert_eq!(pages.bytes(4090, 12), b"\x11\0\0\0\0\xfe\x11\x11\x11\x11\x11\x11", "{second:?}");
        assert_eq!(missing(&pages.memory, &regs, regs.rdi), Some(fault(DATA + PAGE)));
        assert_eq!(missing(&pages.memory, &regs, DATA + PAGE), None, "not where the operand begins");
    }
    let whole = Pages::new(sgdt, Some(Prot::RW));
    let mut regs = Regs { rdi: DATA + PAGE - 5, ..start() };
    assert_eq!(missing(&whole.memory, &regs, regs.rdi), Some(fault(regs.rdi)), "not mapped by the host yet");
    assert_eq!(emulate(&whole.memory, &mut regs), Some(Emulated::Done));
    assert_eq!(whole.bytes(4090, 12), b"\x11\0\0\0\0\xfe\xff\xff\xff\xff\xff\x11");
    // Nowhere, in code, not canonical, round the end of everything.
    for addr in [0, CODE, DATA - 1, 1 << 63, 0xffff_8880_0000_0000, u64::MAX - 1] {
        let mut regs = Regs { rdi: addr, ..start() };
        assert_eq!(emulate(&whole.memory, &mut regs), Some(Emulated::Fault(fault(addr))), "{addr:#x}");
        assert_eq!((regs.rip, missing(&whole.memory, &regs, addr)), (CODE, Some(fault(addr))));
    }
}

#[test]
fn a_step_takes_the_next_instruction_as_well() {
    // sgdt [rdi]; smsw eax; pushfq
    let pages = Pages::new(b"\x0f\x01\x07\x0f\x01\xe0\x9c", None);
    assert_eq!(stepped(&pages.memory, CODE, CODE + 7), CODE + 6);
    assert_eq!(stepped(&pages.memory, CODE + 6, CODE + 7), CODE + 6);
    // Where the processor does them: one at a time.
    assert_eq!(stepped(&pages.memory, CODE, CODE + 3), CODE);
    assert!(is_at(&pages.memory, CODE + 3) && !is_at(&pages.memory, CODE + 6));
}
