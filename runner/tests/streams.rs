//! `exec` and the host around it: standard streams, the command line, files that are named or hidden; and printing where
//! nobody takes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Ran, exec, finish, scratch};

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn sh(script: &str) -> Vec<OsString> {
    words(&["/bin/sh", "-c", script])
}

/// Gives a command its input in pieces, with other work of the host between them.
fn in_pieces(command: &mut Command, pieces: &[&[u8]]) -> Ran {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (out, err) = (tempfile("out"), tempfile("err"));
    command.stdin(reader).stdout(file(&out)).stderr(file(&err));
    let mut child = command.spawn().expect("it starts");
    // The command's own copy of the reading end goes with it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for piece in pieces {
        // It may have ended.
        let _ignored = writer.write_all(piece);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    drop(writer);
    let code = child.wait().expect("it ends").code();
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).expect("output")).into_owned();
    Ran { code, stdout: text(&out), stderr: text(&err) }
}

fn tempfile(name: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("streams-{}-{}-{name}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn file(path: &Path) -> File {
    File::create(path).expect("a file")
}

#[test]
fn how_input_arrives_does_not_reach_the_program() {
    // Every read is shown with its length: dd reports partial records.
    let program = sh("read line; echo \"[$line]\"; dd bs=7; echo end");
    let options = ["--summary"];
    let cuts: [&[&[u8]]; 3] = [
        &[b"first\nabcdefghijklmnopqrstuvwxyz"],
        &[b"fi", b"rst", b"\nab", b"cdefghi", b"jklmnopqrstuvwxy", b"z"],
        &[b"f", b"irst\n", b"abcdefghijklmnopqrstuvwxyz", b""],
    ];
    let runs: Vec<Ran> = cuts.iter().map(|cut| in_pieces(&mut exec(&options, &program), cut)).collect();
    assert_eq!(runs[0].stdout, "[first]\nabcdefghijklmnopqrstuvwxyzend\n", "{}", runs[0].stderr);
    assert!(runs[0].stderr.contains("3+1 records in"), "{}", runs[0].stderr);
    for run in &runs[1..] {
        assert_eq!(run.determined(), runs[0].determined());
        assert_eq!(run.summary("inputs: "), runs[0].summary("inputs: "));
    }
    let other = in_pieces(&mut exec(&options, &program), &[b"first\nabcdefghijklmnopqrstuvwxyZ"]);
    assert_ne!(other.summary("inputs: "), runs[0].summary("inputs: "));
}

#[test]
fn input_is_read_no_further_than_the_program_reads() {
    // Endless input; and what the program leaves is there for who reads next.
    let mut command = exec(&[], &words(&["/usr/bin/head", "-c", "10"]));
    command.stdin(File::open("/dev/zero").expect("/dev/zero"));
    let output = command.output().expect("it runs");
    assert_eq!(output.stdout, [0; 10]);
    let path = tempfile("rest");
    fs::write(&path, "abcdef").expect("a file");
    let shared = File::open(&path).expect("a file");
    let mut command = exec(&[], &words(&["/usr/bin/head", "-c", "2"]));
    command.stdin(shared.try_clone().expect("a descriptor"));
    assert_eq!(command.output().expect("it runs").stdout, b"ab");
    let rest = Command::new("/bin/cat").stdin(shared).output().expect("cat");
    assert_eq!(rest.stdout, b"cdef");
}

#[test]
fn interactive_input_comes_by_lines() {
    let program = words(&["/bin/dd", "bs=100", "status=noxfer"]);
    let lines = in_pieces(&mut exec(&["--interactive"], &program), &[b"a\nb", b"\nc\n"]);
    assert_eq!((lines.code, lines.stdout.as_str()), (Some(0), "a\nb\nc\n"));
    assert!(lines.stderr.contains("0+3 records in"), "{}", lines.stderr);
    let whole = in_pieces(&mut exec(&[], &program), &[b"a\nb", b"\nc\n"]);
    assert!(whole.stderr.contains("0+1 records in"), "{}", whole.stderr);
}

#[test]
fn output_that_the_host_does_not_take_reaches_the_program() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let run = |options: &[&str], script: &str, out: Stdio| {
        let output = exec(options, &sh(script)).stdin(Stdio::null()).stdout(out).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, err) = run(&["--summary"], "/bin/echo hello || exit 9", full().into());
    assert_eq!(code, Some(9), "{err}");
    assert!(err.contains("No space left on device"), "{err}");
    assert!(err.contains("write to standard output at step ") && err.contains("ENOSPC"), "{err}");
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        writer
    };
    let (code, err) = run(&[], "/bin/echo hello; exit $?", closed().into());
    // 128 + SIGPIPE
    assert_eq!(code, Some(141), "{err}");
    let (code, err) = run(&[], "trap '' PIPE; /bin/echo hello; exit $?", closed().into());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("Broken pipe"), "{err}");
    // A program that goes on for ever ends with its reader.
    let mut child = exec(&[], &words(&["/usr/bin/yes"]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(141));
}

#[test]
fn commands_that_print_say_so_if_nobody_takes_it() {
    let bloodhound = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
        command.args(args).stdin(Stdio::null());
        command
    };
    for args in [&["schema"][..], &["completions", "bash"], &["--help"], &["--version"], &["exec", "--help"]]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let output = bloodhound(args).stdout(full).output().expect("it runs");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{args:?}: {err}");
        assert!(err.contains("standard output: No space left on device"), "{args:?}: {err}");
        // Closed, by a shell.
        let command = format!("exec \"$0\" {} >&-", args.join(" "));
        let closed =
            Command::new("/bin/sh").args(["-c", &command, env!("CARGO_BIN_EXE_bloodhound")]).output();
        assert_eq!(closed.expect("it runs").status.code(), Some(5), "{args:?}");
    }
}

#[test]
fn programs_that_do_not_start_have_codes_of_their_own() {
    let dir = scratch("not-started");
    fs::write(dir.join("plain"), "no program").expect("a file");
    let code = |program: &Path| finish(&mut exec(&[], &[program.into()]), b"").code;
    assert_eq!(code(&dir.join("missing")), Some(127));
    assert_eq!(code(Path::new("no-such-program-anywhere")), Some(127));
    assert_eq!(code(&dir.join("plain")), Some(126));
    assert_eq!(code(&dir), Some(126));
}

#[test]
fn of_private_files_those_that_the_command_line_names_are_visible() {
    let dir = scratch("visible");
    for sub in ["work", "else", "more"] {
        fs::create_dir_all(dir.join(sub)).expect("a directory");
    }
    let script = dir.join("else/script.sh");
    fs::write(&script, "#!/bin/sh\ncat \"$(dirname \"$0\")/beside\" || exit 3\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is mine");
    fs::write(dir.join("else/beside"), "beside\n").expect("a file");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(dir.join("else/beside"), private.clone()).expect("it is mine");
    fs::write(dir.join("more/plain.sh"), "echo plain $1\n").expect("a script");
    fs::set_permissions(dir.join("more/plain.sh"), private).expect("it is mine");
    std::os::unix::fs::symlink("../more/plain.sh", dir.join("else/link.sh")).expect("a link");
    let run = |options: &[&str], program: &[&str]| {
        finish(exec(options, &words(program)).current_dir(dir.join("work")), b"")
    };
    let absolute = script.to_str().expect("text");
    for name in [absolute, "../else/script.sh"] {
        let ran = run(&[], &[name]);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
        let beside = dir.join("else/beside");
        assert!(ran.stderr.contains(beside.to_str().expect("text")), "it is named as hidden: {}", ran.stderr);
        assert!(ran.stderr.contains("--read PATH"), "{}", ran.stderr);
        let shown = run(&["--read", "../else"], &[name]);
        assert_eq!((shown.code, shown.stdout.as_str()), (Some(0), "beside\n"), "{}", shown.stderr);
        assert!(!shown.stderr.contains("--read"), "{}", shown.stderr);
    }
    // An argument that is a file, also through a link.
    for name in ["../more/plain.sh", "../else/link.sh"] {
        let ran = run(&[], &["/bin/sh", name, "x"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "plain x\n"), "{}", ran.stderr);
    }
    let missing = run(&["--read", "../nowhere"], &["/bin/true"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("nowhere"), "{}", missing.stderr);
}

#[test]
fn words_need_not_be_text() {
    let odd = OsStr::from_bytes(b"a\xffb");
    let dir = scratch("bytes").join(odd);
    fs::create_dir_all(&dir).expect("a directory");
    let program = dir.join(odd);
    fs::write(&program, "#!/bin/sh\nprintf '%s %s' \"$1\" \"$ODD\" | od -An -tx1\n").expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is mine");
    let mut variable = OsString::from("ODD=");
    variable.push(odd);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.args(["exec", "-e"]).arg(variable).arg("--").arg(program).arg(odd);
    let ran = finish(&mut command, b"");
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "61 ff 62 20 61 ff 62"), "{}", ran.stderr);
}

#[test]
fn a_closed_standard_error_ends_nothing() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec \"$0\" exec --summary --strace -- /bin/echo hello 2>&-"]);
    command.arg(env!("CARGO_BIN_EXE_bloodhound"));
    let ran = finish(&mut command, b"");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "hello\n"));
}
