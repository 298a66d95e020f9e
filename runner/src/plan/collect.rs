//! Coverage of interpreters and compilers: what is put into a service so that its tools write theirs, as `coverage.services` asks for.
//!
//! All of it is part of the scenario, as it changes the run: variables of the service's command, a directory to write to, and files
//! with the collectors (a tree of the base layer, so its digest is among the inputs of a finding). What is written is kept when a
//! container starts anew ([`bloodhound_sim::kept`]). Neighbour: [`crate::coverage`] reads it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bloodhound_config::compose::{MountSource, Service};
use bloodhound_config::config::Collect;
use bloodhound_kernel::exec::Program;
use bloodhound_net::NodeId;
use bloodhound_sim::scenario::ServiceSpec;
use bloodhound_vfs::{
    BaseEntry, BaseKind, Blocks, ContentId, ImageContent, ImageTree, MountSpec, Name, Timestamp,
};
use sha2::{Digest, Sha256};

use super::Planner;

/// Where tools write in a service. A file system in memory: a life's files are kept when the next one begins, and gone in it.
pub const DIRECTORY: &str = "/.bloodhound/coverage";
/// Where the collectors are.
const COLLECTORS: &str = "/.bloodhound/collect";
/// The files there. Names of directories are those before the slash.
const FILES: &[(&str, &str)] = &[
    ("node.js", include_str!("collect/node.js")),
    ("python/bloodhound_coverage.py", include_str!("collect/bloodhound_coverage.py")),
    ("python/sitecustomize.py", include_str!("collect/sitecustomize.py")),
];

impl Planner<'_> {
    /// Sets a service up for what is collected of it.
    pub(super) fn collect(&self, service: &Service, spec: &mut ServiceSpec) {
        let services = &self.project.config.coverage.services;
        let Some(own) = services.iter().find(|own| own.service.value == service.name) else { return };
        let tools = own.collect.iter().any(|collect| !matches!(collect, Collect::File(..)));
        let mut keep: Vec<Vec<u8>> = Vec::new();
        for collect in &own.collect {
            match collect {
                Collect::File(_, pattern) => keep.push(pattern.clone().into_bytes()),
                tool => {
                    variables(&mut spec.program, tool, self.included());
                    // A health check often is the service's own program, whose machine code counts whoever executes it.
                    if let Some(health) = spec.health.as_mut().filter(|_| *tool == Collect::Llvm) {
                        variables(&mut health.program, tool, self.included());
                    }
                }
            }
        }
        if tools {
            keep.push(format!("{DIRECTORY}/*").into_bytes());
            // Whoever the service runs as writes there, and many tools do not ask for more than that.
            let directory = MountSpec::Tmpfs { mode: 0o1777, size: None, owner: (0, 0) };
            spec.mounts.push((DIRECTORY.into(), directory));
            let tree = self.base.add_image(Arc::new(Collectors));
            spec.mounts.push((COLLECTORS.into(), MountSpec::Bind { tree, read_only: true }));
        }
        spec.runtime.keep = keep;
    }

    /// Directories in a service that `coverage.path_map` names: what is in them counts although a package manager has put it there.
    fn included(&self) -> String {
        let maps = self.project.config.coverage.path_map.iter();
        let from: Vec<&str> = maps.map(|(from, _)| from.trim_end_matches('/')).collect();
        from.join(":")
    }

    /// Where directories of this machine are in services of which something is collected.
    pub(super) fn bound_directories(&self) -> BTreeMap<NodeId, Vec<(String, String)>> {
        let services = &self.project.config.coverage.services;
        let collects = |service: &Service| {
            services.iter().any(|own| own.service.value == service.name && !own.collect.is_empty())
        };
        let instances = self.instances().into_iter().filter(|(service, _)| collects(service));
        instances.map(|(service, name)| (self.ids[&name], self.bound(service, &name))).collect()
    }

    /// Where directories and files of this machine are in a service: what its tools call them, and what they are.
    fn bound(&self, service: &Service, name: &str) -> Vec<(String, String)> {
        let placed = self.placed(service, name);
        let bound = placed.iter().filter_map(|placed| match &placed.mount.source {
            MountSource::Bind(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                Some((placed.mount.target.clone(), path.to_str()?.to_owned()))
            }
            _ => None,
        });
        let mut bound: Vec<(String, String)> = bound.collect();
        // The innermost one holds.
        bound.sort_by_key(|(target, _)| std::cmp::Reverse(target.len()));
        bound
    }
}

/// Tells a tool where to write.
fn variables(program: &mut Program, tool: &Collect, include: String) {
    match tool {
        Collect::Python => {
            set(program, "BLOODHOUND_COVERAGE", |_| DIRECTORY.into());
            if !include.is_empty() {
                set(program, "BLOODHOUND_COVERAGE_INCLUDE", |_| include);
            }
            // Python looks for sitecustomize there first.
            let own = format!("{COLLECTORS}/python");
            set(program, "PYTHONPATH", |before| joined(&own, before, ":"));
        }
        Collect::Node => {
            set(program, "NODE_V8_COVERAGE", |_| DIRECTORY.into());
            let own = format!("--require {COLLECTORS}/node.js");
            set(program, "NODE_OPTIONS", |before| joined(&own, before, " "));
        }
        Collect::Go => set(program, "GOCOVERDIR", |_| DIRECTORY.into()),
        // %m: a file for each binary, in which its processes add up; %c: the counters are the file's pages, so a process that is
        // killed has lost nothing (Clang's manual, "Source-based Code Coverage").
        Collect::Llvm => set(program, "LLVM_PROFILE_FILE", |_| format!("{DIRECTORY}/%m%c.profraw")),
        Collect::File(..) => {}
    }
}

fn joined(own: &str, before: Option<&str>, between: &str) -> String {
    before
        .filter(|before| !before.is_empty())
        .map_or_else(|| own.to_owned(), |b| format!("{own}{between}{b}"))
}

/// Sets a variable, which may have a value already.
fn set(program: &mut Program, name: &str, value: impl FnOnce(Option<&str>) -> String) {
    let start = format!("{name}=");
    let at = program.envp.iter().position(|line| line.starts_with(start.as_bytes()));
    let before = at.map(|at| String::from_utf8_lossy(&program.envp[at][start.len()..]).into_owned());
    let line = format!("{start}{}", value(before.as_deref())).into_bytes();
    match at {
        Some(at) => program.envp[at] = line,
        None => program.envp.push(line),
    }
}

/// The tree with the collectors.
#[derive(Clone, Debug)]
struct Collectors;

impl Collectors {
    fn entry(kind: BaseKind) -> BaseEntry {
        let mode = if kind == BaseKind::Directory { 0o755 } else { 0o644 };
        let time = Timestamp { secs: crate::EPOCH_NS as i64 / 1_000_000_000, nanos: 0 };
        BaseEntry::new(kind, mode, 0, 0, time)
    }
}

impl ImageTree for Collectors {
    fn name(&self) -> String {
        "the collectors of coverage".to_owned()
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for (path, text) in FILES {
            for part in [path, text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        hash.finalize().into()
    }

    fn lookup(&self, path: &[u8]) -> Option<BaseEntry> {
        let file = (0..).zip(FILES).find(|(_, (name, _))| name.as_bytes() == path);
        if let Some((number, (_, text))) = file {
            let kind = BaseKind::Regular { content: ContentId(number), size: text.len() as u64 };
            return Some(Collectors::entry(kind));
        }
        self.read_dir(path).map(|_| Collectors::entry(BaseKind::Directory))
    }

    fn read_dir(&self, path: &[u8]) -> Option<Vec<(Name, BaseEntry)>> {
        let mut names: BTreeMap<&str, BaseEntry> = BTreeMap::new();
        for (name, _) in FILES {
            let below = match path {
                b"" => Some(*name),
                path => {
                    let rest = name.as_bytes().strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
                    rest.then(|| &name[path.len() + 1..])
                }
            };
            let Some(below) = below else { continue };
            let entry = match below.split_once('/') {
                Some((directory, _)) => (directory, Collectors::entry(BaseKind::Directory)),
                None => (below, self.lookup(name.as_bytes())?),
            };
            names.insert(entry.0, entry.1);
        }
        let listing = names.into_iter().map(|(name, entry)| (Name::from(name.as_bytes()), entry));
        let listing: Vec<(Name, BaseEntry)> = listing.collect();
        (!listing.is_empty()).then_some(listing)
    }

    fn content(&self, number: ContentId) -> Option<ImageContent> {
        let (_, text) = FILES.get(usize::try_from(number.0).ok()?)?;
        let name = Sha256::digest(text).into();
        Some(ImageContent { source: Arc::new(Text(text)), size: text.len() as u64, name })
    }
}

/// The content of a collector.
#[derive(Debug)]
struct Text(&'static str);

impl Blocks for Text {
    fn name(&self) -> String {
        "a collector of coverage".to_owned()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let piece = start.and_then(|start| self.0.as_bytes().get(start..start.checked_add(out.len())?));
        out.copy_from_slice(piece.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(envp: &[&str]) -> Program {
        let envp = envp.iter().map(|line| line.as_bytes().to_vec()).collect();
        Program {
            path: b"/bin/service".to_vec(),
            argv: vec![b"service".to_vec()],
            envp,
            cwd: b"/".to_vec(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        }
    }

    #[test]
    fn what_a_service_sets_stays() {
        let mut program = program(&["NODE_OPTIONS=--max-old-space-size=64", "PYTHONPATH="]);
        variables(&mut program, &Collect::Node, String::new());
        variables(&mut program, &Collect::Python, "/usr/lib/own".to_owned());
        let lines: Vec<_> =
            program.envp.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        assert_eq!(
            lines,
            [
                "NODE_OPTIONS=--require /.bloodhound/collect/node.js --max-old-space-size=64",
                "PYTHONPATH=/.bloodhound/collect/python",
                "NODE_V8_COVERAGE=/.bloodhound/coverage",
                "BLOODHOUND_COVERAGE=/.bloodhound/coverage",
                "BLOODHOUND_COVERAGE_INCLUDE=/usr/lib/own",
            ]
        );
    }

    #[test]
    fn the_collectors_are_a_tree() {
        let tree = Collectors;
        let names = |path: &str| -> Vec<String> {
            let list = tree.read_dir(path.as_bytes()).unwrap_or_default();
            list.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
        };
        assert_eq!(names(""), ["node.js", "python"]);
        assert_eq!(names("python"), ["bloodhound_coverage.py", "sitecustomize.py"]);
        assert!(tree.read_dir(b"node.js").is_none() && tree.lookup(b"py").is_none());
        for (path, text) in FILES {
            let Some(BaseEntry { kind: BaseKind::Regular { content, size }, .. }) =
                tree.lookup(path.as_bytes())
            else {
                panic!("{path} is no file")
            };
            let content = tree.content(content).expect("a content");
            let mut bytes = vec![0; size as usize];
            content.source.read(0, &mut bytes).expect("the content");
            assert_eq!(bytes, text.as_bytes(), "{path}");
        }
        assert_eq!(tree.lookup(b"python").map(|entry| entry.kind), Some(BaseKind::Directory));
    }
}
