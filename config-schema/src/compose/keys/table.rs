//! The table of keys: each mapping of a compose file, and what becomes of each of its keys.
//!
//! Key item: [`SECTIONS`]. docs/compose.md is made from it.

use super::{Key, Section, Treatment};

const fn works(name: &'static str) -> Key {
    Key { name, treatment: Treatment::Works("") }
}

const fn partly(name: &'static str, how: &'static str) -> Key {
    Key { name, treatment: Treatment::Works(how) }
}

const fn none(name: &'static str, why: &'static str) -> Key {
    Key { name, treatment: Treatment::NoEffect(why) }
}

const fn refused(name: &'static str, why: &'static str) -> Key {
    Key { name, treatment: Treatment::Refused(why) }
}

const LABELS: &str = "nobody looks at labels";
const BUILDER: &str = "concerns the builder only";
const SWARM: &str = "the simulation starts all containers at once and replaces none";
const BLKIO: &str = "a simulated disk has no rate";
const CPU: &str = "each simulated machine has one processor, and computation takes no time";
const NO_GPU: &str = "a simulated machine has no graphics processor";
const NO_DEVICE: &str = "a simulated machine has no devices of the host";
const NO_SECRET: &str = "its content is not in these files: say it with `file` or `environment`";
const NO_CONFIG: &str = "its content is not in these files: say it with `file`, `environment` or `content`";
const MODELS: &str = "a model is run outside of the containers, where the simulation has nothing";
const WINDOWS: &str = "Windows containers are not simulated";
const NO_MAC: &str = "the simulated network has no link layer";
const WATCH: &str = "`docker compose watch` only: files do not change during a run";

const HOOK: &[Key] =
    &[works("command"), works("user"), works("privileged"), works("working_dir"), works("environment")];
const RATE: &[Key] = &[none("path", BLKIO), none("rate", BLKIO)];
const ROLL: &[Key] = &[
    none("parallelism", SWARM),
    none("delay", SWARM),
    none("failure_action", SWARM),
    none("monitor", SWARM),
    none("max_failure_ratio", SWARM),
    none("order", SWARM),
];
const RESOURCE_MOUNT: &[Key] = &[
    works("source"),
    works("target"),
    partly("uid", "also with `file`, where an engine ignores it"),
    partly("gid", "also with `file`, where an engine ignores it"),
    partly("mode", "also with `file`, where an engine ignores it"),
];
const GPU: &[Key] = &[
    refused("capabilities", NO_GPU),
    refused("count", NO_GPU),
    refused("device_ids", NO_GPU),
    refused("driver", NO_GPU),
    refused("options", NO_GPU),
];

/// Every mapping of a compose file.
pub(crate) static SECTIONS: &[Section] = &[
    Section {
        path: "",
        keys: &[
            none("version", "the specification has no versions any more"),
            works("name"),
            works("include"),
            works("services"),
            refused("models", MODELS),
            works("networks"),
            works("volumes"),
            works("secrets"),
            works("configs"),
            none("jobs", "jobs are started by hand or by a clock, not with the project"),
        ],
    },
    Section { path: "include[]", keys: &[works("path"), works("env_file"), works("project_directory")] },
    Section {
        path: "services.*",
        keys: &[
            none("annotations", LABELS),
            none("attach", "the output of all services is kept"),
            none("blkio_config", BLKIO),
            partly("build", "by an engine, `buildah` or `docker buildx`, where there is one"),
            works("cap_add"),
            works("cap_drop"),
            none("cgroup", "a container sees its own control group only"),
            none("cgroup_parent", "a container sees its own control group only"),
            works("command"),
            works("configs"),
            partly("container_name", "a name in the network as well"),
            none("cpu_count", CPU),
            none("cpu_percent", CPU),
            none("cpu_period", CPU),
            none("cpu_quota", CPU),
            none("cpu_rt_period", CPU),
            none("cpu_rt_runtime", CPU),
            none("cpu_shares", CPU),
            none("cpus", CPU),
            none("cpuset", CPU),
            refused("credential_spec", WINDOWS),
            works("depends_on"),
            works("deploy"),
            none("develop", WATCH),
            none("device_cgroup_rules", NO_DEVICE),
            refused("devices", NO_DEVICE),
            works("dns"),
            works("dns_opt"),
            works("dns_search"),
            works("domainname"),
            works("entrypoint"),
            works("env_file"),
            works("environment"),
            none("expose", "all ports can be reached within a network"),
            works("extends"),
            refused(
                "external_links",
                "containers that are not part of the project do not exist in the simulation",
            ),
            works("extra_hosts"),
            refused("gpus", NO_GPU),
            works("group_add"),
            works("healthcheck"),
            works("hostname"),
            works("image"),
            works("init"),
            partly(
                "ipc",
                "`service:NAME`, `container:NAME` of this file, `private`, `shareable`; `host` is refused",
            ),
            partly("isolation", "`default`; the others are of Windows containers"),
            none("label_file", LABELS),
            none("labels", LABELS),
            works("links"),
            none("logging", "the output of services is always kept"),
            none("mac_address", NO_MAC),
            works("mem_limit"),
            none("mem_reservation", "a simulated machine has its memory to itself"),
            none("mem_swappiness", "a simulated machine never swaps"),
            none("memswap_limit", "a simulated machine never swaps"),
            refused("models", MODELS),
            partly(
                "network_mode",
                "`bridge`, `none`, `service:NAME`, `container:NAME` of this file; `host` is refused",
            ),
            works("networks"),
            none("oom_kill_disable", "processes that wait for memory for ever help nobody: one is killed"),
            works("oom_score_adj"),
            partly("pid", "`service:NAME`, `container:NAME` of this file; `host` is refused"),
            works("pids_limit"),
            partly("platform", "`linux/amd64` only"),
            partly("ports", "the workload reaches them as `localhost:PORT`"),
            partly(
                "post_start",
                "after the first start and after a crash, not when `restart` starts the container again",
            ),
            refused(
                "pre_start",
                "containers that run before a service are not there yet: make one a service, and wait for it with `depends_on`",
            ),
            partly(
                "pre_stop",
                "where `depends_on` with `restart: true` stops the container; nothing else stops one",
            ),
            partly("privileged", "all capabilities; there are no devices of the host"),
            works("profiles"),
            refused(
                "provider",
                "a service that is run outside of the containers does not exist in the simulation",
            ),
            works("pull_policy"),
            works("pull_refresh_after"),
            works("read_only"),
            works("restart"),
            none("runtime", "the application kernel takes the runtime's place"),
            works("scale"),
            works("secrets"),
            partly("security_opt", "`no-new-privileges`; the simulation has no security modules"),
            works("shm_size"),
            partly("stdin_open", "a read of standard input waits for ever: nobody writes there"),
            works("stop_grace_period"),
            works("stop_signal"),
            partly("storage_opt", "`size`; other options are those of a storage driver"),
            partly(
                "sysctls",
                "values that Linux would not take are refused for those that act here; others are shown with any value",
            ),
            works("tmpfs"),
            partly(
                "tty",
                "as `stdin_open`, and `TERM` is set; input and output are pipes, so isatty(3) says no",
            ),
            works("ulimits"),
            refused("use_api_socket", "there is no engine in the simulation"),
            works("umask"),
            works("user"),
            none("userns_mode", "a container's user ids are the machine's"),
            partly("uts", "`host` is refused"),
            works("volumes"),
            works("volumes_from"),
            works("working_dir"),
        ],
    },
    Section {
        path: "services.*.build",
        keys: &[
            works("additional_contexts"),
            works("args"),
            works("cache_from"),
            none("cache_to", BUILDER),
            works("context"),
            works("dockerfile"),
            works("dockerfile_inline"),
            none("entitlements", BUILDER),
            works("extra_hosts"),
            partly("isolation", "`default`; the others are of Windows containers"),
            works("labels"),
            works("network"),
            works("no_cache"),
            none("no_cache_filter", BUILDER),
            partly("platforms", "`linux/amd64` is built"),
            none("privileged", BUILDER),
            none("provenance", BUILDER),
            works("pull"),
            none("sbom", BUILDER),
            works("secrets"),
            works("shm_size"),
            works("ssh"),
            works("tags"),
            works("target"),
            none("ulimits", BUILDER),
        ],
    },
    Section { path: "services.*.build.secrets[]", keys: RESOURCE_MOUNT },
    Section { path: "services.*.build.ulimits.*", keys: &[none("hard", BUILDER), none("soft", BUILDER)] },
    Section {
        path: "services.*.blkio_config",
        keys: &[
            none("device_read_bps", BLKIO),
            none("device_read_iops", BLKIO),
            none("device_write_bps", BLKIO),
            none("device_write_iops", BLKIO),
            none("weight", BLKIO),
            none("weight_device", BLKIO),
        ],
    },
    Section { path: "services.*.blkio_config.device_read_bps[]", keys: RATE },
    Section { path: "services.*.blkio_config.device_read_iops[]", keys: RATE },
    Section { path: "services.*.blkio_config.device_write_bps[]", keys: RATE },
    Section { path: "services.*.blkio_config.device_write_iops[]", keys: RATE },
    Section {
        path: "services.*.blkio_config.weight_device[]",
        keys: &[none("path", BLKIO), none("weight", BLKIO)],
    },
    Section { path: "services.*.configs[]", keys: RESOURCE_MOUNT },
    Section {
        path: "services.*.credential_spec",
        keys: &[refused("config", WINDOWS), refused("file", WINDOWS), refused("registry", WINDOWS)],
    },
    Section {
        path: "services.*.depends_on.*",
        keys: &[works("condition"), works("required"), works("restart")],
    },
    Section {
        path: "services.*.deploy",
        keys: &[
            none("endpoint_mode", "a name stands for all replicas, as with `dnsrr`"),
            none("labels", LABELS),
            partly("mode", "`global` is one container; jobs are refused"),
            none("placement", "each container has a machine of its own, unless it shares something"),
            works("replicas"),
            works("resources"),
            works("restart_policy"),
            none("rollback_config", SWARM),
            none("update_config", SWARM),
        ],
    },
    Section { path: "services.*.deploy.update_config", keys: ROLL },
    Section { path: "services.*.deploy.rollback_config", keys: ROLL },
    Section {
        path: "services.*.deploy.resources",
        keys: &[works("limits"), none("reservations", "a simulated machine has its resources to itself")],
    },
    Section {
        path: "services.*.deploy.resources.limits",
        keys: &[none("cpus", CPU), partly("memory", "as `mem_limit`"), partly("pids", "as `pids_limit`")],
    },
    Section {
        path: "services.*.deploy.resources.reservations",
        keys: &[
            none("cpus", CPU),
            refused("devices", NO_DEVICE),
            none("generic_resources", "a simulated machine has its resources to itself"),
            none("memory", "a simulated machine has its memory to itself"),
        ],
    },
    Section { path: "services.*.deploy.resources.reservations.devices[]", keys: GPU },
    Section {
        path: "services.*.deploy.resources.reservations.generic_resources[]",
        keys: &[none("discrete_resource_spec", SWARM)],
    },
    Section {
        path: "services.*.deploy.resources.reservations.generic_resources[].discrete_resource_spec",
        keys: &[none("kind", SWARM), none("value", SWARM)],
    },
    Section {
        path: "services.*.deploy.restart_policy",
        keys: &[
            partly("condition", "if `restart` is not written"),
            works("delay"),
            works("max_attempts"),
            works("window"),
        ],
    },
    Section {
        path: "services.*.deploy.placement",
        keys: &[none("constraints", SWARM), none("max_replicas_per_node", SWARM), none("preferences", SWARM)],
    },
    Section { path: "services.*.deploy.placement.preferences[]", keys: &[none("spread", SWARM)] },
    Section { path: "services.*.develop", keys: &[none("watch", WATCH)] },
    Section {
        path: "services.*.develop.watch[]",
        keys: &[
            none("action", WATCH),
            none("exec", WATCH),
            none("ignore", WATCH),
            none("include", WATCH),
            none("initial_sync", WATCH),
            none("path", WATCH),
            none("target", WATCH),
        ],
    },
    Section {
        path: "services.*.develop.watch[].exec",
        keys: &[
            none("command", WATCH),
            none("environment", WATCH),
            none("privileged", WATCH),
            none("user", WATCH),
            none("working_dir", WATCH),
        ],
    },
    Section {
        path: "services.*.devices[]",
        keys: &[
            refused("permissions", NO_DEVICE),
            refused("source", NO_DEVICE),
            refused("target", NO_DEVICE),
        ],
    },
    Section { path: "services.*.env_file[]", keys: &[works("format"), works("path"), works("required")] },
    Section { path: "services.*.extends", keys: &[works("file"), works("service")] },
    Section { path: "services.*.gpus[]", keys: GPU },
    Section {
        path: "services.*.healthcheck",
        keys: &[
            works("disable"),
            works("interval"),
            works("retries"),
            works("start_interval"),
            works("start_period"),
            works("test"),
            works("timeout"),
        ],
    },
    Section {
        path: "services.*.logging",
        keys: &[
            none("driver", "the output of services is always kept"),
            none("options", "the output of services is always kept"),
        ],
    },
    Section {
        path: "services.*.models.*",
        keys: &[refused("endpoint_var", MODELS), refused("model_var", MODELS)],
    },
    Section {
        path: "services.*.networks.*",
        keys: &[
            works("aliases"),
            none("driver_opts", "concerns the host's side of a network"),
            works("gw_priority"),
            partly("interface_name", "checked; interfaces are named `eth0`, `eth1` and so on"),
            works("ipv4_address"),
            works("ipv6_address"),
            none("link_local_ips", NO_MAC),
            none("mac_address", NO_MAC),
            works("priority"),
            works("use_service_name_alias"),
        ],
    },
    Section {
        path: "services.*.ports[]",
        keys: &[
            none("app_protocol", "ports carry any protocol"),
            works("host_ip"),
            none("mode", "there is no load balancer in front of a port"),
            none("name", LABELS),
            works("protocol"),
            works("published"),
            works("target"),
        ],
    },
    Section { path: "services.*.post_start[]", keys: HOOK },
    Section { path: "services.*.pre_stop[]", keys: HOOK },
    Section {
        path: "services.*.provider",
        keys: &[
            refused("options", "there is nothing outside of the containers"),
            refused("type", "there is nothing outside of the containers"),
        ],
    },
    Section { path: "services.*.secrets[]", keys: RESOURCE_MOUNT },
    Section { path: "services.*.ulimits.*", keys: &[works("hard"), works("soft")] },
    Section {
        path: "services.*.volumes[]",
        keys: &[
            works("bind"),
            none("consistency", "concerns the host's side of a mount"),
            works("image"),
            works("read_only"),
            works("source"),
            works("target"),
            works("tmpfs"),
            partly("type", "`bind`, `volume`, `tmpfs`, `image`"),
            works("volume"),
        ],
    },
    Section {
        path: "services.*.volumes[].bind",
        keys: &[
            works("create_host_path"),
            none("propagation", "nothing is mounted on the host during a run"),
            none("recursive", "what is mounted below a bound directory is bound with it"),
            none("selinux", "the simulation has no security modules"),
        ],
    },
    Section {
        path: "services.*.volumes[].volume",
        keys: &[none("labels", LABELS), works("nocopy"), works("subpath")],
    },
    Section { path: "services.*.volumes[].tmpfs", keys: &[works("mode"), works("size")] },
    Section { path: "services.*.volumes[].image", keys: &[works("subpath")] },
    Section {
        path: "networks.*",
        keys: &[
            none("attachable", "nothing is attached from outside of the project"),
            partly("driver", "every driver but `host` and `none` makes the same simulated network"),
            none("driver_opts", "concerns the host's side of a network"),
            none("enable_ipv4", "nodes always have an IPv4 address"),
            works("enable_ipv6"),
            partly("external", "made by the simulation: it has the services of the project only"),
            works("internal"),
            works("ipam"),
            none("labels", LABELS),
            none("name", "the name in the engine, which nothing in the simulation sees"),
        ],
    },
    Section {
        path: "networks.*.external",
        keys: &[none("name", "the name in the engine, which nothing in the simulation sees")],
    },
    Section {
        path: "networks.*.ipam",
        keys: &[
            works("config"),
            none("driver", "addresses are given out in the order of the services"),
            none("options", "addresses are given out in the order of the services"),
        ],
    },
    Section {
        path: "networks.*.ipam.config[]",
        keys: &[works("aux_addresses"), works("gateway"), works("ip_range"), works("subnet")],
    },
    Section {
        path: "volumes.*",
        keys: &[
            partly("driver", "`local` only"),
            partly("driver_opts", "binds and `tmpfs`; other file systems are refused"),
            partly("external", "made by the simulation, empty at first"),
            none("labels", LABELS),
            none("name", "the name in the engine, which nothing in the simulation sees"),
        ],
    },
    Section {
        path: "volumes.*.external",
        keys: &[none("name", "the name in the engine, which nothing in the simulation sees")],
    },
    Section {
        path: "secrets.*",
        keys: &[
            refused("driver", NO_SECRET),
            refused("driver_opts", NO_SECRET),
            works("environment"),
            refused("external", NO_SECRET),
            works("file"),
            none("labels", LABELS),
            none("name", "the name in the engine, which nothing in the simulation sees"),
            refused("template_driver", NO_SECRET),
        ],
    },
    Section { path: "secrets.*.external", keys: &[refused("name", NO_SECRET)] },
    Section {
        path: "configs.*",
        keys: &[
            works("content"),
            works("environment"),
            refused("external", NO_CONFIG),
            works("file"),
            none("labels", LABELS),
            none("name", "the name in the engine, which nothing in the simulation sees"),
            refused("template_driver", NO_CONFIG),
        ],
    },
    Section { path: "configs.*.external", keys: &[refused("name", NO_CONFIG)] },
    Section {
        path: "models.*",
        keys: &[
            refused("context_size", MODELS),
            refused("model", MODELS),
            refused("name", MODELS),
            refused("runtime_flags", MODELS),
        ],
    },
];
