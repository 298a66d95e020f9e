//! A log of strace(1): what of it Bloodhound would answer otherwise, and which files and peers it would not have.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use bloodhound_abi::Errno;
use bloodhound_compat::strace::{self, Outcome, Trace};

use super::asked::{Answer, ask};
use super::container::Container;
use super::finding::{Report, Weight};
use super::{Args, exec_container, place, tell};
use crate::session::Failure;

/// Looks at a log.
///
/// # Errors
/// The container of `exec` cannot be made.
pub fn look(args: &Args, path: &Path, text: &str) -> Result<Report, Failure> {
    let here = std::env::current_dir().ok();
    let trace = strace::read(text, here.as_deref().and_then(Path::to_str));
    if trace.calls == 0 {
        return Err(Failure::usage(format!("{}: no system call could be read", path.display())));
    }
    let mut container = exec_container(args, &[OsString::from("strace")])?;
    let mut report = Report::default();
    report.count("calls in the log", trace.calls);
    requests(&mut report, &mut container, &trace);
    files(&mut report, &mut container, &trace);
    unread(&mut report, &trace);
    Ok(report)
}

fn requests(report: &mut Report, container: &mut Container, trace: &Trace) {
    for ((request, outcome), seen) in &trace.requests {
        report.count("kinds of requests", 1);
        let answer = ask(container, request);
        let as_before = match (&answer, outcome) {
            // Another error than Linux's is one that the program got as well.
            (Answer::Error(errno, note), Outcome::Error(before)) => errno.0 == *before || note.is_empty(),
            _ => false,
        };
        if !as_before {
            tell(report, request, &answer, place(*seen));
        }
    }
    for (name, seen) in &trace.unknown {
        let says = "is no system call of Linux 6.1 on x86-64: answered ENOSYS";
        report.add(Weight::Differs, name.clone(), says, place(*seen));
    }
    if let Some(line) = trace.bits_32 {
        let says = "a program of 32 bits ran; only x86-64 is supported";
        report.add(Weight::Stops, "32-bit mode", says, format!("line {line}"));
    }
}

fn files(report: &mut Report, container: &mut Container, trace: &Trace) {
    // Hidden directories, with how many paths below them were used.
    let mut hidden: BTreeMap<String, u64> = BTreeMap::new();
    for (path, seen) in &trace.files {
        let Some(path) = of_itself(path) else { continue };
        report.count("files", 1);
        let name = String::from_utf8_lossy(&path).into_owned();
        if let Some((_, below)) = hidden.iter_mut().find(|(top, _)| name.starts_with(&format!("{top}/"))) {
            *below += 1;
            continue;
        }
        let says = match container.look_up(&path) {
            Ok(()) => continue,
            // The control group of the process that was traced, which it has looked up.
            Err(_) if name.starts_with("/sys/fs/cgroup/") => continue,
            Err(_) if is_temporary(&name) && !Path::new(&name).exists() => continue,
            // It is not on this machine either: the log is of another one, or it was there for a time only.
            Err(Errno::ENOENT) if !Path::new(&name).exists() => "is not on this machine".to_owned(),
            Err(_)
                if name.starts_with("/proc/") || name.starts_with("/sys/") || name.starts_with("/dev/") =>
            {
                "Bloodhound has no such file".to_owned()
            }
            Err(_) => {
                hidden.insert(first_hidden(container, &name), 0);
                continue;
            }
        };
        report.add(Weight::Missing, name, says, place(*seen));
    }
    for (top, below) in hidden {
        let paths = if below > 0 { format!(" and {below} paths below it") } else { String::new() };
        let says = format!(
            "is there{paths}, but is not shown to programs; `--read {top}` shows it, in a compose file `x-bloodhound: {{read: [{top}]}}`"
        );
        report.add(Weight::Missing, top, says, "");
    }
    for (peer, seen) in &trace.peers {
        report.count("peers", 1);
        let says = match peer.starts_with('/') {
            true => "a socket of this machine: nobody answers there unless a service of the stack does",
            false => "nobody answers there unless a service of the stack has this address",
        };
        report.add(Weight::Missing, format!("connection to {peer}"), says, place(*seen));
    }
}

/// The topmost directory above a path that the container does not have, or the path itself.
fn first_hidden(container: &mut Container, path: &str) -> String {
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    let above = ends.map(|end| &path[..end]).find(|above| container.look_up(above.as_bytes()).is_err());
    above.unwrap_or(path).to_owned()
}

/// Whether a path is in a directory for files that come and go.
fn is_temporary(path: &str) -> bool {
    ["/tmp/", "/var/tmp/", "/run/", "/dev/shm/"].iter().any(|above| path.starts_with(above))
}

/// A path with the program's own entry of /proc in place of its number; nothing for what belongs to one process or one moment.
fn of_itself(path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/dev/pts/") {
        return None;
    }
    let Some(rest) = path.strip_prefix(b"/proc/") else { return Some(path.to_vec()) };
    let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (first, rest) = rest.split_at(end);
    let is_number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    let is_own = is_number || matches!(first, b"self" | b"thread-self");
    // Descriptors and threads of the process that was traced.
    if is_own && [&b"/fd/"[..], b"/fdinfo/", b"/task/", b"/map_files/"].iter().any(|of| rest.starts_with(of))
    {
        return None;
    }
    Some(if is_number { [b"/proc/self", rest].concat() } else { path.to_vec() })
}

/// What the log says that was not understood: it has been looked at by nobody.
fn unread(report: &mut Report, trace: &Trace) {
    for (line, text) in &trace.unread {
        report.add(
            Weight::Differs,
            text.clone(),
            "is no line of strace that could be read",
            format!("line {line}"),
        );
    }
    let more = trace.unread_lines - trace.unread.len() as u64;
    if more > 0 {
        report.add(Weight::Differs, format!("{more} more lines"), "could not be read", "");
    }
    for (name, seen) in &trace.constants {
        report.add(
            Weight::Differs,
            name.clone(),
            "an option that is not known here, and was not looked at",
            place(*seen),
        );
    }
    if trace.relative > 0 {
        report.count("relative paths, not looked up (use strace -y)", trace.relative);
    }
}

#[cfg(test)]
mod tests {
    use super::of_itself;

    #[test]
    fn own_entries_of_proc_have_no_number() {
        let own = |path: &str| of_itself(path.as_bytes()).map(|p| String::from_utf8(p).expect("text"));
        assert_eq!(own("/proc/123/maps").as_deref(), Some("/proc/self/maps"));
        assert_eq!(own("/proc/sys/kernel/ostype").as_deref(), Some("/proc/sys/kernel/ostype"));
        assert_eq!(own("/proc/self/fd/3"), None);
        assert_eq!(own("/proc/12/task/13/comm"), None);
        assert_eq!(own("/etc/passwd").as_deref(), Some("/etc/passwd"));
        assert_eq!(own("/dev/pts/3"), None);
    }
}
