//! Property checks that run inside the simulation: HTTP requests from the prober, scripts in a node.
//!
//! When a check runs depends on the property's kind: an *invariant* at every interval from the start of the workload
//! to the end; *liveness* from the heal on, again and again until it passes or its timeout is over; *safety* once, at the
//! end. Safety properties over the history or over crashes are judged by the runner.

use bloodhound_abi::SimTime;
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::ids::Pid;
use bloodhound_kernel::node::ConsoleChunk;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::NodeId;
use bloodhound_workloads::http::request::Request;
use bloodhound_workloads::http::{Answer, Expect, Probe, Target};

use crate::event::Event;
use crate::machine::Machine;
use crate::notice::{CheckResult, Notice, PhaseChange};
use crate::queue::Due;
use crate::scenario::ServiceSpec;
use crate::services::Version;
use crate::timeline::evidence;
use crate::world::Phase;

/// Of the output of a check's script no more than about this is kept, bytes.
const SCRIPT_OUTPUT: usize = 4096;

/// When a check has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// At the end.
    Safety,
    /// Some time after the heal.
    Liveness,
    /// Always.
    Invariant,
}

/// How it is asked.
#[derive(Clone, Debug)]
pub enum Action {
    /// A request from the prober.
    Http {
        /// Where.
        target: Target,
        /// What.
        request: Request,
        /// The right answer.
        expect: Expect,
    },
    /// A program in a node; exit code 0 is right.
    Script {
        /// The node.
        node: NodeId,
        /// The program.
        program: Program,
    },
}

/// A check of a property.
#[derive(Clone, Debug)]
pub struct CheckSpec {
    /// The property's name.
    pub name: String,
    /// When it has to hold.
    pub kind: CheckKind,
    /// Time for a liveness check to pass after the heal, ns.
    pub timeout: u64,
    /// Between attempts, ns.
    pub interval: u64,
    /// Time for one attempt, ns.
    pub patience: u64,
    /// How it is asked.
    pub action: Action,
}

impl CheckSpec {
    /// Whether a liveness check has had its time.
    fn out_of_time(&self, now: SimTime, healed_at: Option<SimTime>) -> bool {
        healed_at.is_some_and(|at| now.since(at) >= self.timeout)
    }
}

/// What became of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    #[default]
    Open,
    /// It held (for an invariant: so far).
    Passed(SimTime),
    /// It did not.
    Failed(SimTime, String),
    /// It cannot be asked, which says nothing about the services: its script does not start.
    Impossible(String),
}

/// A check's state.
#[derive(Clone, Debug, Default)]
pub struct CheckState {
    /// Its verdict.
    pub verdict: Verdict,
    /// Attempts that ended.
    pub asked: u64,
    /// Those of them that had an answer, right or wrong: a response, an exit code.
    pub answered: u64,
    /// Why the first of the others had none.
    pub unanswered: Option<String>,
    /// A request under way.
    probe: Option<Box<Probe>>,
    /// A script under way.
    script: Option<(NodeId, Pid)>,
    /// What the script has written, until there is more than [`SCRIPT_OUTPUT`].
    said: Vec<u8>,
    /// Why the last attempt failed.
    last: Option<String>,
}

/// What follows an attempt of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is asked again at this time.
    Again(SimTime),
    /// It has its verdict.
    Over(CheckResult),
}

impl CheckState {
    /// The one rule of what an answer means, in the simulation and outside of it. `healed_at` is when the faults were over.
    pub fn answered(
        &mut self,
        spec: &CheckSpec,
        answer: Answer,
        now: SimTime,
        healed_at: Option<SimTime>,
    ) -> Next {
        self.asked += 1;
        match &answer {
            Answer::Right | Answer::Wrong(_) => self.answered += 1,
            Answer::Missing(why) => {
                self.unanswered.get_or_insert_with(|| why.clone());
            }
        }
        let again = Next::Again(now.after(spec.interval));
        match (spec.kind, answer) {
            (CheckKind::Invariant, Answer::Right) => {
                self.verdict = Verdict::Passed(now);
                again
            }
            // No answer under faults says nothing about what must always hold; a wrong answer does.
            (CheckKind::Invariant, Answer::Missing(_)) => again,
            (CheckKind::Liveness, Answer::Wrong(why) | Answer::Missing(why))
                if !spec.out_of_time(now, healed_at) =>
            {
                self.last = Some(why);
                again
            }
            (_, Answer::Right) => {
                self.verdict = Verdict::Passed(now);
                Next::Over(CheckResult::Holds)
            }
            (_, Answer::Wrong(why) | Answer::Missing(why)) => Next::Over(self.violated(spec, now, why)),
        }
    }

    /// The run ends at its time limit: a liveness check that had its time and did not pass has failed.
    pub fn at_end(
        &mut self,
        spec: &CheckSpec,
        now: SimTime,
        healed_at: Option<SimTime>,
    ) -> Option<CheckResult> {
        let open = spec.kind == CheckKind::Liveness && self.verdict == Verdict::Open;
        if !open || !spec.out_of_time(now, healed_at) {
            return None;
        }
        let why = self.last.clone().unwrap_or_else(|| "no attempt ended".into());
        Some(self.violated(spec, now, why))
    }

    fn violated(&mut self, spec: &CheckSpec, now: SimTime, why: String) -> CheckResult {
        let within = (spec.kind == CheckKind::Liveness).then_some(spec.timeout);
        let result = CheckResult::Violated { within, why };
        self.verdict = Verdict::Failed(now, evidence(&result));
        result
    }

    /// Whether nothing can change its verdict any more.
    pub fn is_settled(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(..) | Verdict::Impossible(_))
    }

    fn busy(&self) -> bool {
        self.probe.is_some() || self.script.is_some()
    }
}

impl Machine {
    pub(crate) fn probe_deadline(&self) -> Option<SimTime> {
        self.world.checks.iter().filter_map(|c| Some(c.probe.as_ref()?.next_wakeup())).min()
    }

    /// Invariants begin with the workload.
    pub(crate) fn begin_checks(&mut self) {
        self.schedule_checks(CheckKind::Invariant);
    }

    /// Liveness begins with the heal.
    pub(crate) fn recovery_begins(&mut self) {
        self.schedule_checks(CheckKind::Liveness);
        self.world.healed_at = Some(self.world.now);
        self.conclude_run();
    }

    fn schedule_checks(&mut self, kind: CheckKind) {
        let now = self.world.now;
        for (index, check) in self.scenario.checks.iter().enumerate().filter(|(_, c)| c.kind == kind) {
            let first = if kind == CheckKind::Invariant { check.interval } else { 0 };
            self.world.queue.push(now.after(first), Due::Check(index));
        }
    }

    /// What a check runs in a service: its health check is that of the version which it is.
    fn of_version(&self, node: NodeId, program: &Program) -> Program {
        let health = |spec: &ServiceSpec| spec.health.as_ref().map(|health| health.program.clone());
        let first = self.scenario.definition(node, Version::First).and_then(health);
        let now = if first.as_ref() == Some(program) { self.spec(node) } else { None };
        now.and_then(|spec| health(&spec)).unwrap_or_else(|| program.clone())
    }

    /// An attempt of a check is due.
    pub(crate) fn check_due(&mut self, index: usize) {
        let scenario = self.scenario.clone();
        let spec = &scenario.checks[index];
        let state = &self.world.checks[index];
        if state.busy() || state.is_settled() || self.world.phase == Phase::Done {
            return;
        }
        let now = self.world.now;
        let deadline = now.after(spec.patience);
        match &spec.action {
            Action::Http { target, request, expect } => {
                let Some(prober) = &mut self.world.clients.prober else { return };
                let probe = Probe::new(&mut prober.stack, target, request, expect.clone(), deadline);
                self.world.checks[index].probe = Some(Box::new(probe));
                self.run_prober(now);
            }
            Action::Script { node, .. } if self.world.faults.is_dark(self.world.room(*node).machine) => {
                self.attempt_ended(index, Answer::Missing("its machine has no power".into()));
            }
            Action::Script { node, program } => match self.spawn(*node, &self.of_version(*node, program)) {
                Ok(pid) => {
                    let machine = self.world.room(*node).machine;
                    self.world.node_mut(machine).process_mut(pid).is_script = true;
                    let check = &mut self.world.checks[index];
                    check.script = Some((*node, pid));
                    check.said.clear();
                    let attempt = check.asked;
                    self.world.queue.push(deadline, Due::CheckTimeout(index, attempt));
                }
                Err(e) => {
                    let result = CheckResult::Impossible { script: program.path.clone(), errno: e };
                    self.world.checks[index].verdict = Verdict::Impossible(evidence(&result));
                    self.note(None, Notice::Check { index, result });
                    self.conclude_run();
                }
            },
        }
    }

    /// Requests under way that have an answer now.
    pub(crate) fn poll_probes(&mut self, now: SimTime) {
        for index in 0..self.world.checks.len() {
            let Some(prober) = &mut self.world.clients.prober else { return };
            let Some(probe) = &mut self.world.checks[index].probe else { continue };
            if let Some(result) = probe.poll(&mut prober.stack, now) {
                self.world.checks[index].probe = None;
                self.attempt_ended(index, result);
            }
        }
    }

    /// A process wrote: what a check's script says is part of its answer.
    pub(crate) fn script_wrote(&mut self, chunk: &ConsoleChunk) {
        let writer = Some((chunk.container, chunk.pid));
        if let Some(check) = self.world.checks.iter_mut().find(|c| c.script == writer)
            && check.said.len() <= SCRIPT_OUTPUT
        {
            check.said.extend_from_slice(&chunk.bytes[..chunk.bytes.len().min(SCRIPT_OUTPUT)]);
        }
    }

    /// A process ended; true if it was a check's script.
    pub(crate) fn script_ended(&mut self, node: NodeId, pid: Pid, status: ExitStatus) -> bool {
        let Some(index) = self.world.checks.iter().position(|c| c.script == Some((node, pid))) else {
            return false;
        };
        self.world.checks[index].script = None;
        let output = std::mem::take(&mut self.world.checks[index].said);
        let text = String::from_utf8_lossy(&output);
        let shown: String = text.trim().chars().take(400).collect();
        let why =
            || format!("the script ended with {status}{}{shown}", if shown.is_empty() { "" } else { ": " });
        let result = match status {
            ExitStatus::Code(0) => Answer::Right,
            ExitStatus::Code(_) => Answer::Wrong(why()),
            ExitStatus::Signal { .. } => Answer::Missing(why()),
        };
        self.attempt_ended(index, result);
        true
    }

    /// The script of an attempt took too long. Its number does not name it: a container that was started anew gives them out again.
    pub(crate) fn check_timeout(&mut self, index: usize, attempt: u64) {
        let check = &self.world.checks[index];
        let Some((node, running)) = check.script.filter(|_| check.asked == attempt) else { return };
        let machine = self.world.room(node).machine;
        self.world.catch_up(machine);
        let info = bloodhound_kernel::signal::user_info(9, 0, Pid::NONE, 0);
        self.world.node_mut(machine).send_process(running, info);
    }

    /// An attempt to ask came to an answer, or to none.
    fn attempt_ended(&mut self, index: usize, answer: Answer) {
        let scenario = self.scenario.clone();
        let now = self.world.now;
        let healed_at = self.world.healed_at;
        match self.world.checks[index].answered(&scenario.checks[index], answer, now, healed_at) {
            Next::Again(at) => self.world.queue.push(at, Due::Check(index)),
            Next::Over(result) => self.note(None, Notice::Check { index, result }),
        }
        self.conclude_run();
    }

    /// Ends the run when nothing is left to wait for: the workload is over and every check has its verdict.
    pub(crate) fn conclude_run(&mut self) {
        if self.world.phase != Phase::Recovery {
            return;
        }
        if self.world.clients.driver.as_ref().is_some_and(|d| !d.is_finished()) {
            return;
        }
        let scenario = self.scenario.clone();
        let open = |kind| {
            scenario
                .checks
                .iter()
                .zip(&self.world.checks)
                .any(|(s, c)| s.kind == kind && c.verdict == Verdict::Open)
        };
        if open(CheckKind::Liveness) {
            return;
        }
        if open(CheckKind::Safety) {
            let busy = scenario
                .checks
                .iter()
                .zip(&self.world.checks)
                .any(|(s, c)| s.kind == CheckKind::Safety && c.busy());
            if !busy && !self.world.final_checks {
                self.world.final_checks = true;
                self.schedule_checks(CheckKind::Safety);
            }
            return;
        }
        self.done();
    }

    fn done(&mut self) {
        self.find_endless();
        self.world.phase = Phase::Done;
        self.tell(None, &Event::Notice(&Notice::Phase(PhaseChange::Done)));
    }

    /// The run ends at its time limit.
    pub(crate) fn end_of_time(&mut self) {
        let scenario = self.scenario.clone();
        let (now, healed_at) = (self.world.now, self.world.healed_at);
        for (index, spec) in scenario.checks.iter().enumerate() {
            if let Some(result) = self.world.checks[index].at_end(spec, now, healed_at) {
                self.tell(None, &Event::Notice(&Notice::Check { index, result }));
            }
        }
        self.done();
    }
}
