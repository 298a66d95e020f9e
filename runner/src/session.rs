//! A planned run on this host: boot once, snapshot, then seeds from the snapshot; and the verdict over a run.
//!
//! Key types: [`Session`] (plan and host files, shared by all workers), [`Worker`] (a platform on one CPU with a
//! machine), [`Outcome`] (what one seed gave).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bloodhound_abi::SimTime;
use bloodhound_config::Project;
use bloodhound_decisions::{DecisionLog, Decisions};
use bloodhound_sim::checks::Verdict;
use bloodhound_sim::machine::{Listen, Listener};
use bloodhound_sim::scenario::{FaultSpec, Scenario};
use bloodhound_sim::world::{Finding, FindingKind, LogEntry, Phase};
use bloodhound_sim::{Digest, Ended, Machine, MachineError, World};
use bloodhound_vfs::host::HostBase;
use bloodhound_workloads::history::History;
use bloodhound_workloads::linearizability::{self, Budget};

use crate::plan::{Judge, Plan, Property};
use crate::platform::Chosen;
use crate::{exit, host, validate};

/// Seed of the boot: the same for every run, so that all seeds start from one snapshot.
pub const BOOT_SEED: u64 = 0;

/// Errors that end a command, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// For the user.
    pub text: String,
}

impl Failure {
    /// An environment error.
    pub fn environment(text: impl Into<String>) -> Failure {
        Failure { code: exit::ENVIRONMENT, text: text.into() }
    }

    /// A usage or configuration error.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { code: exit::USAGE, text: text.into() }
    }
}

/// Plan and host files of a run.
pub struct Session {
    /// The plan.
    pub plan: Plan,
    /// Its scenario, shared.
    pub scenario: Arc<Scenario>,
    /// Host files; clones share one cache.
    pub base: HostBase,
    /// Digest of everything in the plan.
    pub plan_digest: String,
}

impl Session {
    /// Loads and plans.
    ///
    /// # Errors
    /// Configuration errors (already printed with their places) and what the host lacks.
    pub fn load(config: &Path, compose: Option<&Path>) -> Result<Session, Failure> {
        let (project, diagnostics) = Project::load(config, compose, &validate::environment());
        validate::show(&diagnostics, validate::Format::Human);
        let Some(project) = project else {
            return Err(Failure::usage(format!("{} cannot be used; see the errors above", config.display())));
        };
        let base = HostBase::new();
        let plan = Plan::new(&project, &base).map_err(Failure::environment)?;
        let mut digest = Digest::default();
        digest.bytes(format!("{:?}", plan.scenario).as_bytes());
        digest.bytes(format!("{:?}", plan.properties).as_bytes());
        let scenario = Arc::new(plan.scenario.clone());
        Ok(Session { plan, scenario, base, plan_digest: digest.to_string() })
    }
}

/// Why a run violated a property, or could not go on.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The property, or the kind of the machine's finding.
    pub property: String,
    /// What it is: safety, liveness, invariant, crash, unsupported, hang, deadlock.
    pub kind: String,
    /// When.
    pub at: SimTime,
    /// Why, with the minimal history if there is one.
    pub text: String,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What it ran on.
    pub platform: Chosen,
    /// Digest of the whole run, boot included.
    pub digest: String,
    /// Steps, boot included.
    pub steps: u64,
    /// Virtual time at its end.
    pub virtual_time: SimTime,
    /// The faults it drew.
    pub profile: FaultSpec,
    /// What happened.
    pub log: Vec<LogEntry>,
    /// What went wrong.
    pub violations: Vec<Violation>,
    /// Properties without a verdict, and why.
    pub undecided: BTreeMap<String, String>,
    /// The client's history.
    pub history: History,
    /// What was decided.
    pub decisions: DecisionLog,
    /// Output of the services: (service, stream line).
    pub console: Vec<(SimTime, String, String)>,
    /// Why the loop ended before the run was over: unsupported, interrupted.
    pub stopped: Option<Stopped>,
}

/// Why a run is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Something unsupported was needed.
    Unsupported(String),
    /// The user interrupted.
    Interrupted,
}

/// A machine on one CPU.
pub struct Worker {
    machine: Machine,
    session: Arc<Session>,
    platform: Chosen,
}

impl Worker {
    /// A worker with a fresh, unbooted world.
    ///
    /// # Errors
    /// What the platform or the setup says.
    pub fn new(
        session: Arc<Session>,
        chosen: &Chosen,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Worker, Failure> {
        let (platform, patch) = chosen.open()?;
        let mut base = session.base.clone();
        let decisions = Decisions::seeded(BOOT_SEED);
        let world = host::world(&session.scenario, &mut base, decisions, Some(patch))
            .map_err(Failure::environment)?;
        let mut machine = Machine::new(world, session.scenario.clone(), platform, Box::new(base));
        machine.set_interrupt(interrupt);
        Ok(Worker { machine, session, platform: *chosen })
    }

    /// Calls `listener` at every step.
    pub fn listen(&mut self, listen: Listen, listener: Listener) {
        self.machine.set_listener(listen, listener);
    }

    /// Boots the stack and returns the snapshot.
    ///
    /// # Errors
    /// Services that do not become ready; unsupported calls.
    pub fn boot(&mut self) -> Result<World, Failure> {
        let ended = self.machine.run(|w| w.ready_at.is_some()).map_err(host_failure)?;
        match ended {
            Ended::Condition => self.machine.snapshot().map_err(host_failure),
            Ended::Interrupted => Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() }),
            Ended::Fatal(f) => Err(self.boot_failure(&f)),
            Ended::Quiet => {
                let text = format!(
                    "the services wait for each other and never become ready\n{}",
                    crate::report::waiting(&self.machine.world)
                );
                Err(Failure::environment(text))
            }
        }
    }

    fn boot_failure(&self, finding: &Finding) -> Failure {
        let code =
            if finding.kind == FindingKind::Unsupported { exit::UNSUPPORTED } else { exit::ENVIRONMENT };
        let mut text = format!("the stack did not start: {}", finding.text);
        for e in &self.machine.world.log {
            text.push_str(&format!("\n  {}", crate::report::log_line(e)));
        }
        let console = self.console();
        for (at, who, line) in console.iter().rev().take(20).rev() {
            text.push_str(&format!("\n  {at} {who} | {line}"));
        }
        Failure { code, text }
    }

    /// Goes back to a snapshot of any worker.
    pub fn restore(&mut self, snapshot: &World) {
        self.machine.restore(snapshot.clone());
    }

    /// Runs one seed from a booted world.
    ///
    /// # Errors
    /// Host errors.
    pub fn run(&mut self, seed: u64, decisions: Decisions) -> Result<Outcome, MachineError> {
        crate::bug::doing(format!("seed {seed}"));
        self.machine.world.decisions = decisions;
        let profile = self.machine.begin_faults();
        self.machine.begin_workload();
        let ended = self.machine.run(|w| w.phase == Phase::Done)?;
        Ok(self.outcome(seed, profile, ended))
    }

    fn outcome(&self, seed: u64, profile: FaultSpec, ended: Ended) -> Outcome {
        let world = &self.machine.world;
        let history = world.clients.driver.as_ref().map(|d| d.history().clone()).unwrap_or_default();
        let mut outcome = Outcome {
            seed,
            platform: self.platform,
            digest: world.digest.to_string(),
            steps: world.steps,
            virtual_time: world.now,
            profile,
            log: world.log.clone(),
            violations: Vec::new(),
            undecided: BTreeMap::new(),
            history,
            decisions: world.decisions.log(),
            console: self.console(),
            stopped: None,
        };
        match ended {
            Ended::Interrupted => outcome.stopped = Some(Stopped::Interrupted),
            Ended::Fatal(f) if f.kind == FindingKind::Unsupported => {
                outcome.stopped = Some(Stopped::Unsupported(f.text))
            }
            Ended::Fatal(f) => outcome.violations.push(machine_violation(&f)),
            Ended::Quiet => outcome.violations.push(Violation {
                property: "deadlock".into(),
                kind: "deadlock".into(),
                at: world.now,
                text: format!(
                    "every task waits for something that cannot happen\n{}",
                    crate::report::waiting(world)
                ),
            }),
            Ended::Condition => {}
        }
        if outcome.stopped.is_none() {
            for property in &self.session.plan.properties {
                self.judge(property, &mut outcome);
            }
        }
        outcome
    }

    fn judge(&self, property: &Property, outcome: &mut Outcome) {
        let world = &self.machine.world;
        let mut violated = |at, text| {
            outcome.violations.push(Violation {
                property: property.name.clone(),
                kind: property.kind.into(),
                at,
                text,
            });
        };
        match &property.judge {
            Judge::Linearizable { operations, model } => {
                let wanted =
                    outcome.history.filtered(|o| operations.iter().any(|n| n == operation_name(&o.call)));
                match linearizability::check(&wanted, *model, Budget::default()) {
                    Ok(linearizability::Verdict::Violation(v)) => {
                        let at = v.culprit.complete.unwrap_or(v.culprit.invoke);
                        violated(at, v.to_string());
                    }
                    Ok(linearizability::Verdict::Linearizable { .. }) => {}
                    Ok(other) => {
                        outcome.undecided.insert(property.name.clone(), other.to_string());
                    }
                    Err(e) => {
                        outcome.undecided.insert(property.name.clone(), e.to_string());
                    }
                }
            }
            Judge::Check(index) => match &world.checks[*index].verdict {
                Verdict::Failed(at, why) => violated(*at, why.clone()),
                Verdict::Passed(_) => {}
                Verdict::Open => {
                    outcome
                        .undecided
                        .insert(property.name.clone(), "the run ended before the check had an answer".into());
                }
            },
            Judge::NoCrash(nodes) => {
                let crash =
                    |f: &&Finding| f.kind == FindingKind::Crash && f.node.is_some_and(|n| nodes.contains(&n));
                if let Some(f) = world.findings.iter().find(crash) {
                    violated(f.at, f.text.clone());
                }
            }
        }
    }

    fn console(&self) -> Vec<(SimTime, String, String)> {
        let scenario = &self.session.scenario;
        let name = |id| {
            let spec = scenario.services.iter().chain(&scenario.helpers).find(|s| s.node == id);
            spec.map_or_else(|| format!("{id:?}"), |s| s.name.clone())
        };
        let mut out = Vec::new();
        for (id, chunk) in &self.machine.world.console {
            for line in String::from_utf8_lossy(&chunk.bytes).lines() {
                out.push((chunk.at, name(*id), line.to_string()));
            }
        }
        out
    }
}

fn operation_name(call: &bloodhound_workloads::history::Call) -> &str {
    use bloodhound_workloads::history::Call;
    match call {
        Call::Read => "get",
        Call::Write(_) => "put",
        Call::Delete => "delete",
        Call::Cas { .. } => "cas",
        Call::Other(name) => name,
    }
}

fn machine_violation(f: &Finding) -> Violation {
    let kind = match f.kind {
        FindingKind::Crash => "crash",
        FindingKind::Deadlock => "deadlock",
        FindingKind::Hang => "hang",
        FindingKind::Unsupported => "unsupported",
        FindingKind::NotReady => "not-ready",
    };
    Violation { property: kind.into(), kind: kind.into(), at: f.at, text: f.text.clone() }
}

/// A host error as a failure of the command.
pub fn host_failure(e: MachineError) -> Failure {
    Failure::environment(e.to_string())
}
