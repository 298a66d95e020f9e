//! Which platform runs application code: what the user asked for ([`Wanted`]), what the platforms of this machine can do
//! ([`probe`]), and the one that a whole process uses ([`Chosen`]).
//!
//! [`best`] is the choice of `--platform auto` as a function of what was measured. Nothing that a platform cannot do is
//! passed over in silence: [`missing`] names it with what follows. Neighbours: `kvm` (why /dev/kvm cannot be used),
//! `doctor` (prints all of it), `session` and `exec` (open a platform for each worker).

use std::fmt;

use bloodhound_platform::{Abilities, CpuidTrap, Platform, PlatformError};
use bloodhound_platform_kvm::KvmPlatform;
use bloodhound_platform_ptrace::PtracePlatform;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::memory::Budget;
use crate::session::Failure;
use crate::{cpus, kvm, output, remember};

/// What `--platform` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    /// The faster one of those that trap everything they must
    Auto,
    /// Stub processes under ptrace
    Ptrace,
    /// A virtual machine of our own on /dev/kvm
    Kvm,
}

/// The option of the commands that run something.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Choice {
    /// What runs the services: the faster platform that can do everything, or the one that is named
    #[arg(long = "platform", value_enum, default_value = "auto", value_name = "PLATFORM")]
    pub wanted: Wanted,
    /// How much of this machine's memory may be used (for example 8g; default: three quarters of what is available)
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::bytes)]
    pub memory: Option<u64>,
}

impl Choice {
    /// How much memory may be used.
    pub fn budget(&self) -> Budget {
        Budget::new(self.memory)
    }
}

/// A platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `bloodhound-platform-ptrace`.
    Ptrace,
    /// `bloodhound-platform-kvm`.
    Kvm,
}

impl Name {
    /// As users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Ptrace => "ptrace",
            Name::Kvm => "kvm",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Makes a platform for the calling thread, on one CPU if one is given.
pub type Open = fn(Option<usize>) -> Result<Box<dyn Platform>, PlatformError>;

fn open_ptrace(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Ok(Box::new(PtracePlatform::new(cpu)?))
}

fn open_kvm(cpu: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
    Ok(Box::new(KvmPlatform::new(cpu)?))
}

fn opener(name: Name) -> Open {
    match name {
        Name::Ptrace => open_ptrace,
        Name::Kvm => open_kvm,
    }
}

/// What a platform can do here, or why it cannot start.
pub type Probed = Result<Abilities, PlatformError>;

/// Starts a platform as a worker of a campaign does, on a thread of its own and bound to one CPU, and lets it measure.
pub fn probe(name: Name) -> Probed {
    let open = opener(name);
    let start = move || open(cpus::mine()).map(|platform| platform.abilities());
    let thread = std::thread::Builder::new().name(format!("probe-{name}")).spawn(start);
    let thread = thread.map_err(|e| PlatformError::Host {
        what: "starting a thread",
        errno: e.raw_os_error().unwrap_or(0),
    })?;
    // A panic has ended the process by then (`bug::install`).
    thread.join().unwrap_or(Err(PlatformError::Internal("it panicked")))
}

/// Something that a platform cannot do on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The ability's name in JSON.
    pub ability: &'static str,
    /// What is not done, after "does not".
    pub what: &'static str,
    /// What follows.
    pub consequence: &'static str,
}

const RDTSC: Missing = Missing {
    ability: "traps_rdtsc",
    what: "trap rdtsc",
    consequence: "it is replaced in the code of programs, but code that is not known for such (docs/platforms.md, \"Patched \
                  instructions\") and that reads the time-stamp counter sees the host's; a replay is exact only if none does",
};
const STEPS: Missing = Missing {
    ability: "traps_steps",
    what: "trap single steps",
    consequence: "a loop that waits for another thread without a system call is not recognised, and its run does not end",
};

/// What a run needs and the platform cannot do. (`cpuid` is either trapped or patched, and right both ways.)
pub fn missing(abilities: &Abilities) -> Vec<Missing> {
    lacking(abilities.traps_rdtsc, abilities.traps_steps)
}

fn lacking(traps_rdtsc: bool, traps_steps: bool) -> Vec<Missing> {
    let all = [(traps_rdtsc, RDTSC), (traps_steps, STEPS)];
    all.into_iter().filter(|(there, _)| !there).map(|(_, missing)| missing).collect()
}

/// "does not trap rdtsc and does not trap single steps"; nothing if nothing is missing.
fn deficits(missing: &[Missing]) -> String {
    missing.iter().map(|m| format!("does not {}", m.what)).collect::<Vec<_>>().join(" and ")
}

/// Host nanoseconds as microseconds with one digit after the point.
pub fn microseconds(ns: u64) -> String {
    format!("{}.{} us", ns / 1000, ns % 1000 / 100)
}

/// What `auto` takes, and why; or why it takes neither.
///
/// # Errors
/// Why no platform will do.
pub fn best(ptrace: &Probed, kvm: &Probed) -> Result<(Name, String), String> {
    // The time of a trap, or why it is out of the question.
    let judged = |name: Name, probed: &Probed| match probed {
        Err(error) => Err(format!("{name} cannot start: {error}")),
        Ok(abilities) => match deficits(&missing(abilities)) {
            text if text.is_empty() => Ok(abilities.trap_cost_ns),
            text => Err(format!("{name} {text}")),
        },
    };
    match (judged(Name::Ptrace, ptrace), judged(Name::Kvm, kvm)) {
        (Ok(ptrace), Ok(kvm)) => {
            let name = if kvm < ptrace { Name::Kvm } else { Name::Ptrace };
            let costs =
                format!("a trap takes {} on ptrace and {} on kvm", microseconds(ptrace), microseconds(kvm));
            Ok((name, costs))
        }
        (Ok(_), Err(why)) => Ok((Name::Ptrace, why)),
        (Err(why), Ok(_)) => Ok((Name::Kvm, why)),
        (Err(ptrace), Err(kvm)) => Err(format!("{ptrace}; {kvm}")),
    }
}

/// How `cpuid` is answered, in files and JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cpuid {
    /// The instruction traps.
    Faulting,
    /// It is replaced in executable pages.
    Patched,
}

/// The platform of a run as findings record it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// ptrace or kvm.
    pub name: String,
    /// `rdtsc` trapped.
    pub traps_rdtsc: bool,
    /// How `cpuid` was answered.
    pub cpuid: Cpuid,
    /// Single steps trapped.
    pub traps_steps: bool,
}

impl Record {
    /// What was missing.
    pub fn missing(&self) -> Vec<Missing> {
        lacking(self.traps_rdtsc, self.traps_steps)
    }
}

/// The platform of this process: every worker opens one of these.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Which.
    pub name: Name,
    /// What it can do, as measured once.
    pub abilities: Abilities,
    open: Open,
}

impl Chosen {
    /// A platform that tests provide.
    #[cfg(test)]
    pub fn with(name: Name, abilities: Abilities, open: Open) -> Chosen {
        Chosen { name, abilities, open }
    }

    /// Opens it for the calling thread, on this thread's processor.
    ///
    /// # Errors
    /// What the platform says.
    pub fn open(&self) -> Result<Box<dyn Platform>, Failure> {
        (self.open)(cpus::mine()).map_err(|error| cannot_start(self.name, &error))
    }

    /// For a finding.
    pub fn record(&self) -> Record {
        let Abilities { traps_rdtsc, cpuid, traps_steps, .. } = self.abilities;
        Record { name: self.name.to_string(), traps_rdtsc, cpuid: cpuid_name(cpuid), traps_steps }
    }

    /// For JSON output: the record and what a trap costs.
    pub fn json(&self) -> Json {
        let record = self.record();
        json!({
            "name": record.name,
            "traps_rdtsc": record.traps_rdtsc,
            "cpuid": record.cpuid,
            "traps_steps": record.traps_steps,
            "trap_cost_ns": self.abilities.trap_cost_ns,
        })
    }

    /// For people: the name, and what it does not do. Figures that differ from run to run are left out.
    pub fn line(&self) -> String {
        match deficits(&missing(&self.abilities)) {
            text if text.is_empty() => self.name.to_string(),
            text => format!("{} ({text})", self.name),
        }
    }

    /// What to say loudly before such a platform is used.
    fn warnings(&self) -> String {
        let warning = |m: Missing| {
            format!(
                "bloodhound: warning: the {} platform does not {} on this machine:\n  {}\n",
                self.name, m.what, m.consequence
            )
        };
        missing(&self.abilities).into_iter().map(warning).collect()
    }
}

/// How `cpuid` is answered.
pub fn cpuid_name(cpuid: CpuidTrap) -> Cpuid {
    match cpuid {
        CpuidTrap::Faulting => Cpuid::Faulting,
        CpuidTrap::NeedsPatch => Cpuid::Patched,
    }
}

fn cannot_start(name: Name, error: &PlatformError) -> Failure {
    let help = match name {
        Name::Ptrace => vec![
            "`bloodhound doctor` tells what this machine lacks; in a container, allow ptrace (docker run --cap-add SYS_PTRACE)".to_owned(),
        ],
        Name::Kvm => {
            let mut hints = kvm::Device::read().hints();
            hints.push("`--platform ptrace` needs no /dev/kvm".to_owned());
            hints
        }
    };
    let help: String = help.iter().map(|line| format!("\nhelp: {line}")).collect();
    Failure::environment(format!("the {name} platform cannot start: {error}{help}"))
}

/// Whether the platform starts and can do everything that it must.
pub fn complete(probed: &Probed) -> bool {
    probed.as_ref().is_ok_and(|abilities| missing(abilities).is_empty())
}

/// The platform that will be taken if it can do what it must, as far as that is known without starting any: starting a
/// virtual machine only to find that it is not wanted takes longer than a small program runs.
fn likely(wanted: Wanted) -> Option<Name> {
    match wanted {
        Wanted::Ptrace => Some(Name::Ptrace),
        Wanted::Kvm => Some(Name::Kvm),
        Wanted::Auto if kvm::openable() => remember::platform(),
        Wanted::Auto => Some(Name::Ptrace),
    }
}

/// Whether that will do: one that was asked for by its name does as it is.
fn will_do(wanted: Wanted, probed: &Probed) -> bool {
    wanted != Wanted::Auto || complete(probed)
}

/// Measures, chooses, and warns on standard error of what the platform cannot do. Once per process and wish.
///
/// # Errors
/// Environment: the platform that is asked for does not start, or for `auto` none can do what it must.
pub fn choose(wanted: Wanted) -> Result<Chosen, Failure> {
    let known = likely(wanted).map(|name| (name, probe(name))).filter(|(_, probed)| will_do(wanted, probed));
    let (name, probed) = match known {
        Some(known) => known,
        None => compare()?,
    };
    Ok(chosen(name, &probed.map_err(|error| cannot_start(name, &error))?))
}

/// The platform that `auto` takes, if it is another one. A run has the same digest on both, so a search may be made on this one.
pub fn faster(chosen: &Chosen) -> Option<Chosen> {
    choose(Wanted::Auto).ok().filter(|auto| auto.name != chosen.name)
}

/// The same for a command that needs one platform, on the calling thread: opens it as well, and does not start another one
/// first if it can be helped.
///
/// # Errors
/// As [`choose`].
pub fn start(wanted: Wanted) -> Result<(Chosen, Box<dyn Platform>), Failure> {
    if let Some(name) = likely(wanted) {
        let opened = opener(name)(cpus::mine());
        let probed = opened.as_ref().map(|platform| platform.abilities()).map_err(Clone::clone);
        if will_do(wanted, &probed) {
            let platform = opened.map_err(|error| cannot_start(name, &error))?;
            let abilities = platform.abilities();
            return Ok((chosen(name, &abilities), platform));
        }
    }
    let chosen = choose(wanted)?;
    let platform = chosen.open()?;
    Ok((chosen, platform))
}

fn chosen(name: Name, abilities: &Abilities) -> Chosen {
    let chosen = Chosen { name, abilities: *abilities, open: opener(name) };
    output::eprint(&chosen.warnings());
    chosen
}

/// Starts all platforms and takes the best one.
fn compare() -> Result<(Name, Probed), Failure> {
    let (ptrace, kvm) = (probe(Name::Ptrace), probe(Name::Kvm));
    let (name, _) = best(&ptrace, &kvm).map_err(|why| {
        Failure::environment(format!(
            "no platform can do what it must: {why}\nhelp: `bloodhound doctor` tells what this machine lacks; `--platform` takes one all the same"
        ))
    })?;
    remember::set_platform(name);
    Ok((name, if name == Name::Kvm { kvm } else { ptrace }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn can(trap_cost_ns: u64) -> Probed {
        Ok(Abilities { traps_rdtsc: true, cpuid: CpuidTrap::NeedsPatch, traps_steps: true, trap_cost_ns })
    }

    fn cannot() -> Probed {
        Err(PlatformError::Host { what: "opening /dev/kvm", errno: libc::EACCES })
    }

    fn without(rdtsc: bool, steps: bool) -> Probed {
        can(1).map(|a| Abilities { traps_rdtsc: !rdtsc, traps_steps: !steps, ..a })
    }

    #[test]
    fn auto_takes_the_faster_complete_platform() {
        let name = |ptrace: &Probed, kvm: &Probed| best(ptrace, kvm).map(|(name, _)| name);
        assert_eq!(name(&can(5000), &can(2000)), Ok(Name::Kvm));
        assert_eq!(name(&can(5000), &can(107_000)), Ok(Name::Ptrace));
        assert_eq!(name(&can(5000), &can(5000)), Ok(Name::Ptrace), "the one that needs no device");
        assert_eq!(name(&can(5000), &cannot()), Ok(Name::Ptrace));
        assert_eq!(name(&cannot(), &can(5000)), Ok(Name::Kvm));
        // However fast: what it does not trap would leak in.
        assert_eq!(name(&can(5000), &without(true, false)), Ok(Name::Ptrace));
        assert_eq!(name(&can(5000), &without(false, true)), Ok(Name::Ptrace));
        assert_eq!(name(&without(true, false), &can(900_000)), Ok(Name::Kvm));
        // Patched cpuid is as good as a trap.
        let faulting = can(4000).map(|a| Abilities { cpuid: CpuidTrap::Faulting, ..a });
        assert_eq!(name(&faulting, &can(3000)), Ok(Name::Kvm));
        for (ptrace, kvm) in [(cannot(), cannot()), (cannot(), without(true, true))] {
            assert!(name(&ptrace, &kvm).is_err());
        }
    }

    #[test]
    fn auto_says_why() {
        let why = |ptrace: &Probed, kvm: &Probed| match best(ptrace, kvm) {
            Ok((_, why)) | Err(why) => why,
        };
        assert_eq!(why(&can(4912), &can(1300)), "a trap takes 4.9 us on ptrace and 1.3 us on kvm");
        assert_eq!(why(&can(1), &without(true, false)), "kvm does not trap rdtsc");
        let opening = "kvm cannot start: opening /dev/kvm: Permission denied (os error 13)";
        assert_eq!(why(&can(1), &cannot()), opening);
        let neither = why(&without(true, true), &cannot());
        assert_eq!(neither, format!("ptrace does not trap rdtsc and does not trap single steps; {opening}"));
    }

    #[test]
    fn what_is_missing_is_said_everywhere() {
        let chosen = |probed: Probed| Chosen {
            name: Name::Kvm,
            abilities: probed.expect("abilities"),
            open: |_| Err(PlatformError::HostMemory),
        };
        let whole = chosen(can(1));
        assert_eq!((whole.line(), whole.warnings()), ("kvm".to_owned(), String::new()));
        let lacking = chosen(without(true, false));
        assert_eq!(lacking.line(), "kvm (does not trap rdtsc)");
        assert!(lacking.warnings().starts_with("bloodhound: warning: the kvm platform does not trap rdtsc"));
        assert!(lacking.warnings().ends_with(
            "that reads the time-stamp counter sees the host's; a replay is exact only if none does\n"
        ));
        assert_eq!(lacking.record().missing(), [RDTSC]);
        let json = lacking.json();
        assert_eq!(json["traps_rdtsc"], false);
        assert_eq!((&json["cpuid"], &json["trap_cost_ns"]), (&"patched".into(), &1.into()));
        let back: Record = serde_json::from_value(json).expect("a record");
        assert_eq!(back, lacking.record());
        let Err(failure) = lacking.open() else { panic!("it opened") };
        assert_eq!(failure.code, crate::exit::ENVIRONMENT);
        assert!(failure.text.contains("--platform ptrace"), "{}", failure.text);
    }

    #[test]
    fn a_named_platform_is_taken_as_it_is() {
        // Whatever this machine can do: the name is kept, or the failure names it.
        for (wanted, name) in [(Wanted::Ptrace, "ptrace"), (Wanted::Kvm, "kvm")] {
            match choose(wanted) {
                Ok(chosen) => assert_eq!(chosen.name.as_str(), name),
                Err(failure) => {
                    assert_eq!(failure.code, crate::exit::ENVIRONMENT);
                    let start = format!("the {name} platform cannot start: ");
                    assert!(failure.text.starts_with(&start), "{}", failure.text);
                }
            }
        }
    }
}
