//! Tests inside the crate: the second wall, reached by faking a bug of the first (a stub that is resumed with
//! its system calls on).

use bloodhound_frames::Frame;
use bloodhound_platform::extents::Extents;
use bloodhound_platform::{Mapping, Prot, Regs};
use libc::user_regs_struct;

use crate::classify::is_step;
use crate::platform::{differ_in_rax_alone, restarts};
use crate::process::{Factory, Stub, bare_regs};
use crate::stub::{ARENA_FD, CODE, COMMAND_WORDS};
use crate::sys::Stop;

const GUEST: u64 = 0x40_0000;

/// A stub with one page of application code at `GUEST`, and that page's frame.
fn stub_with(factory: &mut Factory, code: &[u8]) -> (Stub, Frame) {
    let frame = Frame::from_slice(code);
    let mut stub = factory.make().unwrap();
    let prot = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
    let command: [u64; COMMAND_WORDS] =
        [libc::SYS_mmap as u64, GUEST, 4096, prot, flags, ARENA_FD, frame.offset()];
    assert_eq!(factory.batch(&mut stub, &command), Ok(Ok(())));
    (stub, frame)
}

fn resumed_with_calls_on(regs: user_regs_struct) -> Stop {
    let mut factory = Factory::new().unwrap();
    let (stub, _frame) = stub_with(&mut factory, b"\x0f\x05\xcc");
    stub.tracee.set_regs(&regs).unwrap();
    stub.tracee.cont().unwrap();
    let stop = stub.tracee.wait().unwrap();
    if !matches!(stop, Stop::Gone(_)) {
        factory.destroy(stub);
    }
    stop
}

#[test]
fn the_filter_kills_calls_from_application_code() {
    // Even those that the stub's own code may make, and those that do nothing.
    for nr in [libc::SYS_getppid, libc::SYS_exit_group, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_clone] {
        let regs = user_regs_struct { rip: GUEST, rax: nr as u64, ..bare_regs() };
        assert_eq!(resumed_with_calls_on(regs), Stop::Gone(libc::SIGSYS), "call {nr}");
    }
}

#[test]
fn the_filter_kills_other_calls_from_stub_code() {
    for nr in [libc::SYS_getppid, libc::SYS_write, libc::SYS_clone, libc::SYS_seccomp, libc::SYS_ptrace] {
        let regs = user_regs_struct { rip: CODE, rax: nr as u64, ..bare_regs() };
        assert_eq!(resumed_with_calls_on(regs), Stop::Gone(libc::SIGSYS), "call {nr}");
    }
}

#[test]
fn calls_from_stub_code_do_not_run_under_sysemu() {
    let mut factory = Factory::new().unwrap();
    let (stub, _frame) = stub_with(&mut factory, b"\x90");
    // munmap of the code page, by an application that jumped to the stub's SYSCALL with everything in place.
    let regs =
        user_regs_struct { rip: CODE, rax: libc::SYS_munmap as u64, rdi: GUEST, rsi: 4096, ..bare_regs() };
    stub.tracee.set_regs(&regs).unwrap();
    stub.tracee.sysemu().unwrap();
    assert_eq!(stub.tracee.wait(), Ok(Stop::Syscall));
    // Still mapped: a step there works.
    stub.tracee.set_regs(&user_regs_struct { rip: GUEST, ..bare_regs() }).unwrap();
    stub.tracee.step().unwrap();
    assert_eq!(stub.tracee.wait(), Ok(Stop::Signal(libc::SIGTRAP)));
    assert_eq!(stub.tracee.regs().unwrap().rip, GUEST + 1);
    factory.destroy(stub);
}

#[test]
fn a_stub_contains_nothing_of_the_host() {
    let mut factory = Factory::new().unwrap();
    let (stub, _frame) = stub_with(&mut factory, b"\x90");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", stub.tracee.0)).unwrap();
    let starts: Vec<u64> = maps
        .lines()
        .filter(|line| !line.contains("[vsyscall]"))
        .map(|line| u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap())
        .collect();
    assert_eq!(starts, [GUEST, CODE, CODE + 0x1000], "{maps}");
    let mut fds: Vec<_> = std::fs::read_dir(format!("/proc/{}/fd", stub.tracee.0))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    fds.sort();
    assert_eq!(fds, ["0", "1"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", stub.tracee.0)).unwrap();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(name))
            .map(|v| v.trim_matches([':', '\t', ' ']).to_string())
    };
    assert_eq!(field("Seccomp").as_deref(), Some("2"));
    assert_eq!(field("NoNewPrivs").as_deref(), Some("1"));
    assert_eq!(field("PPid"), Some(std::process::id().to_string()));
    factory.destroy(stub);
}

#[test]
fn a_failing_command_is_named() {
    let mut factory = Factory::new().unwrap();
    let (mut stub, frame) = stub_with(&mut factory, b"\x90");
    let unmap = |addr: u64| [libc::SYS_munmap as u64, addr, 4096, 0, 0, 0, 0];
    let commands: Vec<u64> = [unmap(GUEST), unmap(GUEST + 1), unmap(GUEST)].concat();
    assert_eq!(factory.batch(&mut stub, &commands), Ok(Err((1, libc::EINVAL))));
    drop(frame);
    factory.destroy(stub);
}

#[test]
fn a_step_without_a_reason_is_a_step_unless_it_was_an_int1() {
    // nop; int1; repne int1; xor $0xf1, %al
    let code = Frame::from_slice(b"\x90\xf1\xf2\xf1\x34\xf1");
    let mut memory = Extents::default();
    memory.insert(&Mapping { addr: GUEST, frame_offset: code.offset(), pages: 1, prot: Prot::RX });
    let at = |rip: u64, rflags: u64| Regs { rip: GUEST + rip, rflags, ..Regs::default() };
    for (from, to, is) in [(0, 1, true), (1, 2, false), (2, 4, false), (4, 6, true)] {
        assert_eq!(is_step(&memory, Some(GUEST + from), &at(to, 0x202)), is, "from {from}");
    }
    // The program has set the flag: what was executed is told by where it is.
    assert!(is_step(&memory, None, &at(1, 0x302)));
    assert!(!is_step(&memory, None, &at(1, 0x202)));
    assert!(!is_step(&memory, None, &at(2, 0x302)));
}

#[test]
fn rax_alone_is_what_differs() {
    let shown =
        Regs { rax: 39, rip: 0x40_0002, rcx: 0x40_0002, rflags: 0x246, r11: 0x246, ..Regs::default() };
    assert!(differ_in_rax_alone(&shown, &Regs { rax: 7, orig_rax: 39, ..shown }));
    assert!(differ_in_rax_alone(&shown, &Regs { rflags: 0x1_0246, ..shown }), "RF is the host's");
    for other in [
        Regs { rdx: 1, ..shown },
        Regs { rip: 0x40_0000, ..shown },
        Regs { rflags: 0x247, ..shown },
        Regs { fs_base: 8, ..shown },
    ] {
        assert!(!differ_in_rax_alone(&shown, &other), "{other:?}");
    }
}

#[test]
fn an_answer_that_the_host_takes_for_a_restart_is_set_with_all_registers() {
    for (rax, restart) in
        [(-511i64, false), (-512, true), (-514, true), (-516, true), (-517, false), (0, false)]
    {
        assert_eq!(restarts(rax as u64), restart, "{rax}");
    }
}
