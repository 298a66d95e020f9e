//! A job that is cancelled: GitHub sends SIGINT to the script, then SIGTERM, then SIGKILL.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // what is tested is a process of this host

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::{Fake, REAL, failed};

/// Runs a script, and sends it a signal when the file is there.
pub fn cancelled(command: &mut Command, begun: &Path, signal: i32) -> Output {
    // A shell ignores for ever what was ignored when it started, as SIGINT is of what runs in the background of a script.
    let heard = move || {
        // SAFETY: async-signal-safe, and of the child alone.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: what is called between fork and execve is async-signal-safe and allocates nothing.
    unsafe { command.pre_exec(heard) };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash starts");
    let start = Instant::now();
    while !begun.exists() && child.try_wait().expect("a child").is_none() {
        assert!(start.elapsed() < Duration::from_secs(240), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a process of ours that has not been waited for, or was and is nobody's any more.
    unsafe { libc::kill(child.id() as i32, signal) };
    if signal == libc::SIGKILL {
        // What it had started holds its output, and ends when this is gone.
        let _status = child.wait().expect("a child");
        fs::remove_file(begun).expect("no file");
    }
    child.wait_with_output().expect("it ends")
}

/// A `bloodhound` whose `test` runs until a signal comes, and then does what the real one does.
fn waiting(fake: &Fake) {
    fs::write(fake.dir.join("result"), failed("found before the end")).expect("a file");
    let dir = fake.dir.display();
    fake.binary(&format!(
        "#!/usr/bin/env bash\nset -eu\n[ \"$1\" = test ] || exec {REAL} \"$@\"\n\
         for a; do case $a in --out=*) mkdir -p \"${{a#--out=}}\"; echo '<testsuites/>' > \"${{a#--out=}}/junit.xml\" ;; esac; done\n\
         finish() {{ echo \"$1\" >> '{dir}/signals'; cat '{dir}/result'; exit 1; }}\n\
         trap 'finish INT' INT\ntrap 'finish TERM' TERM\n\
         touch '{dir}/begun'\nwhile [ -e '{dir}/begun' ]; do sleep 0.02; done\n"
    ));
}

#[test]
fn signals_reach_bloodhound_and_its_results_the_job() {
    for (signal, name) in [(libc::SIGINT, "INT"), (libc::SIGTERM, "TERM")] {
        let mut fake = Fake::new(&format!("cancel-{name}"));
        waiting(&fake);
        fake.cancel = Some(signal);
        let job = fake.run();
        assert_eq!(
            fs::read_to_string(fake.dir.join("signals")).expect("a signal").trim(),
            name,
            "{}",
            job.log
        );
        assert_eq!((job.code, &*job.outputs["result"]), (1, "failed"), "{}", job.log);
        assert_eq!(&*job.outputs["findings"], "1");
        assert!(job.log.contains("found before the end"), "{}", job.log);
        assert_eq!(job.used.len(), 1, "the reports are uploaded");
    }
}

#[test]
fn what_is_there_is_uploaded_although_the_script_is_killed() {
    let mut fake = Fake::new("cancel-kill");
    waiting(&fake);
    fake.cancel = Some(libc::SIGKILL);
    let job = fake.run();
    assert_eq!(job.outputs["report-dir"], fake.dir.join("work/bloodhound-output").display().to_string());
    assert_eq!(job.used.len(), 1, "{}", job.log);
}

#[test]
fn the_real_thing_ends_with_a_report() {
    let mut fake = Fake::new("cancel-real");
    // It has begun when its report is there, which says so far that it has not ended.
    let dir = fake.dir.display();
    fake.binary(&format!(
        "#!/usr/bin/env bash\nif [ \"$1\" = test ]; then\n\
         (until [ -e '{dir}/work/bloodhound-output/junit.xml' ]; do sleep 0.02; done; touch '{dir}/begun') >&- 2>&- &\n\
         fi\nexec {REAL} \"$@\"\n"
    ));
    fake.input("seeds", "1000000");
    fake.cancel = Some(libc::SIGINT);
    let usable = Command::new(REAL).arg("doctor").output().expect("doctor").status.success();
    let job = fake.run();
    if usable {
        assert_eq!((job.code, &*job.outputs["exit-code"]), (130, "130"), "{}", job.log);
        let junit = fs::read_to_string(&job.outputs["junit"]).expect("a report");
        assert!(junit.contains("<error") && junit.contains("interrupted"), "{junit}");
    }
}
