//! The configuration of an image: what its builder says about how to run it. Only read here; how an engine applies it
//! together with a compose file is decided where a service is planned.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::digest::Digest;
use crate::error::{Error, shown};
use crate::manifest::{ARCHITECTURE, OS};

/// What an image says about how it is to be run. `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// Program and first arguments.
    pub entrypoint: Option<Vec<String>>,
    /// Further arguments, or the program if there is no entry point.
    pub cmd: Option<Vec<String>>,
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    /// Where the process begins.
    pub working_dir: Option<String>,
    /// Name or number, with `:GROUP` or without.
    pub user: Option<String>,
    /// Paths that get an anonymous volume.
    pub volumes: Vec<String>,
    /// `80/tcp`.
    pub exposed_ports: Vec<String>,
    /// Name or number of the signal that ends it.
    pub stop_signal: Option<String>,
    /// How to ask for its health.
    pub healthcheck: Option<HealthConfig>,
    /// What runs a command that is one string.
    pub shell: Option<Vec<String>>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// The health check of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthConfig {
    /// `NONE`, `CMD` and a program, or `CMD-SHELL` and a command; empty for the one of the image below.
    pub test: Vec<String>,
    /// Time between two checks.
    pub interval: Option<Duration>,
    /// How long a check may take.
    pub timeout: Option<Duration>,
    /// How long failures do not count after the start.
    pub start_period: Option<Duration>,
    /// Time between two checks in that period.
    pub start_interval: Option<Duration>,
    /// How many failures make it unhealthy.
    pub retries: Option<u32>,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<RawConfig>,
    rootfs: Option<RawRootFs>,
}

#[derive(Deserialize)]
struct RawRootFs {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RawConfig {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    volumes: Option<BTreeMap<String, serde_json::Value>>,
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    stop_signal: Option<String>,
    healthcheck: Option<RawHealth>,
    shell: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RawHealth {
    test: Option<Vec<String>>,
    interval: Option<i64>,
    timeout: Option<i64>,
    start_period: Option<i64>,
    start_interval: Option<i64>,
    retries: Option<i64>,
}

/// The configuration in these bytes, and the digests of the uncompressed layers, the lowest first.
pub(crate) fn parse(bytes: &[u8]) -> Result<(ImageConfig, Vec<Digest>), Error> {
    let raw: Raw = serde_json::from_slice(bytes)
        .map_err(|e| Error::damaged(format!("it is no configuration of an image: {e}")))?;
    if (raw.os.as_str(), raw.architecture.as_str()) != (OS, ARCHITECTURE) {
        return Err(Error::not_found(format!(
            "the image is for {}/{}, and the simulation runs {OS}/{ARCHITECTURE}",
            if raw.os.is_empty() { "an unnamed system" } else { &raw.os },
            if raw.architecture.is_empty() { "an unnamed architecture" } else { &raw.architecture },
        )));
    }
    let diff_ids = raw.rootfs.and_then(|rootfs| rootfs.diff_ids).unwrap_or_default();
    let diff_ids = diff_ids.iter().map(|id| id.parse()).collect::<Result<Vec<Digest>, Error>>();
    let config = raw.config.unwrap_or_default();
    for variable in config.env.iter().flatten() {
        if !variable.contains('=') || variable.starts_with('=') || variable.contains('\0') {
            let text =
                format!("its configuration has {} as an environment variable", shown(variable.as_bytes()));
            return Err(Error::damaged(text));
        }
    }
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let list = |list: Option<Vec<String>>| list.filter(|list| !list.is_empty());
    let config = ImageConfig {
        entrypoint: list(config.entrypoint),
        cmd: list(config.cmd),
        env: config.env.unwrap_or_default(),
        working_dir: filled(config.working_dir),
        user: filled(config.user),
        volumes: config.volumes.unwrap_or_default().into_keys().collect(),
        exposed_ports: config.exposed_ports.unwrap_or_default().into_keys().collect(),
        stop_signal: filled(config.stop_signal),
        healthcheck: config.healthcheck.map(health),
        shell: list(config.shell),
        labels: config.labels.unwrap_or_default(),
    };
    Ok((config, diff_ids.map_err(|e| e.at("its configuration"))?))
}

fn health(raw: RawHealth) -> HealthConfig {
    // Nanoseconds; 0 stands for "as the image below", and so does what is absent.
    let time = |ns: Option<i64>| {
        ns.and_then(|ns| u64::try_from(ns).ok()).filter(|ns| *ns > 0).map(Duration::from_nanos)
    };
    HealthConfig {
        test: raw.test.unwrap_or_default(),
        interval: time(raw.interval),
        timeout: time(raw.timeout),
        start_period: time(raw.start_period),
        start_interval: time(raw.start_interval),
        retries: raw.retries.and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read() {
        let text = r#"{"architecture":"amd64","os":"linux","config":{
            "Env":["PATH=/bin","EMPTY="],"Entrypoint":["/entry"],"Cmd":null,"User":"","WorkingDir":"/data",
            "Volumes":{"/data":{}},"ExposedPorts":{"6379/tcp":{}},"StopSignal":"SIGQUIT","Labels":{"a":"b"},
            "Healthcheck":{"Test":["CMD-SHELL","true"],"Interval":5000000000,"Retries":3}},
            "rootfs":{"type":"layers","diff_ids":[]}}"#;
        let (config, layers) = parse(text.as_bytes()).expect("a configuration");
        assert_eq!(layers, []);
        assert_eq!(config.entrypoint, Some(vec!["/entry".to_owned()]));
        assert_eq!((config.cmd, config.user), (None, None));
        assert_eq!(
            (config.volumes, config.exposed_ports),
            (vec!["/data".to_owned()], vec!["6379/tcp".to_owned()])
        );
        let health = config.healthcheck.expect("a health check");
        assert_eq!(
            (health.interval, health.timeout, health.retries),
            (Some(Duration::from_secs(5)), None, Some(3))
        );
    }

    #[test]
    fn another_platform_is_named() {
        let error = parse(br#"{"architecture":"arm64","os":"linux"}"#).expect_err("arm64");
        assert_eq!(error.to_string(), "the image is for linux/arm64, and the simulation runs linux/amd64");
    }
}
