//! `cargo xtask stock-kvm`: tests on the /dev/kvm of an ordinary Linux, on any machine.
//!
//! QEMU without acceleration emulates an AMD processor with SVM. A kernel of Debian or Ubuntu runs there with its kvm-amd, and
//! sees the files of this machine through 9p; what it writes stays in its memory. So everything that is built here can
//! run there without being copied, and nothing needs root.
//!
//! Modules: [`host`] what must be installed, [`kernel`] the kernel's package and its modules, [`initramfs`] what boots,
//! [`plan`] which commands run, [`vm`] QEMU itself. docs/stock-kvm.md is the user's side.

mod host;
mod initramfs;
mod kernel;
mod modules;
mod plan;
mod vm;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Failure, broken_at};

/// Arguments of `stock-kvm`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Installs missing packages with apt-get first, as root or by sudo
    #[arg(long)]
    install: bool,
    /// Gives a shell in the virtual machine instead of running tests; `exit` ends it
    #[arg(long, conflicts_with_all = ["short", "probe", "command"])]
    shell: bool,
    /// Runs the part of the tests that takes a few minutes
    #[arg(long, conflicts_with_all = ["probe", "command"])]
    short: bool,
    /// Only says what /dev/kvm is in the virtual machine
    #[arg(long, conflicts_with = "command")]
    probe: bool,
    /// The platform that the tests use there
    #[arg(long, value_enum, default_value_t = plan::Platform::Kvm)]
    platform: plan::Platform,
    /// Loads kvm-amd without nested paging: KVM then keeps shadow page tables
    #[arg(long)]
    no_npt: bool,
    /// Ends the virtual machine after so many seconds [default: 900 with --short, else 7200]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Memory of the virtual machine in MiB
    #[arg(long, value_name = "MIB", default_value_t = 3072, value_parser = clap::value_parser!(u32).range(512..))]
    memory: u32,
    /// Processors of the virtual machine. With more than one QEMU before 8.1 may run old code where the kernel has patched
    /// itself, and hangs; threads that wait for each other are faster on one, too
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: u8,
    /// QEMU's processor. Five-level page tables are taken out because most machines have none
    #[arg(long, value_name = "MODEL", default_value = "max,-la57")]
    cpu: String,
    /// The kernel's package, if not the distribution's usual one
    #[arg(long, value_name = "NAME")]
    kernel_package: Option<String>,
    /// A command to run there instead of the tests, in this directory; its exit code is passed on
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Args {
    fn timeout(&self) -> Option<Duration> {
        let usual = match (self.shell, self.short) {
            (true, _) => None,
            (_, true) => Some(900),
            _ => Some(7200),
        };
        self.timeout.or(usual).map(Duration::from_secs)
    }

    fn work(&self) -> plan::Work {
        if self.shell {
            plan::Work::Shell
        } else if self.probe {
            plan::Work::Probe
        } else if !self.command.is_empty() {
            plan::Work::Command(self.command.clone())
        } else if self.short {
            plan::Work::Short
        } else {
            plan::Work::Full
        }
    }
}

/// Builds, boots, runs; the exit code of what ran.
///
/// # Errors
/// What is missing on this machine, and everything that keeps the commands from coming to their end.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let distribution = host::Distribution::read()?;
    host::check(distribution, args.install)?;
    let place = Place::new()?;
    let kernel = kernel::fetch(distribution, args.kernel_package.as_deref(), &place.root)?;
    let commands = plan::commands(&args.work(), args.platform, &place)?;
    let run = RunDirectory::new(&place.root)?;
    let image = run.path.join("initramfs");
    initramfs::write(&image, &kernel, &commands, args.no_npt)?;
    let machine = vm::Machine {
        kernel: &kernel.image,
        initramfs: &image,
        files: &run.path,
        memory_mib: args.memory,
        cpus: args.cpus,
        cpu: &args.cpu,
        interactive: args.shell,
        timeout: args.timeout(),
    };
    let code = machine.run()?;
    run.remove();
    Ok(code)
}

/// Where things are on this machine.
#[derive(Debug)]
pub struct Place {
    /// The workspace.
    pub workspace: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// Everything that this task leaves: `stock-kvm` in the target directory.
    pub root: PathBuf,
}

impl Place {
    fn new() -> Result<Place, Failure> {
        let (workspace, target) = plan::directories()?;
        let root = target.join("stock-kvm");
        fs::create_dir_all(&root).map_err(broken_at(&root))?;
        Ok(Place { workspace, target, root })
    }
}

/// The files of one run, in a directory that carries the number of this process. It stays when the run goes wrong.
struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Makes it, and removes those of processes that are gone.
    fn new(root: &Path) -> Result<RunDirectory, Failure> {
        for entry in fs::read_dir(root).map_err(broken_at(root))?.flatten() {
            let name = entry.file_name();
            let Some(process) = name.to_str().and_then(|name| name.strip_prefix("run-")) else { continue };
            if !Path::new("/proc").join(process).exists() {
                // Left over of a run that failed; if it cannot be removed, nothing is lost but space.
                let _ignored = fs::remove_dir_all(entry.path());
            }
        }
        let path = root.join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(broken_at(&path))?;
        Ok(RunDirectory { path })
    }

    fn remove(self) {
        // The next run tries again.
        let _ignored = fs::remove_dir_all(&self.path);
    }
}
