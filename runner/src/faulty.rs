//! Tests with platforms that fail, or do something else than they should: what a command makes of it.
//!
//! [`Wrapped`] is the ptrace platform with a hand in its traps. Nothing here needs /dev/kvm.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloodhound_platform::{
    Abilities, CpuidTrap, Platform, PlatformError, Regs, SpaceId, Stops, TaskKey, Trap,
};
use bloodhound_platform_ptrace::PtracePlatform;
use clap::Parser;

use crate::cli::{Cli, Command};
use crate::platform::{self, Chosen, Name, Open, Wanted};
use crate::session::{Failure, Session};
use crate::{campaign, exec, exit, run, verify};

/// Sees each trap and may change it or fail instead.
type Hand = fn(Trap, &mut Regs) -> Result<Trap, PlatformError>;

/// The ptrace platform with a hand in its traps.
struct Wrapped {
    inner: PtracePlatform,
    hand: Hand,
}

impl Wrapped {
    fn open(cpu: Option<usize>, hand: Hand) -> Result<Box<dyn Platform>, PlatformError> {
        Ok(Box::new(Wrapped { inner: PtracePlatform::new(cpu)?, hand }))
    }
}

impl Platform for Wrapped {
    bloodhound_platform::forward_platform!(inner: approach, processor_time, memory, map, unmap, write_protect, mapped, xstate_owner, save_xstate, load_xstate, reset_space, drop_space, evict_all, abilities);

    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        let trap = self.inner.run(space, task, regs, stops)?;
        (self.hand)(trap, regs)
    }

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        let trap = self.inner.step(space, task, regs)?;
        (self.hand)(trap, regs)
    }
}

/// A "kvm" that is made by `open`. What the test machine's ptrace can do is the same for all of them.
fn kvm(open: Open) -> Chosen {
    let abilities =
        Abilities { traps_rdtsc: true, cpuid: CpuidTrap::NeedsPatch, traps_steps: true, trap_cost_ns: 1 };
    Chosen::with(Name::Kvm, abilities, open)
}

/// What a hypervisor says that cannot emulate an instruction.
fn vm_failure() -> PlatformError {
    PlatformError::Vm {
        what: "KVM_EXIT_INTERNAL_ERROR, suberror 1".into(),
        rip: 0x40_1000,
        code: vec![0x0f, 0x0b],
    }
}

/// Fails at the first trap.
fn at_once(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Wrapped::open(cpu, |_, _| Err(vm_failure()))
}

/// Fails when the service of [`stack`] has been up for a while: at umask(2) (95).
fn later(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Wrapped::open(cpu, |trap, regs| match trap {
        Trap::Syscall if regs.orig_rax == 95 => Err(vm_failure()),
        _ => Ok(trap),
    })
}

/// getpid(2) (39) asks for the parent (110) instead.
fn lying(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Wrapped::open(cpu, |trap, regs| {
        if trap == Trap::Syscall && regs.orig_rax == 39 {
            regs.orig_rax = 110;
        }
        Ok(trap)
    })
}

/// No different from ptrace.
fn honest(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Wrapped::open(cpu, |trap, _| Ok(trap))
}

fn parse(words: &[&str]) -> Command {
    Cli::try_parse_from([&["bloodhound"], words].concat()).expect("a command").command
}

/// A stack of one service that calls umask(2) long after it is ready; the configuration.
fn stack(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("bloodhound-faulty-{}-{name}", std::process::id()));
    let _ignored = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let compose = "services:\n  slow:\n    command: [/bin/sh, -c, 'while :; do sleep 3; umask 0; done']\n    x-bloodhound: {rootfs: host}\n";
    std::fs::write(dir.join("compose.yaml"), compose).expect("a file");
    let config = dir.join("bloodhound.yaml");
    // A fault that changes nothing here: without any, a run without clients is over at once.
    let text = "compose: compose.yaml\nsimulation: {max_time: 20s}\nfaults: {network: {drop_rate: 0.01}}\nproperties:\n  - name: up\n    kind: safety\n    check: {type: no-crash}\n";
    std::fs::write(&config, text).expect("a file");
    config
}

fn session(config: &Path) -> Arc<Session> {
    Arc::new(Session::load(config, &Default::default(), &Default::default()).expect("a session"))
}

/// The failure says what the hypervisor said, where, and when in the run; the exit code is that of the environment.
fn is_told(result: Result<u8, Failure>) -> String {
    let failure = result.expect_err("the platform fails");
    assert_eq!(failure.code, exit::ENVIRONMENT, "{}", failure.text);
    let told = "the virtual machine failed: KVM_EXIT_INTERNAL_ERROR, suberror 1, at 0x401000, instruction ";
    for part in [told, "ud2", "(virtual time ", ", step "] {
        assert!(failure.text.contains(part), "{part}: {}", failure.text);
    }
    failure.text
}

#[test]
fn a_failing_vm_ends_exec_with_5() {
    let Command::Exec(args) = parse(&["exec", "--", "/bin/sh", "-c", ":"]) else { panic!("exec") };
    is_told(exec::run_on(&args, &kvm(at_once)));
}

#[test]
fn a_failing_vm_ends_run_with_5_in_the_boot_and_after_it() {
    let config = stack("run");
    let words = ["run", "--config", &config.to_string_lossy()];
    let Command::Run(args) = parse(&words) else { panic!("run") };
    for open in [at_once as Open, later] {
        is_told(run::one(&args, session(&config), kvm(open)));
    }
    std::fs::remove_dir_all(config.parent().expect("a directory")).expect("no directory");
}

/// `test` over [`stack`] on a platform, with more arguments: the exit code and the JUnit file.
fn tested(name: &str, open: Open, more: &[&str]) -> (u8, String) {
    let config = stack(name);
    let out = config.with_file_name("out");
    let (path, dir) = (config.to_string_lossy(), out.to_string_lossy());
    let words = [&["test", "--config", &path, "--out", &dir], more].concat();
    let Command::Test(args) = parse(&words) else { panic!("test") };
    let code = campaign::campaign(&args, session(&config), || Ok(kvm(open))).map_err(|f| f.text);
    let junit = std::fs::read_to_string(out.join("junit.xml")).expect("a report");
    std::fs::remove_dir_all(config.parent().expect("a directory")).expect("no directory");
    (code.expect("a campaign"), junit)
}

#[test]
fn a_failing_vm_ends_test_with_5_and_the_seed() {
    for (open, seed) in [(at_once as Open, false), (later, true)] {
        let (code, junit) = tested("test", open, &["--first-seed", "41", "--seeds", "1"]);
        assert_eq!(code, exit::ENVIRONMENT, "{junit}");
        let told =
            "the virtual machine failed: KVM_EXIT_INTERNAL_ERROR, suberror 1, at 0x401000, instruction ";
        assert!(junit.contains(told), "{junit}");
        assert_eq!(junit.contains("seed 41 not judged: on kvm: "), seed, "{junit}");
    }
}

/// Panics when the service of [`stack`] has been up for a while.
fn panicking(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Wrapped::open(cpu, |trap, regs| match trap {
        Trap::Syscall if regs.orig_rax == 95 => panic!("this seed is one too many"),
        _ => Ok(trap),
    })
}

#[test]
fn a_bug_of_ours_ends_test_with_70_and_a_report() {
    let (code, junit) = tested("bug", panicking, &["--seeds", "3", "--jobs", "1"]);
    assert_eq!(code, exit::BUG, "{junit}");
    assert!(junit.contains("seed 0 not judged: a bug of Bloodhound: this seed is one too many"), "{junit}");
    assert!(junit.contains("<error"), "{junit}");
}

/// Makes no progress from umask(2) on, as a program that computes for ever on a slow machine.
fn endless(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Wrapped::open(cpu, |trap, regs| match trap {
        Trap::Syscall if regs.orig_rax == 95 => {
            regs.restart_syscall();
            Ok(Trap::BudgetSpent)
        }
        _ => Ok(trap),
    })
}

/// How far a task comes in some minutes depends on the host, so it is no finding that it came to no end.
#[test]
fn a_task_that_computes_for_too_long_is_inconclusive_and_no_finding() {
    let (code, junit) = tested("endless", endless, &["--seeds", "1"]);
    assert_eq!(code, exit::INCONCLUSIVE, "{junit}");
    assert!(junit.contains("seed 0 not judged: ") && junit.contains("given up: task "), "{junit}");
    assert!(junit.contains("has been computing") && junit.contains("<error"), "{junit}");
    assert!(!junit.contains("<failure") && !junit.contains("hang"), "{junit}");
}

#[test]
fn a_good_platform_passes() {
    let (code, junit) = tested("good", honest, &["--seeds", "2"]);
    assert_eq!(code, exit::PASS, "{junit}");
    assert!(!junit.contains("<error") && !junit.contains("<failure"), "{junit}");
}

fn verified(chosen: Open, program: &[&str]) -> Result<u8, Failure> {
    let words = [&["verify", "--times", "1", "--platform", "ptrace,kvm", "--"], program].concat();
    let Command::Verify(args) = parse(&words) else { panic!("verify") };
    let ptrace = platform::choose(Wanted::Ptrace).expect("ptrace works where these tests run");
    verify::several(&args, &[ptrace, kvm(chosen)])
}

#[test]
fn a_failing_vm_ends_verify_with_5_and_the_run() {
    let text = is_told(verified(at_once, &["/bin/sh", "-c", ":"]));
    assert!(text.starts_with("run 2 (kvm): "), "{text}");
}

#[test]
fn verify_names_the_first_step_at_which_platforms_differ() {
    let program = ["/bin/sh", "-c", "echo $$"];
    assert_eq!(verified(honest, &program).map_err(|f| f.text), Ok(exit::PASS));
    let failure = verified(lying, &program).expect_err("a difference");
    assert_eq!(failure.code, exit::NONDETERMINISM);
    let text = failure.text;
    assert!(text.starts_with("run 2 (kvm) differs from run 1 (ptrace): step "), "{text}");
    // The shell has number 2, its parent 1.
    assert!(text.contains("\n  run 1 (ptrace): node 1 task 2 getpid = 2 at "), "{text}");
    assert!(text.contains("\n  run 2 (kvm): node 1 task 2 getppid = 1 at "), "{text}");
}

#[test]
fn verify_compares_stacks_as_well() {
    let config = stack("verify");
    let words = ["verify", "--config", &config.to_string_lossy(), "--platform", "ptrace,kvm"];
    let Command::Verify(args) = parse(&words) else { panic!("verify") };
    let ptrace = platform::choose(Wanted::Ptrace).expect("ptrace works where these tests run");
    assert_eq!(verify::several(&args, &[ptrace, kvm(honest)]).map_err(|f| f.text), Ok(exit::PASS));
    let failure = verify::several(&args, &[ptrace, kvm(later)]).expect_err("it fails");
    assert_eq!(failure.code, exit::ENVIRONMENT);
    assert!(failure.text.starts_with("run 3 (kvm): the virtual machine failed"), "{}", failure.text);
    std::fs::remove_dir_all(config.parent().expect("a directory")).expect("no directory");
}
