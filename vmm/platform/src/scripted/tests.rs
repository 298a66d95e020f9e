//! Tests of the interpreter: traps, faults, restart, and the executable.

use super::*;
use crate::StopPoint;
use bloodhound_frames::Frame;

const SPACE: SpaceId = SpaceId(1);
const TASK: TaskKey = TaskKey(1);
const BASE: u64 = 0x40_0000;
const HEAP: u64 = 0x50_0000;

fn loaded(steps: Vec<Step>) -> (Scripted, Regs, Frame) {
    let mut platform = Scripted::new();
    platform.program(BASE, steps);
    let code = Frame::zeroed();
    platform.map(SPACE, &[Mapping { addr: BASE, frame_offset: code.offset(), pages: 1, prot: Prot::RX }]);
    platform.load_xstate(SPACE, TASK, &XState::initial()).unwrap();
    (platform, Regs { rip: BASE, ..Regs::default() }, code)
}

#[test]
fn system_calls_results_and_loops() {
    let (mut platform, mut regs, _code) = loaded(vec![
        Step::Set(Reg::Rbx, 2.into()),
        Step::syscall(39, &[7.into(), Reg::Rbx.into()]),
        Step::Expect(Reg::Rax, 1234.into()),
        Step::Add(Reg::Rbx, u64::MAX.into()),
        Step::JumpUnless(Reg::Rbx, 0.into(), 1),
        Step::Breakpoint,
    ]);
    for round in [2, 1] {
        assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), Ok(Trap::Syscall));
        assert_eq!((regs.orig_rax, regs.rdi, regs.rsi, regs.rax as i64), (39, 7, round, -38));
        regs.rax = 1234;
    }
    assert_eq!(
        platform.run(SPACE, TASK, &mut regs, &mut Stops::default()),
        Ok(Trap::Exception(Exception::BREAKPOINT))
    );
    assert!(platform.failures().is_empty());
}

#[test]
fn a_restarted_call_is_made_again() {
    let (mut platform, mut regs, _code) = loaded(vec![Step::syscall(0, &[]), Step::Breakpoint]);
    for _ in 0..3 {
        assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), Ok(Trap::Syscall));
        regs.restart_syscall();
    }
}

#[test]
fn memory_faults_until_mapped_for_the_access() {
    let (mut platform, mut regs, _code) = loaded(vec![
        Step::Write(Arg::Imm(HEAP + 4093), b"hello".to_vec()),
        Step::ExpectBytes(Arg::Imm(HEAP + 4093), b"hello".to_vec()),
        Step::ExpectBytes(Arg::Imm(HEAP + 4093), b"world".to_vec()),
    ]);
    let (a, b) = (Frame::zeroed(), Frame::zeroed());
    let rip = BASE;
    let fault = |addr| Ok(Trap::PageFault { addr, access: Some(Access::Write), rip });
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), fault(HEAP + 4093));
    platform.map(SPACE, &[Mapping { addr: HEAP, frame_offset: a.offset(), pages: 1, prot: Prot::RW }]);
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), fault(HEAP + 4096));
    platform.map(SPACE, &[Mapping { addr: HEAP + 4096, frame_offset: b.offset(), pages: 1, prot: Prot::R }]);
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), fault(HEAP + 4096));
    assert_eq!(a.load_u64(4088), 0, "nothing is written before the fault");
    platform.map(SPACE, &[Mapping { addr: HEAP + 4096, frame_offset: b.offset(), pages: 1, prot: Prot::RW }]);
    let Ok(Trap::Exception(exception)) = platform.run(SPACE, TASK, &mut regs, &mut Stops::default()) else {
        panic!("no SIGILL")
    };
    assert_eq!(exception, Exception::at(vector::UD, BASE + 4));
    assert_eq!(platform.failures().len(), 1);
    assert_eq!(&b.bytes()[..2], b"lo");
    platform.write_protect(SPACE);
    regs.rip = BASE;
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), fault(HEAP + 4093));
    platform.unmap(SPACE, BASE, PAGE);
    let fetch = Trap::PageFault { addr: BASE, access: Some(Access::Exec), rip: BASE };
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), Ok(fetch));
}

#[test]
fn trapped_instructions_resume_behind_themselves() {
    let (mut platform, mut regs, _code) =
        loaded(vec![Step::Rdtscp, Step::Rdtscp, Step::Rdtsc, Step::Cpuid, Step::Jump(4)]);
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), Ok(Trap::Rdtsc { aux: true }));
    assert_eq!(
        platform.run(SPACE, TASK, &mut regs, &mut Stops::default()),
        Ok(Trap::Rdtsc { aux: true }),
        "the same again"
    );
    regs.set_rdtsc(1, Some(0));
    assert_eq!(
        platform.run(SPACE, TASK, &mut regs, &mut Stops::default()),
        Ok(Trap::Rdtsc { aux: true }),
        "the second one"
    );
    regs.set_rdtsc(1, Some(0));
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), Ok(Trap::Rdtsc { aux: false }));
    regs.set_rdtsc(2, None);
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), Ok(Trap::Cpuid));
    regs.set_cpuid([0; 4]);
    assert_eq!(platform.step(SPACE, TASK, &mut regs), Ok(Trap::Step));
    assert_eq!(platform.run(SPACE, TASK, &mut regs, &mut Stops::default()), Ok(Trap::BudgetSpent));
}

#[test]
fn xstate_must_be_loaded() {
    let (mut platform, mut regs, _code) = loaded(vec![Step::Breakpoint]);
    assert_eq!(
        platform.run(SPACE, TaskKey(2), &mut regs, &mut Stops::default()),
        Err(PlatformError::XStateNotLoaded)
    );
    platform.evict_all();
    assert_eq!(
        platform.run(SPACE, TASK, &mut regs, &mut Stops::default()),
        Err(PlatformError::XStateNotLoaded)
    );
}

#[test]
fn the_elf_has_two_segments() {
    let elf = scripted_elf(BASE, 3000);
    assert_eq!(elf.len(), 3 * 4096);
    let word = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap());
    assert_eq!((word(24), word(32)), (BASE, 64), "entry, program headers");
    assert_eq!((word(64 + 8), word(64 + 16), word(64 + 32)), (4096, BASE, 8192));
    assert_eq!((word(120 + 16), word(120 + 40)), (Scripted::data(BASE), 0x1_0000));
}

#[test]
fn a_run_ends_at_a_stop_point_after_so_many_passes() {
    let (mut platform, mut regs, _code) = loaded(vec![
        Step::Set(Reg::Rbx, 5.into()),
        Step::Add(Reg::Rbx, u64::MAX.into()),
        Step::syscall(39, &[]),
        Step::JumpUnless(Reg::Rbx, 0.into(), 1),
        Step::Breakpoint,
    ]);
    let address = Scripted::address(BASE, 1);
    let mut stops = Stops { points: vec![StopPoint::new(address, 3)], ..Stops::default() };
    let mut traps = Vec::new();
    // Passes are counted over the traps in between.
    while let Ok(trap) = platform.run(SPACE, TASK, &mut regs, &mut stops) {
        traps.push(trap);
        if trap == Trap::Exception(Exception::BREAKPOINT) {
            break;
        }
    }
    let stop = Trap::StopPoint { address };
    let call = Trap::Syscall;
    let want = [call, call, stop, call, call, call, Trap::Exception(Exception::BREAKPOINT)];
    assert_eq!(traps, want);
}
