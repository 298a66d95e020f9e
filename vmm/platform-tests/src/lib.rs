//! The tests that every platform on an x86-64 processor must pass, one `#[test]` per case ([`platform_tests!`]), and the
//! tiny kernel that they run application code with ([`Guest`]).
//!
//! A test file of a platform has one line per set of cases:
//!
//! ```text
//! bloodhound_platform_tests::platform_tests!(traps, |cpu| MyPlatform::new(cpu).unwrap());
//! ```
//!
//! Sets: `traps` every kind of trap and what the registers show, `mappings` queues, copy-on-write and eviction, `spin`
//! loops without side effects, `code_points` stop points and observing points, `counters` stop points that are counted at native speed, `escape` code that tries to break out, `stress` many spaces on many threads, `leaks`
//! descriptors and processes. `leaks` counts what the whole process has, so it belongs into a file of its own.
//!
//! A case that asks for what a platform cannot do by its own [`Abilities`] says so on stderr and is left out.
//!
//! [`bench`] measures what traps cost, the same for all.
//!
//! Neighbours: `bloodhound-platform`, whose promises these are; the platform crates, which depend on this one for their
//! tests only.

use std::io::Write as _;

use bloodhound_platform::Abilities;

pub mod bench;
pub mod code_points;
pub mod counters;
pub mod differential;
pub mod escape;
mod guest;
pub mod leaks;
pub mod mappings;
pub mod native;
pub mod spin;
pub mod stress;
pub mod traps;

pub use guest::{CODE, DATA, Guest, Make, PAGE, STACK, run};

/// Defines a set of cases as tests: the set's name, then a function that makes a platform from the number of the
/// processor to bind it to ([`Make`]). With `, unless` and an expression of type `Option<String>`: if it is a
/// reason, the platform cannot run on this host, and the cases say so and do nothing.
#[macro_export]
macro_rules! platform_tests {
    (traps, $($rest:tt)+) => {
        $crate::cases!(traps: [
            system_calls_show_their_registers_and_take_results,
            all_registers_go_in_and_out,
            kinds_of_access_are_told_apart,
            an_instruction_that_goes_on_in_a_missing_page_is_a_fetch,
            time_stamp_counter_traps,
            cpuid_traps_patched_or_faulting,
            breakpoint_and_exceptions,
            stack_segment_fault_is_sigbus,
            int80_is_recognised_whatever_rcx_holds,
            far_jump_to_32_bit_code_is_recognised,
            vsyscall_is_a_system_call,
            a_vsyscall_with_its_stack_not_mapped_yet_faults_there,
            reading_the_vsyscall_page_faults,
            single_steps,
            vector_state_is_saved_loaded_and_kept_apart,
        ], ($($rest)+));
    };
    (mappings, $($rest:tt)+) => {
        $crate::cases!(mappings: [
            writes_reach_the_frame_and_a_shared_frame_is_not_written,
            unmap_and_map_keep_their_order,
            everything_can_be_evicted_at_any_trap,
            a_new_space_shows_nothing_of_a_dropped_one,
            mapped_says_what_is_there,
            spaces_are_apart,
            seventy_thousand_mappings_are_survived,
            a_platform_on_a_pinned_thread_works,
        ], ($($rest)+));
    };
    (spin, $($rest:tt)+) => {
        $crate::cases!(spin: [
            waiting_for_a_flag,
            jump_to_itself,
            program_that_steps_itself,
            cycle_of_several_rounds,
            what_came_before_the_loop_is_told,
            a_fault_does_not_change_the_answer,
            spin_lock_that_is_held,
            calling_a_function_each_time,
            progress_is_no_spin,
            a_trap_in_the_loop_comes_again_afterwards,
            the_watchdog_ends_a_run_and_the_flag_ends_the_spin,
            long_computation_is_not_disturbed,
            a_page_that_is_missing_is_left_to_run,
            a_stop_point_ends_a_run_after_so_many_passes,
        ], ($($rest)+));
    };
    (code_points, $($rest:tt)+) => {
        $crate::cases!(code_points: [
            points_at_all_instructions_count_what_steps_see,
            a_run_ends_at_the_pass_that_a_point_names,
            observing_and_stop_points_lie_side_by_side,
            kept_points_tell_each_pass,
        ], ($($rest)+));
        $crate::cases!(counters: [
            long_loops_are_counted_without_traps,
            counters_end_at_the_pass_that_a_point_names,
            counters_of_all_kinds_of_instructions_count_what_steps_see,
            counters_leave_nothing_behind,
        ], ($($rest)+));
    };
    (stress, $($rest:tt)+) => {
        $crate::cases!(stress: [spaces_compute_what_they_would_alone], ($($rest)+));
    };
    (escape, $($rest:tt)+) => {
        $crate::cases!(escape: [
            jumps_and_calls,
            kernel_addresses,
            unmapped_user_addresses,
            non_canonical_addresses,
            wild_stacks,
            wild_starts,
            the_platforms_own_addresses,
            privileged_instructions,
            of_uncertain_outcome,
            every_interrupt,
            bases_that_no_address_may_have,
            selectors,
            far_transfers,
            interrupt_returns,
            compatibility_mode,
            selectors_stay_between_traps,
            a_loaded_selector_has_its_base,
            a_step_over_a_load_shows_its_base,
            illegal_instructions,
            long_and_crossing_instructions,
            self_modifying_code,
            every_flag,
            arithmetic_exceptions,
            the_id_flag_is_a_tasks_own,
            what_umip_forbids,
            a_forbidden_store_is_repeated,
            a_forbidden_store_is_fetched_first,
            a_step_over_what_umip_forbids,
            a_loop_of_what_umip_forbids,
        ], ($($rest)+));
    };
    (leaks, $($rest:tt)+) => {
        $crate::cases!(leaks: [a_thousand_spaces_leak_nothing], ($($rest)+));
    };
}

/// What [`platform_tests!`] is made of.
#[doc(hidden)]
#[macro_export]
macro_rules! cases {
    ($set:ident: [$($case:ident),* $(,)?], $how:tt) => {
        $($crate::case!($set, $case, $how);)*
    };
}

/// What [`cases!`] is made of.
#[doc(hidden)]
#[macro_export]
macro_rules! case {
    ($set:ident, $case:ident, ($make:expr $(, unless $reason:expr)? $(,)?)) => {
        #[test]
        fn $case() {
            $(
                if let Some(reason) = $reason {
                    return $crate::left_out(stringify!($case), &reason);
                }
            )?
            $crate::$set::$case($make);
        }
    };
}

/// Says on stderr, where no test harness catches it, that a case or a part of one is left out. The line also goes into the
/// file that BLOODHOUND_TEST_LEFT_OUT names, from which CI tells at its end what was left out.
pub fn left_out(case: &str, reason: &str) {
    // In one piece, because other tests write lines too.
    let line = format!("left out: {case}: {reason}\n");
    // Nothing is lost if nobody listens.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("BLOODHOUND_TEST_LEFT_OUT").filter(|path| !path.is_empty()) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "BLOODHOUND_TEST_LEFT_OUT={}: {written:?}", path.display());
    }
}

/// Why KVM cannot be tested on this host, if it cannot: the device is not there or may not be opened. Anything else that is
/// wrong with it is for the tests to find.
#[must_use]
pub fn no_kvm() -> Option<String> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    // CI counts the cases with a reason that begins so (.ci/run).
    opened.err().map(|error| format!("needs /dev/kvm: {error}"))
}

/// Whether KVM cannot be tested here; if so, says that `case` is left out.
#[must_use]
pub fn without_kvm(case: &str) -> bool {
    let reason = no_kvm();
    if let Some(reason) = &reason {
        left_out(case, reason);
    }
    reason.is_some()
}

/// A processor or KVM that is not quite one: some cases end otherwise there, through no fault of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// None.
    Plain,
    /// The host's processor is QEMU's TCG.
    Tcg,
    /// The KVM is a software one, which does not trap `rdtsc` and emulates what it cannot run.
    SoftwareKvm,
}

impl Oddity {
    /// That of this host and platform.
    #[must_use]
    pub fn of(abilities: &Abilities) -> Oddity {
        // The hypervisor's signature: "TCGTCGTCGTCG".
        let leaf = core::arch::x86_64::__cpuid(0x4000_0000);
        let tcg = u32::from_le_bytes(*b"TCGT");
        if leaf.ebx == tcg {
            Oddity::Tcg
        } else if !abilities.traps_rdtsc {
            Oddity::SoftwareKvm
        } else {
            Oddity::Plain
        }
    }

    /// Whether a case is not to be judged on this host; then says so.
    #[must_use]
    pub fn excuses(self, only: Oddity, case: &str) -> bool {
        let excused = self == only;
        if excused {
            left_out(case, &format!("it ends otherwise on this host ({self:?})"));
        }
        excused
    }
}

/// Whether single steps trap; if not, says that `case` is left out.
#[must_use]
pub fn steps(abilities: &Abilities, case: &str) -> bool {
    if !abilities.traps_steps {
        left_out(case, "this platform cannot step");
    }
    abilities.traps_steps
}

/// Whether `rdtsc` traps; if not, says that `case` is left out.
#[must_use]
pub fn rdtsc(abilities: &Abilities, case: &str) -> bool {
    if !abilities.traps_rdtsc {
        left_out(case, "rdtsc does not trap on this platform");
    }
    abilities.traps_rdtsc
}

/// Host nanoseconds up to which a trap counts as cheap. Under ptrace one costs 5 us on an idle machine.
const CHEAP: u64 = 20_000;

/// How often to repeat something: `full` where traps are cheap, less in proportion where they are dear, but at least a
/// fiftieth.
#[must_use]
pub fn repetitions(abilities: &Abilities, full: u64) -> u64 {
    (full * CHEAP / abilities.trap_cost_ns.max(CHEAP)).max(full.div_ceil(50))
}

#[cfg(test)]
mod tests {
    use bloodhound_platform::{Abilities, CpuidTrap};

    #[test]
    fn dear_traps_are_repeated_less() {
        let at = |trap_cost_ns| {
            let cpuid = CpuidTrap::Faulting;
            super::repetitions(&Abilities { traps_rdtsc: true, cpuid, traps_steps: true, trap_cost_ns }, 1000)
        };
        assert_eq!([at(0), at(5_000), at(20_000), at(200_000)], [1000, 1000, 1000, 100]);
        assert_eq!(at(u64::MAX), 20);
    }
}
