//! Which services are containers of one machine: those that see the same writable files, or use each other's network, processes or
//! IPC objects. Nothing but packets goes from one machine to another, so whatever else services share, they share by being on one.
//!
//! Key types: [`Member`] (a container as far as it matters here), [`Machines`] (the answer), [`Shared`] (which file system a mount
//! is part of). What several containers can only read joins nothing: its content cannot change, so each may have its own.
//! Neighbours: the parent module makes members and services, `bloodhound_sim::scenario::Sharing` has the answer.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use bloodhound_kernel::stacks::MOST_STACKS;
use bloodhound_net::NodeId;

/// A container: a service, or one of its replicas.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// `x-bloodhound: {machine: NAME}`.
    pub machine: Option<String>,
    /// The containers whose namespaces it uses, by what is said in the compose file.
    pub joins: Vec<(&'static str, NodeId)>,
    /// What it mounts of what others could mount too.
    pub mounts: Vec<Mounted>,
}

/// A mount of something that other containers can have as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// What.
    pub source: Source,
    /// The container cannot write to it.
    pub read_only: bool,
}

/// What can be mounted by several containers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A volume with a name, with which part of it is mounted: containers share all of it.
    Volume(String),
    /// A file or directory of this machine.
    Path(PathBuf),
}

impl Source {
    /// The same, or one of them lies in the other.
    fn overlaps(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Path(a), Source::Path(b)) => a.starts_with(b) || b.starts_with(a),
            (a, b) => a == b,
        }
    }

    /// The outer one of two that overlap.
    fn outer(&self, other: &Source) -> Source {
        match (self, other) {
            (Source::Path(a), Source::Path(b)) if a.starts_with(b) => Source::Path(b.clone()),
            _ => self.clone(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Volume(name) => write!(f, "volume {name}"),
            Source::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The file system that a mount is part of, if others have it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The same for all of its mounts.
    pub key: u32,
    /// All of what is shared.
    pub of: Source,
}

impl Shared {
    /// Where in the file system a path of this machine lies: relative, empty for all of it.
    pub fn part(&self, path: &Path) -> Vec<u8> {
        match &self.of {
            Source::Path(of) => path.strip_prefix(of).map(crate::host::os_bytes).unwrap_or_default(),
            Source::Volume(_) => Vec::new(),
        }
    }
}

/// Containers of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Their numbers and names, in order; the first names the machine.
    pub members: Vec<(NodeId, String)>,
    /// What they share.
    pub reasons: Vec<String>,
}

impl fmt::Display for Machine {
    /// `web, php (volume www)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.members.iter().map(|(_, name)| name.as_str()).collect();
        write!(f, "{} (share {})", names.join(", "), self.reasons.join(", "))
    }
}

/// Which containers are on one machine; see the module's text.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    /// Machines with more than one container, in the order of their first ones.
    pub several: Vec<Machine>,
    shared: Vec<(Shared, Vec<Source>)>,
}

/// Groups by a chain of parents: the least number of a group stands for it.
struct Groups(Vec<usize>);

impl Groups {
    fn of(&self, at: usize) -> usize {
        if self.0[at] == at { at } else { self.of(self.0[at]) }
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}

impl Machines {
    /// Refuses machines with more containers than one can have.
    ///
    /// # Errors
    /// Which one, and why its containers are together.
    pub fn check(&self) -> Result<(), String> {
        let crowded = self.several.iter().find(|machine| machine.members.len() > MOST_STACKS);
        crowded.map_or(Ok(()), |machine| {
            let (count, first) = (machine.members.len(), &machine.members[0].1);
            let reasons = machine.reasons.join(", ");
            Err(format!(
                "{count} containers, {first} and others, would be on one machine, because they share {reasons}: a machine can have {MOST_STACKS}"
            ))
        })
    }

    /// Groups containers.
    pub fn new(members: &[Member]) -> Machines {
        let mut groups = Groups((0..members.len()).collect());
        let mut reasons: Vec<(usize, String)> = Vec::new();
        let place = |node: NodeId| members.iter().position(|member| member.node == node);
        for (at, member) in members.iter().enumerate() {
            for (what, other) in &member.joins {
                let Some(other) = place(*other).filter(|other| *other != at) else { continue };
                groups.join(at, other);
                reasons.push((at, (*what).to_owned()));
            }
            let same = |other: &Member| member.machine.is_some() && other.machine == member.machine;
            if let Some(other) = members[..at].iter().position(same) {
                groups.join(at, other);
                reasons.push((at, format!("machine {}", member.machine.clone().unwrap_or_default())));
            }
        }
        let shared = shared(members);
        for (whole, parts) in &shared {
            let has = |member: &Member| member.mounts.iter().any(|mount| parts.contains(&mount.source));
            let users: Vec<usize> = (0..members.len()).filter(|at| has(&members[*at])).collect();
            for pair in users.windows(2) {
                groups.join(pair[0], pair[1]);
                reasons.push((pair[0], whole.of.to_string()));
            }
        }
        let mut several: BTreeMap<usize, Machine> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            let machine =
                several.entry(groups.of(at)).or_insert(Machine { members: Vec::new(), reasons: Vec::new() });
            machine.members.push((member.node, member.name.clone()));
        }
        for (at, reason) in reasons {
            if let Some(machine) = several.get_mut(&groups.of(at))
                && !machine.reasons.contains(&reason)
            {
                machine.reasons.push(reason);
            }
        }
        let several = several.into_values().filter(|machine| machine.members.len() > 1).collect();
        Machines { several, shared }
    }

    /// The container that names a container's machine, if others are on it.
    pub fn machine_of(&self, node: NodeId) -> Option<NodeId> {
        let machine =
            self.several.iter().find(|machine| machine.members.iter().any(|(id, _)| *id == node))?;
        machine.members.first().map(|(id, _)| *id)
    }

    /// The file system that a mount is part of, if it is not its container's alone.
    pub fn shared(&self, source: &Source) -> Option<&Shared> {
        self.shared.iter().find(|(_, parts)| parts.contains(source)).map(|(whole, _)| whole)
    }
}

/// What several mounts show and at least one of them may write, with the sources that are parts of it.
fn shared(members: &[Member]) -> Vec<(Shared, Vec<Source>)> {
    let all: Vec<&Mounted> = members.iter().flat_map(|member| &member.mounts).collect();
    let mut groups = Groups((0..all.len()).collect());
    let mut joined = vec![false; all.len()];
    for (a, one) in all.iter().enumerate() {
        for (b, other) in all.iter().enumerate().skip(a + 1) {
            if one.source.overlaps(&other.source) && !(one.read_only && other.read_only) {
                groups.join(a, b);
                (joined[a], joined[b]) = (true, true);
            }
        }
    }
    let mut found: BTreeMap<usize, (Source, Vec<Source>)> = BTreeMap::new();
    for at in (0..all.len()).filter(|at| joined[*at]) {
        let source = &all[at].source;
        let (outer, parts) = found.entry(groups.of(at)).or_insert_with(|| (source.clone(), Vec::new()));
        *outer = outer.outer(source);
        if !parts.contains(source) {
            parts.push(source.clone());
        }
    }
    let whole = |(key, (of, parts)): (usize, (Source, Vec<Source>))| (Shared { key: key as u32, of }, parts);
    found.into_values().enumerate().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u32, mounts: &[(&str, bool)]) -> Member {
        let source = |name: &str| match name.starts_with('/') {
            true => Source::Path(PathBuf::from(name)),
            false => Source::Volume(name.to_owned()),
        };
        let mounts =
            mounts.iter().map(|(name, read_only)| Mounted { source: source(name), read_only: *read_only });
        let name = format!("s{node}");
        Member { node: NodeId(node), name, machine: None, joins: Vec::new(), mounts: mounts.collect() }
    }

    fn shown(members: &[Member]) -> Vec<String> {
        Machines::new(members).several.iter().map(Machine::to_string).collect()
    }

    #[test]
    fn a_volume_joins_its_users_if_one_of_them_may_write() {
        let members =
            [member(1, &[("www", true)]), member(2, &[("db", false)]), member(3, &[("www", false)])];
        assert_eq!(shown(&members), ["s1, s3 (share volume www)"]);
        let machines = Machines::new(&members);
        assert_eq!(machines.machine_of(NodeId(3)), Some(NodeId(1)));
        assert_eq!(machines.machine_of(NodeId(2)), None);
        assert!(machines.shared(&Source::Volume("www".into())).is_some());
        assert!(machines.shared(&Source::Volume("db".into())).is_none());
        assert!(shown(&[member(1, &[("www", true)]), member(2, &[("www", true)])]).is_empty());
    }

    #[test]
    fn directories_join_where_one_lies_in_the_other() {
        let members = [
            member(1, &[("/srv/app", true)]),
            member(2, &[("/srv/app/data/deep", false)]),
            member(3, &[("/srv/apple", false)]),
            member(4, &[("/srv/app/static", true)]),
        ];
        assert_eq!(shown(&members), ["s1, s2 (share /srv/app)"]);
        let machines = Machines::new(&members);
        let deep = PathBuf::from("/srv/app/data/deep");
        let shared = machines.shared(&Source::Path(deep.clone())).unwrap();
        assert_eq!(shared.of, Source::Path("/srv/app".into()));
        assert_eq!(shared.part(&deep), b"data/deep");
        assert_eq!(shared.part(Path::new("/srv/app")), b"");
        // Nobody who writes sees it.
        assert!(machines.shared(&Source::Path("/srv/app/static".into())).is_none());
    }

    #[test]
    fn namespaces_and_names_join_and_all_of_it_adds_up() {
        let mut members: Vec<Member> = (1..=5).map(|node| member(node, &[])).collect();
        members[1].joins = vec![("network", NodeId(1)), ("pid", NodeId(1))];
        members[2].machine = Some("east".into());
        members[4].machine = Some("east".into());
        members[3].mounts = member(4, &[("v", false)]).mounts;
        members[1].mounts = member(2, &[("v", false)]).mounts;
        assert_eq!(
            shown(&members),
            ["s1, s2, s4 (share network, pid, volume v)", "s3, s5 (share machine east)"]
        );
    }

    #[test]
    fn a_machine_has_room_for_so_many_containers() {
        let crowd =
            |count: u32| -> Vec<Member> { (1..=count).map(|node| member(node, &[("v", false)])).collect() };
        let most = MOST_STACKS as u32;
        assert_eq!(Machines::new(&crowd(most)).check(), Ok(()));
        let text = Machines::new(&crowd(most + 1)).check().expect_err("too many");
        assert!(
            text.contains("s1 and others") && text.contains("volume v") && text.contains(&most.to_string()),
            "{text}"
        );
    }
}
