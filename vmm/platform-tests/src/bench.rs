//! What traps cost on a platform ([`report`]): system calls, steps, page faults, spaces and vector state. For benches
//! that print; how often something is repeated follows what a trap costs.
//!
//! Neighbours: the platforms' benches, which add what only they can compare themselves with.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures host time

use std::time::Instant;

use bloodhound_frames::Frame;
use bloodhound_platform::{Mapping, Platform, Prot, SpaceId, TaskKey, Trap, XState};

use crate::{CODE, Guest, PAGE, repetitions};

/// Pages that are touched to measure faults.
const TOUCHED: u64 = 4096;

/// Best of several rounds, in microseconds per repetition.
pub fn best(repetitions: u64, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        (0..repetitions).for_each(|_| work());
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / repetitions as f64);
    }
    best
}

/// A guest that does nothing but a system call, for ever.
pub fn calling<P: Platform>(platform: P) -> Guest<P> {
    // loop: mov eax, 110; syscall; jmp loop
    let mut guest = Guest::on(platform, b"\xb8\x6e\0\0\0\x0f\x05\xeb\xf7");
    guest.map(CODE);
    guest
}

/// Microseconds per system call.
pub fn system_call<P: Platform>(guest: &mut Guest<P>) -> f64 {
    best(repetitions(&guest.platform.abilities(), 300), || {
        guest.syscall();
        guest.regs.rax = 1;
    })
}

/// Prints what all of it costs.
///
/// # Panics
/// On errors of the platform.
pub fn report<P: Platform>(platform: P) {
    let mut guest = calling(platform);
    let abilities = guest.platform.abilities();
    println!("system call                              {:7.2} us", system_call(&mut guest));
    if abilities.traps_steps {
        let step = best(repetitions(&abilities, 500), || {
            guest.platform.step(guest.space, guest.task, &mut guest.regs).expect("step");
        });
        println!("single step                              {step:7.2} us");
    }
    println!("system call and switch of vector state   {:7.2} us", switch_of_vector_state(&mut guest));
    let mut platform = guest.end();
    for (batch, contiguous) in [(1, true), (1, false), (16, true), (16, false), (64, false)] {
        let (back, cost) = page_faults(platform, batch, contiguous);
        platform = back;
        let kind = if contiguous { "consecutive frames" } else { "scattered frames" };
        println!(
            "page fault, {batch:2} pages mapped, {kind:18} {cost:7.2} us   per page {:.2}",
            cost / batch as f64
        );
    }
    let mut n = 1000;
    let mut made = |evict: bool, full: u64| {
        best(repetitions(&abilities, full), || {
            n += 1;
            if evict {
                platform.evict_all();
            }
            platform.load_xstate(SpaceId(n), TaskKey(n), &XState::initial()).expect("load");
            if !evict {
                platform.drop_space(SpaceId(n));
            }
        })
    };
    println!("space, made of what is kept, and its end {:7.2} us", made(false, 200));
    println!("space, made of nothing, and its end      {:7.2} us", made(true, 50));
    println!("zeroed frame, recycled                   {:7.3} us", best(2000, || drop(Frame::zeroed())));
    let mut kept = Vec::new();
    let fresh = best(500, || kept.push(Frame::zeroed()));
    println!("zeroed frame, new                        {fresh:7.3} us");
}

/// Two tasks in turns, each with a state of its own.
fn switch_of_vector_state<P: Platform>(guest: &mut Guest<P>) -> f64 {
    let first = guest.task;
    let mut states = [XState::initial(), XState::initial()];
    best(repetitions(&guest.platform.abilities(), 2000), || {
        guest.syscall();
        let (now, state) = guest.platform.save_xstate(guest.space).expect("save").expect("an owner");
        let index = usize::from(now != first);
        states[index] = state;
        guest.task = if now == first { TaskKey(99) } else { first };
        guest.platform.load_xstate(guest.space, guest.task, &states[1 - index]).expect("load");
    })
}

/// Microseconds per fault, if `batch` pages are mapped at each.
fn page_faults<P: Platform>(platform: P, batch: u64, contiguous: bool) -> (P, f64) {
    // loop: mov [rdi], eax; add rdi, 4096; jmp loop
    let mut guest = Guest::on(platform, b"\x89\x07\x48\x81\xc7\x00\x10\0\0\xeb\xf5");
    guest.map(CODE);
    let pages = repetitions(&guest.platform.abilities(), TOUCHED).next_multiple_of(64);
    let mut frames: Vec<Frame> = (0..pages).map(|_| Frame::zeroed()).collect();
    frames.sort_by_key(Frame::offset);
    if !contiguous {
        // Each frame far from its neighbour: 1231 is a prime, so each comes once.
        frames = (0..frames.len()).map(|n| frames[(n * 1231) % frames.len()].clone()).collect();
    }
    guest.regs.rdi = 0x10_0000_0000;
    let start = Instant::now();
    for run in frames.chunks(batch as usize) {
        let trap = guest.trap();
        let Trap::PageFault { addr, .. } = trap else { panic!("{trap:?}") };
        for (n, frame) in run.iter().enumerate() {
            let addr = addr + n as u64 * PAGE;
            let mapping = Mapping { addr, frame_offset: frame.offset(), pages: 1, prot: Prot::RW };
            guest.platform.map(guest.space, &[mapping]);
        }
    }
    let cost = start.elapsed().as_secs_f64() * 1e6 / (pages / batch) as f64;
    (guest.end(), cost)
}
