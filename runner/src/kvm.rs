//! /dev/kvm on this host: what stands between a process and it ([`Device`]), and what to do about it.
//!
//! Only looks; the KVM platform itself is the crate `bloodhound-platform-kvm`. Used by `doctor` and when that platform
//! does not start.

use std::fs;
use std::path::Path;

/// What the host says about its KVM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The errno of opening /dev/kvm for reading and writing; `None` if that worked.
    pub errno: Option<i32>,
    /// Whether a vendor's module (kvm_intel, kvm_amd) is there, loaded or built in.
    pub module: bool,
    /// Flags of the processor in /proc/cpuinfo that matter: Intel's VMX.
    pub vmx: bool,
    /// AMD's SVM.
    pub svm: bool,
    /// This machine is itself a virtual one.
    pub virtual_machine: bool,
}

/// The rule that opens the device to everybody. `static_node` has it created at boot, before the module is loaded.
pub const UDEV_RULE: &str = r#"KERNEL=="kvm", GROUP="kvm", MODE="0666", OPTIONS+="static_node=kvm""#;

fn open() -> std::io::Result<fs::File> {
    fs::OpenOptions::new().read(true).write(true).open("/dev/kvm")
}

/// Whether there is a device that this process may use.
pub fn openable() -> bool {
    open().is_ok()
}

impl Device {
    /// Looks at this host.
    pub fn read() -> Device {
        let opened = open();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
        let flag = |name: &str| flags.split_whitespace().any(|word| word == name);
        Device {
            // The host's errors of `open` have numbers; 0 is none of those told apart below.
            errno: opened.err().map(|e| e.raw_os_error().unwrap_or(0)),
            module: ["kvm_intel", "kvm_amd"].iter().any(|m| Path::new("/sys/module").join(m).exists()),
            vmx: flag("vmx"),
            svm: flag("svm"),
            virtual_machine: flag("hypervisor"),
        }
    }

    /// What is in the way, and what to do about it. Empty if the device can be opened.
    pub fn hints(&self) -> Vec<String> {
        match self.errno {
            None => Vec::new(),
            Some(libc::EACCES | libc::EPERM) => vec![format!(
                "/dev/kvm is there but may not be opened: join its group (`sudo usermod -aG kvm $USER`, then log in again), \
                 or open it to everybody (`echo '{UDEV_RULE}' | sudo tee /etc/udev/rules.d/99-kvm.rules; sudo udevadm \
                 control --reload-rules; sudo udevadm trigger --name-match=kvm`); in a container, `docker run --device /dev/kvm`"
            )],
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => vec![self.no_driver()],
            Some(_) => Vec::new(),
        }
    }

    /// Why there is no device, or nothing behind it.
    fn no_driver(&self) -> String {
        if self.module {
            return "KVM is loaded but there is no /dev/kvm here; in a container, `docker run --device /dev/kvm`".to_owned();
        }
        match (self.vmx, self.svm, self.virtual_machine) {
            (true, _, _) => "KVM is not loaded: `sudo modprobe kvm_intel`".to_owned(),
            (_, true, _) => "KVM is not loaded: `sudo modprobe kvm_amd`".to_owned(),
            (_, _, true) => "there is no /dev/kvm: this is a virtual machine without nested virtualisation, which its host \
                             has to turn on (module parameter `nested` of kvm_intel or kvm_amd, or the provider's setting)"
                .to_owned(),
            _ => "there is no /dev/kvm: the processor has no virtualisation (VMX, SVM), or it is off in the firmware".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_its_way_out() {
        let hint = |device: Device| device.hints().join("\n");
        let missing = || Device { errno: Some(libc::ENOENT), ..Device::default() };
        assert!(Device::default().hints().is_empty(), "it can be opened");
        let forbidden =
            hint(Device { errno: Some(libc::EACCES), module: true, vmx: true, ..Device::default() });
        assert!(forbidden.contains("usermod -aG kvm") && forbidden.contains(UDEV_RULE), "{forbidden}");
        assert!(hint(Device { module: true, ..missing() }).contains("--device /dev/kvm"));
        assert!(
            hint(Device { vmx: true, virtual_machine: true, ..missing() }).contains("modprobe kvm_intel")
        );
        assert!(hint(Device { svm: true, ..missing() }).contains("modprobe kvm_amd"));
        assert!(hint(Device { virtual_machine: true, ..missing() }).contains("nested virtualisation"));
        assert!(hint(missing()).contains("firmware"));
        // A node that udev made while nothing is behind it.
        let node = Device { errno: Some(libc::ENODEV), svm: true, ..Device::default() };
        assert!(hint(node).contains("modprobe kvm_amd"));
    }
}
