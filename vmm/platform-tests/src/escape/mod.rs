//! Code that tries to break out, or to break the monitor. Each piece must end in the trap of the signal that Linux on a
//! bare x86-64 processor gives, and afterwards another space and task must run on.
//!
//! What Linux does is written down with each case. Where that does not depend on the vendor of the processor the host
//! itself is asked too (`native`): the platform must show the same signal, `si_code`, `si_addr` and registers.
//!
//! Modules: `addresses` wild jumps and accesses, `privileged` instructions of rings that are not ours and interrupts,
//! `segments` selectors, `bytes` instruction bytes that are odd, crossing pages or changing, `flags` the flags register
//! and arithmetic exceptions, `umip` instructions that Linux does itself.

#![allow(missing_docs)] // the names say it

mod addresses;
mod bytes;
mod flags;
mod privileged;
mod segments;
mod umip;

use bloodhound_abi::consts as c;
use bloodhound_frames::Frame;
use bloodhound_platform::{
    Exception, Mapping, Platform, Prot, Regs, SpaceId, TaskKey, Trap, Unsupported, XState,
};

pub use addresses::{
    jumps_and_calls, kernel_addresses, non_canonical_addresses, the_platforms_own_addresses,
    unmapped_user_addresses, wild_stacks, wild_starts,
};
pub use bytes::{illegal_instructions, long_and_crossing_instructions, self_modifying_code};
pub use flags::{arithmetic_exceptions, every_flag, the_id_flag_is_a_tasks_own};
pub use privileged::{
    bases_that_no_address_may_have, every_interrupt, of_uncertain_outcome, privileged_instructions,
};
pub use segments::{
    a_loaded_selector_has_its_base, a_step_over_a_load_shows_its_base, compatibility_mode, far_transfers,
    interrupt_returns, selectors, selectors_stay_between_traps,
};
pub use umip::{
    a_forbidden_store_is_fetched_first, a_forbidden_store_is_repeated, a_loop_of_what_umip_forbids,
    a_step_over_what_umip_forbids, what_umip_forbids,
};

use crate::native::{Observed, Program, observe};
use crate::{CODE, DATA, Guest, Make, Oddity, PAGE, STACK, left_out, run};

/// Signal numbers and `si_code`s, in the type that a C program sees.
const SIGILL: i32 = c::SIGILL as i32;
const SI_KERNEL: i32 = c::SI_KERNEL as i32;
const ILL_ILLOPN: i32 = c::ILL_ILLOPN as i32;
const SEGV_MAPERR: i32 = c::SEGV_MAPERR as i32;
const SEGV_ACCERR: i32 = c::SEGV_ACCERR as i32;
const TRAP_TRACE: i32 = c::TRAP_TRACE as i32;

/// How a piece of code ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As Linux would tell a signal handler: number, `si_code`, `si_addr`. A page fault has SEGV_MAPERR, whether
    /// something is mapped there or not.
    Signal(i32, i32, u64),
    /// The platform refuses it.
    Refused(Unsupported),
    /// A trap that no signal belongs to.
    Other(Trap),
    /// The native process was killed: by SIGALRM if it ran on.
    Died(i32),
}

/// General protection: SIGSEGV without an address.
const GP: End = End::Signal(11, SI_KERNEL, 0);
/// Stack segment: SIGBUS without an address.
const SS: End = End::Signal(7, SI_KERNEL, 0);
/// `int3`, which all code here ends with.
const BREAK: End = End::Signal(5, SI_KERNEL, 0);
/// 32-bit code.
const COMPAT: End = End::Refused(Unsupported::Compat);

/// Invalid opcode at an address.
fn ill(at: u64) -> End {
    End::Signal(SIGILL, ILL_ILLOPN, at)
}

/// A page fault at an address.
fn fault(addr: u64) -> End {
    End::Signal(11, SEGV_MAPERR, addr)
}

impl End {
    /// `state`: the x87 and SSE registers at the trap.
    fn of_trap(trap: Trap, rip: u64, state: &XState) -> End {
        match trap {
            Trap::PageFault { addr, .. } => fault(addr),
            Trap::Exception(e) => End::Signal(e.signal() as i32, e.si_code(|| state.area()), e.address),
            Trap::Step => End::Signal(5, TRAP_TRACE, rip),
            Trap::Unsupported(what) => End::Refused(what),
            other => End::Other(other),
        }
    }

    fn of_native(observed: Observed) -> End {
        match observed {
            Observed::Signal { signal: 11, code: SEGV_MAPERR | SEGV_ACCERR, addr, .. } => fault(addr),
            Observed::Signal { signal, code, addr, .. } => End::Signal(signal, code, addr),
            Observed::Died(signal) => End::Died(signal),
        }
    }

    /// Without the address, which is where the processor was and so may depend on it.
    fn kind(self) -> End {
        match self {
            End::Signal(signal, code, _) => End::Signal(signal, code, 0),
            other => other,
        }
    }
}

/// How a case is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The platform and the host both end as written, with equal registers.
    AsNative,
    /// The platform ends in one of the ways that are written, up to the address; so does the host, if it says anything.
    OneOf,
    /// The same, and the host is not asked.
    NotAsked,
}

/// A piece of code and how it may end.
struct Case {
    name: String,
    program: Program,
    ends: Vec<End>,
    rule: Rule,
}

impl Case {
    /// Code at [`CODE`], followed by `int3` to the end of its page; pages for data and stack.
    fn new(name: impl Into<String>, code: &[u8], end: End) -> Case {
        let mut page = code.to_vec();
        page.resize(PAGE as usize, 0xcc);
        let program = Program {
            frames: vec![page, Vec::new(), Vec::new()],
            pages: vec![(CODE, 0, Prot::RX), (DATA, 1, Prot::RW), (STACK, 2, Prot::RW)],
            regs: Regs { rip: CODE, rsp: STACK + PAGE / 2, rdi: DATA, ..Regs::default() },
        };
        let name = format!("{} ({code:02x?})", name.into());
        Case { name, program, ends: vec![end], rule: Rule::AsNative }
    }

    fn regs(mut self, change: impl FnOnce(&mut Regs)) -> Case {
        change(&mut self.program.regs);
        self
    }

    fn data(mut self, data: &[u8]) -> Case {
        self.program.frames[1] = data.to_vec();
        self
    }

    /// Other ends are as good.
    fn or(mut self, ends: &[End]) -> Case {
        self.ends.extend_from_slice(ends);
        self.rule = Rule::OneOf;
        self
    }

    fn rule(mut self, rule: Rule) -> Case {
        self.rule = rule;
        self
    }

    /// What is wrong, if anything.
    fn judge(
        &self,
        (end, exception): (End, Option<Exception>),
        regs: &Regs,
        native: Option<Observed>,
    ) -> Option<String> {
        let within = |end: End| match self.rule {
            Rule::AsNative => self.ends.contains(&end),
            Rule::OneOf | Rule::NotAsked => self.ends.iter().any(|want| want.kind() == end.kind()),
        };
        let mut wrong = Vec::new();
        if !within(end) {
            wrong.push(format!("ends with {end:x?} instead of {:x?}", self.ends));
        }
        if let Some(observed) = native {
            let there = End::of_native(observed);
            if !within(there) && !self.ends.iter().any(|end| matches!(end, End::Refused(_))) {
                wrong.push(format!("natively it ends with {there:x?}"));
            }
            if self.rule == Rule::AsNative
                && let Observed::Signal { regs: want, .. } = observed
                && want != *regs
            {
                wrong.push(format!("registers\n  {regs:x?}\nnatively\n  {want:x?}"));
            }
            if self.rule == Rule::AsNative
                && let (Some(exception), Observed::Signal { trapno, err, .. }) = (exception, observed)
                && (u64::from(exception.vector), u64::from(exception.error_code)) != (trapno, err)
            {
                wrong.push(format!("{exception:x?}, natively trapno {trapno} and err {err:#x}"));
            }
        }
        (!wrong.is_empty()).then(|| format!("{}: {}", self.name, wrong.join("; ")))
    }
}

/// What ends otherwise on odd hosts. A software KVM emulates some instructions of ring 3, and not all checks with them.
const ODD: &[(Oddity, &str)] = &[
    // It is its own way to ask for cpuid.
    (Oddity::SoftwareKvm, "int 26"),
    // It faults behind some of them.
    (Oddity::SoftwareKvm, "hlt behind what looks like int 23"),
    (Oddity::SoftwareKvm, "cs 0x2b"),
    (Oddity::SoftwareKvm, "ss 0x23"),
    (Oddity::SoftwareKvm, "ss 0x33"),
    (Oddity::SoftwareKvm, "to 0x8000000000000000"),
    (Oddity::SoftwareKvm, "to 0x4141414141414141"),
];

fn is_odd(odd: Oddity, case: &str) -> bool {
    // The code follows in parentheses.
    ODD.iter().any(|(on, name)| *on == odd && case.split(" (").next() == Some(*name))
}

/// Runs all cases on one platform, natively first.
///
/// QEMU's TCG ends many of them in a way of its own, natively as well; there they only must leave the witness unharmed.
fn check<P: Platform>(make: Make<P>, cases: &[Case]) {
    let mut witness = Witness::new(make(None));
    let odd = Oddity::of(&witness.guest.platform.abilities());
    let ask = |case: &Case| case.rule != Rule::NotAsked && odd != Oddity::Tcg;
    let native: Vec<Option<Observed>> =
        cases.iter().map(|case| ask(case).then(|| observe(&case.program))).collect();
    let mut wrong = Vec::new();
    let mut excused = 0;
    for (index, (case, native)) in cases.iter().zip(native).enumerate() {
        let (end, exception, regs) = witness.attack(SpaceId(100 + index as u64), &case.program);
        if let Some(verdict) = case.judge((end, exception), &regs, native) {
            match odd {
                Oddity::Tcg => excused += 1,
                _ if is_odd(odd, &case.name) && odd.excuses(odd, &verdict) => {}
                _ => wrong.push(verdict),
            }
        }
        witness.works(&case.name);
    }
    if excused > 0 {
        left_out(&format!("{excused} of {} ends", cases.len()), "TCG ends them in its own way");
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// A space that nobody may harm: it counts.
struct Witness<P> {
    guest: Guest<P>,
    count: u64,
}

impl<P: Platform> Witness<P> {
    fn new(platform: P) -> Witness<P> {
        // loop: inc qword [rdi]; mov rax, [rdi]; syscall; jmp loop
        let mut guest = Guest::on(platform, b"\x48\xff\x07\x48\x8b\x07\x0f\x05\xeb\xf6");
        guest.regs.rdi = DATA;
        Witness { guest, count: 0 }
    }

    fn works(&mut self, after: &str) {
        self.count += 1;
        assert_eq!(self.guest.syscall(), self.count, "after {after}");
        let regs = &self.guest.regs;
        let want = Regs { rip: CODE + 8, rcx: CODE + 8, rdi: DATA, rsp: STACK + PAGE, ..*regs };
        assert_eq!(*regs, want, "after {after}");
    }

    /// Runs a program in a space of its own to its end.
    fn attack(&mut self, space: SpaceId, program: &Program) -> (End, Option<Exception>, Regs) {
        let platform = &mut self.guest.platform;
        let frames: Vec<Frame> = program.frames.iter().map(|bytes| Frame::from_slice(bytes)).collect();
        let task = TaskKey(space.0);
        platform.load_xstate(space, task, &XState::initial()).expect("load_xstate");
        let mappings: Vec<Mapping> = program
            .pages
            .iter()
            .map(|&(addr, frame, prot)| Mapping {
                addr,
                frame_offset: frames[frame].offset(),
                pages: 1,
                prot,
            })
            .collect();
        platform.map(space, &mappings);
        let mut regs = program.regs;
        let trap = run(platform, space, task, &mut regs);
        let (_, state) = platform.save_xstate(space).expect("save_xstate").expect("an owner");
        platform.drop_space(space);
        let exception = if let Trap::Exception(exception) = trap { Some(exception) } else { None };
        (End::of_trap(trap, regs.rip, &state), exception, regs)
    }
}
