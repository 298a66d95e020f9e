//! Page tables of many spaces against a model: every page is read, written or executed by application code, while so many
//! tables are needed that the memory for them runs out again and again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bloodhound_frames::Frame;
use bloodhound_platform::{Access, GUEST_TOP, Mapping, Platform, Prot, Regs, SpaceId, TaskKey, Trap, XState};
use bloodhound_platform_kvm::KvmPlatform;
use bloodhound_platform_tests::{PAGE, run};

/// Where each space has the code that probes.
const CODE: u64 = 0x40_0000;
/// mov rax, [rdi]; syscall
const READ: u64 = CODE;
/// mov [rdi + 16], rbx; syscall
const WRITE: u64 = CODE + 8;
/// jmp rdi
const JUMP: u64 = CODE + 16;
const PROBES: &[u8] = b"\x48\x8b\x07\x0f\x05\xcc\xcc\xcc\x48\x89\x5f\x10\x0f\x05\xcc\xcc\xff\xe7";
const TASK: TaskKey = TaskKey(7);
const FRAMES: usize = 24;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27) % n
    }
}

/// What should be there: by page, its frame and protection.
type Model = BTreeMap<u64, (usize, Prot)>;

struct World {
    platform: KvmPlatform,
    random: Random,
    code: Frame,
    /// Each begins with `syscall` and then says which it is.
    frames: Vec<Frame>,
    spaces: BTreeMap<u64, Model>,
    /// Pages that a space could have shown, for probes of what is gone.
    addresses: Vec<u64>,
    probes: u64,
    forgotten: u64,
}

fn word(frame: usize) -> u64 {
    u64::from_le_bytes([0x0f, 0x05, frame as u8, 0xaa, 0, 0, 0, 0])
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let frames = Frame::zeroed_run(FRAMES);
        for (n, frame) in frames.iter().enumerate() {
            frame.write_shared(0, &word(n).to_le_bytes());
        }
        // Single pages all over the address space, some neighbours, and the first and last ones.
        let mut addresses = vec![PAGE * 16, GUEST_TOP - PAGE];
        for _ in 0..600 {
            let page = (random.below(GUEST_TOP / PAGE - 40) + 16) * PAGE;
            addresses.extend((0..1 + random.below(3)).map(|n| page + n * PAGE));
        }
        addresses.retain(|addr| *addr != CODE);
        World {
            platform: KvmPlatform::new(None).unwrap(),
            random,
            code: Frame::from_slice(PROBES),
            frames,
            spaces: BTreeMap::new(),
            addresses,
            probes: 0,
            forgotten: 0,
        }
    }

    /// The space, with the probing code and a task.
    fn provide(&mut self, space: u64) {
        if let Entry::Vacant(new) = self.spaces.entry(space) {
            new.insert(Model::new());
            self.platform.load_xstate(SpaceId(space), TASK, &XState::initial()).unwrap();
        }
        let frame_offset = self.code.offset();
        self.platform.map(SpaceId(space), &[Mapping { addr: CODE, frame_offset, pages: 1, prot: Prot::RX }]);
    }

    fn change(&mut self, space: u64) {
        let Some(model) = self.spaces.get_mut(&space) else { return };
        let id = SpaceId(space);
        match self.random.below(40) {
            0 => {
                self.platform.write_protect(id);
                model.values_mut().for_each(|(_, prot)| prot.write = false);
            }
            1 => {
                self.platform.reset_space(id);
                self.spaces.remove(&space);
            }
            2 => {
                self.platform.drop_space(id);
                self.spaces.remove(&space);
            }
            3 if self.random.below(50) == 0 => {
                self.platform.evict_all();
                self.spaces.clear();
            }
            4 => {
                // Much at once.
                let (from, len) = (self.random.below(GUEST_TOP / PAGE) * PAGE, 1 << 44);
                self.platform.unmap(id, from, len);
                model.retain(|addr, _| !(from..from + len).contains(addr));
            }
            5..=12 => {
                let addr = self.addresses[self.random.below(self.addresses.len() as u64) as usize];
                let pages = 1 + self.random.below(3);
                self.platform.unmap(id, addr, pages * PAGE);
                model.retain(|page, _| !(addr..addr + pages * PAGE).contains(page));
            }
            _ => {
                for _ in 0..1 + self.random.below(12) {
                    let addr = self.addresses[self.random.below(self.addresses.len() as u64) as usize];
                    let frame = self.random.below(FRAMES as u64) as usize;
                    let prot = [Prot::R, Prot::RW, Prot::RX, Prot::RWX][self.random.below(4) as usize];
                    let frame_offset = self.frames[frame].offset();
                    self.platform.map(id, &[Mapping { addr, frame_offset, pages: 1, prot }]);
                    model.insert(addr, (frame, prot));
                }
            }
        }
    }

    /// The platform may forget; then it says so.
    fn note_forgotten(&mut self, space: u64) {
        let mut list = Vec::new();
        self.platform.mapped(SpaceId(space), &mut list);
        let Some(model) = self.spaces.get_mut(&space) else { return };
        let shown: BTreeMap<u64, Prot> =
            list.iter().flat_map(|m| (0..u64::from(m.pages)).map(|n| (m.addr + n * PAGE, m.prot))).collect();
        let before = model.len();
        model.retain(|addr, (_, prot)| shown.get(addr) == Some(prot));
        self.forgotten += (before - model.len()) as u64;
        let listed = shown.keys().filter(|addr| **addr != CODE).count();
        assert_eq!(listed, model.len(), "space {space} maps what it should not");
    }

    fn probe(&mut self, space: u64, addr: u64) {
        self.provide(space);
        self.probes += 1;
        let access = [Access::Read, Access::Write, Access::Exec][self.random.below(3) as usize];
        let rip = match access {
            Access::Read => READ,
            Access::Write => WRITE,
            Access::Exec => JUMP,
        };
        let mut regs = Regs { rip, rdi: addr, rbx: self.probes, ..Regs::default() };
        let trap = run(&mut self.platform, SpaceId(space), TASK, &mut regs);
        if self.probes.is_multiple_of(64) || matches!(trap, Trap::PageFault { .. }) {
            self.note_forgotten(space);
        }
        if let Trap::PageFault { addr: CODE..=0x40_0fff, access: Some(Access::Exec), .. } = trap {
            // Forgotten with everything else.
            return;
        }
        let shown = self.spaces[&space].get(&addr).filter(|(_, prot)| prot.allows(access));
        let context = format!("{access:?} of {addr:#x} in space {space}, probe {}", self.probes);
        match (trap, shown) {
            (Trap::Syscall, Some(&(frame, _))) => match access {
                Access::Read => assert_eq!(regs.orig_rax, word(frame), "{context}"),
                Access::Write => assert_eq!(self.frames[frame].load_u64(16), self.probes, "{context}"),
                Access::Exec => assert_eq!(regs.rip, addr + 2, "{context}"),
            },
            (Trap::PageFault { addr: fault, access: Some(kind), .. }, None) => {
                let at = if access == Access::Write { addr + 16 } else { addr };
                assert_eq!((fault, kind), (at, access), "{context}");
            }
            (trap, shown) => panic!("{trap:?} where {shown:?} is mapped: {context}"),
        }
    }

    /// A random page of the address space's, or one that is mapped.
    fn target(&mut self, space: u64) -> u64 {
        let anything = self.addresses[self.random.below(self.addresses.len() as u64) as usize];
        let Some(model) = self.spaces.get(&space).filter(|model| !model.is_empty()) else { return anything };
        if self.random.below(3) == 0 {
            return anything;
        }
        let nth = self.random.below(model.len() as u64) as usize;
        model.keys().nth(nth).copied().unwrap_or(anything)
    }
}

#[test]
fn every_page_of_many_sparse_spaces_is_what_it_should_be() {
    if bloodhound_platform_tests::without_kvm("every_page_of_many_sparse_spaces_is_what_it_should_be") {
        return;
    }
    let mut world = World::new(11);
    for _ in 0..4_000 {
        let space = 1 + world.random.below(150);
        world.provide(space);
        world.change(space);
        for _ in 0..2 {
            let addr = world.target(space);
            world.probe(space, addr);
        }
    }
    assert!(world.probes >= 8_000);
    assert_eq!(world.forgotten, 0, "no space is so large that it has to forget");
}

/// A space whose tables alone do not fit forgets pages, says so, and shows the right ones again when they are mapped.
#[test]
fn a_space_too_sparse_for_its_tables_works() {
    if bloodhound_platform_tests::without_kvm("a_space_too_sparse_for_its_tables_works") {
        return;
    }
    let mut world = World::new(12);
    let mut addresses: Vec<u64> =
        (0..20_000).map(|_| (world.random.below(GUEST_TOP / PAGE - 16) + 16) * PAGE).collect();
    addresses.retain(|addr| *addr != CODE);
    world.provide(1);
    for (n, &addr) in addresses.iter().enumerate() {
        let frame = n % FRAMES;
        let frame_offset = world.frames[frame].offset();
        world.platform.map(SpaceId(1), &[Mapping { addr, frame_offset, pages: 1, prot: Prot::RWX }]);
        world.spaces.entry(1).or_default().insert(addr, (frame, Prot::RWX));
        if n % 97 == 0 {
            world.probe(1, addr);
        }
    }
    assert!(world.forgotten > 0);
    for n in 0..200 {
        let addr = addresses[n * 99];
        let frame_offset = world.frames[n % FRAMES].offset();
        world.platform.map(SpaceId(1), &[Mapping { addr, frame_offset, pages: 1, prot: Prot::RWX }]);
        world.spaces.entry(1).or_default().insert(addr, (n % FRAMES, Prot::RWX));
        world.probe(1, addr);
    }
}
