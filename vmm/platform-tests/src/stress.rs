//! Several platforms on several threads, many spaces each, dropped, reset and evicted in the middle: every
//! space computes what it would compute alone.

#![allow(missing_docs)] // the names say it

use bloodhound_frames::Frame;
use bloodhound_platform::{Access, Mapping, Platform, Prot, Regs, SpaceId, Stops, TaskKey, Trap, XState};

use crate::{CODE, DATA, Make, PAGE, repetitions};

/// rdi: the present page; each round adds to a counter there, in a register, and in xmm0, goes 4096 further
/// within eight pages and makes a system call with the register as its number.
/// inc qword [rdi]; inc rbx; vpaddq xmm0, xmm0, xmm1; add rdi, 4096; and rdi, ~0x8000; vmovq rcx, xmm0;
/// mov rax, rbx; syscall; jmp back
const CODE_BYTES: &[u8] = b"\x48\xff\x07\x48\xff\xc3\xc5\xf9\xd4\xc1\x48\x81\xc7\x00\x10\0\0\
\x48\x81\xe7\xff\x7f\xff\xff\xc4\xe1\xf9\x7e\xc1\x48\x89\xd8\x0f\x05\xeb\xdc";

struct Program {
    space: SpaceId,
    regs: Regs,
    state: XState,
    pages: Vec<Frame>,
    rounds: u64,
}

impl Program {
    fn new(n: u64) -> Program {
        let mut area = *XState::initial().area();
        area[176..184].copy_from_slice(&(n + 1).to_le_bytes()); // xmm1
        let regs = Regs { rip: CODE, rdi: DATA, ..Regs::default() };
        let state = XState::from_area(&area).unwrap();
        Program { space: SpaceId(n), regs, state, pages: Frame::zeroed_run(8), rounds: 0 }
    }

    fn round(&mut self, platform: &mut impl Platform, code: &Frame) {
        let task = TaskKey(self.space.0);
        if platform.xstate_owner(self.space) != Some(task) {
            platform.load_xstate(self.space, task, &self.state).unwrap();
        }
        loop {
            match platform.run(self.space, task, &mut self.regs, &mut Stops::default()).unwrap() {
                Trap::BudgetSpent => {}
                Trap::Syscall => break,
                Trap::PageFault { addr, access: Some(access), .. } => {
                    let addr = addr & !(PAGE - 1);
                    let (frame, prot) = match access {
                        Access::Exec => (code, Prot::RX),
                        _ => (&self.pages[((addr - DATA) / PAGE) as usize], Prot::RW),
                    };
                    platform
                        .map(self.space, &[Mapping { addr, frame_offset: frame.offset(), pages: 1, prot }]);
                }
                other => panic!("{other:?} at {:#x}", self.regs.rip),
            }
        }
        self.rounds += 1;
        assert_eq!((self.regs.orig_rax, self.regs.rbx), (self.rounds, self.rounds));
        (_, self.state) = platform.save_xstate(self.space).unwrap().unwrap();
        assert_eq!(self.state.area()[160..168], (self.rounds * (self.space.0 + 1)).to_le_bytes());
    }
}

fn worker(mut platform: impl Platform, seed: u64) {
    let code = Frame::from_slice(CODE_BYTES);
    let mut programs: Vec<Program> = (0..6).map(Program::new).collect();
    let mut random = seed;
    for _ in 0..repetitions(&platform.abilities(), 1500) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let n = (random >> 40) as usize % programs.len();
        programs[n].round(&mut platform, &code);
        let space = programs[n].space;
        match (random >> 50) % 64 {
            0 => platform.evict_all(),
            1 => platform.drop_space(space),
            2 => platform.reset_space(space),
            3 => platform.unmap(space, DATA, 4 * PAGE),
            4 => platform.write_protect(space),
            // A snapshot that stays: every page is copied before its next write.
            5 => {
                let copies = programs[n].pages.iter().map(|f| Frame::from_bytes(f.bytes())).collect();
                platform.unmap(space, DATA, 8 * PAGE);
                programs[n].pages = copies;
            }
            _ => {}
        }
    }
    for program in &programs {
        let sum: u64 = program.pages.iter().map(|f| f.load_u64(0)).sum();
        assert_eq!(sum, program.rounds);
    }
}

pub fn spaces_compute_what_they_would_alone<P: Platform>(make: Make<P>) {
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            scope.spawn(move || worker(make(None), seed));
        }
    });
}
