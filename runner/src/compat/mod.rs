//! `bloodhound compat`: what a program, a log of strace(1) or a stack would miss, before it is run.
//!
//! Nothing of the program runs. Its requests ([`bloodhound_compat::Request`]) are put to the kernel of a container as a run would begin
//! with it, so the answers are those of the handlers themselves, and files are looked up where the run would look.
//!
//! Modules: `container` (whom is asked), `asked` (a request and its answer), `trace` (logs), `program` (programs and what they load), `stack`
//! (compose files), `finding` (the report).

mod asked;
mod container;
mod finding;
mod program;
mod stack;
mod trace;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use finding::Report;

use crate::images::ImageArgs;
use crate::output::{self, Format};
use crate::run::fail;
use crate::session::Failure;
use crate::{exec, exit};

/// Arguments of `compat`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Exit with code 7 also for answers that are only other than Linux's
    #[arg(long)]
    strict: bool,
    /// Let the program read this file or directory as well, as with `exec --read`
    #[arg(long = "read", value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Set an environment variable of the program
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    #[command(flatten)]
    images: ImageArgs,
    /// A program and its arguments; a log of `strace -f -o FILE`; a compose file, bloodhound.yaml or a directory with one
    #[arg(trailing_var_arg = true, default_value = ".", value_name = "SUBJECT")]
    command: Vec<OsString>,
}

/// What is to be looked at.
enum Subject {
    Stack(PathBuf),
    Log(PathBuf, String),
    Program,
}

/// Looks; the exit code.
pub fn run(args: &Args) -> u8 {
    look(args).unwrap_or_else(|failure| fail(&failure))
}

fn look(args: &Args) -> Result<u8, Failure> {
    let name = args.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut report = match subject(Path::new(&name))? {
        Subject::Stack(path) => stack::look(&path, &args.images)?,
        Subject::Log(path, text) => trace::look(args, &path, &text)?,
        Subject::Program => program::look(args)?,
    };
    report.sort();
    match args.format {
        Format::Human => output::print(&report.text(&name)),
        Format::Json => output::print_json(&report.json(&name, args.strict)),
    }
    Ok(report.code(args.strict))
}

/// What a path leads to. A name without a file is a program's, to be found on PATH.
fn subject(path: &Path) -> Result<Subject, Failure> {
    let unreadable = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    if path.is_dir() {
        return Ok(Subject::Stack(path.to_path_buf()));
    }
    let extension = path.extension().unwrap_or_default();
    if path.is_file() && (extension == "yaml" || extension == "yml") {
        return Ok(Subject::Stack(path.to_path_buf()));
    }
    if !path.exists() {
        let is_name = !path.as_os_str().to_string_lossy().contains('/');
        return if is_name {
            Ok(Subject::Program)
        } else {
            Err(unreadable(std::io::ErrorKind::NotFound.into()))
        };
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    if bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"#!") {
        return Ok(Subject::Program);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if bloodhound_compat::strace::looks_like(&text) {
        return Ok(Subject::Log(path.to_path_buf(), text));
    }
    Err(Failure {
        code: exit::USAGE,
        text: format!(
            "{}: neither a program, nor a compose file or bloodhound.yaml, nor a log of strace: make one with `strace -f -o FILE PROGRAM`",
            path.display()
        ),
    })
}

/// The container of `exec` for a command.
fn exec_container(args: &Args, command: &[OsString]) -> Result<container::Container, Failure> {
    let surroundings = exec::Surroundings {
        max_time: 0,
        start_date: crate::EPOCH_NS,
        read: args.read.clone(),
        env: args.env.clone(),
        compute_limit: 0,
        mem_limit: None,
        pids_limit: None,
        disk_limit: None,
        no_vdso: false,
    };
    let base = bloodhound_vfs::host::HostBase::new();
    let scenario = exec::scenario(&surroundings, command, &base)?;
    container::only(&scenario, &base)
}

/// "line 7", "line 7, 3 times".
fn place(seen: bloodhound_compat::strace::Seen) -> String {
    let times = if seen.times > 1 { format!(", {} times", seen.times) } else { String::new() };
    match seen.line {
        0 => format!("at the end{times}"),
        line => format!("line {line}{times}"),
    }
}

/// Adds the answer to a request.
fn tell(report: &mut Report, request: &bloodhound_compat::Request, answer: &asked::Answer, place: String) {
    use asked::Answer;
    use finding::Weight;
    match answer {
        Answer::Modelled => {}
        Answer::NotAsked => {
            report.count("requests that could not be made here, whose options were not looked at", 1)
        }
        Answer::Stops(why) => report.add(Weight::Stops, request.text(), why.clone(), place),
        Answer::Error(errno, "") => {
            report.add(Weight::Differs, request.text(), format!("is answered {}", errno.name()), place);
        }
        Answer::Error(errno, note) => {
            let says = format!("is answered {}: {note}", errno.name());
            report.add(Weight::Known, request.text(), says, place);
        }
        Answer::NoSuchCall => {
            let says = "is no system call of Linux 6.1 on x86-64: answered ENOSYS";
            report.add(Weight::Differs, format!("call number {}", request.nr), says, place);
        }
    }
}
