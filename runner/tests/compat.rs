//! `bloodhound compat`: what programs, logs of strace(1) and stacks would miss, told before a run; and that it says nothing of what is there.

use std::path::Path;
use std::process::Command;

use crate::common::{have, put, scratch};
use serde_json::Value as Json;

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.current_dir(dir).args(args);
    command
}

/// What `compat` says: the exit code and the findings.
fn compat(dir: &Path, args: &[&str]) -> (i32, Vec<Json>) {
    let out = command(dir, &[&["compat", "--format", "json"], args].concat()).output().expect("bloodhound");
    let text = String::from_utf8_lossy(&out.stdout);
    let report: Json = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&out.stderr)));
    assert_eq!(report["schema"], "bloodhound.compat/v1");
    let code = out.status.code().expect("an exit code");
    assert_eq!(report["exit_code"], code);
    assert!(report["looked_at"].as_object().is_some_and(|looked| !looked.is_empty()), "{report}");
    (code, report["findings"].as_array().expect("findings").clone())
}

/// A request on an object that cannot be made here is not said to have been looked at.
#[test]
fn what_was_not_looked_at_is_counted() {
    let dir = scratch("compat-not-asked");
    put(
        &dir,
        "log",
        "socket(AF_VSOCK, SOCK_STREAM, 0) = 3\nsetsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0\n",
    );
    let out = command(&dir, &["compat", "log"]).output().expect("bloodhound");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        text.contains("requests that could not be made here, whose options were not looked at: 1"),
        "{text}"
    );
}

/// The findings of a weight, as `what: says`.
fn of(findings: &[Json], weight: &str) -> Vec<String> {
    let text =
        |f: &Json| format!("{}: {}", f["what"].as_str().unwrap_or(""), f["says"].as_str().unwrap_or(""));
    findings.iter().filter(|f| f["weight"] == weight).map(text).collect()
}

fn gcc(dir: &Path, args: &[&str]) {
    let built = Command::new("gcc").current_dir(dir).args(args).output().expect("gcc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

const LOG: &str = r#"10 execve("/bin/sh", ["sh"], 0x7ffd /* 3 vars */) = 0
10 openat(AT_FDCWD, "/etc/hosts", O_RDONLY|O_CLOEXEC) = 3
10 socket(AF_INET, SOCK_DGRAM, IPPROTO_IP) = 4
10 setsockopt(4, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, {len=1, filter=0x7ffd}, 16) = 0
10 setsockopt(4, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0
10 ioctl(4, SIOCGIFCONF, {ifc_len=80}) = 0
10 socket(AF_VSOCK, SOCK_STREAM, 0) = 5
10 io_uring_setup(8, {flags=0}) = 6
10 keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0) = -1 EPERM (Operation not permitted)
10 stat("/proc/10/status", {st_mode=S_IFREG|0444}) = 0
10 connect(4, {sa_family=AF_INET, sin_port=htons(5432), sin_addr=inet_addr("10.9.8.7")}, 16) = 0
10 prctl(PR_MADE_UP, 1) = 0
this is no line of strace
"#;

#[test]
fn logs_are_held_against_the_kernel() {
    let dir = scratch("compat-log");
    put(&dir, "log", LOG);
    let (code, found) = compat(&dir, &["log"]);
    assert_eq!(code, 7, "{found:?}");
    assert_eq!(
        of(&found, "stops"),
        [
            "setsockopt(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF): Bloodhound has no setsockopt SO_ATTACH_REUSEPORT_CBPF"
        ]
    );
    let differs = of(&found, "differs");
    for part in
        ["socket(AF_VSOCK, SOCK_STREAM, 0): is answered EAFNOSUPPORT", "PR_MADE_UP: ", "this is no line"]
    {
        assert!(differs.iter().any(|line| line.contains(part)), "{part}: {differs:?}");
    }
    let known = of(&found, "known");
    assert!(known.len() == 1 && known[0].starts_with("io_uring_setup: is answered ENOSYS"), "{known:?}");
    let missing = of(&found, "missing");
    assert!(missing.len() == 1 && missing[0].starts_with("connection to 10.9.8.7:5432"), "{missing:?}");
    assert_eq!(found.iter().find(|f| f["weight"] == "stops").expect("one")["place"], "line 4");
}

#[test]
fn files_that_are_hidden_are_named_once() {
    let dir = scratch("compat-files");
    let hidden = scratch("compat-hidden");
    std::fs::create_dir(hidden.join("sub")).expect("a directory");
    put(&hidden, "sub/a", "1");
    put(&hidden, "sub/b", "2");
    // What not every user may read.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&hidden, mode).expect("a mode");
    let at = hidden.display();
    put(
        &dir,
        "log",
        &format!("openat(AT_FDCWD, \"{at}/sub/a\", O_RDONLY) = 3\nstat(\"{at}/sub/b\", {{st_mode=0}}) = 0\n"),
    );
    let (code, found) = compat(&dir, &["log"]);
    let missing = of(&found, "missing");
    assert_eq!((code, missing.len()), (5, 1), "{found:?}");
    assert!(missing[0].contains("1 paths below it, but is not shown to programs; `--read"), "{missing:?}");
    let read = hidden.to_str().expect("text");
    assert_eq!(compat(&dir, &["--read", read, "log"]), (0, Vec::new()));
}

/// What strace(1) says today of programs that work is understood, and nothing in it is said to stop a run.
#[test]
fn logs_of_this_machines_strace_are_understood() {
    if !have(&["strace"], "logs of a real strace") {
        return;
    }
    let dir = scratch("compat-strace");
    let script = "ls / >/dev/null; cat /etc/hosts | tr a b >/dev/null; mkdir d && echo x > d/f && rm -r d; (sleep 0.01 & wait)";
    for options in [&["-f"][..], &["-f", "-y"], &["-f", "-tt", "-T"]] {
        let log = dir.join("log");
        let mut strace = Command::new("strace");
        strace
            .current_dir(&dir)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .args(options)
            .arg("-o")
            .arg(&log)
            .args(["sh", "-c", script]);
        assert!(strace.status().expect("strace").success());
        let logs = std::fs::read_dir(&dir).expect("a directory");
        for log in logs.map(|entry| entry.expect("an entry").path()) {
            let (code, found) = compat(&dir, &[log.to_str().expect("text")]);
            let bad: Vec<_> = found.iter().filter(|f| f["weight"] != "known").collect();
            assert!(code == 0 && bad.is_empty(), "{options:?}: {bad:#?}");
            std::fs::remove_file(log).expect("removed");
        }
    }
}

const PROGRAM: &str = r#"#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int shared(void);
int main(int argc, char **argv)
{
	if (argc > 9) {
		syscall(SYS_setsockopt, 3, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, argv, 16);
		setsockopt(3, IPPROTO_TCP, TCP_FASTOPEN_KEY, argv, 16);
		setsockopt(3, IPPROTO_TCP, TCP_MD5SIG, argv, 216);
		setsockopt(3, IPPROTO_IP, IP_OPTIONS, argv, 4);
		setsockopt(3, IPPROTO_IP, IP_MINTTL, argv, 4);
		socket(AF_VSOCK, SOCK_STREAM, 0);
	}
	return shared();
}
"#;

#[test]
fn programs_are_read_with_their_libraries() {
    if !have(&["gcc"], "programs with libraries") {
        return;
    }
    let dir = scratch("compat-program");
    put(&dir, "program.c", PROGRAM);
    put(&dir, "shared.c", "int shared(void) { return 0; }\n");
    put(&dir, "new.map", "NEW_1 { global: shared; };\n");
    gcc(&dir, &["-shared", "-fPIC", "-Wl,--version-script=new.map", "-o", "libshared.so", "shared.c"]);
    gcc(&dir, &["-O1", "-o", "program", "program.c", "-L.", "-lshared", "-Wl,-rpath,$ORIGIN"]);
    let (code, found) = compat(&dir, &["./program"]);
    assert_eq!(code, 0, "{found:?}");
    let maybe = of(&found, "maybe");
    for part in [
        "setsockopt(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF): ",
        "setsockopt(SOL_TCP, TCP_FASTOPEN_KEY): ",
        "setsockopt(SOL_IP, IP_OPTIONS): ",
    ] {
        assert!(maybe.iter().any(|line| line.starts_with(part)), "{part}: {maybe:?}");
    }
    // Those that the program sets as well and that are modelled.
    let works = |line: &String| line.contains("TCP_MD5SIG") || line.contains("IP_MINTTL");
    assert!(!maybe.iter().any(works), "{maybe:?}");
    let differs = of(&found, "differs");
    assert!(differs.iter().any(|line| line.starts_with("socket(AF_VSOCK, SOCK_STREAM, 0)")), "{differs:?}");
    assert_eq!(compat(&dir, &["--strict", "./program"]).0, 7);
    // An older library under the name, then none.
    put(&dir, "old.map", "OLD_1 { global: shared; };\n");
    gcc(&dir, &["-shared", "-fPIC", "-Wl,--version-script=old.map", "-o", "libshared.so", "shared.c"]);
    let (code, found) = compat(&dir, &["./program"]);
    let missing = of(&found, "missing");
    assert!(code == 5 && missing[0].starts_with("NEW_1 of libshared.so: "), "{missing:?}");
    std::fs::remove_file(dir.join("libshared.so")).expect("removed");
    let (code, found) = compat(&dir, &["./program"]);
    assert!(code == 5 && of(&found, "missing")[0].starts_with("libshared.so: no such library"), "{found:?}");
}

#[test]
fn programs_that_cannot_run_are_told_why() {
    let dir = scratch("compat-unfit");
    let mut arm = b"\x7fELF\x02\x01\x01".to_vec();
    arm.resize(64, 0);
    arm[18] = 183;
    std::fs::write(dir.join("arm"), &arm).expect("a file");
    put(&dir, "script", "#!/opt/none/python9 -u\n");
    put(&dir, "good", "#!/usr/bin/env -S sh -e\n");
    for name in ["arm", "script", "good"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.join(name), mode).expect("a mode");
    }
    let (code, found) = compat(&dir, &["./arm"]);
    assert_eq!((code, of(&found, "stops").len()), (7, 1), "{found:?}");
    assert!(of(&found, "stops")[0].contains("64-bit ARM"), "{found:?}");
    let (code, found) = compat(&dir, &["./script"]);
    assert!(code == 5 && of(&found, "missing")[0].starts_with("/opt/none/python9: "), "{found:?}");
    assert_eq!(compat(&dir, &["./good"]).0, 0);
    let (code, found) = compat(&dir, &["no-such-program"]);
    assert!(code == 5 && of(&found, "missing")[0].starts_with("no-such-program: "), "{found:?}");
    put(&dir, "text", "neither this nor that\n");
    let out = command(&dir, &["compat", "text"]).output().expect("bloodhound");
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stderr).contains("strace -f -o FILE"));
}

const STACK: &str = "services:
  good:
    x-bloodhound: {rootfs: host}
    command: ['sh', '-c', 'true']
    cpu_count: 2
  bad:
    x-bloodhound: {rootfs: host}
    command: ['/opt/none/server', '--port', '80']
";

#[test]
fn stacks_are_read_with_the_programs_of_their_services() {
    let dir = scratch("compat-stack");
    put(&dir, "compose.yaml", STACK);
    let (code, found) = compat(&dir, &["compose.yaml"]);
    assert_eq!(code, 5, "{found:?}");
    let bad = found.iter().find(|f| f["weight"] == "missing").expect("a finding");
    assert_eq!((bad["service"].as_str(), bad["what"].as_str()), (Some("bad"), Some("/opt/none/server")));
    let known = of(&found, "known");
    assert!(
        known.iter().any(|line| line.starts_with("`services.good.cpu_count`: has no effect")),
        "{found:?}"
    );
    assert_eq!(compat(&dir, &["."]).1, compat(&dir, &[]).1, "a directory, and this one");
    put(&dir, "compose.yaml", "services:\n  s: {image: no.such.registry.invalid/x:1}\n");
    let (code, found) = compat(&dir, &["--offline", "compose.yaml"]);
    assert!(code == 5 && of(&found, "missing")[0].contains("no.such.registry.invalid/x:1"), "{found:?}");
    put(&dir, "compose.yaml", "services:\n  s: {imagee: x}\n");
    let (code, found) = compat(&dir, &["compose.yaml"]);
    assert!(code == 2 && !of(&found, "invalid").is_empty(), "{found:?}");
}
