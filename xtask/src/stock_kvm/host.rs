//! What must be installed on this machine, and how to get it.
//!
//! Key type: [`Distribution`]. [`check`] names all that is missing at once, with the command that installs it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// Programs that are called, each with the package that has it.
const PROGRAMS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("setpriv", "util-linux"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
];

/// QEMU emulates AVX2 from this version on; Bloodhound's processor has it.
const QEMU: (u32, u32) = (7, 2);

/// The distributions whose kernels are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Debian and what is made from it.
    Debian,
    /// Ubuntu and what is made from it.
    Ubuntu,
}

impl Distribution {
    /// Which one this is, from os-release(5).
    ///
    /// # Errors
    /// It is neither.
    pub fn read() -> Result<Distribution, Failure> {
        let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
        Distribution::of(&text).ok_or_else(|| {
            Failure::Missing(
                "stock-kvm takes its kernel from the packages of Debian or Ubuntu; this is neither".into(),
            )
        })
    }

    fn of(os_release: &str) -> Option<Distribution> {
        let words: Vec<&str> = os_release
            .lines()
            .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
            .flat_map(|value| value.trim_matches('"').split(' '))
            .collect();
        if words.contains(&"ubuntu") {
            Some(Distribution::Ubuntu)
        } else if words.contains(&"debian") {
            Some(Distribution::Debian)
        } else {
            None
        }
    }

    /// The package that depends on the newest kernel. It must have 9p, which Debian's cloud kernel leaves out.
    pub fn kernel_package(self) -> &'static str {
        match self {
            Distribution::Debian => "linux-image-amd64",
            Distribution::Ubuntu => "linux-image-virtual",
        }
    }

    /// What unpacks this distribution's modules, and its package. Debian 12 does not compress them, Debian 13 does.
    fn unpacker(self) -> (&'static str, &'static str) {
        match self {
            Distribution::Debian => ("xz", "xz-utils"),
            Distribution::Ubuntu => ("zstd", "zstd"),
        }
    }
}

/// Sees to it that everything is there, and installs it if that is wanted.
///
/// # Errors
/// What is missing, and how to get it.
pub fn check(distribution: Distribution, install: bool) -> Result<(), Failure> {
    let mut packages = missing(distribution);
    let lists = apt_knows(distribution.kernel_package());
    if install && (!packages.is_empty() || !lists) {
        apt_install(&packages)?;
        packages = missing(distribution);
    }
    if !packages.is_empty() {
        return Err(Failure::Missing(format!(
            "stock-kvm needs packages that are not installed: {0}\n\
             install them: sudo apt-get install --no-install-recommends {0}\n\
             or let it be done: cargo xtask stock-kvm --install",
            packages.join(" ")
        )));
    }
    qemu_version()
}

/// The packages whose programs are missing.
fn missing(distribution: Distribution) -> Vec<&'static str> {
    let there = |program: &str| find(program).is_some_and(|path| program != "busybox" || is_static(&path));
    let needed = PROGRAMS.iter().copied().chain([distribution.unpacker()]);
    let mut packages: Vec<&str> =
        needed.filter(|(program, _)| !there(program)).map(|(_, package)| package).collect();
    packages.dedup();
    packages
}

/// The file that a command name stands for.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Ordinary users have no sbin in their path, though programs may be there.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(|file| {
        fs::metadata(file).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    })
}

/// Whether an executable needs no dynamic linker. The `busybox` package has one that does, under the same name.
fn is_static(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| !interpreted(&bytes))
}

/// Whether an ELF file for x86-64 has a PT_INTERP segment.
fn interpreted(elf: &[u8]) -> bool {
    const PT_INTERP: usize = 3;
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..)?.get(..size)?;
        Some(bytes.iter().rev().fold(0usize, |number, byte| number << 8 | usize::from(*byte)))
    };
    let headers = (number(32, 8), number(54, 2), number(56, 2));
    let (Some(start), Some(size), Some(count)) = headers else { return false };
    (0..count).any(|index| {
        let at = index.checked_mul(size).and_then(|offset| offset.checked_add(start));
        at.and_then(|at| number(at, 4)) == Some(PT_INTERP)
    })
}

fn apt_knows(package: &str) -> bool {
    Command::new("apt-cache").args(["show", package]).output().is_ok_and(|output| output.status.success())
}

fn apt_install(packages: &[&str]) -> Result<(), Failure> {
    apt_get(&["update", "-q"])?;
    if packages.is_empty() {
        return Ok(());
    }
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

/// Runs apt-get as root. Its output goes to standard error: standard output is the tests'.
fn apt_get(arguments: &[&str]) -> Result<(), Failure> {
    // A process's directory in /proc belongs to its effective user.
    let root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    let mut words: Vec<&OsStr> = Vec::new();
    if !root {
        words.push(OsStr::new("sudo"));
    }
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"].map(OsStr::new));
    words.extend(arguments.iter().map(OsStr::new));
    let text = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    eprintln!("+ {text}");
    let status = Command::new(words[0]).args(&words[1..]).stdout(std::io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Missing(format!("{text}: {status}"))),
        Err(error) => Err(Failure::Missing(format!("{text}: {error}"))),
    }
}

/// Refuses a QEMU that is too old.
fn qemu_version() -> Result<(), Failure> {
    let output = Command::new("qemu-system-x86_64").arg("--version").output();
    let output = output.map_err(|e| Failure::Missing(format!("qemu-system-x86_64: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match version(&text) {
        Some(found) if found < QEMU => Err(Failure::Missing(format!(
            "QEMU {}.{} emulates no AVX2, which Bloodhound's processor has; {}.{} is the first that does \
             (Debian 12, Ubuntu 23.04)",
            found.0, found.1, QEMU.0, QEMU.1
        ))),
        Some(_) => Ok(()),
        None => Err(Failure::Missing(format!("qemu-system-x86_64 --version says {text:?}"))),
    }
}

/// The first two numbers of "QEMU emulator version 7.2.22 (Debian ...)".
fn version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.split("version ").nth(1)?;
    let mut parts = numbers.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_told_by_their_ids() {
        let of = Distribution::of;
        assert_eq!(of("PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n"), Some(Distribution::Debian));
        assert_eq!(of("ID=ubuntu\nID_LIKE=debian\n"), Some(Distribution::Ubuntu));
        assert_eq!(of("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Some(Distribution::Ubuntu));
        assert_eq!(of("ID=fedora\n"), None);
    }

    #[test]
    fn the_version_of_qemu_is_read() {
        assert_eq!(version("QEMU emulator version 7.2.22 (Debian 1:7.2)\nCopyright"), Some((7, 2)));
        assert_eq!(version("QEMU emulator version 10.0.2\n"), Some((10, 0)));
        assert_eq!(version("no"), None);
    }

    #[test]
    fn this_test_is_a_dynamic_executable_and_rubbish_is_none() {
        let test = fs::read(std::env::current_exe().expect("a path")).expect("readable");
        assert!(interpreted(&test));
        assert!(!interpreted(b"\x7fELF"));
        assert!(!interpreted(&[0xff; 64]));
    }
}
