//! What a trap costs: a system call through the platform against a bare PTRACE_SYSEMU loop in the same run (the
//! figure that counts is the ratio), and what page faults, steps, spaces and vector state cost.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures host time

use std::time::Instant;

use bloodhound_frames::Frame;
use bloodhound_platform::{Mapping, Platform, Prot, SpaceId, TaskKey, Trap, XState};
use bloodhound_platform_ptrace::PtracePlatform;
use bloodhound_platform_tests::{CODE, DATA, Guest, PAGE};

/// Best of several rounds, in microseconds per repetition.
fn best(repetitions: u32, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        (0..repetitions).for_each(|_| work());
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(repetitions));
    }
    best
}

/// A child in an endless loop of getppid, traced without any of our code around.
struct Bare(libc::pid_t);

impl Bare {
    fn new() -> Bare {
        // SAFETY: the child only makes raw system calls, for ever; the parent's calls have no memory effects but
        // on `status`.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                loop {
                    std::arch::asm!("syscall", inout("rax") libc::SYS_getppid => _, out("rcx") _, out("r11") _);
                }
            }
            let mut status = 0;
            libc::waitpid(pid, &raw mut status, libc::__WALL);
            libc::ptrace(
                libc::PTRACE_SETOPTIONS,
                pid,
                0,
                libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL,
            );
            Bare(pid)
        }
    }

    fn round(&self) {
        // SAFETY: as above; `regs` is filled by GETREGS before it is read.
        unsafe {
            let mut regs: libc::user_regs_struct = std::mem::zeroed();
            let mut status = 0;
            libc::ptrace(libc::PTRACE_SYSEMU, self.0, 0, 0);
            libc::waitpid(self.0, &raw mut status, libc::__WALL);
            libc::ptrace(libc::PTRACE_GETREGS, self.0, 0, &raw mut regs);
            regs.rax = 1;
            libc::ptrace(libc::PTRACE_SETREGS, self.0, 0, &raw const regs);
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: no memory effects but on `status`; our own child.
        unsafe {
            let mut status = 0;
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, libc::__WALL);
        }
    }
}

fn fault_cost(platform: PtracePlatform, batch: u32, contiguous: bool) -> (PtracePlatform, f64) {
    // loop: mov [rdi], eax; add rdi, 4096; jmp loop
    let mut guest = Guest::on(platform, b"\x89\x07\x48\x81\xc7\x00\x10\0\0\xeb\xf5");
    guest.map(CODE);
    let mut frames: Vec<Frame> = (0..4096).map(|_| Frame::zeroed()).collect();
    frames.sort_by_key(Frame::offset);
    if !contiguous {
        // Each frame far from its neighbour.
        frames = (0..frames.len()).map(|n| frames[(n * 1231) % frames.len()].clone()).collect();
    }
    guest.regs.rdi = 0x10_0000_0000;
    let start = Instant::now();
    let mut next = 0;
    while next < frames.len() {
        let trap = guest.trap();
        let Trap::PageFault { addr, .. } = trap else { panic!("{trap:?}") };
        for n in 0..batch as usize {
            let mapping = Mapping {
                addr: addr + n as u64 * PAGE,
                frame_offset: frames[next + n].offset(),
                pages: 1,
                prot: Prot::RW,
            };
            guest.platform.map(guest.space, &[mapping]);
        }
        next += batch as usize;
    }
    let per_fault = start.elapsed().as_secs_f64() * 1e6 / (frames.len() / batch as usize) as f64;
    guest.platform.drop_space(guest.space);
    (guest.platform, per_fault)
}

fn main() {
    let platform = PtracePlatform::new(Some(0)).expect("platform");
    // loop: mov eax, 110; syscall; jmp loop
    let mut guest = Guest::on(platform, b"\xb8\x6e\0\0\0\x0f\x05\xeb\xf7");
    guest.map(CODE);
    guest.map(DATA);
    let bare = Bare::new();
    // In turns, so that a busy host disturbs both alike.
    let (mut bare_us, mut ours_us) = (f64::MAX, f64::MAX);
    for _ in 0..10 {
        bare_us = bare_us.min(best(300, || bare.round()));
        ours_us = ours_us.min(best(300, || {
            guest.syscall();
            guest.regs.rax = 1;
        }));
    }
    println!("bare SYSEMU + wait + GETREGS + SETREGS   {bare_us:7.2} us");
    println!("system call through the platform         {ours_us:7.2} us   ratio {:.2}", ours_us / bare_us);
    let step = best(500, || {
        guest.platform.step(guest.space, guest.task, &mut guest.regs).expect("step");
    });
    println!("single step                              {step:7.2} us");
    let (a, b) = (XState::initial(), guest.platform.save_xstate(guest.space).expect("save"));
    let mut other = TaskKey(99);
    let b = b.expect("an owner").1;
    let swap = best(2000, || {
        guest.syscall();
        let (now, _) = guest.platform.save_xstate(guest.space).expect("save").expect("an owner");
        let state = if now == other { &a } else { &b };
        guest.platform.load_xstate(guest.space, other, state).expect("load");
        (guest.task, other) = (other, now);
    });
    println!("system call and switch of vector state   {swap:7.2} us");
    let mut platform = guest.platform;
    for (batch, contiguous) in [(1, true), (1, false), (16, true), (16, false), (64, false)] {
        let (back, cost) = fault_cost(platform, batch, contiguous);
        platform = back;
        let kind = if contiguous { "consecutive frames" } else { "scattered frames" };
        println!(
            "page fault, {batch:2} pages mapped, {kind:18} {cost:7.2} us   per page {:.2}",
            cost / f64::from(batch)
        );
    }
    let mut n = 0;
    let reuse = best(200, || {
        n += 1;
        platform.load_xstate(SpaceId(n), TaskKey(n), &XState::initial()).expect("load");
        platform.drop_space(SpaceId(n));
    });
    println!("space from the pool and back             {reuse:7.2} us");
    let fresh = best(50, || {
        n += 1;
        platform.evict_all();
        platform.load_xstate(SpaceId(n), TaskKey(n), &XState::initial()).expect("load");
    });
    println!("space with a new stub, and its end       {fresh:7.2} us");
    let zeroed = best(2000, || drop(Frame::zeroed()));
    println!("zeroed frame, recycled                   {zeroed:7.3} us");
    let mut kept = Vec::new();
    let fresh = best(500, || kept.push(Frame::zeroed()));
    println!("zeroed frame, new                        {fresh:7.3} us");
}
