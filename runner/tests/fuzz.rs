//! The fuzzer of conformance/fuzz, briefly: cases that once differed and new ones of fixed seeds answer alike natively and simulated,
//! and an answer that is wrong is noticed.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::common::{exec_on, finish, have, left_out, platform, repository};
use bloodhound_fuzz::case::{Case, parse};
use bloodhound_fuzz::generate::{FAMILIES, case};
use bloodhound_fuzz::hunt::Lab;
use bloodhound_fuzz::machine::{Machine, build_guest};

/// New cases of each family.
const CASES: u64 = 60;

/// The platforms that this machine has, or the one that is asked for.
fn platforms() -> Vec<String> {
    let there = |name: &&str| finish(&mut exec_on(Some(name), &[], &["true".into()]), b"").code == Some(0);
    match platform() {
        Some(name) => vec![name],
        None => ["ptrace", "kvm"].iter().filter(|name| there(name)).map(|name| (*name).to_owned()).collect(),
    }
}

/// `None`, said aloud, where the guest cannot be built, or this kernel gives it no namespaces of its own.
fn lab() -> Option<&'static Lab> {
    static LAB: OnceLock<Option<Lab>> = OnceLock::new();
    let make = || {
        if !have(&["cc"], "the fuzzer's guest") {
            return None;
        }
        let guest =
            build_guest(&PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|e| panic!("{e}"));
        let private =
            std::process::Command::new(&guest).arg("--private").stdin(std::process::Stdio::null()).status();
        if private.expect("the guest").code() == Some(77) {
            left_out("the fuzzer", "this kernel gives no namespaces to us");
            return None;
        }
        let bloodhound = PathBuf::from(env!("CARGO_BIN_EXE_bloodhound"));
        let simulated = platforms()
            .into_iter()
            .map(|platform| Machine::Simulated { bloodhound: bloodhound.clone(), platform })
            .collect();
        Some(Lab { guest, simulated, lie: None })
    };
    LAB.get_or_init(make).as_ref()
}

/// Fails with what differs.
fn agree(lab: &Lab, cases: &[Case]) {
    let texts: Vec<String> = lab.hunt(cases).found.iter().map(|difference| difference.text()).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
}

#[test]
fn cases_that_once_differed_agree() {
    let Some(lab) = lab() else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(repository().join("conformance/fuzz/cases"))
        .expect("the cases")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let cases: Vec<Case> =
        files.iter().flat_map(|file| parse(&std::fs::read_to_string(file).expect("a file"))).collect();
    assert!(!cases.is_empty());
    agree(lab, &cases);
}

#[test]
fn new_cases_agree() {
    let Some(lab) = lab() else { return };
    for (seed, (family, _)) in
        (0..).zip(FAMILIES).filter(|(_, (name, _))| ["descriptors", "pipes"].contains(name))
    {
        let family = [(*family).to_owned()];
        let cases: Vec<Case> = (0..CASES).map(|i| case(seed * 1_000_000 + i, &family)).collect();
        agree(lab, &cases);
    }
}

#[test]
fn a_wrong_answer_is_noticed() {
    let Some(lab) = lab() else { return };
    let case = Case {
        name: "lie".to_owned(),
        ops: ["0 1 openat -100 \"a\" 0x42 0x1a4", "0 . write $1 \"abc\" 3", "0 . lseek $1 0 1"]
            .map(str::to_owned)
            .into(),
    };
    let lying = Lab { lie: Some(2), ..lab.clone() };
    let found = lying.hunt(std::slice::from_ref(&case)).found;
    assert_eq!(found.len(), lab.simulated.len());
    assert!(found.iter().all(|difference| difference.key.starts_with("lseek = ")), "{found:?}");
    agree(lab, &[case]);
}
