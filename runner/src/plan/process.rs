//! How the process of a service starts, from its compose service and its image's configuration, as a container engine puts the
//! two together.
//!
//! Key type: [`Process`]. The rules are those of the Dockerfile reference and of `docker run`: an entrypoint in the
//! compose file takes the image's command away as well; variables come over the image's one by one; a health check's times may be
//! changed without its test.

use std::collections::BTreeMap;
use std::time::Duration;

use bloodhound_config::compose::{
    HealthOverrides, HealthTest, Healthcheck, HealthcheckSetting, Hook, Service, User,
};
use bloodhound_images::{HealthConfig, ImageConfig};
use bloodhound_kernel::exec::Program;
use bloodhound_sim::scenario::{HookSpec, Hooks};

use crate::users::{Identity, Users};

/// Where programs are looked up if neither image nor compose file says it.
pub(super) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is started in a service's container.
#[derive(Clone, Debug)]
pub(super) struct Process {
    argv: Vec<String>,
    envp: Vec<Vec<u8>>,
    /// The directory in which it starts; an engine makes it if it is missing.
    pub(super) cwd: String,
    identity: Identity,
    /// Its health check with the argument vector.
    pub(super) health: Option<(Healthcheck, Vec<String>)>,
    /// What is run after its start and before its stop.
    pub(super) hooks: Hooks,
}

impl Process {
    /// Of the instance `hostname`. Without an image `config` is empty.
    ///
    /// # Errors
    /// What is missing or unknown: the key that it is about, and words.
    pub(super) fn new(
        service: &Service,
        hostname: &str,
        config: &ImageConfig,
        users: &Users,
    ) -> Result<Process, (&'static str, String)> {
        let argv = argv(service, config);
        if argv.first().is_none_or(String::is_empty) {
            let lacking = match service.image.is_some() || service.build.is_some() {
                true => "neither it nor its image says what to run: give `command` or `entrypoint`",
                false => "it has no command: give `command` or `entrypoint`",
            };
            return Err(("command", lacking.into()));
        }
        let of_image = config.user.as_deref().filter(|user| !user.is_empty()).map(image_user);
        let user = service.user.clone().or(of_image);
        let identity = users
            .identity(user.as_ref(), &service.group_add)
            .map_err(|text| ("user", format!("user: {text}")))?;
        let envp = environment(service, hostname, config, &users.home(identity.uid), &[]);
        let cwd = service.working_dir.clone().or_else(|| config.working_dir.clone());
        let mut process = Process {
            argv,
            envp,
            cwd: cwd.filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/".into()),
            identity,
            health: health(&service.healthcheck, config),
            hooks: Hooks::default(),
        };
        let hooks = |key: &'static str, list: &[Hook]| {
            let made = list.iter().map(|hook| {
                let identity = match &hook.user {
                    Some(user) => users.identity(Some(user), &service.group_add),
                    None => Ok(process.identity.clone()),
                };
                let identity = identity.map_err(|text| (key, format!("{key}: user: {text}")))?;
                let home = users.home(identity.uid);
                let envp = environment(service, hostname, config, &home, &hook.environment);
                let cwd = hook.working_dir.clone().unwrap_or_else(|| process.cwd.clone());
                let of_hook = Process { envp, cwd, identity, ..process.clone() };
                Ok(HookSpec { program: of_hook.program(&hook.command), privileged: hook.privileged })
            });
            made.collect::<Result<Vec<_>, _>>()
        };
        let post_start = hooks("post_start", &service.post_start)?;
        let pre_stop = hooks("pre_stop", &service.pre_stop)?;
        process.hooks = Hooks { post_start, pre_stop };
        Ok(process)
    }

    /// The service's command.
    pub(super) fn command(&self) -> Program {
        self.program(&self.argv)
    }

    /// Another program in the same container.
    pub(super) fn program(&self, argv: &[String]) -> Program {
        Program {
            path: argv[0].clone().into_bytes(),
            argv: argv.iter().map(|a| a.clone().into_bytes()).collect(),
            envp: self.envp.clone(),
            cwd: self.cwd.clone().into_bytes(),
            uid: self.identity.uid,
            gid: self.identity.gid,
            groups: self.identity.groups.clone(),
        }
    }
}

/// "Setting `--entrypoint` will clear out any default command set on the image" (docker run reference); compose's `entrypoint` is
/// the same.
fn argv(service: &Service, config: &ImageConfig) -> Vec<String> {
    let (entrypoint, default_command) = match &service.entrypoint {
        // One that is empty takes the image's entrypoint away and leaves the image's command (moby, `merge` of configurations).
        Some(own) if own.is_empty() => (Vec::new(), config.cmd.clone().unwrap_or_default()),
        Some(own) => (own.clone(), Vec::new()),
        None => (config.entrypoint.clone().unwrap_or_default(), config.cmd.clone().unwrap_or_default()),
    };
    let command = service.command.clone().unwrap_or(default_command);
    entrypoint.into_iter().chain(command).collect()
}

/// `USER` of an image: `user[:group]`.
fn image_user(text: &str) -> User {
    match text.split_once(':') {
        Some((user, group)) => User {
            user: if user.is_empty() { "0".into() } else { user.into() },
            group: Some(group.to_owned()).filter(|g| !g.is_empty()),
        },
        None => User { user: text.into(), group: None },
    }
}

/// Variables of a process, `more` last.
fn environment(
    service: &Service,
    hostname: &str,
    config: &ImageConfig,
    home: &str,
    more: &[(String, String)],
) -> Vec<Vec<u8>> {
    let mut env: BTreeMap<&str, &str> =
        BTreeMap::from([("PATH", DEFAULT_PATH), ("HOME", home), ("HOSTNAME", hostname)]);
    if service.tty {
        env.insert("TERM", "xterm");
    }
    env.extend(config.env.iter().map(|line| line.split_once('=').unwrap_or((line, ""))));
    let pairs = service.environment.iter().chain(more);
    env.extend(pairs.map(|(name, value)| (name.as_str(), value.as_str())));
    env.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}

/// The health check with the program that it runs.
fn health(setting: &HealthcheckSetting, config: &ImageConfig) -> Option<(Healthcheck, Vec<String>)> {
    let check = match setting {
        HealthcheckSetting::Disabled => return None,
        HealthcheckSetting::Own(own) => own.clone(),
        HealthcheckSetting::Inherited(changed) => inherited(config.healthcheck.as_ref()?, changed)?,
    };
    let argv = check.test.argv(config.shell.as_deref());
    (!argv.is_empty()).then_some((check, argv))
}

/// The image's check. `["NONE"]` is none, an empty one that of the image below, which a builder has put in its place already.
fn inherited(image: &HealthConfig, changed: &HealthOverrides) -> Option<Healthcheck> {
    let test = match image.test.first().map(String::as_str) {
        Some("CMD") => HealthTest::Exec(image.test[1..].to_vec()),
        Some("CMD-SHELL") => HealthTest::Shell(image.test.get(1)?.clone()),
        _ => return None,
    };
    let or = |own: Option<u64>, image: Option<Duration>| {
        own.or_else(|| image.and_then(|time| u64::try_from(time.as_nanos()).ok()))
    };
    let times = HealthOverrides {
        interval_ns: or(changed.interval_ns, image.interval),
        timeout_ns: or(changed.timeout_ns, image.timeout),
        retries: changed.retries.or(image.retries),
        start_period_ns: or(changed.start_period_ns, image.start_period),
        start_interval_ns: or(changed.start_interval_ns, image.start_interval),
    };
    Some(Healthcheck::new(test, &times))
}
