//! `bloodhound doctor`: whether this machine can run simulations, how fast, and what is in the way.
//!
//! Key type: [`Report`]: facts of the host from /proc, and both platforms as they are when started on threads of their
//! own. Nothing is changed. Neighbours: `platform` (which one is taken), `kvm` (what is in the way of /dev/kvm).

use std::fmt::Write as _;
use std::fs;

use bloodhound_platform::Abilities;
use serde_json::{Value as Json, json};

use crate::output::{self, Format};
use crate::platform::{self, Cpuid, Name, Probed, best, complete, microseconds, missing};
use crate::{cpus, exit, kvm};

/// Arguments of `doctor`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

/// A trap as fast as on an ordinary machine; above it seeds take longer, and the report says so. Nanoseconds.
const SLOW_TRAP_NS: u64 = 20_000;
/// Less is too little for three small nodes and their snapshot. Bytes.
const LITTLE_MEMORY: u64 = 1 << 30;
/// Linux's default of vm.max_map_count; below it large processes lose mappings and get them back by faults.
const MAX_MAP_COUNT: u64 = 65_530;

/// What the host says about itself; what it does not say is `None`.
#[derive(Debug, Default)]
struct Host {
    kernel: Option<String>,
    cpu: Option<String>,
    /// CPUs that this process may use.
    cpus: usize,
    /// Bytes.
    memory: Option<u64>,
    /// Bytes.
    available: Option<u64>,
    /// kernel.yama.ptrace_scope.
    yama: Option<u64>,
    /// The `Seccomp` field of /proc/self/status: 0 none, 1 strict, 2 filter.
    seccomp: Option<u64>,
    /// Whether CAP_SYS_PTRACE is effective.
    cap_sys_ptrace: bool,
    /// vm.max_map_count.
    max_map_count: Option<u64>,
    /// Another process traces this one.
    traced: bool,
}

/// Everything that is told.
struct Report {
    host: Host,
    device: kvm::Device,
    ptrace: Probed,
    kvm: Probed,
}

/// Examines the machine; the exit code.
pub fn run(args: &Args) -> u8 {
    let report = Report {
        host: Host::read(),
        device: kvm::Device::read(),
        ptrace: platform::probe(Name::Ptrace),
        kvm: platform::probe(Name::Kvm),
    };
    match args.format {
        Format::Human => output::print(&report.text()),
        Format::Json => output::print_json(&report.json()),
    }
    if report.usable() { exit::PASS } else { exit::ENVIRONMENT }
}

fn status_field(name: &str) -> Option<String> {
    field(&fs::read_to_string("/proc/self/status").ok()?, name)
}

/// The value of the first line `name: value`.
fn field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value)
    })?;
    Some(value.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A field of /proc/meminfo ("MemTotal:  24570432 kB") in bytes.
fn memory(text: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

impl Host {
    fn read() -> Host {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let capabilities = status_field("CapEff").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
        Host {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            cpu: field(&cpuinfo, "model name"),
            cpus: cpus::jobs(),
            memory: memory(&meminfo, "MemTotal"),
            available: memory(&meminfo, "MemAvailable"),
            yama: number("/proc/sys/kernel/yama/ptrace_scope"),
            seccomp: status_field("Seccomp").and_then(|text| text.parse().ok()),
            // capability.h: CAP_SYS_PTRACE is 19.
            cap_sys_ptrace: capabilities.is_some_and(|bits| bits >> 19 & 1 == 1),
            max_map_count: number("/proc/sys/vm/max_map_count"),
            traced: status_field("TracerPid").is_some_and(|pid| pid != "0"),
        }
    }
}

impl Report {
    fn platforms(&self) -> [(Name, &Probed); 2] {
        [(Name::Ptrace, &self.ptrace), (Name::Kvm, &self.kvm)]
    }

    fn usable(&self) -> bool {
        self.platforms().iter().any(|(_, probed)| complete(probed))
    }

    /// What is in the way, or makes things slow, and what to do about it.
    fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let host = &self.host;
        if self.ptrace.is_err() {
            why_not(host, &mut hints);
        }
        if self.kvm.is_err() {
            hints.extend(self.device.hints());
        }
        if let Some(cost) = self.cost().filter(|cost| *cost > SLOW_TRAP_NS) {
            hints.push(format!(
                "a trap takes {} us here; nested virtualisation or mitigations are the usual reasons, and runs are \
                 only slower for it",
                cost / 1000
            ));
        }
        if host.available.is_some_and(|bytes| bytes < LITTLE_MEMORY) {
            hints.push("less than 1 GiB of memory is available; run fewer seeds at a time".to_owned());
        }
        if let Some(count) = host.max_map_count.filter(|count| *count < MAX_MAP_COUNT) {
            hints.push(format!(
                "vm.max_map_count is {count}; services with much memory run faster with {MAX_MAP_COUNT} or more"
            ));
        }
        hints
    }

    /// What a trap costs on the platform that `auto` takes.
    fn cost(&self) -> Option<u64> {
        let (name, _) = best(&self.ptrace, &self.kvm).ok()?;
        let (_, probed) = self.platforms().into_iter().find(|(n, _)| *n == name)?;
        Some(probed.as_ref().ok()?.trap_cost_ns)
    }

    fn text(&self) -> String {
        let host = &self.host;
        let unknown = || "unknown".to_owned();
        let gib = |bytes: Option<u64>| {
            bytes.map_or_else(unknown, |b| format!("{}.{} GiB", b >> 30, ((b % (1 << 30)) * 10) >> 30))
        };
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = writeln!(out, "bloodhound {}", env!("CARGO_PKG_VERSION"));
        let _ = writeln!(out, "kernel            {}", host.kernel.clone().unwrap_or_else(unknown));
        let _ = writeln!(out, "processor         {}", host.cpu.clone().unwrap_or_else(unknown));
        let _ = writeln!(out, "usable CPUs       {}", host.cpus);
        let _ = writeln!(out, "memory            {}, {} available", gib(host.memory), gib(host.available));
        for (name, probed) in self.platforms() {
            describe(&mut out, name, probed);
        }
        let auto = match best(&self.ptrace, &self.kvm) {
            Ok((name, why)) => format!("{name} ({why})"),
            Err(why) => format!("nothing ({why})"),
        };
        let _ = writeln!(out, "auto takes        {auto}");
        for hint in self.hints() {
            let _ = writeln!(out, "hint: {hint}");
        }
        let verdict = if self.usable() {
            "this machine can run simulations"
        } else {
            "this machine cannot run simulations"
        };
        let _ = writeln!(out, "{verdict}");
        out
    }

    fn json(&self) -> Json {
        let host = &self.host;
        let (auto, why) = match best(&self.ptrace, &self.kvm) {
            Ok((name, why)) => (Some(name.as_str()), why),
            Err(why) => (None, why),
        };
        let platforms = self.platforms().map(|(name, probed)| platform_json(name, probed));
        json!({
            "schema": "bloodhound.doctor/v1",
            "version": env!("CARGO_PKG_VERSION"),
            "usable": self.usable(),
            "host": {
                "kernel": host.kernel,
                "cpu": host.cpu,
                "cpus": host.cpus,
                "memory_bytes": host.memory,
                "memory_available_bytes": host.available,
                "yama_ptrace_scope": host.yama,
                "seccomp": host.seccomp,
                "cap_sys_ptrace": host.cap_sys_ptrace,
                "max_map_count": host.max_map_count,
            },
            "platforms": platforms,
            "auto": {"platform": auto, "reason": why},
            "hints": self.hints(),
        })
    }
}

/// A platform for people.
fn describe(out: &mut String, name: Name, probed: &Probed) {
    let title = format!("{name} platform");
    let abilities = match probed {
        Ok(abilities) => abilities,
        Err(error) => {
            let _ = writeln!(out, "{title:<17} not usable: {error}");
            return;
        }
    };
    let missing = missing(abilities);
    let verdict = if missing.is_empty() { "usable" } else { "incomplete: taken only if it is asked for" };
    let _ = writeln!(out, "{title:<17} {verdict}");
    for (label, ability) in [("rdtsc", "traps_rdtsc"), ("single steps", "traps_steps")] {
        let state = missing
            .iter()
            .find(|m| m.ability == ability)
            .map_or_else(|| "trapped".to_owned(), |m| format!("NOT trapped: {}", m.consequence));
        let _ = writeln!(out, "  {label:<15} {state}");
    }
    let cpuid = match platform::cpuid_name(abilities.cpuid) {
        Cpuid::Faulting => "trapped",
        Cpuid::Patched => "patched in the code (it cannot be made to trap here)",
    };
    let _ = writeln!(out, "  {:<15} {cpuid}", "cpuid");
    let _ = writeln!(out, "  {:<15} {}", "cost of a trap", microseconds(abilities.trap_cost_ns));
}

fn platform_json(name: Name, probed: &Probed) -> Json {
    let abilities: Option<&Abilities> = probed.as_ref().ok();
    let missing: Vec<Json> = abilities.map_or_else(Vec::new, |a| {
        let each = |m: platform::Missing| json!({"ability": m.ability, "consequence": m.consequence});
        missing(a).into_iter().map(each).collect()
    });
    json!({
        "name": name.as_str(),
        "usable": complete(probed),
        "traps_rdtsc": abilities.map(|a| a.traps_rdtsc),
        "cpuid": abilities.map(|a| platform::cpuid_name(a.cpuid)),
        "traps_steps": abilities.map(|a| a.traps_steps),
        "trap_cost_ns": abilities.map(|a| a.trap_cost_ns),
        "missing": missing,
        "error": probed.as_ref().err().map(ToString::to_string),
    })
}

/// Why ptrace may be forbidden.
fn why_not(host: &Host, hints: &mut Vec<String>) {
    if host.traced {
        hints.push("this process is traced itself (strace, gdb); run it without".to_owned());
    }
    // Documentation/admin-guide/LSM/Yama.rst: 2 "admin-only attach: only processes with CAP_SYS_PTRACE may use
    // ptrace, either with PTRACE_ATTACH or through children calling PTRACE_TRACEME", 3 "no attach".
    match host.yama {
        Some(3) => {
            hints.push("kernel.yama.ptrace_scope is 3, which forbids ptrace until the next boot".to_owned())
        }
        Some(2) if !host.cap_sys_ptrace => hints.push(
            "kernel.yama.ptrace_scope is 2: run as root, or `sysctl kernel.yama.ptrace_scope=1`".to_owned(),
        ),
        _ => {}
    }
    if host.seccomp.is_some_and(|mode| mode != 0) {
        hints.push(
            "a seccomp filter is in force, as in a container: `docker run --cap-add SYS_PTRACE --security-opt \
             seccomp=unconfined` allows ptrace"
                .to_owned(),
        );
    }
    if hints.is_empty() {
        hints.push("an x86-64-v3 processor (AVX2, BMI2) and Linux 5.13 or later are needed".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use bloodhound_platform::{CpuidTrap, PlatformError};

    use super::*;

    fn report(ptrace: Probed, kvm: Probed, host: Host) -> Report {
        Report { host, device: kvm::Device::default(), ptrace, kvm }
    }

    fn abilities(traps_rdtsc: bool, trap_cost_ns: u64) -> Abilities {
        Abilities { traps_rdtsc, cpuid: CpuidTrap::NeedsPatch, traps_steps: true, trap_cost_ns }
    }

    fn no_device() -> Probed {
        Err(PlatformError::Host { what: "opening /dev/kvm", errno: libc::EACCES })
    }

    #[test]
    fn fields_are_found_and_units_kept() {
        let text = "MemTotal:       24570432 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(memory(text, "MemTotal"), Some(24_570_432 * 1024));
        assert_eq!(memory(text, "MemAvailable"), Some(1 << 20));
        assert_eq!(memory(text, "MemFree"), None);
        assert_eq!(field("model name\t: A CPU @ 2: GHz\n", "model name").as_deref(), Some("A CPU @ 2: GHz"));
    }

    #[test]
    fn a_usable_machine_has_its_figures_and_no_hints() {
        let host = Host { cpus: 2, memory: Some(3 << 29), ..Host::default() };
        let report = report(Ok(abilities(true, 5_432)), Ok(abilities(true, 1_999)), host);
        let text = report.text();
        assert!(text.contains("ptrace platform   usable\n"), "{text}");
        assert!(text.contains("kvm platform      usable\n"), "{text}");
        assert!(text.contains("  cost of a trap  5.4 us\n"), "{text}");
        assert!(
            text.contains("auto takes        kvm (a trap takes 5.4 us on ptrace and 1.9 us on kvm)\n"),
            "{text}"
        );
        assert!(text.contains("memory            1.5 GiB, unknown available\n"), "{text}");
        assert!(text.ends_with("this machine can run simulations\n"), "{text}");
        assert!(!text.contains("hint:"), "{text}");
        let json = report.json();
        assert_eq!(json["platforms"][0]["cpuid"], "patched");
        assert_eq!(
            (&json["platforms"][1]["name"], &json["auto"]["platform"]),
            (&"kvm".into(), &"kvm".into())
        );
    }

    #[test]
    fn a_machine_without_ptrace_gets_the_reason_that_fits() {
        let forbidden = || Err(PlatformError::Host { what: "PTRACE_TRACEME", errno: libc::EPERM });
        let hints = |host: Host| report(forbidden(), no_device(), host).hints().join("\n");
        assert!(hints(Host { yama: Some(3), ..Host::default() }).contains("ptrace_scope is 3"));
        assert!(hints(Host { yama: Some(2), ..Host::default() }).contains("ptrace_scope is 2"));
        let root = Host { yama: Some(2), cap_sys_ptrace: true, seccomp: Some(2), ..Host::default() };
        let text = hints(root);
        assert!(text.contains("--cap-add SYS_PTRACE") && !text.contains("ptrace_scope"), "{text}");
        assert!(hints(Host::default()).contains("x86-64-v3"));
        let neither = report(forbidden(), no_device(), Host::default());
        assert!(!neither.usable());
        let why = "PTRACE_TRACEME: Operation not permitted (os error 1)";
        assert!(
            neither.text().contains(&format!("ptrace platform   not usable: {why}\n")),
            "{}",
            neither.text()
        );
        assert!(neither.text().ends_with("this machine cannot run simulations\n"));
        let json = neither.json();
        assert_eq!(json["platforms"][0]["error"], why);
        assert_eq!(json["auto"]["platform"], Json::Null);
        // One platform is enough.
        assert!(report(forbidden(), Ok(abilities(true, 1_000)), Host::default()).usable());
    }

    #[test]
    fn a_device_that_may_not_be_opened_gets_the_rule() {
        let mut report = report(Ok(abilities(true, 5_000)), no_device(), Host::default());
        report.device.errno = Some(libc::EACCES);
        assert!(report.usable());
        let text = report.text();
        assert!(text.contains("kvm platform      not usable: opening /dev/kvm: Permission denied"), "{text}");
        assert!(text.contains(kvm::UDEV_RULE), "{text}");
        assert!(text.contains("auto takes        ptrace (kvm cannot start: opening /dev/kvm: "), "{text}");
    }

    #[test]
    fn what_a_platform_lacks_is_named_with_its_consequence() {
        let lacking = report(Ok(abilities(true, 5_000)), Ok(abilities(false, 1_000)), Host::default());
        assert!(lacking.usable());
        let text = lacking.text();
        assert!(text.contains("kvm platform      incomplete"), "{text}");
        assert!(
            text.contains("  rdtsc           NOT trapped: it is replaced in the code of programs, but "),
            "{text}"
        );
        assert!(text.contains("auto takes        ptrace (kvm does not trap rdtsc)\n"), "{text}");
        let json = &lacking.json()["platforms"][1];
        assert_eq!((&json["usable"], &json["traps_rdtsc"]), (&false.into(), &false.into()));
        assert_eq!(json["missing"][0]["ability"], "traps_rdtsc");
        let neither = report(Ok(abilities(false, 900_000)), no_device(), Host::default());
        assert!(!neither.usable());
    }

    #[test]
    fn slow_traps_are_told() {
        let slow = report(Ok(abilities(true, 900_000)), no_device(), Host::default());
        assert!(slow.hints().join("").contains("900 us"));
        let other = report(Ok(abilities(true, 900_000)), Ok(abilities(true, 2_000)), Host::default());
        assert!(other.hints().is_empty(), "auto takes the fast one");
    }
}
