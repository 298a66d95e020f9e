//! QEMU: its arguments, its output, its end.
//!
//! Key type: [`Machine`]. The guest writes to three ports: standard output, standard error and its exit code. QEMU appends
//! each to a file, and [`Machine::run`] passes the first two on while it waits. The kernel's console is a file of its own, so
//! kernel messages never mix with output. QEMU dies with this process, however it ends (setpriv --pdeathsig).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a host tool: it waits in host time

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Failure, broken_at};

/// How often the files of output are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How many of the last lines of the console are shown when a run goes wrong.
const LAST_LINES: usize = 30;

/// `quiet` and no watchdogs: on a busy host the emulated processor stands still for seconds. No mitigations: nobody
/// attacks this kernel, and an emulated processor pays for them. `panic=-1` ends the machine at once.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog mitigations=off \
                                rcupdate.rcu_cpu_stall_suppress=1";

/// A virtual machine that is to be run.
#[derive(Debug)]
pub struct Machine<'a> {
    /// The kernel.
    pub kernel: &'a Path,
    /// What it boots.
    pub initramfs: &'a Path,
    /// The directory for the files of this run.
    pub files: &'a Path,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u8,
    /// QEMU's name of the processor, with what is added and taken away.
    pub cpu: &'a str,
    /// Whether the console is the terminal.
    pub interactive: bool,
    /// When to give up.
    pub timeout: Option<Duration>,
}

impl Machine<'_> {
    /// Runs it to its end; the exit code that the guest told.
    ///
    /// # Errors
    /// It could not be started, took too long, or ended without an exit code; with the last lines of its console.
    pub fn run(&self) -> Result<u8, Failure> {
        let messages = self.file("qemu");
        let log = File::create(&messages).map_err(broken_at(&messages))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]).args(self.arguments());
        command.stderr(if self.interactive { Stdio::inherit() } else { log.into() });
        if !self.interactive {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        let start = Instant::now();
        let child = command.spawn().map_err(|e| Failure::Missing(format!("setpriv: {e}")))?;
        let mut child = Ending(child);
        let (mut stdout, mut stderr) = (Relay::new(self.file("stdout")), Relay::new(self.file("stderr")));
        let ended = loop {
            // Looked at first, so that what was written before the end is passed on after it.
            let ended = child.0.try_wait().map_err(|e| Failure::Broken(format!("waiting for QEMU: {e}")))?;
            let gone = |e: io::Error| Failure::Broken(format!("writing the output: {e}"));
            stdout.pass_on(&mut io::stdout().lock()).map_err(gone)?;
            stderr.pass_on(&mut io::stderr().lock()).map_err(gone)?;
            if let Some(status) = ended {
                break status;
            }
            if self.timeout.is_some_and(|timeout| start.elapsed() > timeout) {
                let seconds = start.elapsed().as_secs();
                return Err(self.wrong(&format!("the virtual machine was ended after {seconds} s")));
            }
            std::thread::sleep(LOOK);
        };
        self.exit_code(ended)
    }

    /// The exit code in the file that the guest writes last.
    fn exit_code(&self, ended: ExitStatus) -> Result<u8, Failure> {
        let text = fs::read_to_string(self.file("status")).unwrap_or_default();
        let code = text.strip_prefix("exit ").and_then(|code| code.trim().parse::<u8>().ok());
        code.ok_or_else(|| {
            self.wrong(&format!("the virtual machine ended without an exit code (QEMU: {ended})"))
        })
    }

    fn arguments(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| all.extend(words.iter().map(|word| (*word).to_string()));
        add(&["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        add(&["-accel", "tcg,thread=multi", "-cpu", self.cpu]);
        add(&["-m", &self.memory_mib.to_string(), "-smp", &self.cpus.to_string()]);
        add(&["-kernel", &self.kernel.to_string_lossy(), "-initrd", &self.initramfs.to_string_lossy()]);
        add(&["-append", KERNEL_ARGUMENTS]);
        add(&["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]);
        add(&["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
        if self.interactive {
            add(&["-chardev", "stdio,id=console,signal=off"]);
        } else {
            add(&["-chardev", &self.chardev("console")]);
        }
        add(&["-serial", "chardev:console", "-device", "virtio-serial-pci"]);
        for (number, name) in [(1, "stdout"), (2, "stderr"), (3, "status")] {
            add(&["-chardev", &self.chardev(name)]);
            add(&["-device", &format!("virtserialport,chardev={name},name={name},nr={number}")]);
        }
        all
    }

    /// A character device that writes to a file of this run. In QEMU's options a comma is doubled.
    fn chardev(&self, name: &str) -> String {
        let path = self.file(name).to_string_lossy().replace(',', ",,");
        format!("file,id={name},path={path}")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    /// What is to be told when a run went wrong: why, what QEMU said, the end of the console, where the files are.
    fn wrong(&self, why: &str) -> Failure {
        let text =
            |name: &str| String::from_utf8_lossy(&fs::read(self.file(name)).unwrap_or_default()).into_owned();
        let mut told = format!("{why}\nfiles of this run: {}", self.files.display());
        for (name, title) in [("qemu", "QEMU"), ("console", "the console")] {
            let text = text(name);
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            if !lines.is_empty() {
                let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
                told.push_str(&format!("\nthe last lines of {title}:\n  {}", last.join("\n  ")));
            }
        }
        Failure::Broken(told)
    }
}

/// A process that is ended when it is no longer waited for.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ignored = self.0.kill();
        let _ignored = self.0.wait();
    }
}

/// Passes on what is added to a file.
struct Relay {
    path: PathBuf,
    file: Option<File>,
}

impl Relay {
    fn new(path: PathBuf) -> Relay {
        Relay { path, file: None }
    }

    /// Passes on what was added since the last time. The file may not exist yet.
    fn pass_on(&mut self, to: &mut impl Write) -> io::Result<()> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut buffer = [0; 16384];
        loop {
            match file.read(&mut buffer)? {
                0 => return to.flush(),
                count => to.write_all(&buffer[..count])?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_passes_on_what_is_added() {
        let path = std::env::temp_dir().join(format!("xtask-relay-{}", std::process::id()));
        let mut relay = Relay::new(path.clone());
        let mut out = Vec::new();
        relay.pass_on(&mut out).expect("no file yet");
        let mut file = File::create(&path).expect("a file");
        for part in ["one\n", "", "two"] {
            file.write_all(part.as_bytes()).expect("written");
            relay.pass_on(&mut out).expect("passed on");
        }
        assert_eq!(out, b"one\ntwo");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn commas_in_paths_are_doubled_for_qemu() {
        let machine = Machine {
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            files: Path::new("/a,b"),
            memory_mib: 512,
            cpus: 1,
            cpu: "max",
            interactive: false,
            timeout: None,
        };
        assert!(machine.arguments().contains(&"file,id=status,path=/a,,b/status".to_string()));
    }
}
