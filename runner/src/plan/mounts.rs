//! What is mounted into services: volumes, directories of this machine, memory, and the mounts of other services
//! (`volumes_from`). What several containers share is one file system of their machine ([`super::machines`]).

use std::path::Path;

use bloodhound_config::compose::{Mount, MountSource, Namespace, NetworkMode, Rootfs, Service};
use bloodhound_kernel::procfs::Tree;
use bloodhound_net::NodeId;
use bloodhound_sim::scenario::Sharing;
use bloodhound_vfs::MountSpec;
use bloodhound_vfs::host::Allow;

use super::machines::{Machines, Member, Mounted, Shared, Source};
use super::{Pieces, Planner, Refusal};
use crate::host;

/// A mount of a service, its own or another one's.
pub(super) struct Placed {
    pub(super) mount: Mount,
    /// Whose it is: which anonymous volume is meant.
    pub(super) owner: String,
}

impl Placed {
    /// What others could mount too.
    fn source(&self) -> Option<Source> {
        match &self.mount.source {
            MountSource::Bind(path) => Some(Source::Path(host::without_dots(path))),
            MountSource::Volume(name) => Some(Source::Volume(name.clone())),
            MountSource::Anonymous => Some(Source::Volume(format!("{}:{}", self.owner, self.mount.target))),
            MountSource::Tmpfs { .. } | MountSource::Image(_) | MountSource::Proc | MountSource::Sys => None,
        }
    }
}

/// A path in a container without slashes at its end.
pub(super) fn trimmed(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed }
}

impl Planner<'_> {
    /// The mounts of an instance: its own, then those of the services that it names. "If a service has a mount at the same place,
    /// its own counts" (as engines do it).
    pub(super) fn placed(&self, service: &Service, name: &str) -> Vec<Placed> {
        let own = |mount: &Mount| Placed { mount: mount.clone(), owner: name.to_owned() };
        let mut all: Vec<Placed> = self.own_mounts(service).iter().map(own).collect();
        let mut todo: Vec<(String, bool)> = self.named_mounts(service, false);
        let mut seen = vec![service.name.clone()];
        while let Some((other, read_only)) = todo.pop() {
            let Some(other) = self.project.compose.service(&other).filter(|s| !seen.contains(&s.name)) else {
                continue;
            };
            seen.push(other.name.clone());
            todo.extend(self.named_mounts(other, read_only));
            let owner = other.instances().into_iter().next().unwrap_or_default();
            for mount in &self.own_mounts(other) {
                let shared = matches!(
                    mount.source,
                    MountSource::Bind(_) | MountSource::Volume(_) | MountSource::Anonymous
                );
                if shared && all.iter().all(|placed| trimmed(&placed.mount.target) != trimmed(&mount.target))
                {
                    let mount = Mount { read_only: mount.read_only || read_only, ..mount.clone() };
                    all.push(Placed { mount, owner: owner.clone() });
                }
            }
        }
        all
    }

    /// The mounts of a service: those of the compose file, then the volumes of its image that these leave free.
    fn own_mounts(&self, service: &Service) -> Vec<Mount> {
        let mut all = service.mounts.clone();
        let image = match service.rootfs {
            Rootfs::Image => self.images.of(service),
            Rootfs::Host | Rootfs::Dir(_) => None,
        };
        for target in image.iter().flat_map(|image| &image.config.volumes) {
            let target = trimmed(target).to_owned();
            if all.iter().all(|mount| trimmed(&mount.target) != target) {
                let source = MountSource::Anonymous;
                all.push(Mount {
                    source,
                    target,
                    read_only: false,
                    nocopy: false,
                    subpath: None,
                    at: service.at,
                });
            }
        }
        all
    }

    fn named_mounts(&self, service: &Service, read_only: bool) -> Vec<(String, bool)> {
        let name = |from: &bloodhound_config::compose::VolumesFrom| {
            (from.service.value.clone(), from.read_only || read_only)
        };
        service.volumes_from.iter().map(name).collect()
    }

    /// The instance of another service whose namespace an instance uses: that of the same number, or the first.
    fn partner(&self, service: &Service, name: &str, other: &str) -> Option<NodeId> {
        let own = service.instances().iter().position(|instance| instance == name).unwrap_or(0);
        let instances = self.project.compose.service(other)?.instances();
        self.ids.get(instances.get(own).or(instances.first())?).copied()
    }

    /// Groups the instances of all services by machines.
    pub(super) fn group(&mut self) {
        let mut members = Vec::new();
        for (service, name) in self.instances() {
            let Sharing { net, pids, ipc, .. } = self.namespaces(service, &name);
            let joins = [("network", net), ("pid", pids), ("ipc", ipc)];
            members.push(Member {
                node: self.ids[&name],
                machine: service.machine.as_ref().map(|machine| machine.value.clone()),
                joins: joins.into_iter().filter_map(|(what, other)| Some((what, other?))).collect(),
                mounts: self.mounted(service, &name),
                name,
            });
        }
        self.machines = Machines::new(&members);
    }

    /// What an instance mounts of what others could mount too. Where it can be upgraded, its volumes and directories are shared by what it is made of before and after.
    fn mounted(&self, service: &Service, name: &str) -> Vec<Mounted> {
        let mounted =
            |placed: &Placed| Some(Mounted { source: placed.source()?, read_only: placed.mount.read_only });
        let own: Vec<Mounted> = self.placed(service, name).iter().filter_map(mounted).collect();
        let Some(next) = self.next.get(&service.name) else { return own };
        let mut all = own;
        all.extend(self.placed(&next.service, name).iter().filter_map(mounted));
        // A volume that is only read has what the first image had there.
        for mount in all.iter_mut().filter(|mount| matches!(mount.source, Source::Volume(_))) {
            mount.read_only = false;
        }
        // One that only one of the two has is there twice all the same.
        let twice = all.clone();
        all.extend(twice);
        all
    }

    /// With whom an instance shares namespaces.
    fn namespaces(&self, service: &Service, name: &str) -> Sharing {
        let of = |namespace: &Namespace| match namespace {
            Namespace::Own => None,
            Namespace::Service(other) => self.partner(service, name, &other.value),
        };
        let net = match &service.network_mode {
            NetworkMode::Service(other) => self.partner(service, name, &other.value),
            NetworkMode::Networks | NetworkMode::None => None,
        };
        Sharing { machine: None, net, pids: of(&service.pid), ipc: of(&service.ipc) }
    }

    /// With whom an instance shares its machine, and what of it.
    pub(super) fn sharing(&self, service: &Service, name: &str) -> Sharing {
        Sharing { machine: self.machines.machine_of(self.ids[name]), ..self.namespaces(service, name) }
    }

    /// The mounts of an instance, outer ones first.
    pub(super) fn mounts(
        &self,
        service: &Service,
        name: &str,
        pieces: &mut Pieces<'_>,
    ) -> Vec<(Vec<u8>, MountSpec)> {
        let mut mounts = Vec::new();
        let (locks, fresh) = host::locks();
        let placed = self.placed(service, name);
        // A service's own mount there comes in its place.
        let own = |placed: &Placed| Path::new(&locks).starts_with(&placed.mount.target);
        if service.rootfs == Rootfs::Host && !placed.iter().any(own) {
            mounts.push((locks.into(), fresh));
        }
        for placed in placed {
            match self.mount(&placed) {
                Ok(mount) => mounts.push((placed.mount.target.clone().into_bytes(), mount)),
                Err(refusal) => pieces.refuse(pieces.compose().place(placed.mount.at), refusal),
            }
        }
        mounts.extend(self.resources(service, pieces));
        let id = self.ids[name];
        for (dir, place) in self.script_mounts.get(&id).into_iter().flatten() {
            let mount = pieces.keep("", self.bind(dir, true));
            mounts.extend(mount.map(|mount| (host::os_bytes(place), mount)));
        }
        mounts.sort_by_key(|(path, _)| path.iter().filter(|b| **b == b'/').count());
        mounts
    }

    fn mount(&self, placed: &Placed) -> Result<MountSpec, Refusal> {
        let mount = &placed.mount;
        let shared =
            placed.source().and_then(|source| Some((self.machines.shared(&source)?.clone(), source)));
        if let Some((shared, source)) = shared {
            return self.shared(mount, &shared, &source);
        }
        match &mount.source {
            MountSource::Bind(path) => self.directory(path, mount.read_only),
            MountSource::Tmpfs { size, mode, owner } => {
                Ok(MountSpec::Tmpfs { mode: mode.unwrap_or(0o1777), size: *size, owner: *owner })
            }
            MountSource::Image(image) => Ok(self.image_mount(placed, &image.value)),
            MountSource::Proc => Ok(kernel_tree(Tree::Proc)),
            MountSource::Sys => Ok(kernel_tree(Tree::Sys)),
            MountSource::Volume(_) | MountSource::Anonymous if mount.subpath.is_none() && !mount.nocopy => {
                Ok(MountSpec::Volume { read_only: mount.read_only })
            }
            MountSource::Volume(_) | MountSource::Anonymous => {
                // Alone with its volume, but not with all of it, or not with what the image has there.
                let source = Source::Volume(format!("{}:{}", placed.owner, mount.target));
                let key = ALONE | self.ids[&placed.owner].0 << 8 | self.nth_mount(placed);
                self.shared(mount, &Shared { key, of: source.clone() }, &source)
            }
        }
    }

    /// The files of an image, or a directory of them. Of one that nobody has looked for it is an empty directory.
    fn image_mount(&self, placed: &Placed, image: &str) -> MountSpec {
        let Mount { read_only, subpath, .. } = &placed.mount;
        let Some(tree) = self.images.tree(image) else { return MountSpec::Volume { read_only: *read_only } };
        let of = MountSpec::Bind { tree, read_only: *read_only };
        match subpath {
            None => of,
            Some(path) => {
                let key = ALONE | self.ids[&placed.owner].0 << 8 | self.nth_mount(placed);
                let subpath = path.clone().into_bytes();
                MountSpec::Shared { key, of: Box::new(of), subpath, nocopy: false }
            }
        }
    }

    /// Which of its owner's mounts it is.
    fn nth_mount(&self, placed: &Placed) -> u32 {
        let mut of = self.instances().into_iter().filter(|(_, name)| *name == placed.owner);
        let place = of.next().and_then(|(service, _)| {
            let next = self.next.get(&service.name).map(|next| self.own_mounts(&next.service));
            let mut all = self.own_mounts(service).into_iter().chain(next.into_iter().flatten());
            all.position(|mount| mount.target == placed.mount.target && mount.source == placed.mount.source)
        });
        place.unwrap_or(0) as u32
    }

    fn shared(&self, mount: &Mount, shared: &Shared, source: &Source) -> Result<MountSpec, Refusal> {
        let read_only = mount.read_only;
        let (of, subpath) = match (&shared.of, source) {
            (Source::Path(whole), Source::Path(path)) => {
                (self.directory(whole, read_only)?, shared.part(path))
            }
            _ => {
                let part = mount.subpath.clone().unwrap_or_default();
                (MountSpec::Volume { read_only }, part.into_bytes())
            }
        };
        Ok(MountSpec::Shared { key: shared.key, of: Box::new(of), subpath, nocopy: mount.nocopy })
    }

    /// A directory or file of this machine. Docker makes a missing directory; here it is an empty one of the simulation's.
    fn directory(&self, path: &Path, read_only: bool) -> Result<MountSpec, Refusal> {
        if self.base.exists(path) { self.bind(path, read_only) } else { Ok(MountSpec::Volume { read_only }) }
    }

    pub(super) fn bind(&self, path: &Path, read_only: bool) -> Result<MountSpec, Refusal> {
        let tree = match path.parent() {
            Some(_) => self.base.add_tree(path, Allow::All),
            // All of this machine: what programs need of it, without its processes, its users' files and its devices.
            None => host::host_root(self.base, &[]),
        };
        let tree = tree.map_err(|e| Refusal::host(path.display(), &e))?;
        Ok(MountSpec::Bind { tree, read_only })
    }
}

/// The simulated machine's own, where a service looks at "the host".
fn kernel_tree(tree: Tree) -> MountSpec {
    MountSpec::Synthetic { tag: tree.tag(), fstype: tree.fstype() }
}

/// Keys of volumes that one container has for itself.
const ALONE: u32 = 1 << 31;
