//! The action's step that opens /dev/kvm, with a fake of the device and of `sudo`.

use std::fs;

use super::{Fake, Job, PASSED};

/// A job with a fake binary and a device that `prepare` makes.
fn kvm_job(name: &str, inputs: &[(&str, &str)], prepare: impl FnOnce(&Fake)) -> (Fake, Job) {
    let mut fake = Fake::new(&format!("kvm-{name}"));
    fake.fake_binary(0, PASSED);
    for (name, value) in inputs {
        fake.input(name, value);
    }
    prepare(&fake);
    let job = fake.run();
    (fake, job)
}

const NOTICE: &str = "::notice title=Bloodhound::KVM cannot be used: ";

#[test]
fn a_device_that_is_open_is_left_alone() {
    for enable in ["auto", "true"] {
        let (fake, job) = kvm_job("open", &[("enable-kvm", enable)], |fake| {
            fs::write(fake.device(), "as it was").expect("a file");
        });
        assert_eq!((job.code, fake.sudone().len()), (0, 0), "{}", job.log);
        assert_eq!(fs::read(fake.device()).expect("a device"), b"as it was");
        assert!(!job.log.contains("::notice"), "{}", job.log);
    }
}

#[test]
fn a_closed_device_is_opened_by_the_rule() {
    let (fake, job) = kvm_job("rule", &[("enable-kvm", "true")], |fake| {
        let open = fake.closed_device();
        let rule = fake.dir.join("rule");
        // tee's input is the rule; udev applies it when it is triggered.
        fake.sudo(&format!("case \"$*\" in tee*) cat > '{}' ;; *trigger*) {open} ;; esac", rule.display()));
    });
    assert_eq!(job.code, 0, "{}", job.log);
    assert_eq!(
        fake.sudone(),
        [
            "tee /etc/udev/rules.d/99-kvm4all.rules",
            "udevadm control --reload-rules",
            "udevadm trigger --name-match=kvm",
            "udevadm settle --timeout=10",
        ]
    );
    assert_eq!(
        fs::read_to_string(fake.dir.join("rule")).expect("a rule"),
        "KERNEL==\"kvm\", GROUP=\"kvm\", MODE=\"0666\", OPTIONS+=\"static_node=kvm\"\n"
    );
    assert!(job.log.contains("can be opened now."), "{}", job.log);
}

#[test]
fn chmod_helps_where_udev_does_not() {
    for (case, udev) in [("deaf", "udevadm*) ;;"), ("missing", "tee*) exit 1 ;;")] {
        let (fake, job) = kvm_job(case, &[], |fake| {
            let open = fake.closed_device();
            fake.sudo(&format!("case \"$*\" in {udev} chmod*) {open} ;; esac"));
        });
        assert_eq!(job.code, 0, "{case}: {}", job.log);
        let last = fake.sudone().pop().expect("sudo was called");
        assert_eq!(last, format!("chmod 0666 {}", fake.device().display()), "{case}");
        assert!(
            job.log.contains("can be opened now.") && !job.log.contains("::notice"),
            "{case}: {}",
            job.log
        );
    }
}

#[test]
fn without_kvm_auto_goes_on_and_true_fails() {
    // (what is there, what is said)
    let cases: [(&str, bool, &str); 2] =
        [("absent", false, "there is no "), ("forbidden", true, "cannot be opened for reading and writing")];
    for (case, there, said) in cases {
        let prepare = |fake: &Fake| {
            if there {
                let _never = fake.closed_device();
            }
        };
        let (fake, job) = kvm_job(case, &[], prepare);
        assert_eq!((job.code, &*job.outputs["result"]), (0, "passed"), "{case}: {}", job.log);
        let notice = job.log.lines().find(|line| line.starts_with(NOTICE)).expect("a notice");
        assert!(notice.contains(said) && notice.ends_with("Services run on ptrace."), "{case}: {notice}");
        assert!(!job.log.contains("::error"), "{case}: {}", job.log);
        assert!(fake.arguments().iter().all(|a| !a.starts_with("--platform")), "auto is the command's own");
        assert_eq!(fake.sudone().is_empty(), !there, "{case}");

        let (fake, job) = kvm_job(&format!("{case}-true"), &[("enable-kvm", "true")], prepare);
        assert_eq!((job.code, &*job.outputs["result"]), (5, "error"), "{case}: {}", job.log);
        let error =
            job.log.lines().find(|line| line.starts_with("::error title=Bloodhound::")).expect("an error");
        assert!(error.contains("KVM cannot be used: ") && error.contains(said), "{case}: {error}");
        assert!(!fake.dir.join("args").exists(), "nothing was tested");
    }
}

#[test]
fn the_platform_decides_whether_the_device_matters() {
    for (inputs, passed) in [
        (&[("platform", "ptrace")][..], Some("--platform=ptrace")),
        (&[("enable-kvm", "false")], None),
        (&[("enable-kvm", "false"), ("platform", "kvm")], Some("--platform=kvm")),
    ] {
        let (fake, job) = kvm_job("left", inputs, |fake| {
            let _never = fake.closed_device();
        });
        assert_eq!((job.code, fake.sudone().len()), (0, 0), "{inputs:?}: {}", job.log);
        assert!(!job.log.contains("::notice"), "{inputs:?}: {}", job.log);
        let arguments = fake.arguments();
        let platform = arguments.iter().find(|a| a.starts_with("--platform"));
        assert_eq!(platform.map(String::as_str), passed);
    }
    // The command says itself why it cannot start.
    let (fake, job) = kvm_job("kvm", &[("platform", "kvm")], |_| {});
    assert!(job.log.contains(NOTICE) && !job.log.contains("Services run on ptrace"), "{}", job.log);
    assert!(fake.arguments().contains(&"--platform=kvm".to_owned()));
}
