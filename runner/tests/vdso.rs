//! Programs read the clock through the vDSO: of many reads only one in 64 is a system call, in C (static and dynamic, which
//! find the vDSO in different ways) and in Python, and without the vDSO each is.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::common::{exec, finish, have};

const READS: usize = 6400;

/// System calls that read the clock while the program runs.
fn calls(options: &[&str], program: &[OsString]) -> usize {
    let options = [&["--strace"], options].concat();
    let ran = finish(&mut exec(&options, program), b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stderr.lines().filter(|line| line.contains(" clock_gettime(")).count()
}

#[test]
fn c_programs_trap_at_few_reads() {
    if !have(&["gcc"], "c_programs_trap_at_few_reads") {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = dir.join("reads.c");
    let text = format!(
        "#include <time.h>\nint main(void) {{ struct timespec t; \
         for (int i = 0; i < {READS}; i++) if (clock_gettime(CLOCK_MONOTONIC, &t)) return 1; return 0; }}\n"
    );
    std::fs::write(&source, text).expect("the source");
    for kind in ["-static", "-dynamic"] {
        let program = dir.join(format!("reads{kind}"));
        let flag = if kind == "-static" { "-static" } else { "-O1" };
        let built = Command::new("gcc").args([flag, "-o"]).arg(&program).arg(&source).status();
        assert!(built.expect("gcc").success());
        let program = [program.into_os_string()];
        // 64 reads go by, the next one is a call.
        assert_eq!(calls(&[], &program), READS / 65, "{kind}");
        assert_eq!(calls(&["--no-vdso"], &program), READS, "{kind}");
    }
}

#[test]
fn python_traps_at_few_reads() {
    if !have(&["python3"], "python_traps_at_few_reads") {
        return;
    }
    let script = format!("import time\nfor i in range({READS}): time.monotonic()");
    let program: Vec<OsString> = ["python3", "-c", &script].iter().map(Into::into).collect();
    let few = calls(&[], &program);
    assert!((READS / 70..READS / 60).contains(&few), "{few} calls");
}
