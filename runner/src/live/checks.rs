//! The checks of properties in a live run: when they are asked, and by what. What an answer means is decided where it is for the
//! simulation (`bloodhound_sim::checks`).

use std::time::Duration;

use bloodhound_abi::SimTime;
use bloodhound_images::{EngineError, ExecCommand, Executed};
use bloodhound_net::NodeId;
use bloodhound_sim::checks::{Action, CheckKind, CheckSpec, Next, Verdict};
use bloodhound_sim::notice::Notice;
use bloodhound_workloads::http::request::Request;
use bloodhound_workloads::http::{Answer, Expect, Probe, Target};

use super::net::HostNet;
use super::run::{Due, Event, Phase, Run};
use super::supervise::command;
use super::workload::Clock;

/// Between two looks at a request. The state machine of a check asks its sockets and is asked again, in virtual time as here: it names no
/// descriptor that could be waited for.
const LOOK: Duration = Duration::from_millis(1);
/// Characters of a script's output that are told.
const SHOWN: usize = 400;

impl Run<'_> {
    pub(super) fn schedule_checks(&mut self, kind: CheckKind) {
        let due = |(index, check): (usize, &CheckSpec)| {
            let first = if kind == CheckKind::Invariant { check.interval } else { 0 };
            (check.kind == kind).then_some((first, index))
        };
        let due: Vec<(u64, usize)> = self.scenario.checks.iter().enumerate().filter_map(due).collect();
        for (first, index) in due {
            self.due(first, Due::Check(index));
        }
    }

    /// An attempt of a check is due.
    pub(super) fn ask(&mut self, index: usize) {
        let spec = self.scenario.checks[index].clone();
        if self.asking.contains(&index) || self.checks[index].is_settled() || self.over {
            return;
        }
        self.asking.insert(index);
        let patience = Duration::from_nanos(spec.patience);
        match spec.action {
            Action::Http { mut target, request, expect } => {
                target.address = self.stack.reach(self.session, target.address);
                let (events, clock) = (self.sender.clone(), self.clock);
                let probe = move || {
                    let answer = probe(&target, &request, expect, clock, patience);
                    // The run may be over.
                    let _ignored = events.send(Event::Answer { index, answer });
                };
                self.spawn("check", probe);
            }
            Action::Script { node, program } => {
                // The program of a health check has the rights of its service.
                let health =
                    self.scenario.services.iter().find(|s| s.node == node).and_then(|s| s.health.as_ref());
                let own = health.is_some_and(|health| health.program == program);
                let user = (!own).then(|| format!("{}:{}", program.uid, program.gid));
                self.exec(node, command(&program, user), patience, move |result| Event::Answer {
                    index,
                    answer: meaning(result),
                });
            }
        }
    }

    /// A check has an answer, or none.
    pub(super) fn answered(&mut self, index: usize, answer: Answer) {
        self.asking.remove(&index);
        if self.over {
            return;
        }
        let now = self.clock.now();
        match self.checks[index].answered(&self.scenario.checks[index], answer, now, self.healed_at) {
            Next::Again(at) => self.due(at.since(now), Due::Check(index)),
            Next::Over(result) => self.note(None, Notice::Check { index, result }),
        }
        self.conclude();
    }

    /// The faults are over, and everything is healed: liveness checks begin.
    pub(super) fn recovery_begins(&mut self) {
        self.healed_at = Some(self.clock.now());
        self.schedule_checks(CheckKind::Liveness);
        self.conclude();
    }

    /// Ends the run when nothing is left to wait for: the workload is over and every check has its verdict.
    pub(super) fn conclude(&mut self) {
        if self.phase != Phase::Recovery || self.healed_at.is_none() || !self.workload_over {
            return;
        }
        let open = |kind| {
            let mut checks = self.scenario.checks.iter().zip(&self.checks);
            checks.any(|(spec, check)| spec.kind == kind && check.verdict == Verdict::Open)
        };
        if open(CheckKind::Liveness) {
            return;
        }
        if !open(CheckKind::Safety) {
            self.over = true;
        } else if !self.final_checks {
            self.final_checks = true;
            self.schedule_checks(CheckKind::Safety);
        }
    }

    /// The run ends at its time limit.
    pub(super) fn end_of_time(&mut self) {
        let (now, healed_at) = (self.clock.now(), self.healed_at);
        for index in 0..self.checks.len() {
            if let Some(result) = self.checks[index].at_end(&self.scenario.checks[index], now, healed_at) {
                self.note(None, Notice::Check { index, result });
            }
        }
        self.over = true;
    }

    /// Runs a program in a container; `told` says what its end means.
    pub(super) fn exec(
        &mut self,
        node: NodeId,
        command: ExecCommand,
        patience: Duration,
        told: impl FnOnce(Result<Executed, EngineError>) -> Event + Send + 'static,
    ) {
        let container = self.stack.containers.get(&node).cloned().unwrap_or_default();
        let (control, events) = (self.stack.control.clone(), self.sender.clone());
        let run = move || {
            // The run may be over.
            let _ignored = events.send(told(control.exec(&container, &command, patience)));
        };
        self.spawn("exec", run);
    }
}

/// A request with the checks' own state machine, on a connection of its own.
fn probe(target: &Target, request: &Request, expect: Expect, clock: Clock, patience: Duration) -> Answer {
    let mut net = HostNet::default();
    let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let deadline: SimTime = clock.now().after(patience);
    let mut probe = Probe::new(&mut net, target, request, expect, deadline);
    loop {
        if let Some(answer) = probe.poll(&mut net, clock.now()) {
            return answer;
        }
        std::thread::sleep(LOOK);
    }
}

/// What the end of a script means.
fn meaning(result: Result<Executed, EngineError>) -> Answer {
    match result {
        Err(error) => Answer::Missing(error.text),
        Ok(Executed { code: 0, .. }) => Answer::Right,
        Ok(Executed { code, output }) => {
            let text = String::from_utf8_lossy(&output);
            let shown: String = text.trim().chars().take(SHOWN).collect();
            let text = format!(
                "the script ended with exit code {code}{}{shown}",
                if shown.is_empty() { "" } else { ": " }
            );
            // Killed by a signal, which says nothing about the services.
            if (129..=192).contains(&code) { Answer::Missing(text) } else { Answer::Wrong(text) }
        }
    }
}
