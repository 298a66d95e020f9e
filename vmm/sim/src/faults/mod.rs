//! Fault injection: a swarm profile per seed, the plan of what begins when, the rooms that do it, and the heal that ends it all.
//!
//! Key types: [`Faults`] (the state in the world), [`Fault`] (what is done, by kind), [`Planned`] (an entry of the plan). The kinds
//! are declared once, in `bloodhound-faults`; what a kind does is in its room: `links` for what links do to packets, `names` for the
//! name server, `asked` for what operations of programs meet, and a module each for what begins at a time (`crash`, `partition`,
//! ...). `plan` draws; `limits` says which of the drawn entries a stack is to be spared; `schedule` has the entries that are written
//! by hand, `triggers` what some of these wait for, and `window` is a fault of links that one of them asks for. `planning` has whom faults may hit, `anew` what
//! epochs of a log draw again and what it moves, `again` the same plan by another log.

mod again;
mod anew;
mod asked;
mod backlog_full;
mod bad_sector;
mod clock_drift;
mod clock_jump;
mod clock_skew;
mod clocks;
mod crash;
mod crash_loop;
mod disk_full;
mod disk_place;
mod disk_quota;
mod disk_readonly;
mod disk_slow;
mod fin_drop;
mod group_partition;
mod group_power;
mod half_open;
mod kill;
mod leap_second;
mod limits;
mod links;
mod mtu;
pub(crate) mod names;
mod oom;
mod partition;
mod pause;
mod plan;
mod planning;
mod power_failure;
mod replace;
mod reset;
mod rollout;
mod schedule;
mod slow;
mod starve;
mod stop;
mod swarm;
mod syn_drop;
mod triggers;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Decisions, Site, WORD, Word};
use bloodhound_faults::{FaultSpec, Kind, timed_kinds};
use bloodhound_kernel::ids::{Pid, Tid};
use bloodhound_kernel::node::{Costs, MachineId};
use bloodhound_net::{Hole, HoleId, NodeId, PartitionId};
use bloodhound_vfs::Volume;

use crate::machine::Machine;
use crate::notice::{Notice, PhaseChange};
use crate::queue::Due;
use crate::scenario::Scenario;
use crate::services::{State, Version};
use crate::world::Phase;

use anew::Now;
pub use backlog_full::BacklogFull;
pub use bad_sector::BadSector;
pub use clock_drift::ClockDrift;
pub use clock_jump::ClockJump;
pub use clock_skew::ClockSkew;
use clocks::millis;
pub use crash::Crash;
pub use crash_loop::CrashLoop;
pub use disk_full::DiskFull;
pub use disk_place::DiskPlace;
pub use disk_quota::DiskQuota;
pub use disk_readonly::DiskReadonly;
pub use disk_slow::DiskSlow;
pub use fin_drop::FinDrop;
pub use group_partition::GroupPartition;
pub use group_power::GroupPower;
pub use half_open::HalfOpen;
pub use kill::Kill;
pub use leap_second::LeapSecond;
pub use limits::{Down, Limits};
pub use mtu::Mtu;
pub use names::NameFault;
pub use oom::Oom;
pub use partition::Partition;
pub use pause::Pause;
pub use plan::{BEGINS_AT, Epoch, FaultId, Planned, WRITTEN};
use plan::{Draw, Drawn, Phases};
pub use planning::{NamedVolume, Planning, ServiceGroup, Upgraded, VolumePlaces, fault_chains};
use planning::{aimed, disks_at_risk};
pub use power_failure::PowerFailure;
pub use replace::Replace;
pub use reset::Reset;
pub use rollout::{Downgrade, RollingRestart, Rollout, Upgrade};
pub use schedule::{Scheduled, What};
pub use slow::Slow;
pub use starve::Starve;
pub use stop::Stop;
use swarm::swarm;
pub use swarm::{KEPT, STRENGTH, every_kind, strongest};
pub use syn_drop::SynDrop;
pub(crate) use triggers::Patterns;
pub use triggers::Trigger;
use triggers::Waiting;
pub use window::Window;

/// Gives nodes their names.
pub type Names<'a> = &'a dyn Fn(NodeId) -> String;

/// What a kind that begins at a time does.
trait Room: Sized {
    /// Draws the parameters of an entry; `None` if there is nothing that it could hit.
    fn draw(draw: &mut Draw<'_>) -> Option<Self>;

    /// The node that it hits, if it is one.
    fn node(&self) -> Option<NodeId>;

    /// Why it would have no effect now, if it would have none.
    fn hindered(&self, machine: &Machine) -> Option<&'static str>;

    /// In words, with the names of nodes. `ms` is its duration.
    fn describe(&self, name: Names<'_>, ms: u64) -> String;

    /// Begins. `entry` names it, `until` is when it ends.
    fn begin(&self, machine: &mut Machine, entry: usize, until: SimTime);

    /// Goes on at a time that `begin` has put into the queue ([`Due::FaultGoesOn`]), with its number.
    fn go_on(&self, _: &mut Machine, _: usize, _: u64) {}

    /// Ends at its time, unless everything was healed before. True if that is worth telling.
    fn end(&self, machine: &mut Machine, entry: usize) -> bool;
}

/// The enumeration of all kinds that begin at a time, and its way into their rooms.
macro_rules! rooms {
    ($($kind:ident in $room:ident,)*) => {
        /// A fault that begins at a time: its kind with target and parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = concat!("See `faults/", stringify!($room), ".rs`.")] $kind($room::$kind),)*
            /// What links do to packets for a time: see `faults/window.rs`. It is written, never drawn.
            Window(Window),
        }

        impl Fault {
            /// Its kind.
            pub fn kind(&self) -> Kind {
                match self { $(Fault::$kind(_) => Kind::$kind,)* Fault::Window(window) => window.kind }
            }

            /// The node that it hits, if it is one.
            pub fn node(&self) -> Option<NodeId> {
                match self {
                    $(Fault::$kind(fault) => fault.node(),)*
                    Fault::Window(fault) => fault.node(),
                }
            }

            /// Draws a fault of a kind; `None` for kinds of links, and where there is nothing to hit.
            fn draw(kind: Kind, draw: &mut Draw<'_>) -> Option<Fault> {
                match kind {
                    $(Kind::$kind => $room::$kind::draw(draw).map(Fault::$kind),)*
                    _ => None,
                }
            }

            fn hindered(&self, machine: &Machine) -> Option<&'static str> {
                match self {
                    $(Fault::$kind(fault) => fault.hindered(machine),)*
                    Fault::Window(fault) => fault.hindered(machine),
                }
            }

            fn describe(&self, name: Names<'_>, ms: u64) -> String {
                match self {
                    $(Fault::$kind(fault) => fault.describe(name, ms),)*
                    Fault::Window(fault) => fault.describe(name, ms),
                }
            }

            fn begin(&self, machine: &mut Machine, entry: usize, until: SimTime) {
                match self {
                    $(Fault::$kind(fault) => fault.begin(machine, entry, until),)*
                    Fault::Window(fault) => fault.begin(machine, entry, until),
                }
            }

            fn go_on(&self, machine: &mut Machine, entry: usize, step: u64) {
                match self {
                    $(Fault::$kind(fault) => fault.go_on(machine, entry, step),)*
                    Fault::Window(_) => {}
                }
            }

            fn end(&self, machine: &mut Machine, entry: usize) -> bool {
                match self {
                    $(Fault::$kind(fault) => fault.end(machine, entry),)*
                    Fault::Window(fault) => fault.end(machine, entry),
                }
            }
        }
    };
}
timed_kinds!(rooms);

/// What became of an entry of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It began.
    Begun,
    /// It met something that it could do nothing to, and why.
    None(&'static str),
}

impl Effect {
    /// Whether the log of the run has left it out.
    pub fn is_left_out(self) -> bool {
        matches!(self, Effect::None(why) if anew::is_of_log(why))
    }
}

/// The faults of one seed.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// What is in force of what this seed drew.
    pub profile: Option<FaultSpec>,
    /// What was in force before an epoch of the log has drawn anew, and when that was.
    pub before: Arc<Vec<(SimTime, FaultSpec)>>,
    /// Links and operations have faults now, by the profile.
    by_profile: bool,
    /// Entries that the limits have admitted and the log has taken out.
    taken_out: Vec<Planned>,
    /// Entries that the log has moved to a later time.
    moved: BTreeSet<FaultId>,
    /// What begins when, in order of time.
    pub plan: Arc<Vec<Planned>>,
    /// What became of its entries, as far as their time has come: the first so many.
    pub effects: Vec<Effect>,
    /// When the phase of faults begins and ends.
    phases: Phases,
    /// When the plan was drawn last, and for which phase.
    last_drawn: (SimTime, Phases),
    /// Machines without power.
    dark: BTreeMap<MachineId, power_failure::Dark>,
    /// The entries by which machines stand still.
    pauses: BTreeMap<MachineId, usize>,
    /// The entries by which threads of machines starve.
    starving: BTreeMap<MachineId, usize>,
    /// Partitions in force, by their entries.
    partitions: BTreeMap<usize, PartitionId>,
    /// Open holes of the network, by their entries.
    holes: BTreeMap<usize, HoleId>,
    /// Listeners whose backlogs count as full, by entries.
    backlogs: BTreeMap<usize, backlog_full::Filled>,
    /// Slow machines, with their own prices.
    slowed: BTreeMap<MachineId, Costs>,
    /// What becomes of questions to name servers; `None`: they are answered at once.
    pub(crate) names: Option<names::NameFaults>,
    /// Faults of clocks in force, by their entries: by how much the wall clock was set wrong; of a drift, by how much the machine was ahead
    /// before. ns.
    clocks: BTreeMap<usize, i64>,
    /// The entry that has the say about the version of a service: the last one that is about it.
    rollouts: BTreeMap<NodeId, usize>,
    /// What links do besides, by entries.
    windows: BTreeMap<usize, Window>,
    /// What some links alone do by the profile, while links are faulty.
    of_links: Vec<Window>,
    /// Some links have a configuration of their own.
    links_differ: bool,
    /// The machines whose disks may have faults, if not all.
    disks: Option<BTreeSet<MachineId>>,
    /// Tasks that were held before a call for which an entry waited: they go on with it.
    held: BTreeSet<(MachineId, Tid)>,
    /// How many questions each container has put to its name server since faults could begin.
    questions: BTreeMap<NodeId, u64>,
    /// How many power failures each machine has had at which a file could be lost.
    failures: BTreeMap<MachineId, u64>,
    /// Questions and power failures that a fault met.
    pub questioned: Vec<Single>,
    /// Written entries whose trigger has not come.
    waiting: Vec<Waiting>,
    /// Triggers came at these times, and their faults begin before anything else happens.
    pub(crate) urgent: BTreeSet<SimTime>,
    /// How often each kind hit that has no entries in the plan: packets, questions to name servers, operations of programs.
    pub hits: BTreeMap<Kind, u64>,
    /// How many packets each partition stopped, by its entry.
    pub stopped: BTreeMap<usize, u64>,
}

/// A single operation of a program, question to a name server or power failure that a fault met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Single {
    /// The kind of the fault.
    pub kind: Kind,
    /// Whose it was.
    pub node: NodeId,
    /// The volume that was to be hit, if not whatever the service has.
    pub volume: Option<Volume>,
    /// Its number among those of the service, or of the volume, from 1.
    pub nth: u64,
}

impl Faults {
    /// All profiles of the run, each with when it was drawn; the first one, of which there is always one, when faults began.
    pub fn profiles(&self) -> Vec<(SimTime, FaultSpec)> {
        let begun = std::iter::once(SimTime::default()).chain(self.before.iter().map(|(until, _)| *until));
        let all = self.before.iter().map(|(_, profile)| profile.clone());
        let last = self.profile.clone().unwrap_or_default();
        begun.zip(all.chain([last])).collect()
    }

    /// Whether a fault whose trigger has come begins at this time, before any node goes on.
    pub(crate) fn goes_first(&self, at: SimTime) -> bool {
        self.urgent.contains(&at)
    }

    /// The entries whose time has come, with what became of them.
    pub fn record(&self) -> impl Iterator<Item = (&Planned, Effect)> {
        self.plan.iter().zip(self.effects.iter().copied())
    }

    /// Whether a machine has no power.
    pub fn is_dark(&self, machine: MachineId) -> bool {
        self.dark.contains_key(&machine)
    }
}

/// The plan of a profile for the services of a scenario, without what the limits spare it, but with what the log takes out. Where a plan has begun, what of it began, and the
/// time after which the rest may begin.
fn plan_of(
    scenario: &Scenario,
    profile: &FaultSpec,
    (phases, at_risk): (Phases, Option<&BTreeSet<MachineId>>),
    (begun, after): (&[Planned], Option<SimTime>),
    decisions: &mut Decisions,
) -> Vec<Drawn> {
    let limits = &scenario.planning.limits;
    let mut drawn = aimed(scenario, |aim| plan::draw(profile, aim, phases, limits.is_some(), decisions));
    drawn.retain(|drawn| after.is_none_or(|after| drawn.entry.begin > after));
    let drawn = limits.admit(drawn, scenario, (phases, at_risk), begun);
    plan::moved(drawn, phases, |entry, others| {
        !limits.is_some() || limits.have_room(entry, scenario, (phases, at_risk), (begun, others))
    })
}

/// Those that the log leaves in.
fn admitted(drawn: Vec<Drawn>) -> Vec<Planned> {
    drawn.into_iter().filter(|drawn| !drawn.out).map(|drawn| drawn.entry).collect()
}

/// Profile and plan that a seed draws for a scenario whose services were ready at a time, for who carries them out elsewhere than in the
/// simulation. Written entries are part of it if they have a time.
pub fn drawn(scenario: &Scenario, ready: SimTime, decisions: &mut Decisions) -> (FaultSpec, Vec<Planned>) {
    let profile = swarm(&scenario.faults, Epoch::default(), decisions);
    let phases = Phases::of(scenario, ready);
    let at_risk = disks_at_risk(scenario, &profile, (phases.epoch, &BTreeSet::new()), decisions);
    let mut plan = admitted(plan_of(scenario, &profile, (phases, at_risk.as_ref()), (&[], None), decisions));
    plan.extend(schedule::written(scenario, phases, decisions).0);
    plan::sort(&mut plan);
    (profile, plan)
}

/// What a log may say of the phase of faults: that it is over sooner than configured, after so many ns, of [`WORD`]. No seed draws it.
pub fn phase_end() -> Site {
    Site::Fault { kind: Word::new("phase"), target: 0, nth: 0, part: Word::new("ends") }
}

impl Machine {
    /// The stack is ready: draws the profile and the plan, and lets faults begin. Returns the profile.
    pub fn begin_faults(&mut self) -> FaultSpec {
        let profile = swarm(&self.scenario.faults, Epoch::default(), &mut self.world.decisions);
        let policy = self.begin_schedule();
        self.world.phase = Phase::Faults;
        self.note(None, Notice::Phase(PhaseChange::Scheduling(policy)));
        self.note(None, Notice::Phase(PhaseChange::Faults(Box::new(profile.clone()))));
        let now = self.world.now;
        let whole = Phases::of(&self.scenario, now);
        let said = self.world.decisions.said(phase_end(), WORD).unwrap_or(u64::MAX);
        let phases = Phases { end: whole.begin.after(said.min(self.scenario.fault_time)), ..whole };
        let Phases { begin, end, .. } = phases;
        self.world.faults.profile = Some(profile.clone());
        self.world.faults.phases = phases;
        let (written, waiting) =
            schedule::written(&self.scenario, self.world.faults.phases, &mut self.world.decisions);
        (self.world.faults.plan, self.world.faults.waiting) = (Arc::new(written), waiting);
        let none = (Epoch::default(), &BTreeSet::new());
        self.world.faults.disks = disks_at_risk(&self.scenario, &profile, none, &mut self.world.decisions);
        self.plan_faults(phases);
        self.world.queue.push(end, Due::HealPhase);
        if begin == now {
            self.set_links(true);
            self.begin_windows();
        } else {
            self.world.queue.push(begin, Due::FaultsBegin);
        }
        for (from, to) in &self.scenario.planning.limits.quiet {
            self.world.queue.push(begin.after(*from), Due::Links(false));
            self.world.queue.push(begin.after(*to), Due::Links(true));
        }
        self.world.queue.push(now.after(self.scenario.max_time), Due::End);
        profile
    }

    /// Puts the first entry that has not begun into the queue, in the place of any other.
    fn queue_next_fault(&mut self) {
        self.world.queue.remove_if(|due| matches!(due, Due::Fault(_)));
        self.queue_fault(self.world.faults.effects.len());
    }

    fn queue_fault(&mut self, entry: usize) {
        if let Some(planned) = self.world.faults.plan.get(entry) {
            self.world.queue.push(planned.begin, Due::Fault(entry));
        }
    }

    /// The time of an entry of the plan has come.
    pub(crate) fn fault_due(&mut self, entry: usize) {
        let now = self.world.now;
        self.world.faults.urgent.retain(|at| *at > now);
        let plan = self.world.faults.plan.clone();
        let Some(planned) = plan.get(entry).filter(|_| self.world.phase == Phase::Faults) else { return };
        let kept = match self.kept_at_its_time(entry, planned) {
            Now::Moved => return,
            Now::LeftOut(why) => Some(why),
            Now::Begins => None,
        };
        self.queue_fault(entry + 1);
        let hindered = kept.or_else(|| planned.fault.hindered(self));
        let effect = hindered.map_or(Effect::Begun, Effect::None);
        self.world.faults.effects.push(effect);
        if effect != Effect::Begun {
            return;
        }
        self.note(planned.fault.node(), Notice::Fault(planned.clone()));
        let until = self.world.now.after(planned.duration);
        planned.fault.begin(self, entry, until);
        if let Some(mark) = self.mark() {
            mark.fault_begins(entry);
        }
        if planned.duration > 0 {
            self.world.queue.push(until, Due::FaultEnds(entry));
        }
    }

    /// The time of an entry of the plan is over.
    pub(crate) fn fault_ends(&mut self, entry: usize) {
        if let Some(mark) = self.mark() {
            mark.fault_ends(entry);
        }
        let plan = self.world.faults.plan.clone();
        if let Some(planned) = plan.get(entry)
            && planned.fault.end(self, entry)
        {
            self.note(planned.fault.node(), Notice::FaultEnd(planned.id));
        }
    }

    /// A fault that lasts comes to one of its steps.
    pub(crate) fn fault_goes_on(&mut self, entry: usize, step: u64) {
        let plan = self.world.faults.plan.clone();
        if let Some(planned) = plan.get(entry) {
            planned.fault.go_on(self, entry, step);
        }
    }

    /// Whether the time of an entry of the plan is over.
    fn is_over(&self, entry: usize) -> bool {
        self.time_left(entry) == 0
    }

    /// How long an entry of the plan still lasts, ns.
    fn time_left(&self, entry: usize) -> u64 {
        let planned = self.world.faults.plan.get(entry);
        planned.map_or(0, |planned| planned.begin.after(planned.duration).since(self.world.now))
    }

    /// The first process of a service that runs.
    fn first_process(&self, id: NodeId) -> Option<Pid> {
        match self.world.services.get(&id)?.state {
            State::Running(pid) => Some(pid),
            _ => None,
        }
    }

    /// A fault is about to kill processes of a service: if the service, or another one in its namespace of processes, ends in this life,
    /// that is no finding, and it starts again at that time unless its policy starts it.
    fn strike(&mut self, id: NodeId, until: SimTime) {
        for id in crash::falling(self, id) {
            if let Some(service) = self.world.services.get_mut(&id) {
                service.struck = Some(until);
            }
        }
    }

    /// Opens a hole of the network for an entry.
    fn open_hole(&mut self, entry: usize, hole: Hole) {
        let id = self.world.fabric.open_hole(hole);
        self.world.faults.holes.insert(entry, id);
    }

    /// Closes the hole of an entry. True if it was open.
    fn close_hole(&mut self, entry: usize) -> bool {
        let id = self.world.faults.holes.remove(&entry);
        id.is_some_and(|id| self.world.fabric.close_hole(id))
    }

    /// The version of which a service is to be made.
    fn ordered(&self, id: NodeId) -> Version {
        self.world.services.get(&id).map(|service| service.ordered).unwrap_or_default()
    }

    /// Why a fault can do nothing to the processes of a node.
    fn not_acting(&self, id: NodeId) -> Option<&'static str> {
        let paused =
            || self.world.paused.contains_key(&self.world.room(id).machine).then_some("it is paused");
        self.not_running(id).or_else(paused)
    }

    /// Why a fault can do nothing to a node.
    fn not_running(&self, id: NodeId) -> Option<&'static str> {
        let running = matches!(self.world.services.get(&id).map(|s| s.state), Some(State::Running(_)));
        (!running).then_some("its service does not run")
    }

    /// The faults end: the network is whole, clocks are right, everything that is down starts, nothing is paused.
    pub(crate) fn heal_phase(&mut self) {
        if self.world.phase != Phase::Faults {
            return;
        }
        self.world.phase = Phase::Recovery;
        self.world.queue.remove_if(|due| matches!(due, Due::Fault(_)));
        self.world.faults.waiting.clear();
        self.world.faults.urgent.clear();
        if !self.scenario.heal {
            // What is wrong stays so, and nothing new goes wrong.
            self.set_hazards(false);
            self.set_names(false);
            self.note(None, Notice::Phase(PhaseChange::Unhealed));
            self.recovery_begins();
            return;
        }
        self.world.fabric.heal_all();
        self.world.faults.partitions.clear();
        self.world.faults.holes.clear();
        self.heal_clocks();
        self.world.faults.windows.clear();
        self.set_links(false);
        self.heal_disks();
        self.heal_backlogs();
        self.end_slowness();
        self.world.scheduler.feed_all(&mut self.world.nodes);
        self.world.faults.starving.clear();
        self.world.faults.pauses.clear();
        let paused: Vec<_> = std::mem::take(&mut self.world.paused).into_keys().collect();
        for id in paused {
            self.world.catch_up(id);
        }
        power_failure::all_have_power(self);
        self.end_vain_stops();
        let now = self.world.now;
        let crashed = self.world.services.iter().filter(|(_, s)| s.state == State::Crashed);
        let down: Vec<(NodeId, u64)> = crashed.map(|(id, s)| (*id, s.start_offset)).collect();
        self.world.queue.remove_if(|due| match due {
            Due::Start(id) => down.iter().any(|(other, _)| other == id),
            Due::FaultEnds(_) | Due::FaultGoesOn(..) => true,
            _ => false,
        });
        for (id, offset) in down {
            self.world.queue.push(now.after(offset), Due::Start(id));
        }
        if let Some(mark) = self.mark() {
            mark.healed();
        }
        self.note(None, Notice::Phase(PhaseChange::Healed));
        self.recovery_begins();
    }
}

#[cfg(test)]
mod tests;
