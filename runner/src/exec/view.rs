//! What a single program sees of this machine: from the command line to a [`Scenario`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bloodhound_config::config::date;
use bloodhound_kernel::caps;
use bloodhound_kernel::container::Settings;
use bloodhound_kernel::exec::Program;
use bloodhound_net::LinkConfig;
use bloodhound_sim::scenario::{Init, RestartPolicy, Runtime, Scenario, ServiceSpec};
use bloodhound_vfs::host::{Allow, HostBase};
use bloodhound_vfs::{MountSpec, TreeId};

use super::NODE;
use crate::host;
use crate::session::Failure;
use crate::users::Users;

/// What a single program is run with; `verify` takes the same.
#[derive(clap::Args, Debug)]
pub struct Surroundings {
    /// Stop after so much virtual time (for example 30s, 5m)
    #[arg(long, default_value = "1h", value_parser = crate::cli::duration, requires = "command")]
    pub max_time: u64,
    /// What the wall clock shows at the beginning: a day, or a second of one in UTC (2026-11-26T08:30:00Z)
    #[arg(long, value_name = "DATE", default_value = date::START, value_parser = date::start, requires = "command")]
    pub start_date: u64,
    /// Let the program read this file or directory as well (it sees its own, files that its arguments name, the current
    /// directory and the system's)
    #[arg(long = "read", value_name = "PATH", requires = "command")]
    pub read: Vec<PathBuf>,
    /// Set an environment variable of the program
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", requires = "command", value_parser = variable())]
    pub env: Vec<OsString>,
    /// Search for a loop to preempt a thread in when it has computed for so much processor time without a system call
    #[arg(long, default_value = "1s", value_parser = crate::cli::duration, requires = "command")]
    pub compute_limit: u64,
    /// Kill a process when all of them have more memory than this (for example 64m, 1g)
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::bytes, requires = "command")]
    pub mem_limit: Option<u64>,
    /// Refuse another thread or process when there are so many
    #[arg(long, value_name = "N", requires = "command")]
    pub pids_limit: Option<u64>,
    /// The size of the simulated disk (for example 64m, 1g)
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::bytes, requires = "command")]
    pub disk_limit: Option<u64>,
    /// Do not offer the vDSO: every clock read is a system call
    #[arg(long, hide = true, requires = "command")]
    pub no_vdso: bool,
}

/// Directories that are fresh in every container.
const FRESH: [&str; 3] = ["/tmp", "/run", "/dev"];

/// `NAME=VALUE`, of any bytes.
fn variable() -> impl clap::builder::TypedValueParser<Value = OsString> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(|text| {
        match text.as_bytes().iter().position(|b| *b == b'=') {
            Some(at) if at > 0 => Ok(text),
            _ => Err("NAME=VALUE is needed"),
        }
    })
}

/// The scenario of one program.
///
/// # Errors
/// Usage: what `--read` names is not there. Environment: what the host says.
pub fn scenario(
    surroundings: &Surroundings,
    command: &[OsString],
    base: &HostBase,
) -> Result<Scenario, Failure> {
    let cwd =
        std::env::current_dir().map_err(|e| Failure::environment(format!("the current directory: {e}")))?;
    let name = command.first().ok_or_else(|| Failure::usage("no program is named"))?;
    let more = visible(surroundings, command, &cwd)?;
    let root =
        host::host_root(base, &more).map_err(|e| Failure::environment(format!("the root directory: {e}")))?;
    let mounts = binds(base, &more).map_err(Failure::environment)?;
    let text = name.to_string_lossy().into_owned();
    let service = ServiceSpec {
        node: NODE,
        name: text,
        hostname: "bloodhound".into(),
        addresses: vec![([10, 0, 0, 1].into(), 24)],
        hosts: BTreeMap::new(),
        program: Program {
            path: name.as_bytes().to_vec(),
            argv: command.iter().map(|a| a.as_bytes().to_vec()).collect(),
            envp: environment(base, root, &surroundings.env),
            cwd: host::os_bytes(&cwd),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        },
        root: Some(root),
        mounts,
        depends_on: Vec::new(),
        health: None,
        hooks: Default::default(),
        published: Default::default(),
        restart: RestartPolicy::No,
        stdin: Default::default(),
        faulty: false,
        sharing: Default::default(),
        runtime: Runtime {
            settings: Settings {
                memory: surroundings.mem_limit,
                // Beside the init.
                pids: surroundings.pids_limit.map(|most| most.saturating_add(1)),
                capabilities: caps::OF_A_MACHINE,
                ..Settings::default()
            },
            disk: surroundings.disk_limit,
            init: Init::Sleeps,
            ..Runtime::default()
        },
        resolver: Default::default(),
    };
    Ok(Scenario {
        services: vec![service],
        link: LinkConfig::default(),
        costs: Default::default(),
        spread: Default::default(),
        epoch_ns: surroundings.start_date,
        memory: crate::MEMORY,
        time_step: 10_000_000,
        boot_timeout: u64::MAX,
        max_time: surroundings.max_time,
        fault_start: 0,
        fault_time: 0,
        heal: true,
        faults: Default::default(),
        disk: None,
        planning: Default::default(),
        settle: surroundings.max_time,
        health_until_ready: false,
        vdso: !surroundings.no_vdso,
        workload: None,
        clients: Vec::new(),
        prober: None,
        helpers: Vec::new(),
        checks: Vec::new(),
        schedule: Default::default(),
        compute_limit: surroundings.compute_limit,
    })
}

/// What the program may see besides the system's: absolute paths.
fn visible(surroundings: &Surroundings, command: &[OsString], cwd: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut more = Vec::new();
    for path in &surroundings.read {
        let path = cwd.join(path);
        if let Err(error) = path.metadata() {
            return Err(Failure::usage(format!("--read {}: {error}", path.display())));
        }
        more.push(path);
    }
    // Home directories and the root are too much to show because somebody stands in them.
    if cwd != Path::new("/") {
        more.push(cwd.to_path_buf());
    }
    for (index, word) in command.iter().enumerate() {
        let path = cwd.join(word);
        // The program, if it is a path and not a name for PATH; of arguments, files, so that `python3 /elsewhere/x.py` finds
        // what it was given. A directory would show all that is in it.
        let is_path = word.as_bytes().contains(&b'/');
        if (index == 0 && is_path) || (index > 0 && path.is_file()) {
            more.push(path);
        }
    }
    Ok(more)
}

/// The variables that every program gets, and those of the command line, of which the last one of a name counts.
fn environment(base: &HostBase, root: TreeId, set: &[OsString]) -> Vec<Vec<u8>> {
    let home = [&b"HOME="[..], Users::read(base, root).home(0).as_bytes()].concat();
    let own = [
        b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_vec(),
        home,
        b"LANG=C.UTF-8".to_vec(),
    ];
    let mut envp: Vec<Vec<u8>> = Vec::new();
    for variable in own.into_iter().chain(set.iter().map(|v| v.as_bytes().to_vec())) {
        let name_of = |v: &[u8]| v.split(|b| *b == b'=').next().map(<[u8]>::to_vec);
        match envp.iter_mut().find(|v| name_of(v) == name_of(&variable)) {
            Some(before) => *before = variable,
            None => envp.push(variable),
        }
    }
    envp
}

/// Named paths below directories that are fresh in every container are bound there.
fn binds(base: &HostBase, more: &[PathBuf]) -> Result<Vec<(Vec<u8>, MountSpec)>, String> {
    // What the host has there is no business of a program's, nor what an earlier run left.
    let fresh = |path: &str, mode| (path.into(), MountSpec::Tmpfs { mode, size: None, owner: (0, 0) });
    let mut mounts: Vec<(Vec<u8>, MountSpec)> = Vec::new();
    let mut places: Vec<PathBuf> = more.iter().flat_map(|path| host::way(path)).collect();
    // What lies in another is there with it.
    places.sort();
    places.dedup();
    for path in &places {
        let is_fresh = FRESH.iter().any(|d| path.starts_with(d) && path != Path::new(d));
        let there = |(above, _): &(Vec<u8>, MountSpec)| path.starts_with(OsStr::from_bytes(above));
        if !is_fresh || mounts.iter().any(there) || !path.exists() {
            continue;
        }
        let tree = base.add_tree(path, Allow::All).map_err(|e| format!("{}: {e}", path.display()))?;
        mounts.push((path.clone().into_os_string().into_vec(), MountSpec::Bind { tree, read_only: false }));
    }
    let (locks, of_locks) = host::locks();
    mounts.splice(..0, [fresh("/tmp", 0o1777), fresh("/run", 0o755), (locks.into(), of_locks)]);
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_variable_of_a_name_counts() {
        let set = ["A=1", "HOME=/x", "A=2", "B==="].map(OsString::from);
        let base = HostBase::new();
        let root = host::host_root(&base, &[]).expect("a tree");
        let envp = environment(&base, root, &set);
        let text: Vec<String> = envp.iter().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
        assert_eq!(text[1], "HOME=/x");
        assert_eq!(text[3..], ["A=2", "B==="]);
    }
}
