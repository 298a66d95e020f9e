//! A run that is looked at closely: from a boot of its own, with the times of its choices, and with what a packet carries about which one of them is ([`watch`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Choice, Decisions, Lineage, Log, Made, Mode, Part, Site};
use bloodhound_net::{Body, NodeId, Packet};
use bloodhound_sim::event::{Event, Listener, Moment};
use bloodhound_sim::timeline;

use crate::platform::Chosen;
use crate::session::{Failure, Outcome, Session, Worker, host_failure};
use crate::shrink::pool::Ran;

/// So many bytes of a packet are shown.
const SHOWN: usize = 60;

/// What was seen.
#[derive(Clone, Debug)]
pub struct Watched {
    pub ran: Ran,
    /// The choices after the boot, with their times.
    pub choices: Vec<(SimTime, Made)>,
    /// What became of the packet that the wanted choice is about, if it is about one.
    pub packet: Option<Told>,
    /// Names of the tasks that are there at the end, by their containers.
    pub tasks: BTreeMap<(NodeId, Lineage), String>,
}

/// A packet in words: what it carries, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub carries: String,
    pub fate: String,
}

/// What the listener keeps.
#[derive(Default)]
struct Kept {
    wanted: Option<Choice>,
    choices: Vec<(SimTime, Made)>,
    /// The packet that was sent last, by its number.
    last: Option<(u64, String)>,
    /// The one that is wanted.
    found: Option<(u64, String)>,
    fate: Option<String>,
}

struct Ear(Arc<Mutex<Kept>>);

impl Listener for Ear {
    fn hear(&mut self, moment: &Moment, event: &Event<'_>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Choice(made) if made.choice.part == Part::Run => {
                if Some(made.choice) == kept.wanted && matches!(made.choice.site, Site::Packet { .. }) {
                    kept.found = kept.last.clone();
                }
                kept.choices.push((moment.at, **made));
            }
            Event::Sent { number, packet } if kept.wanted.is_some() => {
                kept.last = Some((*number, carries(packet)));
            }
            Event::Dropped { number, reason } if kept.is_found(*number) => {
                kept.fate = Some(format!("is lost ({})", crate::events::drop_reason(reason)));
            }
            Event::Routed { number, arrives, mishaps, copy, .. } if kept.is_found(*number) => {
                let mut fate = format!("arrives at {arrives}");
                if mishaps.delay > 0 {
                    fate.push_str(&format!(", delayed by {} us", mishaps.delay / 1000));
                }
                if mishaps.reordered > 0 {
                    fate.push_str(&format!(", overtaken by others within {} us", mishaps.reordered / 1000));
                }
                if mishaps.changed > 0 || mishaps.damaged {
                    fate.push_str(", with its data changed");
                }
                if let Some(copy) = copy {
                    fate.push_str(&format!(", and once more at {copy}"));
                }
                kept.fate = Some(fate);
            }
            _ => {}
        }
    }
}

impl Kept {
    fn is_found(&self, number: u64) -> bool {
        self.fate.is_none() && self.found.as_ref().is_some_and(|(found, _)| *found == number)
    }
}

/// What is in a packet, in words.
fn carries(packet: &Packet) -> String {
    let data = |bytes: &[u8]| {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).escape_debug().to_string();
        let more = if bytes.len() > SHOWN { "..." } else { "" };
        format!("{} bytes, \"{shown}{more}\"", bytes.len())
    };
    match &packet.body {
        Body::Tcp(segment) => {
            let flags: Vec<&str> = segment.flags.iter_names().map(|(name, _)| name).collect();
            match segment.payload.is_empty() {
                true => flags.join(" "),
                false => data(&segment.payload),
            }
        }
        Body::Udp(_, bytes) | Body::Raw(_, _, bytes) => data(bytes),
        Body::Icmp(kind, ..) => format!("{kind:?} unreachable"),
    }
}

/// Runs a log from a boot of its own.
///
/// # Errors
/// What the host says; a stack that does not start.
pub fn watch(
    (session, chosen): (&Arc<Session>, &Chosen),
    log: &Log,
    mode: Mode,
    wanted: Option<Choice>,
) -> Result<Watched, Failure> {
    let mut worker = Worker::new(session.clone(), chosen, crate::run::interrupt())?;
    if mode == Mode::Strict {
        worker.trust_log();
    }
    let kept = Arc::new(Mutex::new(Kept { wanted, ..Kept::default() }));
    worker.boot(Decisions::new(log.clone(), mode))?;
    worker.listen(Box::new(Ear(kept.clone())));
    worker.listen_to_choices();
    let outcome: Outcome = worker.run(log.seed).map_err(host_failure)?;
    let mut tasks = BTreeMap::new();
    for node in worker.world().nodes.values() {
        for task in node.tasks.values() {
            let comm = String::from_utf8_lossy(&task.comm).into_owned();
            tasks.insert((node.container_of_any(task.pid).id, task.lineage), comm);
        }
    }
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let choices = std::mem::take(&mut kept.choices);
    let made = choices.iter().map(|(_, made)| *made).collect();
    let packet = kept.found.take().map(|(_, carries)| Told {
        carries,
        fate: kept.fate.take().unwrap_or_else(|| "is on its way".into()),
    });
    Ok(Watched { ran: Ran { outcome, made }, choices, packet, tasks })
}

impl Watched {
    /// The name of a task and of its service.
    pub fn task(&self, node: u32, lineage: Lineage) -> String {
        let service = timeline::name(&self.ran.outcome.scenario, NodeId(node));
        match self.tasks.get(&(NodeId(node), lineage)) {
            Some(comm) => format!("task {lineage} ({comm}) of {service}"),
            None => format!("task {lineage} of {service}"),
        }
    }
}
