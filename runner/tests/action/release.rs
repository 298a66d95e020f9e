//! Where the binary of the action comes from: a release of its own version, else its source.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Fake, Job, PASSED, REAL, root};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const ASSET: &str = "bloodhound-x86_64-linux";

/// A job without a binary, whose `curl` finds what is in `server`, and whose `cargo` makes one.
fn fake(name: &str, reference: &str) -> Fake {
    let mut fake = Fake::new(&format!("release-{name}"));
    fake.fake_binary(0, PASSED);
    fs::rename(fake.dir.join("bin/bloodhound"), fake.dir.join("made")).expect("a binary");
    fs::create_dir_all(fake.dir.join("server")).expect("a directory");
    let dir = fake.dir.display();
    fake.program(
        "curl",
        &format!(
            "while [ $# -gt 1 ]; do [ \"$1\" = --output ] && to=$2; shift; done\necho \"$1\" >> '{dir}/asked'\n\
             case $1 in https://github.com/*) ;; *) exit 3 ;; esac\n\
             cp \"{dir}/server/${{1#https://github.com/}}\" \"$to\" || exit 22"
        ),
    );
    fake.program(
        "cargo",
        &format!(
            "while [ $# -gt 1 ]; do [ \"$1\" = --target-dir ] && to=$2; shift; done\n\
             mkdir -p \"$to/release\"\ncp '{dir}/made' \"$to/release/bloodhound\"\ntouch '{dir}/built'"
        ),
    );
    fake.github.insert("action_repository".into(), "o-w/blood.hound".into());
    fake.github.insert("action_ref".into(), reference.into());
    fake
}

/// A release with these files.
fn release(fake: &Fake, tag: &str) -> PathBuf {
    let dir = fake.dir.join("server/o-w/blood.hound/releases/download").join(tag);
    fs::create_dir_all(&dir).expect("a directory");
    fs::copy(fake.dir.join("made"), dir.join(ASSET)).expect("a copy");
    let sums = Command::new("sha256sum").arg(ASSET).current_dir(&dir).output().expect("sha256sum");
    fs::write(dir.join(format!("{ASSET}.sha256")), sums.stdout).expect("a file");
    fs::write(dir.join(format!("{ASSET}.commit")), format!("{COMMIT}\n")).expect("a file");
    dir
}

fn built(fake: &Fake) -> bool {
    fake.dir.join("built").exists()
}

/// Whether the binary was downloaded; it was built otherwise.
fn downloaded(fake: &Fake) -> (bool, Job) {
    let job = fake.run();
    assert_eq!(job.code, 0, "{}", job.log);
    let used = job.log.contains(&format!("Using {}", fake.dir.join("temp/bloodhound-release").display()));
    assert_eq!(used, !built(fake), "{}", job.log);
    (used, job)
}

fn version() -> String {
    let output = Command::new(REAL).arg("--version").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    format!("v{}", text.split_whitespace().nth(1).expect("a version"))
}

#[test]
fn a_tag_takes_its_release() {
    let fake = fake("tag", "v9.9.9");
    release(&fake, "v9.9.9");
    let (used, job) = downloaded(&fake);
    assert!(used && job.log.contains("Downloaded the binary of release v9.9.9"), "{}", job.log);
}

#[test]
fn a_commit_takes_the_release_that_was_made_of_it() {
    let fake_ = fake("commit", COMMIT);
    release(&fake_, &version());
    assert!(downloaded(&fake_).0);
    let other = fake("other-commit", &COMMIT.replace('0', "f"));
    release(&other, &version());
    assert!(!downloaded(&other).0, "the release is of another source");
}

#[test]
fn what_has_no_release_is_built() {
    let without = fake("without", "main");
    assert!(!downloaded(&without).0);
    // A local action has no version, and code under test is not that of any release.
    let mut local = fake("local", "");
    release(&local, "v9.9.9");
    assert!(!downloaded(&local).0);
    assert!(!local.dir.join("asked").exists());
    local.input("build", "never");
    fs::remove_file(local.dir.join("built")).expect("no file");
    let job = local.run();
    assert_eq!(job.code, 2, "{}", job.log);
    assert!(!built(&local));
    let odd = fake("odd", "../../../x/v1;touch pwned");
    assert!(!downloaded(&odd).0);
    assert!(!odd.dir.join("asked").exists());
    let mut always = fake("always", "v9.9.9");
    release(&always, "v9.9.9");
    always.input("build", "always");
    assert!(!downloaded(&always).0);
}

#[test]
fn a_binary_that_does_not_match_its_checksum_is_not_run() {
    for (name, file) in [("binary", ASSET), ("sum", "bloodhound-x86_64-linux.sha256")] {
        let fake = fake(&format!("checksum-{name}"), "v9.9.9");
        let path = release(&fake, "v9.9.9").join(file);
        let mut bytes = fs::read(&path).expect("a file");
        bytes[0] = bytes[0].wrapping_add(1);
        fs::write(&path, &bytes).expect("a file");
        let job = fake.run();
        assert_eq!(job.code, 2, "{}", job.log);
        assert!(job.log.contains("does not match its checksum"), "{}", job.log);
        assert!(!built(&fake) && !job.log.contains("Using "), "{}", job.log);
    }
}

#[test]
fn the_workflow_attaches_what_the_action_takes() {
    let text = |path: &str| fs::read_to_string(root().join(path)).expect("a file");
    let (install, build) = (text(".github/action/install.sh"), text(".github/release/build.sh"));
    assert!(install.contains(&format!("asset={ASSET}\n")) && build.contains(&format!("name={ASSET}\n")));
    for suffix in [".sha256", ".commit"] {
        assert!(install.contains(&format!("$asset{suffix}")) && build.contains(&format!("$name{suffix}")));
    }
    let workflow = text(".github/workflows/release.yml");
    assert!(workflow.contains(".github/release/build.sh dist") && workflow.contains("dist/*"));
    for uses in workflow.lines().filter_map(|l| l.trim().strip_prefix("- uses: ")) {
        let version = uses.split_once('@').expect("a version").1.split(' ').next().expect("a word");
        assert!(version.len() == 40, "{uses} is not pinned");
    }
}
