//! What `--platform auto` found the last time, so that it need not start a virtual machine each time to find it again.
//!
//! It is a hint and no more. Who follows it opens the platform that it names, which measures itself; if that one cannot
//! start, or cannot do what it must, everything is probed again. So a wrong hint costs speed only. A file that cannot be
//! read or written is no error.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::output::write_file;
use crate::platform::Name;

/// The platform that was the best one here, if that is known.
pub fn platform() -> Option<Name> {
    read(&file()?, &circumstances()?)
}

/// Remembers it.
pub fn set_platform(name: Name) {
    if let (Some(file), Some(circumstances)) = (file(), circumstances()) {
        // The next start probes again; nothing is lost.
        let _ignored = write_file(&file, format!("{circumstances}{name}\n"));
    }
}

/// "$XDG_CACHE_HOME defines the base directory relative to which user-specific non-essential data files should be stored.
/// If [it] is either not set or empty, a default equal to $HOME/.cache should be used. All paths [...] must be absolute.
/// If an implementation encounters a relative path [...] it should consider the path invalid and ignore it" (XDG Base
/// Directory Specification).
fn file() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("bloodhound").join("platform"))
}

/// What the answer depends on: the running kernel, and this program.
fn circumstances() -> Option<String> {
    let line = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let program = std::fs::metadata("/proc/self/exe").ok()?;
    Some(format!(
        "boot {}\nkernel {}\nbloodhound {} {} {}\n",
        line("/proc/sys/kernel/random/boot_id")?,
        line("/proc/sys/kernel/osrelease")?,
        env!("CARGO_PKG_VERSION"),
        program.len(),
        program.mtime(),
    ))
}

fn read(file: &std::path::Path, circumstances: &str) -> Option<Name> {
    // Not blocking, should it be a fifo; and no more than we write.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file).ok()?;
    let mut text = String::new();
    opened.take(4096).read_to_string(&mut text).ok()?;
    match text.strip_prefix(circumstances)? {
        "ptrace\n" => Some(Name::Ptrace),
        "kvm\n" => Some(Name::Kvm),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_of_the_same_circumstances_counts() {
        let directory = std::env::temp_dir().join(format!("bloodhound-remember-{}", std::process::id()));
        let file = directory.join("bloodhound/platform");
        let circumstances = circumstances().expect("/proc is there");
        assert_eq!(read(&file, &circumstances), None, "nothing there");
        for name in [Name::Ptrace, Name::Kvm] {
            write_file(&file, format!("{circumstances}{name}\n")).expect("a file");
            assert_eq!(read(&file, &circumstances), Some(name));
            assert_eq!(read(&file, &circumstances.replace("boot ", "boot x")), None, "another boot");
        }
        for wrong in [
            "",
            "kvm\n",
            "\u{0}",
            &circumstances,
            &format!("{circumstances}kv"),
            &format!("{circumstances}qemu\n"),
        ] {
            write_file(&file, wrong).expect("a file");
            assert_eq!(read(&file, &circumstances), None, "{wrong:?}");
        }
        write_file(&file, [0xff, 0xfe]).expect("a file");
        assert_eq!(read(&file, &circumstances), None, "no text");
        assert_eq!(read(&directory, &circumstances), None, "a directory");
        std::fs::remove_dir_all(directory).expect("removed");
    }
}
