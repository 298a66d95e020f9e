//! What the virtual machine does when it fails: errors name the place, nothing hangs, and the platform works on.
//!
//! The page tables of a space are spoiled after they were built and before the processor sees them, or the monitor is.

use bloodhound_frames::Frame;
use bloodhound_platform::Prot;

use super::*;
use crate::layout::{ARENA, LOW_END, MONITOR_BASE};
use crate::tables::{ACCESSED, DIRTY, PRESENT, USER, WRITE};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x41_0000;
const HEALTHY: SpaceId = SpaceId(1);
const SPOILED: SpaceId = SpaceId(2);
const TASK: TaskKey = TaskKey(3);
/// mov rax, [rdi]; syscall; mov [rdi], rax; syscall
const PROGRAM: &[u8] = b"\x48\x8b\x07\x0f\x05\x48\x89\x07\x0f\x05";
const STORE: u64 = CODE + 5;

struct Broken {
    platform: KvmPlatform,
    code: Frame,
    data: Frame,
    /// What every task starts with.
    regs: Regs,
}

impl Broken {
    fn new() -> Broken {
        let mut broken = Broken {
            platform: KvmPlatform::new(None).unwrap(),
            code: Frame::from_slice(PROGRAM),
            data: Frame::zeroed(),
            regs: Regs { rip: CODE, rdi: DATA, ..Regs::default() },
        };
        for space in [HEALTHY, SPOILED] {
            broken.begin(space);
        }
        broken.works();
        broken
    }

    fn begin(&mut self, space: SpaceId) {
        self.platform.load_xstate(space, TASK, &XState::initial()).unwrap();
        for (addr, frame, prot) in [(CODE, &self.code, Prot::RX), (DATA, &self.data, Prot::RW)] {
            self.platform.map(space, &[Mapping { addr, frame_offset: frame.offset(), pages: 1, prot }]);
        }
    }

    /// Runs to the next trap.
    fn go(&mut self, space: SpaceId, regs: &mut Regs) -> Result<Trap, PlatformError> {
        loop {
            match self.platform.run(space, TASK, regs, &mut Stops::default()) {
                Ok(Trap::BudgetSpent) => {}
                other => return other,
            }
        }
    }

    /// The healthy space runs.
    fn works(&mut self) {
        self.data.write_shared(0, &77u64.to_le_bytes());
        if self.platform.xstate_owner(HEALTHY) != Some(TASK) {
            self.platform.load_xstate(HEALTHY, TASK, &XState::initial()).unwrap();
        }
        let mut regs = Regs { rip: CODE, ..self.regs };
        assert_eq!(self.go(HEALTHY, &mut regs), Ok(Trap::Syscall));
        assert_eq!((regs.orig_rax, regs.rip), (77, CODE + 5));
    }

    /// Builds the spoiled space's tables and changes the entry of a page, which the processor has not seen yet.
    fn spoil(&mut self, addr: u64, entry: u64) {
        self.change(addr, &[39, 30, 21], |_| entry);
    }

    /// As `spoil`, for an entry of any level: the one that the walk to `addr` finds after the tables of these shifts.
    fn change(&mut self, addr: u64, above: &[u32], new: impl FnOnce(u64) -> u64) {
        let mut table = self.platform.update(SPOILED).unwrap();
        let low = &self.platform.vm.as_ref().unwrap().low;
        for shift in above {
            table = low.read(table + 8 * (addr >> shift & 511)) & !0xfff;
        }
        let place = table + 8 * (addr >> (39 - 9 * above.len()) & 511);
        low.write(place, new(low.read(place)));
    }

    /// The spoiled space fails; afterwards everything works, that space too.
    fn fails(&mut self, rip: u64) -> (String, u64, Vec<u8>) {
        let mut regs = Regs { rip, ..self.regs };
        let (what, at, code) = match self.go(SPOILED, &mut regs) {
            Err(PlatformError::Vm { what, rip, code }) => (what, rip, code),
            other => panic!("{other:x?} instead of an error"),
        };
        self.works();
        assert_eq!(self.platform.xstate_owner(SPOILED), None, "its vector state is gone");
        assert_eq!(self.go(SPOILED, &mut regs), Err(PlatformError::XStateNotLoaded));
        self.platform.load_xstate(SPOILED, TASK, &XState::initial()).unwrap();
        let mut regs = Regs { rip: CODE, ..self.regs };
        assert_eq!(self.go(SPOILED, &mut regs), Ok(Trap::Syscall), "after {what}");
        self.works();
        println!("{}", PlatformError::Vm { what: what.clone(), rip: at, code: code.clone() });
        (what, at, code)
    }
}

const GOOD: u64 = PRESENT | WRITE | USER | ACCESSED | DIRTY;
/// In an entry above the last table: it is no table but a large page (PS, bit 7).
const LARGE: u64 = 1 << 7;
/// Guest-physical, between low memory and the frame store.
const NOWHERE: u64 = 3 << 30;

#[test]
fn a_load_and_a_store_where_there_is_no_memory() {
    if bloodhound_platform_tests::without_kvm("a_load_and_a_store_where_there_is_no_memory") {
        return;
    }
    const { assert!(LOW_END < NOWHERE && NOWHERE < ARENA) };
    for rip in [CODE, STORE] {
        let mut broken = Broken::new();
        broken.spoil(DATA, NOWHERE | GOOD);
        let (what, at, code) = broken.fails(rip);
        // KVM may tell of a store when it is done with the instruction.
        assert!(at == rip || rip == STORE && at == STORE + 3, "{what} at {at:#x}");
        assert!(PROGRAM[(at - CODE) as usize..].starts_with(&code[..2]), "{code:x?}");
        assert!(what.contains("0xc0000000"), "{what}");
    }
}

#[test]
fn code_where_there_is_no_memory() {
    if bloodhound_platform_tests::without_kvm("code_where_there_is_no_memory") {
        return;
    }
    let mut broken = Broken::new();
    broken.spoil(CODE, NOWHERE | GOOD);
    if broken.platform.abilities.traps_rdtsc {
        // An ordinary KVM raises #UD in ring 3 for what it can neither run nor emulate there.
        let mut regs = broken.regs;
        let trap = broken.go(SPOILED, &mut regs);
        assert!(matches!(trap, Ok(Trap::Exception(e)) if e.address == CODE), "{trap:x?}");
        broken.works();
        return;
    }
    let (what, at, _) = broken.fails(CODE);
    assert_eq!(at, CODE, "{what}");
}

#[test]
fn a_reserved_bit_in_a_page_table() {
    if bloodhound_platform_tests::without_kvm("a_reserved_bit_in_a_page_table") {
        return;
    }
    let mut broken = Broken::new();
    // On every processor: the first table has no large pages, so the bit that asks for one "must be 0" there.
    broken.change(CODE, &[], |entry| entry | LARGE);
    let (what, at, code) = broken.fails(CODE);
    assert!(
        at == CODE && code.starts_with(PROGRAM) && what.contains("0x400000"),
        "{what} at {at:#x}, {code:x?}"
    );
}

/// How many bits a physical address has, as the vCPU is told.
fn physical_bits() -> u32 {
    let ids = crate::cpuid::entries(&Kvm::new().unwrap()).unwrap();
    let leaf = ids.as_slice().iter().find(|entry| entry.function == 0x8000_0008);
    // What processors without this leaf have (Intel's manual, volume 3A, 4.1.4).
    leaf.map_or(36, |entry| entry.eax & 0xff)
}

#[test]
fn an_address_that_is_too_long_in_a_page_table() {
    let name = "an_address_that_is_too_long_in_a_page_table";
    if bloodhound_platform_tests::without_kvm(name) {
        return;
    }
    // An entry has room for 52 bits; those from the processor's width on are reserved, if there are any.
    let width = physical_bits();
    if width >= 52 {
        return bloodhound_platform_tests::left_out(name, "all 52 bits are addresses on this processor");
    }
    for bit in [width, 51] {
        let mut broken = Broken::new();
        broken.spoil(DATA, 1 << bit | GOOD);
        let (what, at, code) = broken.fails(CODE);
        assert!(
            at == CODE && code.starts_with(PROGRAM) && what.contains("0x410000"),
            "bit {bit} of {width}: {what} at {at:#x}, {code:x?}"
        );
    }
}

#[test]
fn page_tables_without_the_monitor() {
    if bloodhound_platform_tests::without_kvm("page_tables_without_the_monitor") {
        return;
    }
    let mut broken = Broken::new();
    let root = broken.platform.update(SPOILED).unwrap();
    broken.platform.vm.as_ref().unwrap().low.write(root + 8 * (MONITOR_BASE >> 39 & 511), 0);
    let (what, at, _) = broken.fails(CODE);
    assert!(at >= MONITOR_BASE || at == CODE, "{what} at {at:#x}");
}

#[test]
fn a_monitor_that_never_ends() {
    if bloodhound_platform_tests::without_kvm("a_monitor_that_never_ends") {
        return;
    }
    let mut broken = Broken::new();
    let vm = broken.platform.vm.as_ref().unwrap();
    // jmp to itself, in place of all of the monitor's code.
    for at in (0x1_0000..0x1_4000).step_by(8) {
        vm.low.write(at, 0x9090_9090_9090_feeb);
    }
    let (what, at, _) = broken.fails(CODE);
    assert!(what.contains("ring 0") && at >= MONITOR_BASE, "{what} at {at:#x}");
}
