//! Properties: how each is decided ([`Judge`]), and the checks that are made for them inside the simulation.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use bloodhound_config::compose::Service;
use bloodhound_config::config::{self, Check, PropertyKind};
use bloodhound_kernel::exec::Program;
use bloodhound_net::NodeId;
use bloodhound_sim::checks::{Action, CheckKind, CheckSpec};
use bloodhound_sim::scenario::*;
use bloodhound_workloads::http as driver;
use bloodhound_workloads::model::Model;

use super::workload::host_header;
use super::{DEFAULT_PATH, HELPERS, Helper, Planner, Refusal};
use crate::host::{self, os_bytes};

/// Time for one attempt of a check, ns.
const PATIENCE: u64 = 5_000_000_000;

/// How a property is decided.
#[derive(Clone, Debug)]
pub enum Judge {
    /// By the history of these operations.
    Linearizable {
        /// Kinds of operations that belong to it: put, get, delete, cas.
        operations: Vec<String>,
        /// The model.
        model: Model,
    },
    /// By a check inside the simulation, by its index.
    Check(usize),
    /// By the health checks of these services, each of which is a check inside the simulation: their indices.
    Healthy(Vec<usize>),
    /// By crashes of these services.
    NoCrash(Vec<NodeId>),
}

impl Judge {
    /// Whether it is about health checks, and there are none.
    pub fn is_about_nothing(&self) -> bool {
        matches!(self, Judge::Healthy(checks) if checks.is_empty())
    }
}

/// A property for reports.
#[derive(Clone, Debug)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// safety, liveness or invariant.
    pub kind: &'static str,
    /// Line in bloodhound.yaml.
    pub line: u32,
    /// How it is decided.
    pub judge: Judge,
}

fn check_kind(kind: PropertyKind) -> CheckKind {
    match kind {
        PropertyKind::Safety => CheckKind::Safety,
        PropertyKind::Liveness => CheckKind::Liveness,
        PropertyKind::Invariant => CheckKind::Invariant,
    }
}

impl Planner<'_> {
    pub(super) fn properties(&mut self, refused: &mut Vec<Refusal>) -> Vec<Property> {
        let mut out = Vec::new();
        for p in &self.project.config.properties {
            match self.judge(p) {
                Ok(judge) => {
                    let (name, kind) = (p.name.clone(), p.kind.as_str());
                    out.push(Property { name, kind, line: p.at.line, judge });
                }
                Err(refusal) => {
                    let text = format!("property {}: {}", p.name, refusal.text);
                    refused.push(Refusal { text, ..refusal });
                }
            }
        }
        out
    }

    fn judge(&mut self, p: &config::Property) -> Result<Judge, Refusal> {
        let source = &self.project.config.source;
        Ok(match &p.check {
            Check::Linearizability { operations, model } => self.linearizable(operations, *model),
            Check::NoCrash { services } => Judge::NoCrash(self.nodes_of(services.as_deref())),
            // Which health checks there are is known when the services are planned: `healthy` adds them.
            Check::Healthy { .. } => Judge::Healthy(Vec::new()),
            Check::Http { endpoint, method, status, body_contains, interval_ns } => {
                let e = &endpoint.value;
                let address = self.target(e).map_err(|r| r.at(endpoint.place(source)))?;
                let target = driver::Target { host: host_header(e), address, prefix: String::new() };
                let request = driver::request::Request {
                    method: method.clone(),
                    ..driver::request::Request::get(&e.path)
                };
                let statuses = status.iter().filter_map(|s| match s {
                    config::Outcome::Status { first, last } => Some((*first, *last)),
                    _ => None,
                });
                let expect =
                    driver::Expect { statuses: statuses.collect(), body_contains: body_contains.clone() };
                self.check(p, *interval_ns, Action::Http { target, request, expect })
            }
            Check::Custom { script, args, service, interval_ns } => {
                let service = service.as_ref().map(|s| s.value.as_str());
                let action = self.script(&script.value, args, service);
                let action = action.map_err(|r| r.at(script.place(source)))?;
                self.check(p, *interval_ns, action)
            }
        })
    }

    fn linearizable(&self, operations: &[usize], model: config::Model) -> Judge {
        let all = self.project.config.workload.as_ref().map(|w| w.operations.as_slice()).unwrap_or_default();
        let operations =
            operations.iter().filter_map(|i| Some(all.get(*i)?.kind.as_str().to_string())).collect();
        let model = match model {
            config::Model::Register => Model::Register,
            config::Model::CasRegister => Model::CasRegister,
            config::Model::Kv => Model::Kv,
        };
        Judge::Linearizable { operations, model }
    }

    fn nodes_of(&self, services: Option<&[bloodhound_config::Located<String>]>) -> Vec<NodeId> {
        let named = |s: &Service| services.is_none_or(|list| list.iter().any(|l| l.value == s.name));
        self.instances().into_iter().filter(|(s, _)| named(s)).map(|(_, n)| self.ids[&n]).collect()
    }

    /// Adds the health checks of the services to the checks of the properties that are about them.
    pub(super) fn healthy(&self, properties: &mut [Property], scenario: &mut Scenario) {
        for (p, property) in self.project.config.properties.iter().zip(properties) {
            let Check::Healthy { services, interval_ns } = &p.check else { continue };
            let nodes = self.nodes_of(services.as_deref());
            let mut indices = Vec::new();
            for service in scenario.services.iter().filter(|service| nodes.contains(&service.node)) {
                let Some(health) = &service.health else { continue };
                indices.push(scenario.checks.len());
                scenario.checks.push(CheckSpec {
                    name: format!("{} ({})", p.name, service.name),
                    kind: check_kind(p.kind),
                    timeout: p.timeout_ns,
                    interval: *interval_ns,
                    patience: health.timeout.min(p.timeout_ns.max(1_000_000)),
                    action: Action::Script { node: service.node, program: health.program.clone() },
                });
            }
            property.judge = Judge::Healthy(indices);
        }
    }

    fn check(&mut self, p: &config::Property, interval: u64, action: Action) -> Judge {
        let kind = check_kind(p.kind);
        let patience = PATIENCE.min(p.timeout_ns.max(1_000_000));
        self.checks.push(CheckSpec {
            name: p.name.clone(),
            kind,
            timeout: p.timeout_ns,
            interval,
            patience,
            action,
        });
        Judge::Check(self.checks.len() - 1)
    }

    /// Where a script's directory lies in the simulation: below `/bloodhound` as below the directory of bloodhound.yaml, so that a
    /// finding can be replayed in a checkout that lies elsewhere; a directory outside of that one at its own path.
    fn place_of(&self, dir: &Path) -> PathBuf {
        let project = self.project.config.source.dir().canonicalize();
        match project.ok().and_then(|project| dir.strip_prefix(project).ok().map(Path::to_owned)) {
            Some(below) => Path::new("/bloodhound").join(below),
            None => dir.to_owned(),
        }
    }

    /// A script on a node of its own (or of a service), with its directory mounted read-only.
    fn script(&mut self, script: &Path, args: &[String], service: Option<&str>) -> Result<Action, Refusal> {
        let path = script.canonicalize().map_err(|e| Refusal::host(script.display(), &e))?;
        let dir = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let place = self.place_of(&dir);
        let path = place.join(path.file_name().unwrap_or_default());
        let argv: Vec<Vec<u8>> =
            std::iter::once(os_bytes(&path)).chain(args.iter().map(|a| a.clone().into_bytes())).collect();
        let envp = vec![
            format!("PATH={DEFAULT_PATH}").into_bytes(),
            b"HOME=/root".to_vec(),
            b"LANG=C.UTF-8".to_vec(),
        ];
        let program = Program {
            path: os_bytes(&path),
            argv,
            envp,
            cwd: os_bytes(&place),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        };
        if let Some(service) = service {
            let id = *self
                .ids
                .iter()
                .find(|(n, _)| *n == service || n.starts_with(&format!("{service}-")))
                .ok_or_else(|| format!("{service}: no such service"))?
                .1;
            self.script_mounts.entry(id).or_default().push((dir, place));
            return Ok(Action::Script { node: id, program });
        }
        let number = self.helpers.len() as u32;
        let node = NodeId(HELPERS + number);
        let root =
            host::host_root(self.base, &[]).map_err(|e| Refusal::host("the host's root directory", &e))?;
        let mounts = vec![(os_bytes(&place), self.bind(&dir, true)?)];
        self.helper_dirs.push(Helper { node, dir: (dir, place) });
        self.helpers.push(ServiceSpec {
            node,
            name: format!("check-{number}"),
            hostname: format!("check-{number}"),
            addresses: vec![(IpAddr::V4(Ipv4Addr::new(10, 252, 0, number as u8 + 1)), 16)],
            hosts: self.all_names(),
            program: program.clone(),
            root: Some(root),
            mounts,
            depends_on: Vec::new(),
            health: None,
            hooks: Default::default(),
            published: self.published(),
            restart: RestartPolicy::No,
            stdin: Input::Empty,
            faulty: false,
            sharing: Default::default(),
            runtime: Default::default(),
            resolver: Default::default(),
        });
        Ok(Action::Script { node, program })
    }
}
