//! `bloodhound doctor`: whether this machine can run simulations, how fast, and what is in the way.
//!
//! Key type: [`Report`]: facts of the host from /proc, and the ptrace platform as it is when started on a thread of
//! its own. Nothing is changed.

use std::fmt::Write as _;
use std::fs;

use bloodhound_platform::{Abilities, CpuidTrap, Platform};
use bloodhound_platform_ptrace::PtracePlatform;
use serde_json::{Value as Json, json};

use crate::exit;
use crate::output::{self, Format};

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
    ptrace: Result<Abilities, String>,
}

/// Examines the machine; the exit code.
pub fn run(args: &Args) -> u8 {
    let report = Report { host: Host::read(), ptrace: probe() };
    match args.format {
        Format::Human => output::print(&report.text()),
        Format::Json => output::print_json(&report.json()),
    }
    if report.usable() { exit::PASS } else { exit::ENVIRONMENT }
}

/// Starts the platform as a worker of a campaign does: on its own thread, bound to one CPU.
fn probe() -> Result<Abilities, String> {
    let start = || {
        let platform = PtracePlatform::new(first_cpu()).map_err(|e| e.to_string())?;
        Ok(platform.abilities())
    };
    let thread = std::thread::Builder::new().name("doctor".into()).spawn(start);
    let thread = thread.map_err(|e| format!("starting a thread: {e}"))?;
    thread.join().unwrap_or_else(|_| Err("the platform panicked".into()))
}

/// The lowest CPU that this process may use.
fn first_cpu() -> Option<usize> {
    let list = status_field("Cpus_allowed_list")?;
    list.split([',', '-']).next()?.trim().parse().ok()
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
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
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
    fn usable(&self) -> bool {
        self.ptrace.as_ref().is_ok_and(|abilities| abilities.traps_rdtsc)
    }

    /// What is in the way, or makes things slow, and what to do about it.
    fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let host = &self.host;
        match &self.ptrace {
            Err(_) => why_not(host, &mut hints),
            Ok(abilities) if abilities.trap_cost_ns > SLOW_TRAP_NS => hints.push(format!(
                "a trap takes {} us here; nested virtualisation or mitigations are the usual reasons, and runs are \
                 only slower for it",
                abilities.trap_cost_ns / 1000
            )),
            Ok(_) => {}
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
        match &self.ptrace {
            Ok(abilities) => {
                let ok = if self.usable() { "usable" } else { "not usable: time leaks in" };
                let cpuid = match abilities.cpuid {
                    CpuidTrap::Faulting => "trapped",
                    CpuidTrap::NeedsPatch => "patched in the code (this processor cannot make it fault)",
                };
                let _ = writeln!(out, "ptrace platform   {ok}");
                let _ = writeln!(
                    out,
                    "  rdtsc           {}",
                    if abilities.traps_rdtsc { "trapped" } else { "not trapped" }
                );
                let _ = writeln!(out, "  cpuid           {cpuid}");
                let (us, tenths) = (abilities.trap_cost_ns / 1000, abilities.trap_cost_ns % 1000 / 100);
                let _ = writeln!(out, "  cost of a trap  {us}.{tenths} us");
            }
            Err(error) => {
                let _ = writeln!(out, "ptrace platform   not usable: {error}");
            }
        }
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
        let abilities = self.ptrace.as_ref().ok();
        let cpuid = abilities.map(|a| match a.cpuid {
            CpuidTrap::Faulting => "faulting",
            CpuidTrap::NeedsPatch => "patched",
        });
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
            "platforms": [{
                "name": "ptrace",
                "usable": self.usable(),
                "traps_rdtsc": abilities.map(|a| a.traps_rdtsc),
                "cpuid": cpuid,
                "trap_cost_ns": abilities.map(|a| a.trap_cost_ns),
                "error": self.ptrace.as_ref().err(),
            }],
            "hints": self.hints(),
        })
    }
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
    use super::*;

    fn report(ptrace: Result<Abilities, String>, host: Host) -> Report {
        Report { host, ptrace }
    }

    fn abilities(traps_rdtsc: bool, trap_cost_ns: u64) -> Abilities {
        Abilities { traps_rdtsc, cpuid: CpuidTrap::NeedsPatch, traps_steps: true, trap_cost_ns }
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
        let report =
            report(Ok(abilities(true, 5_432)), Host { cpus: 2, memory: Some(3 << 29), ..Host::default() });
        let text = report.text();
        assert!(text.contains("cost of a trap  5.4 us\n"), "{text}");
        assert!(text.contains("memory            1.5 GiB, unknown available\n"), "{text}");
        assert!(text.ends_with("this machine can run simulations\n"), "{text}");
        assert!(!text.contains("hint:"), "{text}");
        assert_eq!(report.json()["platforms"][0]["cpuid"], "patched");
    }

    #[test]
    fn a_machine_without_ptrace_gets_the_reason_that_fits() {
        let forbidden = || Err("PTRACE_TRACEME: Operation not permitted".to_owned());
        let hints = |host: Host| report(forbidden(), host).hints().join("\n");
        assert!(hints(Host { yama: Some(3), ..Host::default() }).contains("ptrace_scope is 3"));
        assert!(hints(Host { yama: Some(2), ..Host::default() }).contains("ptrace_scope is 2"));
        let root = Host { yama: Some(2), cap_sys_ptrace: true, seccomp: Some(2), ..Host::default() };
        let text = hints(root);
        assert!(text.contains("--cap-add SYS_PTRACE") && !text.contains("ptrace_scope"), "{text}");
        assert!(hints(Host::default()).contains("x86-64-v3"));
        let report = report(forbidden(), Host::default());
        assert!(!report.usable());
        assert!(report.text().contains("not usable: PTRACE_TRACEME"));
        assert_eq!(report.json()["platforms"][0]["error"], "PTRACE_TRACEME: Operation not permitted");
    }

    #[test]
    fn a_platform_that_lets_time_through_is_not_usable() {
        let report = report(Ok(abilities(false, 900_000)), Host::default());
        assert!(!report.usable());
        assert!(report.hints().join("").contains("900 us"));
    }
}
