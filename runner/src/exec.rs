//! `bloodhound exec`: one program of this machine's file system, deterministically.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloodhound_decisions::Decisions;
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::file::Console;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_sim::machine::{Listen, StepRecord, TestModes};
use bloodhound_sim::scenario::{RestartPolicy, Scenario, ServiceSpec};
use bloodhound_sim::services::State;
use bloodhound_sim::world::FindingKind;
use bloodhound_sim::{Ended, Machine};
use bloodhound_vfs::MountSpec;
use bloodhound_vfs::host::{Allow, HostBase};

use crate::exit;
use crate::host;

/// Arguments of `exec`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Seed of every choice: scheduling, randomness, address-space layout
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print every system call with its result to standard error
    #[arg(long)]
    strace: bool,
    /// Print digest, steps and virtual time to standard error at the end
    #[arg(long)]
    summary: bool,
    /// Stop after so much virtual time (for example 30s, 5m)
    #[arg(long, default_value = "1h", value_parser = crate::cli::duration)]
    max_time: u64,
    /// Let the program read this file or directory as well (it sees its own, the current directory and the system's)
    #[arg(long = "read", value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Set an environment variable of the program
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Standing tests: drop platform state, wake sleepers for nothing, clone the world, every N steps
    #[arg(long, hide = true, default_value_t = 0)]
    torment: u64,
    /// Do not offer the vDSO: every clock read is a system call
    #[arg(long, hide = true)]
    no_vdso: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// The node that `exec` runs on.
const NODE: NodeId = NodeId(1);

fn scenario(args: &Args, base: &HostBase) -> Result<Scenario, String> {
    let cwd = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let mut more = args.read.iter().map(|p| cwd.join(p)).collect::<Vec<_>>();
    // Home directories and the root are too much to show because somebody stands in them.
    if cwd != Path::new("/") {
        more.push(cwd.clone());
    }
    let program = Path::new(&args.command[0]);
    if args.command[0].contains('/') {
        more.push(cwd.join(program));
    }
    let root = host::host_root(base, &more).map_err(|e| format!("the root directory: {e}"))?;
    let mounts = binds(base, &more)?;
    let mut envp: Vec<Vec<u8>> = vec![
        b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_vec(),
        b"HOME=/root".to_vec(),
        b"LANG=C.UTF-8".to_vec(),
    ];
    envp.extend(args.env.iter().map(|e| e.as_bytes().to_vec()));
    let path = if args.command[0].contains('/') {
        host::os_bytes(&cwd.join(program))
    } else {
        args.command[0].clone().into_bytes()
    };
    let service = ServiceSpec {
        node: NODE,
        name: args.command[0].clone(),
        hostname: "bloodhound".into(),
        addresses: vec![([10, 0, 0, 1].into(), 24)],
        hosts: BTreeMap::new(),
        program: Program {
            path,
            argv: args.command.iter().map(|a| a.clone().into_bytes()).collect(),
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
        max_time: args.max_time,
        fault_start: 0,
        fault_time: 0,
        heal: true,
        faults: Default::default(),
        settle: args.max_time,
        vdso: !args.no_vdso,
        workload: None,
        clients: Vec::new(),
        prober: None,
        helpers: Vec::new(),
        checks: Vec::new(),
    })
}

/// Named paths below directories that are fresh in every container (/tmp, /run, /dev) are bound there.
fn binds(base: &HostBase, more: &[PathBuf]) -> Result<Vec<(String, MountSpec)>, String> {
    let mut mounts: Vec<(String, MountSpec)> = Vec::new();
    for path in more.iter().filter(|p| ["/tmp", "/run", "/dev"].iter().any(|d| p.starts_with(d))) {
        let text = path.to_string_lossy().into_owned();
        if mounts.iter().any(|(p, _)| path.starts_with(p))
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
    match try_run(args) {
        Ok(code) => code,
        Err(text) => {
            eprintln!("bloodhound: {text}");
            exit::ENVIRONMENT
        }
    }
}

fn try_run(args: &Args) -> Result<u8, String> {
    let mut base = HostBase::new();
    let scenario = Arc::new(scenario(args, &base)?);
    let (platform, patch) = host::platform(None)?;
    let world = host::world(&scenario, &mut base, Decisions::seeded(args.seed), patch)?;
    let mut machine = Machine::new(world, scenario, platform, Box::new(base));
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
    let deadline = bloodhound_abi::SimTime(args.max_time);
    let mut shown = 0;
    loop {
        let ended = machine
            .run(|w| {
                w.console.len() > shown
                    || w.now > deadline
                    || w.nodes[&NODE].stdin.wanted
                    || matches!(w.services[&NODE].state, State::Ended(_))
            })
            .map_err(|e| e.to_string())?;
        shown = print_console(&machine, shown);
        if machine.world.nodes[&NODE].stdin.wanted {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|e| format!("standard input: {e}"))?;
            machine.world.node_mut(NODE).supply_stdin(bytes);
            continue;
        }
        let world = &machine.world;
        let code = match (world.services[&NODE].state, ended) {
            (State::Ended(status), _) => exit_code(status),
            (_, Ended::Condition) if world.now > deadline => {
                eprintln!("bloodhound: stopped after {} of virtual time (--max-time)", world.now);
                exit::INCONCLUSIVE
            }
            (_, Ended::Condition) => continue,
            (_, Ended::Quiet) => {
                eprintln!(
                    "bloodhound: deadlock: every task waits for something that cannot happen\n{}",
                    crate::report::waiting(world)
                );
                exit::FINDINGS
            }
            (_, Ended::Fatal(f)) => {
                eprintln!("bloodhound: {}", f.text);
                match f.kind {
                    FindingKind::Unsupported => exit::UNSUPPORTED,
                    FindingKind::NotReady => 127,
                    _ => exit::FINDINGS,
                }
            }
            (_, Ended::Interrupted) => exit::INTERRUPTED,
        };
        if args.summary {
            eprintln!("digest: {}\nsteps: {}\nvirtual_time_ns: {}", world.digest, world.steps, world.now.0);
        }
        return Ok(code);
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
