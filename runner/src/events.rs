//! `--events FILE`: the events of a run as JSON lines (docs/events.md). A listener like any other.
//!
//! Key types: [`EventFile`] (the file, made before the run and finished after it). A regular file is written under another name and
//! renamed when it is whole; what is no regular file (a pipe, /dev/stdout) is written as the run goes. Either way the last line says
//! that nothing is missing.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bloodhound_abi::args::ArgKind;
use bloodhound_abi::call::Call;
use bloodhound_abi::digest;
use bloodhound_kernel::file::Console;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_kernel::watch::{Disposition, Told};
use bloodhound_net::{Body, DropReason, NodeId, Packet};
use bloodhound_sim::event::{Event, Listener, Moment};
use bloodhound_sim::faults::{FaultId, NameFault};
use bloodhound_sim::notice::{CheckResult, Notice, PhaseChange, Target};
use bloodhound_sim::scenario::Scenario;
use bloodhound_sim::services::{ServiceChange, Version};
use bloodhound_sim::{World, timeline};
use serde_json::{Map, Value as Json, json};

use crate::output::temporary;
use crate::redact;
use crate::session::Failure;

/// Name and version of the format: the first line has it.
pub const SCHEMA: &str = "bloodhound.events/v1";

/// A file of events.
pub struct EventFile {
    path: PathBuf,
    /// Where it is written until it is whole; `None` for what is no regular file.
    unfinished: Option<PathBuf>,
    out: Arc<Mutex<Out>>,
}

/// What the listener writes to.
struct Out {
    writer: BufWriter<File>,
    events: u64,
    /// The first error: nothing is written after it.
    error: Option<io::Error>,
}

impl Out {
    fn line(&mut self, line: &Json) {
        if self.error.is_some() {
            return;
        }
        let written = match redact::active() {
            true => self.writer.write_all(redact::json(&line.to_string()).as_bytes()),
            false => serde_json::to_writer(&mut self.writer, line).map_err(io::Error::from),
        };
        self.error = written.and_then(|()| self.writer.write_all(b"\n")).err();
    }
}

impl EventFile {
    /// Makes the file and writes its first line.
    ///
    /// # Errors
    /// The host's, with the path.
    pub fn create(path: &Path, scenario: &Scenario, seed: u64) -> Result<EventFile, Failure> {
        let cannot =
            |e: io::Error| Failure::environment(format!("cannot write events to {}: {e}", path.display()));
        let special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
        let (file, unfinished) = if special {
            (File::options().write(true).open(path).map_err(cannot)?, None)
        } else {
            let directory = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
            let beside = temporary(directory, path).map_err(cannot)?;
            (File::options().write(true).create_new(true).open(&beside).map_err(cannot)?, Some(beside))
        };
        let nodes = scenario.services.iter().chain(&scenario.helpers);
        let nodes: Map<String, Json> = nodes.map(|s| (s.node.0.to_string(), json!(s.name))).collect();
        let mut out = Out { writer: BufWriter::with_capacity(1 << 20, file), events: 0, error: None };
        out.line(&json!({
            "schema": SCHEMA,
            "bloodhound": env!("CARGO_PKG_VERSION"),
            "digest_version": digest::VERSION,
            "seed": seed,
            "nodes": nodes,
        }));
        Ok(EventFile { path: path.to_path_buf(), unfinished, out: Arc::new(Mutex::new(out)) })
    }

    /// Writes every event from now on.
    pub fn listener(&self, scenario: Arc<Scenario>) -> Box<dyn Listener> {
        let out = self.out.clone();
        Box::new(move |moment: &Moment, event: &Event<'_>| {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            if out.error.is_none() {
                let line = line(moment, event, &scenario);
                out.events += 1;
                out.line(&line);
            }
        })
    }

    /// Writes the last line, and gives the file its name.
    ///
    /// # Errors
    /// The first thing that the host refused (a full disk); there is no file then, or one without its last line if it is no regular
    /// file.
    pub fn finish(mut self, world: &World) -> Result<(), Failure> {
        let unfinished = self.unfinished.take();
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let last = json!({
            "end": true,
            "events": out.events,
            "steps": world.steps,
            "virtual_time_ns": world.now.0,
            "digest": world.digest.to_string(),
        });
        out.line(&last);
        let written = match out.error.take() {
            Some(error) => Err(error),
            None => out.writer.flush(),
        };
        let written = written.and_then(|()| match &unfinished {
            Some(beside) => {
                out.writer.get_ref().sync_all().and_then(|()| std::fs::rename(beside, &self.path))
            }
            None => Ok(()),
        });
        written.map_err(|error| {
            if let Some(beside) = &unfinished {
                // Nothing can be done if this fails as well; the first error is the one to tell.
                let _ignored = std::fs::remove_file(beside);
            }
            Failure::environment(format!(
                "writing events to {}: {error}\nhelp: a run has some hundred bytes for each of its events",
                self.path.display()
            ))
        })
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.unfinished {
            // The run failed, which is told.
            let _ignored = std::fs::remove_file(beside);
        }
    }
}

/// The line of an event.
fn line(moment: &Moment, event: &Event<'_>, scenario: &Scenario) -> Json {
    let mut line = Map::new();
    line.insert("at".into(), json!(moment.at.0));
    line.insert("step".into(), json!(moment.step));
    if let Some(node) = moment.node {
        line.insert("node".into(), json!(timeline::name(scenario, node)));
    }
    line.insert("event".into(), json!(event.kind()));
    if let Json::Object(fields) = fields(event, moment.node, scenario) {
        line.extend(fields);
    }
    Json::Object(line)
}

/// What an event has besides its moment and its kind.
fn fields(event: &Event<'_>, node: Option<NodeId>, scenario: &Scenario) -> Json {
    match event {
        Event::Trap { pid, tid, call, .. } => {
            json!({"pid": pid.number(), "tid": tid.number(), "call": call.name(), "nr": call.nr(), "args": arguments(call)})
        }
        Event::Call { pid, tid, call, result } => {
            json!({"pid": pid.number(), "tid": tid.number(), "call": call.name(), "result": *result as i64})
        }
        Event::Exception { pid, tid, signo } => {
            json!({"pid": pid.number(), "tid": tid.number(), "signal": bloodhound_kernel::signal::name(*signo)})
        }
        Event::Preempted { pid, tid } => json!({"pid": pid.number(), "tid": tid.number()}),
        Event::Task { pid, tid, told } => {
            let mut fields = task(told);
            fields["pid"] = json!(pid.number());
            fields["tid"] = json!(tid.number());
            fields
        }
        Event::Process(end) => {
            let mut fields = status(end.status);
            fields["pid"] = json!(end.pid.number());
            fields["comm"] = text(&end.comm);
            fields
        }
        Event::Sent { number, packet: p } => packet(*number, p),
        Event::Delivered { number, .. } => json!({"packet": number}),
        Event::Dropped { number, reason } => json!({"packet": number, "reason": drop_reason(reason)}),
        Event::Routed { number, to, arrives, mishaps, copy } => {
            let mut fields = json!({
                "packet": number, "to": timeline::name(scenario, *to), "arrives": arrives.0,
                "delay": mishaps.delay, "reordered": mishaps.reordered, "copy_arrives": copy.map(|at| at.0),
            });
            if mishaps.changed > 0 {
                fields["changed_bit"] = json!(mishaps.changed - 1);
            }
            if mishaps.damaged {
                fields["bad_checksum"] = json!(true);
            }
            fields
        }
        Event::Connection(change) => json!({
            "socket": change.id.0, "local": change.local.to_string(),
            "peer": change.peer.map(|peer| peer.to_string()), "state": change.state.name(),
        }),
        Event::Notice(notice) => {
            let mut fields = of_notice(notice, scenario);
            fields["text"] = json!(timeline::words(node, notice, scenario));
            fields
        }
        Event::Service(change) => service(change),
        Event::Begun(id, operation) => json!({
            "operation": id, "process": operation.process, "key": operation.key,
            "call": format!("{:?}", operation.call),
        }),
        Event::Completed(id, operation) => json!({
            "operation": id, "process": operation.process,
            "outcome": format!("{:?}", operation.outcome), "error": operation.error,
        }),
        Event::Output(chunk) => {
            let stream = if chunk.stream == Console::Err { "stderr" } else { "stdout" };
            json!({"pid": chunk.pid.number(), "stream": stream, "bytes": chunk.bytes.len(), "text": text(&chunk.bytes)})
        }
        Event::Choice(made) => {
            json!({"site": made.choice.to_string(), "bound": made.bound, "value": made.value})
        }
        Event::Finding(finding) => json!({"kind": finding.kind.name(), "text": finding.text}),
    }
}

/// The arguments of a call by name: numbers as numbers; addresses and sets of bits in hexadecimal.
fn arguments(call: &Call) -> Json {
    let value = |kind, value: u64| match kind {
        ArgKind::Fd | ArgKind::I32 => json!(value as i32),
        ArgKind::I64 => json!(value as i64),
        ArgKind::U32 | ArgKind::U64 => json!(value),
        ArgKind::Ptr | ArgKind::Path | ArgKind::Hex | ArgKind::Flags(_) => json!(format!("{value:#x}")),
    };
    match call {
        Call::Unknown { args, .. } => json!(args.map(|arg| format!("{arg:#x}"))),
        _ => call
            .arguments()
            .map(|a| (a.name.to_owned(), value(a.kind, a.value)))
            .collect::<Map<_, _>>()
            .into(),
    }
}

fn task(told: &Told<'_>) -> Json {
    match told {
        Told::Began { parent } => json!({"parent": parent.map(|tid| tid.number())}),
        Told::Exec { path } => json!({"path": text(path)}),
        Told::Signal { signo, disposition } => {
            let did = match disposition {
                Disposition::Handled => "handled",
                Disposition::Ignored => "ignored",
                Disposition::Stopped => "stopped",
                Disposition::Killed => "killed",
            };
            json!({"signal": bloodhound_kernel::signal::name(*signo), "disposition": did})
        }
        Told::Moved(m) => json!({"read": m.read, "written": m.written, "hash": format!("{:016x}", m.hash)}),
        Told::Ended { status: how } => status(*how),
    }
}

fn status(status: ExitStatus) -> Json {
    match status {
        ExitStatus::Code(code) => json!({"exit_code": code}),
        ExitStatus::Signal { signo, .. } => json!({"killed_by": bloodhound_kernel::signal::name(signo)}),
    }
}

/// Bytes as text; with U+FFFD where they are none.
fn text(bytes: &[u8]) -> Json {
    json!(String::from_utf8_lossy(bytes))
}

fn packet(number: u64, packet: &Packet) -> Json {
    let mut fields = json!({"packet": number, "src": packet.src.to_string(), "dst": packet.dst.to_string()});
    let mut payload = |bytes: &[u8]| {
        fields["bytes"] = json!(bytes.len());
        fields["hash"] = json!(format!("{:016x}", digest::content(bytes)));
    };
    match &packet.body {
        Body::Tcp(s) => {
            payload(&s.payload);
            let flags = s.flags.iter_names().map(|(name, _)| name).collect::<Vec<_>>();
            fields["tcp"] = json!({"seq": s.seq, "ack": s.ack, "flags": flags, "window": s.window});
        }
        Body::Udp(_, data) => {
            payload(data);
            fields["udp"] = json!(true);
        }
        Body::Icmp(kind, proto, _) => {
            fields["icmp"] = json!({"unreachable": format!("{kind:?}"), "of": format!("{proto:?}")});
        }
        Body::Raw(_, protocol, data) => {
            payload(data);
            fields["raw"] = json!({"protocol": protocol});
        }
    }
    fields
}

/// Why a packet does not arrive, in a word.
pub fn drop_reason(reason: &DropReason) -> &'static str {
    match reason {
        DropReason::NoRoute => "no-route",
        DropReason::OtherNetwork => "other-network",
        DropReason::Loss => "loss",
        DropReason::Corrupt => "corrupt",
        DropReason::Partition(_) => "partition",
        DropReason::NodeDown(_) => "node-down",
        DropReason::Hole(_) => "hole",
    }
}

/// An entry of the plan: its number among those that are drawn, or its place in the schedule.
fn fault(id: FaultId) -> Json {
    match id.place() {
        Some(place) => json!({"fault": id.kind.name(), "scheduled": place}),
        None => json!({"fault": id.kind.name(), "nth": id.nth}),
    }
}

fn of_notice(notice: &Notice, scenario: &Scenario) -> Json {
    match notice {
        Notice::Fault(planned) => {
            let mut line = fault(planned.id);
            line["duration_ns"] = planned.duration.into();
            line
        }
        Notice::FaultEnd(id) => fault(*id),
        Notice::Service(change) => service(change),
        Notice::Check { index, result } => {
            let word = match result {
                CheckResult::Holds => "holds",
                CheckResult::Violated { .. } => "violated",
                CheckResult::Impossible { .. } => "impossible",
            };
            json!({"check": scenario.checks[*index].name, "result": word})
        }
        Notice::Phase(change) => {
            let word = match change {
                PhaseChange::Ready => "ready",
                PhaseChange::Scheduling(_) => "scheduling",
                PhaseChange::Faults(_) => "faults",
                PhaseChange::DrawnAnew(_) => "faults-anew",
                PhaseChange::Unhealed => "unhealed",
                PhaseChange::Healed => "healed",
                PhaseChange::Done => "done",
            };
            json!({"phase": word})
        }
        Notice::Refused(r) => {
            json!({"at_step": r.step, "taken": r.taken, "error": r.error.map(|e| e.name())})
        }
        Notice::Survived(report) => json!({"kept": report.kept, "torn": report.torn, "lost": report.lost}),
        Notice::LeftOut(left) => {
            json!({"kills": left.kills, "crashes": left.crashes, "faults": left.faults})
        }
        Notice::Injected(met) => json!({
            "fault": met.kind.name(),
            "pid": met.pid.number(),
            "comm": String::from_utf8_lossy(&met.comm),
            "call": met.call,
            "path": met.path.as_ref().map(|path| String::from_utf8_lossy(path)),
            "shown": met.shown,
        }),
        Notice::Target(Target::Process(pid, comm)) => {
            json!({"hits": "process", "pid": pid.number(), "name": String::from_utf8_lossy(comm)})
        }
        Notice::Target(Target::Thread(tid, comm)) => {
            json!({"hits": "thread", "tid": tid.number(), "name": String::from_utf8_lossy(comm)})
        }
        Notice::Target(Target::Connection(local, peer)) => {
            json!({"hits": "connection", "local": local.to_string(), "peer": peer.to_string()})
        }
        Notice::Target(Target::Block(path, offset)) => {
            json!({"hits": "block", "path": String::from_utf8_lossy(path), "offset": offset})
        }
        Notice::Target(Target::File(path)) => json!({"hits": "file", "path": String::from_utf8_lossy(path)}),
        Notice::Target(Target::Listener(local)) => json!({"hits": "listener", "local": local.to_string()}),
        Notice::Name(NameFault::Refused) => json!({"name_server": "fails"}),
        Notice::Name(NameFault::Silent) => json!({"name_server": "silent"}),
        Notice::Name(NameFault::Late(ns)) => json!({"name_server": "late", "ns": ns}),
        Notice::OutOfMemory(kill) => json!({
            "pid": kill.pid.number(),
            "comm": String::from_utf8_lossy(&kill.comm),
            "had": kill.had,
            "limit": kill.limit,
            "of": if kill.of_container { "container" } else { "machine" },
        }),
    }
}

fn service(change: &ServiceChange) -> Json {
    match change {
        ServiceChange::Remade(version) => {
            json!({"change": "remade", "upgraded": *version == Version::Next})
        }
        ServiceChange::Started => json!({"change": "started"}),
        ServiceChange::Healthy => json!({"change": "healthy"}),
        ServiceChange::CheckFailed { failures } => json!({"change": "check-failed", "failures": failures}),
        ServiceChange::Unhealthy { failures } => json!({"change": "unhealthy", "failures": failures}),
        ServiceChange::Stopping => json!({"change": "stopping"}),
        ServiceChange::Hook { moment, nth, status } => {
            json!({"change": moment.key(), "nth": nth, "status": status.to_string()})
        }
        ServiceChange::Ended(how) => {
            let mut fields = status(*how);
            fields["change"] = json!("ended");
            fields
        }
    }
}
