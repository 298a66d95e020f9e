//! From a service of the compose file to a container of the simulation: root file system, mounts, process, order.
//!
//! The image's part is `image`, what runs is `process`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bloodhound_config::compose::{Condition as Depends, MountSource, Restart, Rootfs, Service};
use bloodhound_images::ImageConfig;
use bloodhound_net::NodeId;
use bloodhound_sim::scenario::*;
use bloodhound_vfs::host::Allow;
use bloodhound_vfs::{MountSpec, TreeId};

use super::process::Process;
use super::{Planner, Refusal};
use crate::host;
use crate::users::Users;

impl Planner<'_> {
    pub(super) fn services(&self) -> Result<Vec<ServiceSpec>, Refusal> {
        let faulty = self.project.config.faults.services.as_ref();
        let mut out = Vec::new();
        for (service, name) in self.instances() {
            let is_faulty = faulty.is_none_or(|list| list.iter().any(|l| l.value == service.name));
            let spec = self
                .service(service, &name, is_faulty)
                .map_err(|r| Refusal { text: format!("service {}: {}", service.name, r.text), ..r })?;
            out.push(spec);
        }
        Ok(out)
    }

    fn service(&self, service: &Service, name: &str, faulty: bool) -> Result<ServiceSpec, Refusal> {
        let id = self.ids[name];
        let hostname = service.hostname.clone().unwrap_or_else(|| name.to_string());
        let (root, config) = self.root(service)?;
        let users = root.map(|root| Users::read(self.base, root)).unwrap_or_default();
        let process = Process::new(service, &hostname, &config, &users)?;
        let networks: Vec<String> = service.networks.iter().map(|a| a.network.clone()).collect();
        Ok(ServiceSpec {
            node: id,
            name: name.to_string(),
            hostname,
            addresses: self
                .addresses
                .get(name)
                .into_iter()
                .flatten()
                .map(|(_, ip, p)| (IpAddr::V4(*ip), *p))
                .collect(),
            hosts: self.hosts(&networks),
            program: process.command(),
            root,
            mounts: self.mounts(service, id, &process)?,
            depends_on: self.dependencies(service),
            health: process.health.as_ref().map(|(check, argv)| Health {
                program: process.program(argv),
                interval: if check.start_period_ns > 0 {
                    check.start_interval_ns.min(check.interval_ns)
                } else {
                    check.interval_ns
                },
                timeout: check.timeout_ns,
                retries: check.retries,
                start_period: check.start_period_ns,
            }),
            restart: match service.restart {
                Restart::No => RestartPolicy::No,
                Restart::Always | Restart::UnlessStopped => RestartPolicy::Always,
                Restart::OnFailure { max_retries } => RestartPolicy::OnFailure(max_retries),
            },
            stdin: Some(Vec::new()),
            faulty,
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
                let image = self.images.of(service)?;
                return Ok((image.tree, image.config.clone()));
            }
            Rootfs::Dir(dir) => self
                .base
                .add_tree(dir, Allow::All)
                .map_err(|e| Refusal::host(format!("rootfs {}", dir.display()), &e))?,
        };
        Ok((Some(tree), ImageConfig::default()))
    }

    /// What is mounted, outer mounts first.
    fn mounts(
        &self,
        service: &Service,
        id: NodeId,
        process: &Process,
    ) -> Result<Vec<(Vec<u8>, MountSpec)>, Refusal> {
        let mut mounts = Vec::new();
        for mount in &service.mounts {
            mounts.push((mount.target.clone().into_bytes(), self.mount(mount)?));
        }
        for target in &process.volumes {
            let path = trimmed(target);
            if !service.mounts.iter().any(|mount| trimmed(&mount.target) == path) {
                mounts.push((path.to_owned().into_bytes(), MountSpec::Volume { read_only: false }));
            }
        }
        for (dir, place) in self.script_mounts.get(&id).into_iter().flatten() {
            mounts.push((host::os_bytes(place), self.bind(dir, true)?));
        }
        mounts.sort_by_key(|(path, _)| path.iter().filter(|b| **b == b'/').count());
        Ok(mounts)
    }

    fn dependencies(&self, service: &Service) -> Vec<(NodeId, Condition)> {
        let compose = &self.project.compose;
        let mut out = Vec::new();
        for d in &service.depends_on {
            let condition = match d.condition {
                Depends::Started => Condition::Started,
                Depends::Healthy => Condition::Healthy,
                Depends::CompletedSuccessfully => Condition::Completed,
            };
            for name in compose.service(&d.service.value).map(Service::instances).unwrap_or_default() {
                out.push((self.ids[&name], condition));
            }
        }
        out
    }

    pub(super) fn bind(&self, path: &Path, read_only: bool) -> Result<MountSpec, Refusal> {
        let tree = self.base.add_tree(path, Allow::All).map_err(|e| Refusal::host(path.display(), &e))?;
        Ok(MountSpec::Bind { tree, read_only })
    }

    fn mount(&self, mount: &bloodhound_config::compose::Mount) -> Result<MountSpec, Refusal> {
        match &mount.source {
            // Docker makes a missing host directory; here it is an empty one of the simulation's.
            MountSource::Bind(path) if !self.base.exists(path) => {
                Ok(MountSpec::Volume { read_only: mount.read_only })
            }
            MountSource::Bind(path) => self.bind(path, mount.read_only),
            MountSource::Volume(_) | MountSource::Anonymous => {
                Ok(MountSpec::Volume { read_only: mount.read_only })
            }
            MountSource::Tmpfs { size, mode } => {
                Ok(MountSpec::Tmpfs { mode: mode.unwrap_or(0o1777), size: *size })
            }
        }
    }
}

/// A path without slashes at its end.
fn trimmed(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed }
}
