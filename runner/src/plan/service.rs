//! From a service of the compose file to a container of the simulation: root file system, mounts, process, order.
//!
//! The image's part is `image`, what runs is `process`.

use std::path::PathBuf;

use bloodhound_config::compose::{Condition as Depends, Restart, Rootfs, Service};
use bloodhound_images::ImageConfig;
use bloodhound_kernel::exec::Program;
use bloodhound_sim::scenario::*;
use bloodhound_vfs::host::Allow;
use bloodhound_vfs::{MountSpec, TreeId};

use super::process::Process;
use super::{Pieces, Planner, Refusal};
use crate::host;
use crate::users::Users;

/// Of what a container is made, whatever its place in the stack is.
pub(super) struct Made {
    program: Program,
    root: Option<TreeId>,
    mounts: Vec<(Vec<u8>, MountSpec)>,
    health: Option<HealthSpec>,
    hooks: Hooks,
    restart: RestartPolicy,
    stdin: Input,
    runtime: Runtime,
}

impl Made {
    /// The container with the place of another one.
    pub(super) fn in_place_of(self, other: &ServiceSpec) -> ServiceSpec {
        let Made { program, root, mounts, health, hooks, restart, stdin, runtime } = self;
        ServiceSpec { program, root, mounts, health, hooks, restart, stdin, runtime, ..other.clone() }
    }
}

impl Planner<'_> {
    pub(super) fn services(&self, refused: &mut Vec<Refusal>) -> Vec<ServiceSpec> {
        let instances = self.instances();
        instances.iter().filter_map(|(service, name)| self.service(service, name, refused)).collect()
    }

    /// The container, if nothing of it is refused or what is refused leaves enough to go on.
    fn service(&self, service: &Service, name: &str, refused: &mut Vec<Refusal>) -> Option<ServiceSpec> {
        let faulty = self.project.config.faults.services.as_ref();
        let faulty = faulty.is_none_or(|list| list.iter().any(|l| l.value == service.name));
        let hostname = service.hostname.clone().unwrap_or_else(|| name.to_string());
        let made = self.made_of(service, (name, &hostname), refused)?;
        let mut spec = ServiceSpec {
            node: self.ids[name],
            name: name.to_string(),
            hostname,
            addresses: self.addresses_of(name),
            hosts: self.names_for(service),
            program: made.program,
            root: made.root,
            mounts: made.mounts,
            depends_on: self.dependencies(service),
            health: made.health,
            hooks: made.hooks,
            published: Default::default(),
            restart: made.restart,
            stdin: made.stdin,
            faulty,
            sharing: self.sharing(service, name),
            runtime: made.runtime,
            resolver: ResolverSpec { search: service.dns_search.clone(), options: service.dns_opt.clone() },
        };
        self.collect(service, &mut spec);
        Some(spec)
    }

    /// Of what a container is made by the definition of a service; the container's name and host name are given.
    pub(super) fn made_of(
        &self,
        service: &Service,
        (name, hostname): (&str, &str),
        refused: &mut Vec<Refusal>,
    ) -> Option<Made> {
        let mut pieces = Pieces::new(&self.project.compose, service, refused);
        let (root, config) = pieces.keep("x-bloodhound", self.root(service))?;
        let users = root.map_or_else(Users::unknown, |root| Users::read(self.base, root));
        let mounts = self.mounts(service, name, &mut pieces);
        let runtime = self.runtime(service, config.stop_signal.as_deref(), &mut pieces);
        let process = Process::new(service, hostname, &config, &users)
            .map_err(|(key, text)| pieces.keep::<()>(key, Err(text)))
            .ok()?;
        Some(Made {
            program: process.command(),
            root,
            mounts,
            health: process.health.as_ref().map(|(check, argv)| HealthSpec {
                program: process.program(argv),
                interval: check.interval_ns,
                start_interval: check.start_interval_ns,
                timeout: check.timeout_ns,
                retries: check.retries,
                start_period: check.start_period_ns,
            }),
            hooks: process.hooks.clone(),
            restart: match service.restart {
                Restart::No => RestartPolicy::No,
                Restart::Always | Restart::UnlessStopped => RestartPolicy::Always,
                Restart::OnFailure { max_retries } => RestartPolicy::OnFailure(max_retries),
            },
            // An engine gives /dev/null without them. Nobody is attached to the other end of a terminal.
            stdin: if service.tty || service.stdin_open { Input::Silent } else { Input::Empty },
            runtime,
        })
    }

    /// The tree below its root file system, and what its image says; nothing without an image.
    fn root(&self, service: &Service) -> Result<(Option<TreeId>, ImageConfig), Refusal> {
        let tree = match &service.rootfs {
            Rootfs::Host => {
                let mut more: Vec<PathBuf> = service.read.iter().map(PathBuf::from).collect();
                more.extend(service.argv().first().filter(|first| first.starts_with('/')).map(PathBuf::from));
                host::host_root(self.base, &more)
                    .map_err(|e| Refusal::host("the host's root directory", &e))?
            }
            Rootfs::Image => {
                let image = self.images.of(service);
                return Ok(image.map_or_else(Default::default, |i| (i.tree, i.config.clone())));
            }
            Rootfs::Dir(dir) => self
                .base
                .add_tree(dir, Allow::All)
                .map_err(|e| Refusal::host(format!("rootfs {}", dir.display()), &e))?,
        };
        Ok((Some(tree), ImageConfig::default()))
    }

    fn dependencies(&self, service: &Service) -> Vec<Dependency> {
        let compose = &self.project.compose;
        let mut out = Vec::new();
        for d in &service.depends_on {
            let condition = match d.condition {
                Depends::Started => Condition::Started,
                Depends::Healthy => Condition::Healthy,
                Depends::CompletedSuccessfully => Condition::Completed,
            };
            for name in compose.service(&d.service.value).map(Service::instances).unwrap_or_default() {
                out.push(Dependency { service: self.ids[&name], condition, restart: d.restart });
            }
        }
        out
    }
}
