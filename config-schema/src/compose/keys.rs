//! The known keys of a compose file, by what they mean here.
//!
//! Source: the compose specification. Each service key is in exactly one of the three lists: modelled, without
//! effect in a simulation by its nature (accepted silently), or not modelled (accepted with a warning, as it
//! may change what the service does). Keys that cannot be ignored are errors in the decoders.

pub(crate) const TOP: &[&str] =
    &["name", "version", "services", "networks", "volumes", "configs", "secrets", "include", "models"];

pub(crate) const SERVICE: &[&str] = &[
    "image",
    "build",
    "command",
    "entrypoint",
    "environment",
    "env_file",
    "networks",
    "network_mode",
    "volumes",
    "tmpfs",
    "depends_on",
    "healthcheck",
    "hostname",
    "container_name",
    "working_dir",
    "user",
    "restart",
    "deploy",
    "scale",
    "profiles",
    "extends",
    "volumes_from",
    "configs",
    "secrets",
    "x-bloodhound",
];

/// The simulated network has no outside, nobody looks at labels, and logs are always kept.
pub(crate) const SERVICE_NO_EFFECT: &[&str] = &[
    "ports",
    "expose",
    "labels",
    "label_file",
    "annotations",
    "logging",
    "attach",
    "pull_policy",
    "pull_refresh_after",
    "platform",
    "develop",
    "stdin_open",
    "stop_grace_period",
    "stop_signal",
];

pub(crate) const SERVICE_NOT_MODELLED: &[&str] = &[
    "blkio_config",
    "cap_add",
    "cap_drop",
    "cgroup",
    "cgroup_parent",
    "cpu_count",
    "cpu_percent",
    "cpu_period",
    "cpu_quota",
    "cpu_rt_period",
    "cpu_rt_runtime",
    "cpu_shares",
    "cpus",
    "cpuset",
    "credential_spec",
    "device_cgroup_rules",
    "devices",
    "dns",
    "dns_opt",
    "dns_search",
    "domainname",
    "external_links",
    "extra_hosts",
    "gpus",
    "group_add",
    "init",
    "ipc",
    "isolation",
    "links",
    "mac_address",
    "mem_limit",
    "mem_reservation",
    "mem_swappiness",
    "memswap_limit",
    "models",
    "oom_kill_disable",
    "oom_score_adj",
    "pid",
    "pids_limit",
    "post_start",
    "pre_stop",
    "privileged",
    "provider",
    "read_only",
    "runtime",
    "security_opt",
    "shm_size",
    "storage_opt",
    "sysctls",
    "tty",
    "ulimits",
    "use_api_socket",
    "userns_mode",
    "uts",
];

pub(crate) const EXTENSION: &[&str] = &["rootfs", "read"];
pub(crate) const HEALTHCHECK: &[&str] =
    &["test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"];
pub(crate) const DEPENDENCY: &[&str] = &["condition", "restart", "required"];
pub(crate) const DEPLOY: &[&str] = &["replicas"];
pub(crate) const DEPLOY_NO_EFFECT: &[&str] = &["labels", "update_config", "rollback_config", "endpoint_mode"];
pub(crate) const DEPLOY_NOT_MODELLED: &[&str] = &["mode", "resources", "restart_policy", "placement"];
pub(crate) const ENV_FILE: &[&str] = &["path", "required", "format"];
pub(crate) const ATTACHMENT: &[&str] = &["aliases", "ipv4_address"];
pub(crate) const ATTACHMENT_NOT_MODELLED: &[&str] = &[
    "ipv6_address",
    "link_local_ips",
    "mac_address",
    "driver_opts",
    "priority",
    "gw_priority",
    "interface_name",
];
pub(crate) const MOUNT: &[&str] =
    &["type", "source", "target", "read_only", "bind", "volume", "tmpfs", "consistency"];
pub(crate) const MOUNT_BIND: &[&str] = &["propagation", "create_host_path", "selinux", "recursive"];
pub(crate) const MOUNT_VOLUME: &[&str] = &["nocopy", "subpath", "labels"];
pub(crate) const MOUNT_TMPFS: &[&str] = &["size", "mode"];
pub(crate) const NETWORK: &[&str] = &["ipam"];
pub(crate) const NETWORK_NO_EFFECT: &[&str] =
    &["name", "driver", "attachable", "labels", "internal", "external"];
pub(crate) const NETWORK_NOT_MODELLED: &[&str] = &["driver_opts", "enable_ipv4", "enable_ipv6"];
pub(crate) const IPAM: &[&str] = &["driver", "config", "options"];
pub(crate) const IPAM_CONFIG: &[&str] = &["subnet", "gateway", "ip_range", "aux_addresses"];
pub(crate) const VOLUME_NO_EFFECT: &[&str] = &["name", "driver", "labels"];
pub(crate) const VOLUME_NOT_MODELLED: &[&str] = &["driver_opts", "external"];
