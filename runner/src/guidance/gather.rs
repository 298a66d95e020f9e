//! Gathers the features of a run while it goes: the listener's side.
//!
//! Key types: [`Gathering`]. It begins when the phase of faults does, and knows nothing of the boot: so a run has the same features whether its boot was
//! heard or not. A branch is heard from its moment on; what depends on what was not heard is no feature of it. Each kind of event goes to who knows about it ([`super::calls`], [`super::messages`], [`super::situation`]); what is rare is dealt with here.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::digest::content;
use bloodhound_kernel::file::Console;
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::ConsoleChunk;
use bloodhound_kernel::watch::Told;
use bloodhound_net::{DropReason, NodeId, Packet, StateChange};
use bloodhound_sim::event::{Event, Moment};
use bloodhound_sim::notice::{CheckResult, Notice, PhaseChange};
use bloodhound_sim::services::{ServiceChange, Version};
use bloodhound_workloads::history::{Operation, Outcome};

use super::book::{Aspect, Book, Features};
use super::calls::Calls;
use super::classes::Classes;
use super::messages::{self, Shape};
use super::situation::Situation;
use super::table::{Table, mix};
use super::template::LONGEST;

/// A line that was written more often than this in a run is no sign of a state.
const STATE_LIKE: u32 = 32;
/// A run has at most so many templates of lines; further ones are one.
const TEMPLATES: usize = 1024;
/// Of so many connections the state is remembered.
const CONNECTIONS: usize = 1 << 14;

/// The features of a run as far as it has come.
#[derive(Clone, Debug)]
pub struct Gathering {
    classes: Arc<Classes>,
    words: bool,
    book: Book,
    calls: Calls,
    situation: Situation,
    /// The last packet that was sent.
    sent: Option<(u64, Shape)>,
    /// The last message that each node got.
    got: Vec<(NodeId, u64)>,
    connections: Table<u64>,
    /// Lines that have not ended yet.
    begun: BTreeMap<(NodeId, bool), Vec<u8>>,
    /// How often each template was written.
    templates: Table<u32>,
    /// The last two templates that are signs of a state.
    lines: [u64; 2],
    /// The last operation on each key.
    keys: BTreeMap<Option<String>, u64>,
    text: Vec<u8>,
}

impl Gathering {
    /// Nothing is gathered yet. `words`: what features are is told in words.
    pub fn new(classes: Arc<Classes>, words: bool) -> Gathering {
        Gathering {
            words,
            book: Book::new(words),
            calls: Calls::new(),
            situation: Situation::new(&classes),
            sent: None,
            got: Vec::new(),
            connections: Table::new(CONNECTIONS),
            begun: BTreeMap::new(),
            templates: Table::new(TEMPLATES),
            lines: [0; 2],
            keys: BTreeMap::new(),
            text: Vec::new(),
            classes,
        }
    }

    /// What features are is told in words from now on.
    pub fn tell_words(&mut self) {
        self.words = true;
        self.take();
    }

    /// What was gathered; from here on it begins anew.
    pub fn take(&mut self) -> Features {
        let fresh = Gathering::new(self.classes.clone(), self.words);
        std::mem::replace(self, fresh).book.close()
    }

    /// Something happened.
    pub fn hear(&mut self, at: &Moment, event: &Event<'_>) {
        let Gathering { classes, book, calls, .. } = self;
        match event {
            Event::Trap { tid, call, memory, .. } => calls.begins(at, *tid, (call, *memory), classes, book),
            Event::Call { pid, tid, call, result } => {
                calls.ended(at, (*pid, *tid), call, *result, classes, book);
            }
            Event::Task { tid, told, .. } => self.task(at, *tid, told),
            Event::Sent { number, packet } => self.sent(at, *number, packet),
            Event::Dropped { number, reason } => self.fate(at, *number, reason_word(reason)),
            Event::Routed { number, mishaps, copy, .. } => {
                let parts = [mishaps.delay > 0, mishaps.reordered > 0, mishaps.changed > 0, copy.is_some()];
                let words = ["delayed", "reordered", "changed", "copied"];
                let met = parts.iter().zip(words).find(|(met, _)| **met);
                if let Some((_, word)) = met {
                    self.fate(at, *number, word);
                }
            }
            Event::Delivered { packet, .. } => self.delivered(packet),
            Event::Connection(change) => self.connection(at, change),
            Event::Process(end) => {
                self.process(at, "ended", u64::from(end.status.wait_word()), || end.status.to_string());
            }
            Event::Exception { signo, .. } => {
                self.process(at, "exception", u64::from(*signo), || signo.to_string());
            }
            Event::Output(chunk) if !chunk.check => self.output(at, chunk),
            Event::Notice(notice) => self.notice(at, notice),
            Event::Service(change) => self.service(at, change),
            Event::Completed(_, operation) => self.operation(at, operation),
            Event::Finding(finding) => {
                let kind = finding.kind.name();
                let word = book.part(content(kind.as_bytes()), |_| kind.to_owned());
                let class = book.part(classes.of(at.node), |_| classes.name(at.node).to_owned());
                book.see(at.at, Aspect::Finding, &[word, class]);
            }
            Event::Preempted { .. } | Event::Begun(..) | Event::Choice(_) | Event::Output(_) => {}
        }
    }

    fn sent(&mut self, at: &Moment, number: u64, packet: &Packet) {
        let Some(shape) = Shape::of(packet, &self.classes, &mut self.book) else { return };
        self.sent = Some((number, shape));
        self.book.see(at.at, Aspect::Message, &[shape.whole]);
        if !shape.data {
            return;
        }
        let got = self.got.iter().find(|(node, _)| Some(*node) == shape.from).map_or(0, |(_, got)| *got);
        self.book.see_after(got, at.at, Aspect::Reaction, &[got, shape.whole]);
        self.situation.said(at, &shape, &mut self.book);
    }

    fn fate(&mut self, at: &Moment, number: u64, what: &str) {
        // The fate of a packet is told right after it was sent.
        let Some((_, shape)) = self.sent.filter(|(sent, _)| *sent == number) else { return };
        let what = self.book.part(content(what.as_bytes()), |_| what.to_owned());
        self.book.see(at.at, Aspect::Fate, &[shape.whole, what]);
    }

    fn delivered(&mut self, packet: &Packet) {
        let Some(shape) = Shape::of(packet, &self.classes, &mut self.book).filter(|shape| shape.data) else {
            return;
        };
        let Some(to) = shape.to else { return };
        match self.got.iter_mut().find(|(node, _)| *node == to) {
            Some((_, got)) => *got = shape.whole,
            None => self.got.push((to, shape.whole)),
        }
    }

    fn connection(&mut self, at: &Moment, change: &StateChange) {
        let Gathering { classes, book, .. } = self;
        let node = at.node.map_or(u64::MAX, |node| u64::from(node.0));
        let Some(state) = self.connections.entry(mix(node, u64::from(change.id.0))) else { return };
        let now = book.part(mix(change.state as u64, 3), |_| change.state.name().to_owned());
        let before = std::mem::replace(state, now);
        let peer = change.peer.and_then(|peer| classes.node(peer.ip()));
        let (port, own) = match change.peer {
            Some(peer) => messages::port(peer, change.local),
            None => (change.local.port(), true),
        };
        let ends = mix(mix(classes.of(at.node), classes.of(peer)), u64::from(port) << 1 | u64::from(own));
        let ends = book.part(ends, |_| {
            let side = if own { "its own" } else { "its peer's" };
            format!("{} with {}, {side} port {port}", classes.name(at.node), classes.name(peer))
        });
        book.see_after(before, at.at, Aspect::Connection, &[ends, before, now]);
    }

    fn task(&mut self, at: &Moment, tid: Tid, told: &Told<'_>) {
        match told {
            // Of every call that copies: the call itself says enough.
            Told::Moved(_) => {}
            Told::Began { parent } => {
                let what = if parent.is_some() { "task" } else { "first task" };
                self.process(at, what, 0, String::new);
            }
            Told::Exec { path } => {
                self.classes.templates.of(path, &mut self.text);
                let word = content(&self.text);
                let text = String::from_utf8_lossy(&self.text).into_owned();
                self.process(at, "exec", word, || text);
            }
            Told::Signal { signo, disposition } => {
                let word = mix(u64::from(*signo), *disposition as u64);
                self.process(at, "signal", word, || format!("{signo} {disposition:?}"));
            }
            Told::Ended { status } => {
                let main = u64::from(tid.number() == 1);
                self.process(at, "task ended", mix(u64::from(status.wait_word()), main), || {
                    status.to_string()
                });
            }
        }
    }

    fn process(&mut self, at: &Moment, what: &str, word: u64, text: impl FnOnce() -> String) {
        let Gathering { classes, book, .. } = self;
        let parts = mix(mix(content(what.as_bytes()), word), classes.of(at.node));
        let part = book.part(parts, |_| format!("{} {what} {}", classes.name(at.node), text()));
        book.see(at.at, Aspect::Process, &[part]);
    }

    fn output(&mut self, at: &Moment, chunk: &ConsoleChunk) {
        let Some(node) = at.node.or(Some(chunk.container)) else { return };
        let key = (node, chunk.stream == Console::Err);
        let mut begun = self.begun.remove(&key).unwrap_or_default();
        for piece in chunk.bytes.split_inclusive(|b| *b == b'\n') {
            let room = LONGEST.saturating_sub(begun.len());
            begun.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.line(at, node, &begun);
                begun.clear();
            }
        }
        self.begun.insert(key, begun);
    }

    fn line(&mut self, at: &Moment, node: NodeId, line: &[u8]) {
        let Gathering { classes, book, templates, text, .. } = self;
        classes.templates.of(line, text);
        if text.is_empty() {
            return;
        }
        let mut word = mix(content(text), classes.of(Some(node)));
        let count = match templates.entry(word) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                *text = b"(more kinds of lines than are told apart)".to_vec();
                word = mix(content(text), classes.of(Some(node)));
                STATE_LIKE + 1
            }
        };
        let word =
            book.part(word, |_| format!("{}: {}", classes.name(Some(node)), String::from_utf8_lossy(text)));
        book.see(at.at, Aspect::Line, &[word]);
        if count > STATE_LIKE {
            return;
        }
        let [before, last] = self.lines;
        book.see_after(last, at.at, Aspect::Lines, &[last, word]);
        book.see_after(before, at.at, Aspect::Lines, &[before, last, word]);
        if self.situation.faults != 0 {
            book.see(at.at, Aspect::Lines, &[word, self.situation.faults]);
        }
        self.lines = [last, word];
        self.situation.wrote(at, word, book);
    }

    fn notice(&mut self, at: &Moment, notice: &Notice) {
        let Gathering { classes, book, situation, .. } = self;
        match notice {
            Notice::Phase(PhaseChange::Scheduling(_)) => {
                // Here the run begins: what was heard before is the boot.
                self.take();
                self.book.begin();
            }
            Notice::Phase(PhaseChange::Healed) => situation.healed(at, book),
            Notice::Fault(planned) => situation.fault(at, planned, classes, book),
            Notice::FaultEnd(id) => situation.fault_over(at, *id, book),
            Notice::Service(change) => self.service(at, change),
            Notice::Check { index, result } => {
                let result = match result {
                    CheckResult::Holds => "holds",
                    CheckResult::Violated { .. } => "violated",
                    CheckResult::Impossible { .. } => "impossible",
                };
                let word = mix(content(result.as_bytes()), *index as u64);
                let word = book.part(word, |_| format!("check {index} {result}"));
                book.see(at.at, Aspect::Check, &[word]);
            }
            Notice::Injected(met) => {
                let path = met.path.as_deref().unwrap_or_default();
                classes.templates.of(path, &mut self.text);
                let parts =
                    [met.kind as u64, content(met.call.as_bytes()), content(&self.text), classes.of(at.node)];
                let word = parts.iter().fold(0, |hash, part| mix(hash, *part));
                let text = &self.text;
                let word = book.part(word, |_| {
                    format!(
                        "{} {} {} {}",
                        classes.name(at.node),
                        met.kind,
                        met.call,
                        String::from_utf8_lossy(text)
                    )
                });
                book.see(at.at, Aspect::Met, &[word, situation.faults]);
            }
            Notice::Survived(report) => {
                let some = [report.kept, report.torn, report.lost].map(|n| u64::from(n > 0));
                let word = some.iter().fold(classes.of(at.node), |hash, some| mix(hash, *some));
                let word =
                    book.part(word, |_| format!("{} kept, torn, lost some: {some:?}", classes.name(at.node)));
                book.see(at.at, Aspect::Met, &[word, situation.faults]);
            }
            Notice::OutOfMemory(_) => self.process(at, "out of memory", 0, String::new),
            Notice::Name(_)
            | Notice::Target(_)
            | Notice::LeftOut(_)
            | Notice::Refused(_)
            | Notice::Phase(_) => {}
        }
    }

    fn service(&mut self, at: &Moment, change: &ServiceChange) {
        let Gathering { classes, book, situation, .. } = self;
        let (what, word) = match change {
            ServiceChange::Remade(Version::First) => ("downgraded", 0),
            ServiceChange::Remade(Version::Next) => ("upgraded", 0),
            ServiceChange::Started => ("started", 0),
            ServiceChange::Healthy => ("healthy", 0),
            ServiceChange::CheckFailed { .. } => ("check failed", 0),
            ServiceChange::Unhealthy { .. } => ("unhealthy", 0),
            ServiceChange::Stopping => ("stopping", 0),
            ServiceChange::Hook { nth, status, .. } => {
                ("hook", mix(*nth as u64, u64::from(status.wait_word())))
            }
            ServiceChange::Ended(status) => ("ended", u64::from(status.wait_word())),
        };
        let part = mix(mix(content(what.as_bytes()), word), classes.of(at.node));
        let part = book.part(part, |_| match word {
            0 => format!("{} {what}", classes.name(at.node)),
            _ => format!("{} {what} ({word})", classes.name(at.node)),
        });
        book.see(at.at, Aspect::Service, &[part, situation.faults]);
        match change {
            ServiceChange::Started => situation.lives(at, 0, book),
            ServiceChange::Stopping | ServiceChange::Ended(_) => situation.lives(at, part, book),
            _ => {}
        }
    }

    fn operation(&mut self, at: &Moment, operation: &Operation) {
        let Gathering { classes, book, situation, text, .. } = self;
        let outcome = match operation.outcome {
            Outcome::Ok(_) => "ok",
            Outcome::Fail => "fail",
            Outcome::Mismatch => "mismatch",
            Outcome::Unknown => "unknown",
        };
        classes.templates.of(operation.error.as_deref().unwrap_or_default().as_bytes(), text);
        let call = operation.call.name();
        let word = mix(mix(content(call.as_bytes()), content(outcome.as_bytes())), content(text));
        let word = book.part(word, |_| format!("{call} {outcome} {}", String::from_utf8_lossy(text)));
        // How long it took, by powers of four of a microsecond.
        let took = operation.complete.map_or(0, |at| at.since(operation.invoke) / 1000);
        let took = u64::from(took.checked_ilog2().map_or(0, |log| log / 2 + 1));
        let took = book.part(mix(took, 4), |_| format!("took 4^{took} us"));
        book.see(at.at, Aspect::Operation, &[word, took]);
        book.see(at.at, Aspect::Operation, &[word, situation.faults, 0]);
        let last = self.keys.entry(operation.key.clone()).or_default();
        let before = std::mem::replace(last, word);
        book.see_after(before, at.at, Aspect::Operations, &[before, word]);
    }
}

fn reason_word(reason: &DropReason) -> &'static str {
    match reason {
        DropReason::NoRoute => "no route",
        DropReason::OtherNetwork => "other network",
        DropReason::Loss => "lost",
        DropReason::Corrupt => "corrupt",
        DropReason::Partition(_) => "stopped by a partition",
        DropReason::NodeDown(_) => "a node is down",
        DropReason::Hole(_) => "swallowed",
    }
}
