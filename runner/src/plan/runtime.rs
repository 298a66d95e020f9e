//! What the engine is told of a service beside its program: how it is stopped, its init, capabilities, limits, kernel parameters.

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Rlimit;
use bloodhound_config::compose::{Rootfs, Service};
use bloodhound_kernel::caps;
use bloodhound_kernel::container::Settings;
use bloodhound_kernel::procfs;
use bloodhound_sim::scenario::{Init, Runtime};

use super::{Pieces, Planner, Refusal};

/// Size of /dev/shm where nothing is said, as engines have it.
const SHM_SIZE: u64 = 64 << 20;
/// What engines set in the network namespace of each container: any user may bind any port.
const PORT_START: &str = "net/ipv4/ip_unprivileged_port_start";

impl Planner<'_> {
    pub(super) fn runtime(
        &self,
        service: &Service,
        stop_signal: Option<&str>,
        pieces: &mut Pieces<'_>,
    ) -> Runtime {
        let plain = Runtime::default();
        let stop_signal = match service.stop_signal.as_deref().or(stop_signal) {
            None => Some(plain.stop_signal),
            Some(name) => {
                let known = signal(name).ok_or_else(|| format!("stop_signal: {name} is no signal"));
                pieces.keep("stop_signal", known)
            }
        };
        let stop_signal = stop_signal.unwrap_or(plain.stop_signal);
        Runtime {
            engine: service.rootfs == Rootfs::Image,
            read_only: service.read_only,
            stop_signal,
            stop_grace: service.stop_grace_period_ns.unwrap_or(plain.stop_grace),
            init: if service.init == Some(true) { Init::Runs } else { Init::None },
            shm_size: Some(service.shm_size.unwrap_or(SHM_SIZE)),
            disk: service.disk_size,
            settings: settings(service, pieces),
            keep: plain.keep,
        }
    }
}

fn settings(service: &Service, pieces: &mut Pieces<'_>) -> Settings {
    let plain = Settings::default();
    let mut limits = plain.limits;
    for limit in &service.ulimits {
        let number = resource(&limit.name).ok_or_else(|| format!("ulimits: no limit `{}`", limit.name));
        let Some(number) = pieces.keep("ulimits", number) else { continue };
        let [cur, max] = [limit.soft, limit.hard].map(|value| value.unwrap_or(u64::MAX));
        limits[number as usize] = Rlimit { cur, max };
    }
    let mut sysctls =
        [(PORT_START.to_owned(), "0".to_owned())].into_iter().collect::<std::collections::BTreeMap<_, _>>();
    for (name, value) in &service.sysctls {
        let path = name.replace('.', "/");
        if !procfs::has_parameter(&path) {
            let text = format!("sysctls: the kernel parameter {name} is not simulated");
            pieces.keep::<()>("sysctls", Err(text));
        } else if !procfs::is_value(&path, value) {
            pieces.keep::<()>(
                "sysctls",
                Err(format!("sysctls: the kernel parameter {name} cannot be {value}")),
            );
        }
        sysctls.insert(path, value.clone());
    }
    let no_new_privileges = |option: &String| {
        matches!(option.as_str(), "no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true")
    };
    let capabilities = capabilities(plain.capabilities, &service.cap_add, &service.cap_drop);
    Settings {
        capabilities: pieces.keep("cap_add", capabilities).unwrap_or(plain.capabilities),
        limits,
        no_new_privileges: service.security_opt.iter().any(no_new_privileges),
        umask: service.umask.unwrap_or(plain.umask),
        sysctls,
        memory: service.mem_limit,
        oom_score_adj: service.oom_score_adj.unwrap_or(0),
        pids: service.pids_limit,
        cpu_milli: service.cpus_milli,
    }
}

/// The bounding set, as Docker makes it (`TweakCapabilities`): with ALL added, all but what is dropped; with ALL dropped, what is
/// added; otherwise the usual ones without what is dropped, and what is added.
fn capabilities(usual: u64, add: &[String], drop: &[String]) -> Result<u64, Refusal> {
    let set = |names: &[String]| -> Result<(u64, bool), Refusal> {
        let (mut bits, mut all) = (0, false);
        for name in names {
            let upper = name.to_ascii_uppercase();
            let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
            if bare == "ALL" {
                all = true;
                continue;
            }
            let number = caps::NAMES.iter().position(|known| *known == bare);
            bits |= 1u64 << number.ok_or_else(|| format!("no capability {name}"))?;
        }
        Ok((bits, all))
    };
    let ((add, add_all), (drop, drop_all)) = (set(add)?, set(drop)?);
    let every = (2u64 << caps::LAST) - 1;
    Ok(match (add_all, drop_all) {
        (true, _) => every & !drop,
        (false, true) => add,
        (false, false) => usual & !drop | add,
    })
}

/// The number of a limit by its name in compose files.
fn resource(name: &str) -> Option<u64> {
    let known = [
        ("core", c::RLIMIT_CORE),
        ("cpu", c::RLIMIT_CPU),
        ("data", c::RLIMIT_DATA),
        ("fsize", c::RLIMIT_FSIZE),
        ("locks", c::RLIMIT_LOCKS),
        ("memlock", c::RLIMIT_MEMLOCK),
        ("msgqueue", c::RLIMIT_MSGQUEUE),
        ("nice", c::RLIMIT_NICE),
        ("nofile", c::RLIMIT_NOFILE),
        ("nproc", c::RLIMIT_NPROC),
        ("rss", c::RLIMIT_RSS),
        ("rtprio", c::RLIMIT_RTPRIO),
        ("rttime", c::RLIMIT_RTTIME),
        ("sigpending", c::RLIMIT_SIGPENDING),
        ("stack", c::RLIMIT_STACK),
    ];
    known.into_iter().find(|(known, _)| *known == name).map(|(_, number)| number)
}

/// The first real-time signal as C libraries count them: two are theirs.
const RTMIN: u32 = 34;
const RTMAX: u32 = 64;

/// The number of a signal that is written as `SIGTERM`, `TERM`, 15 or `SIGRTMIN+3`.
fn signal(name: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let offset = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u32>().ok() };
    let number = if let Ok(number) = bare.parse() {
        Some(number)
    } else if let Some(rest) = bare.strip_prefix("RTMIN") {
        offset(rest.trim_start_matches('+')).and_then(|more| RTMIN.checked_add(more))
    } else if let Some(rest) = bare.strip_prefix("RTMAX") {
        offset(rest.trim_start_matches('-')).and_then(|less| RTMAX.checked_sub(less))
    } else {
        let named = |n: &u32| bloodhound_kernel::signal::name(*n).strip_prefix("SIG") == Some(bare);
        (1..32).find(named)
    };
    number.filter(|n| (1..=RTMAX).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_put_together_as_engines_do() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let made = |add: &[&str], drop: &[&str]| capabilities(0b11, &names(add), &names(drop));
        assert_eq!(made(&[], &[]), Ok(0b11));
        assert_eq!(made(&["FOWNER"], &["CAP_CHOWN"]), Ok(0b1010));
        assert_eq!(made(&["kill"], &["ALL"]), Ok(1 << 5));
        assert_eq!(made(&["ALL"], &["CHOWN"]), Ok((1 << 41) - 2));
        assert!(made(&["FLY"], &[]).is_err());
    }

    #[test]
    fn signals_are_read_as_engines_read_them() {
        for (name, number) in
            [("SIGTERM", 15), ("term", 15), ("9", 9), ("SIGRTMIN+3", 37), ("RTMAX-1", 63), ("SIGQUIT", 3)]
        {
            assert_eq!(signal(name), Some(number), "{name}");
        }
        for name in ["SIGNOTHING", "0", "65", "SIGRTMAX-x", "", "RTMIN+99999999999"] {
            assert_eq!(signal(name), None, "{name}");
        }
    }
}
