//! The KVM platform and the ptrace platform run the same random programs and must show the same, trap by trap.

use std::collections::BTreeMap;

use bloodhound_platform::Platform;
use bloodhound_platform_kvm::KvmPlatform;
use bloodhound_platform_ptrace::PtracePlatform;
use bloodhound_platform_tests::differential::{Lockstep, Outcome, found};
use bloodhound_platform_tests::{Oddity, without_kvm};

/// Runs the cases of a range of seeds; says how they ended.
fn compare(seeds: std::ops::Range<u64>, cpu: Option<usize>) {
    if without_kvm("random programs") {
        return;
    }
    let kvm = KvmPlatform::new(cpu).unwrap();
    if Oddity::of(&kvm.abilities()).excuses(Oddity::Tcg, "random programs") {
        return;
    }
    let mut both = Lockstep::new(kvm, PtracePlatform::new(cpu).unwrap());
    let (mut traps, mut endless) = (0u64, 0u64);
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    let mut differences = Vec::new();
    for seed in seeds {
        match both.case(seed) {
            Outcome::Same(n) => traps += u64::from(n),
            Outcome::Endless => endless += 1,
            Outcome::Known(what) => *known.entry(what).or_default() += 1,
            Outcome::Differs(what) => differences.push(what),
        }
        if differences.len() >= 20 {
            break;
        }
    }
    println!("{traps} traps compared; endless {endless}; known {known:?}");
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n\n"));
    assert!(traps > 0);
}

#[test]
fn random_programs_show_the_same() {
    compare(0..400, None);
}

/// `FUZZ_SEED` is the first seed, `FUZZ_CASES` their number; `FUZZ_CPU` the processor to use.
#[test]
#[allow(clippy::disallowed_methods)] // chooses what is tested
#[ignore = "runs for as long as it is told to"]
fn many_random_programs_show_the_same() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("FUZZ_SEED").unwrap_or(1_000_000);
    let cases = number("FUZZ_CASES").unwrap_or(20_000);
    compare(first..first + cases, number("FUZZ_CPU").map(|cpu| cpu as usize));
}

/// What random programs found once, on both platforms.
macro_rules! found {
    ($($case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                if !without_kvm(stringify!($case)) {
                    found::$case(|cpu| KvmPlatform::new(cpu).unwrap());
                }
                found::$case(|cpu| PtracePlatform::new(cpu).unwrap());
            }
        )*
    };
}

found!(
    a_step_over_popf_leaves_no_trap_flag,
    null_selectors_survive_a_step,
    an_instruction_reads_before_it_writes,
    what_is_not_aligned_faults_wherever_it_is,
    selectors_do_not_outlive_their_platform,
);
