//! `bloodhound exec`: one program of this machine's file system, deterministically.
//!
//! Key types: [`Single`] (the program and what it sees of the host), [`End`] (how it ended). `verify` runs programs with
//! the same parts.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloodhound_decisions::Decisions;
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::file::Console;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_platform::{PatchCode, Platform};
use bloodhound_sim::machine::{Listen, StepRecord, TestModes};
use bloodhound_sim::scenario::{RestartPolicy, Scenario, ServiceSpec};
use bloodhound_sim::services::State;
use bloodhound_sim::world::{Finding, FindingKind, World};
use bloodhound_sim::{Ended, Machine};
use bloodhound_vfs::MountSpec;
use bloodhound_vfs::host::{Allow, HostBase};

use crate::platform::{self, Choice, Chosen};
use crate::run::fail;
use crate::session::{Failure, host_failure};
use crate::{exit, host};

/// What a single program is run with; `verify` takes the same.
#[derive(clap::Args, Debug)]
pub struct Surroundings {
    /// Stop after so much virtual time (for example 30s, 5m)
    #[arg(long, default_value = "1h", value_parser = crate::cli::duration, requires = "command")]
    max_time: u64,
    /// Let the program read this file or directory as well (it sees its own, the current directory and the system's)
    #[arg(long = "read", value_name = "PATH", requires = "command")]
    read: Vec<PathBuf>,
    /// Set an environment variable of the program
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", requires = "command")]
    env: Vec<String>,
    /// Do not offer the vDSO: every clock read is a system call
    #[arg(long, hide = true, requires = "command")]
    no_vdso: bool,
}

/// Arguments of `exec`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Seed of every choice: scheduling, randomness, address-space layout
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    platform: Choice,
    /// Print every system call with its result to standard error
    #[arg(long)]
    strace: bool,
    /// Print platform, digest, steps and virtual time to standard error at the end
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    surroundings: Surroundings,
    /// Standing tests: drop platform state, wake sleepers for nothing, clone the world, every N steps
    #[arg(long, hide = true, default_value_t = 0)]
    torment: u64,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// The node that a single program runs on.
pub const NODE: NodeId = NodeId(1);

/// A program of this machine's file system, ready to be run any number of times.
pub struct Single {
    scenario: Arc<Scenario>,
    /// Host files; clones share what was read, so every run sees the same.
    base: HostBase,
}

impl Single {
    /// Looks up what the program may see of this machine.
    ///
    /// # Errors
    /// The host's.
    pub fn new(surroundings: &Surroundings, command: &[String]) -> Result<Single, Failure> {
        let base = HostBase::new();
        let scenario = Arc::new(scenario(surroundings, command, &base).map_err(Failure::environment)?);
        Ok(Single { scenario, base })
    }

    /// A machine with the program about to start.
    ///
    /// # Errors
    /// What the platform or the setup says.
    pub fn machine(&self, chosen: &Chosen, seed: u64) -> Result<Machine, Failure> {
        self.machine_on(chosen.open()?, seed)
    }

    /// The same on a platform that is open, with what is to be patched in code.
    fn machine_on(
        &self,
        (platform, patch): (Box<dyn Platform>, PatchCode),
        seed: u64,
    ) -> Result<Machine, Failure> {
        let mut base = self.base.clone();
        let world = host::world(&self.scenario, &mut base, Decisions::seeded(seed), Some(patch))
            .map_err(Failure::environment)?;
        Ok(Machine::new(world, self.scenario.clone(), platform, Box::new(base)))
    }
}

fn scenario(surroundings: &Surroundings, command: &[String], base: &HostBase) -> Result<Scenario, String> {
    let cwd = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let mut more = surroundings.read.iter().map(|p| cwd.join(p)).collect::<Vec<_>>();
    // Home directories and the root are too much to show because somebody stands in them.
    if cwd != Path::new("/") {
        more.push(cwd.clone());
    }
    let name = command.first().ok_or("no program is named")?;
    let program = Path::new(name);
    if name.contains('/') {
        more.push(cwd.join(program));
    }
    let root = host::host_root(base, &more).map_err(|e| format!("the root directory: {e}"))?;
    let mounts = binds(base, &more)?;
    let mut envp: Vec<Vec<u8>> = vec![
        b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_vec(),
        b"HOME=/root".to_vec(),
        b"LANG=C.UTF-8".to_vec(),
    ];
    envp.extend(surroundings.env.iter().map(|e| e.as_bytes().to_vec()));
    let path =
        if name.contains('/') { host::os_bytes(&cwd.join(program)) } else { name.clone().into_bytes() };
    let service = ServiceSpec {
        node: NODE,
        name: name.clone(),
        hostname: "bloodhound".into(),
        addresses: vec![([10, 0, 0, 1].into(), 24)],
        hosts: BTreeMap::new(),
        program: Program {
            path,
            argv: command.iter().map(|a| a.clone().into_bytes()).collect(),
            envp,
            cwd: host::os_bytes(&cwd),
            uid: 0,
            gid: 0,
        },
        root: Some(root),
        mounts,
        depends_on: Vec::new(),
        health: None,
        restart: RestartPolicy::No,
        stdin: None,
        faulty: false,
    };
    Ok(Scenario {
        services: vec![service],
        link: LinkConfig::default(),
        costs: Default::default(),
        epoch_ns: crate::EPOCH_NS,
        memory: crate::MEMORY,
        time_step: 10_000_000,
        boot_timeout: u64::MAX,
        max_time: surroundings.max_time,
        fault_start: 0,
        fault_time: 0,
        heal: true,
        faults: Default::default(),
        settle: surroundings.max_time,
        vdso: !surroundings.no_vdso,
        workload: None,
        clients: Vec::new(),
        prober: None,
        helpers: Vec::new(),
        checks: Vec::new(),
    })
}

/// Named paths below directories that are fresh in every container (/tmp, /run, /dev) are bound there.
fn binds(base: &HostBase, more: &[PathBuf]) -> Result<Vec<(String, MountSpec)>, String> {
    // What the host has there is no business of a program's, nor what an earlier run left.
    let fresh = |path: &str, mode| (path.to_string(), MountSpec::Tmpfs { mode, size: None });
    let mut mounts: Vec<(String, MountSpec)> = vec![fresh("/tmp", 0o1777), fresh("/run", 0o755)];
    for path in more.iter().filter(|p| ["/tmp", "/run", "/dev"].iter().any(|d| p.starts_with(d))) {
        let text = path.to_string_lossy().into_owned();
        if mounts.iter().skip(2).any(|(p, _)| path.starts_with(p))
            || ["/tmp", "/run", "/dev"].contains(&text.as_str())
        {
            continue;
        }
        if !path.exists() {
            continue;
        }
        let tree = base.add_tree(path, Allow::All).map_err(|e| format!("{text}: {e}"))?;
        mounts.push((text, MountSpec::Bind { tree, read_only: false }));
    }
    Ok(mounts)
}

/// Runs the program; its exit code, or one of ours.
pub fn run(args: &Args) -> u8 {
    let started = platform::start(args.platform.wanted);
    started
        .and_then(|(chosen, platform, patch)| run_with(args, &chosen, (platform, patch)))
        .unwrap_or_else(|failure| fail(&failure))
}

/// `exec` on a platform that is chosen.
///
/// # Errors
/// What the host says.
#[cfg(test)]
pub fn run_on(args: &Args, chosen: &Chosen) -> Result<u8, Failure> {
    run_with(args, chosen, chosen.open()?)
}

fn run_with(args: &Args, chosen: &Chosen, open: (Box<dyn Platform>, PatchCode)) -> Result<u8, Failure> {
    let single = Single::new(&args.surroundings, &args.command)?;
    let mut machine = single.machine_on(open, args.seed)?;
    if args.strace {
        machine.set_listener(Listen::Text, Box::new(print_step));
    }
    if args.torment > 0 {
        machine.set_modes(TestModes {
            evict_every: args.torment * 7,
            spurious_every: args.torment,
            clone_every: args.torment * 3,
        });
    }
    let mut stdin = || {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    };
    let end = drive(&mut machine, &mut stdin, &mut print_console)?;
    let world = &machine.world;
    match &end {
        End::Exited(_) | End::Interrupted => {}
        other => eprintln!("bloodhound: {}", other.text(world)),
    }
    if args.summary {
        eprintln!(
            "platform: {}\ndigest: {}\nsteps: {}\nvirtual_time_ns: {}",
            chosen.line(),
            world.digest,
            world.steps,
            world.now.0
        );
    }
    Ok(end.code())
}

/// How a single program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended by itself or by a signal.
    Exited(ExitStatus),
    /// Its virtual time is over.
    TimedOut,
    /// Everything in it waits; for what, by task.
    Deadlock(String),
    /// The simulation stopped it.
    Fatal(Finding),
    /// The user did.
    Interrupted,
}

impl End {
    /// The exit code of `exec`.
    pub fn code(&self) -> u8 {
        match self {
            End::Exited(status) => exit_code(*status),
            End::TimedOut => exit::INCONCLUSIVE,
            End::Deadlock(_) => exit::FINDINGS,
            End::Fatal(finding) => match finding.kind {
                FindingKind::Unsupported => exit::UNSUPPORTED,
                FindingKind::NotReady => 127,
                _ => exit::FINDINGS,
            },
            End::Interrupted => exit::INTERRUPTED,
        }
    }

    /// For people.
    pub fn text(&self, world: &World) -> String {
        match self {
            End::Exited(ExitStatus::Code(code)) => format!("exit code {code}"),
            End::Exited(ExitStatus::Signal { signo, .. }) => {
                format!("killed by {}", bloodhound_kernel::signal::name(*signo))
            }
            End::TimedOut => format!("stopped after {} of virtual time (--max-time)", world.now),
            End::Deadlock(waiting) => {
                format!("deadlock: every task waits for something that cannot happen\n{waiting}")
            }
            End::Fatal(finding) => finding.text.clone(),
            End::Interrupted => "interrupted".into(),
        }
    }
}

/// Runs the program of a [`Single`] to its end. `stdin` gives all of standard input when the program first wants some;
/// `console` shows output from the given chunk on and says how many there are.
///
/// # Errors
/// What the host says.
pub fn drive(
    machine: &mut Machine,
    stdin: &mut dyn FnMut() -> std::io::Result<Vec<u8>>,
    console: &mut dyn FnMut(&Machine, usize) -> usize,
) -> Result<End, Failure> {
    let deadline = bloodhound_abi::SimTime(machine.scenario().max_time);
    let mut shown = 0;
    loop {
        let ended = machine
            .run(|w| {
                w.console.len() > shown
                    || w.now > deadline
                    || w.nodes[&NODE].stdin.wanted
                    || matches!(w.services[&NODE].state, State::Ended(_))
            })
            .map_err(host_failure)?;
        shown = console(machine, shown);
        if machine.world.nodes[&NODE].stdin.wanted {
            let bytes = stdin().map_err(|e| Failure::environment(format!("standard input: {e}")))?;
            machine.world.node_mut(NODE).supply_stdin(bytes);
            continue;
        }
        let world = &machine.world;
        return Ok(match (world.services[&NODE].state, ended) {
            (State::Ended(status), _) => End::Exited(status),
            (_, Ended::Condition) if world.now > deadline => End::TimedOut,
            (_, Ended::Condition) => continue,
            (_, Ended::Quiet) => End::Deadlock(crate::report::waiting(world)),
            (_, Ended::Fatal(finding)) => End::Fatal(finding),
            (_, Ended::Interrupted) => End::Interrupted,
        });
    }
}

/// As a shell tells it: 128 + n for signal n.
fn exit_code(status: ExitStatus) -> u8 {
    match status {
        ExitStatus::Code(code) => code,
        ExitStatus::Signal { signo, .. } => 128 + signo as u8,
    }
}

fn print_console(machine: &Machine, from: usize) -> usize {
    let chunks = &machine.world.console;
    for (_, chunk) in &chunks[from..] {
        // A reader that went away is no reason to stop the run.
        let _ignored = match chunk.stream {
            Console::Err => std::io::stderr().write_all(&chunk.bytes),
            _ => std::io::stdout().write_all(&chunk.bytes).and_then(|()| std::io::stdout().flush()),
        };
    }
    chunks.len()
}

pub fn print_step(step: StepRecord) {
    let what = step.text.unwrap_or_else(|| match step.nr {
        u64::MAX => format!("--- {} ---", bloodhound_kernel::signal::name(step.result as u32)),
        nr => format!("system call {nr} = {}", bloodhound_sim::strace::format_result(step.result)),
    });
    eprintln!("{} [{}] {what}", step.at, step.tid);
}
