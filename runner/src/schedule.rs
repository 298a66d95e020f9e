//! `--save-faults`: the faults of a run as a schedule, with which `--faults` shows them again.
//!
//! Key function: [`save`]. What a kind has drawn beside its node and its duration stands there by the seed and the number of the entry, from which
//! it is drawn again; so a new kind needs nothing here.

use std::fmt::Write as _;
use std::path::Path;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{
    AT_ITS_TIME, Choice, Concern, Decisions, Epoch, LATER, Log, Override, Part, Site, Word,
};
use bloodhound_faults::{Begins, Declaration, FaultSpec, Kind, Setting, Shape};
use bloodhound_net::{NodeId, PartitionKind};
use bloodhound_sim::faults::{
    BEGINS_AT, Effect, Fault, FaultId, Planned, STRENGTH, Scheduled, Single, Trigger, What,
    drawn as drawn_by_seed, phase_end,
};
use bloodhound_sim::timeline;
use bloodhound_workloads::http::workload_end;

use crate::output::write_file;
use crate::session::{Failure, Outcome};
use crate::shrink::case::ready;

/// Writes the schedule of a run, if a file for it is named.
///
/// # Errors
/// What the host says, or which fault of the run no schedule can have.
pub fn save(file: Option<&Path>, outcome: &Outcome) -> Result<(), Failure> {
    let Some(path) = file else { return Ok(()) };
    let text = text(outcome)?;
    write_file(path, &text).map_err(|e| Failure::environment(format!("writing the faults: {e}")))
}

/// The schedule of a run.
///
/// # Errors
/// Which fault of the run no schedule can have.
pub fn text(outcome: &Outcome) -> Result<String, Failure> {
    let mut out = format!(
        "# The faults of seed {}, for `bloodhound run --seed {} --faults FILE`.\n{}{}schedule:\n",
        outcome.seed,
        outcome.seed,
        unsaid(outcome),
        quiet(outcome)
    );
    let begin = begin(outcome);
    let mut empty = true;
    for entry in of_links(outcome).into_iter().chain(single(outcome)?) {
        empty = false;
        let _ = writeln!(out, "  - {{{entry}}}");
    }
    for (planned, effect) in outcome.plan.iter().zip(&outcome.effects) {
        if effect.is_left_out() {
            continue;
        }
        if cuts_nothing(planned) {
            let _ = writeln!(
                out,
                "  # {}: one side is empty, so it cuts nothing",
                entry(planned, begin, outcome)?
            );
            continue;
        }
        empty = false;
        let why = match effect {
            Effect::Begun => String::new(),
            Effect::None(why) => format!(" # without effect: {why}"),
        };
        let _ = writeln!(out, "  - {}{why}", entry(planned, begin, outcome)?);
    }
    if empty {
        out = out.replacen("schedule:\n", "schedule: []\n", 1);
    }
    Ok(out)
}

/// Whether a partition has an empty side, which no schedule can name.
fn cuts_nothing(planned: &Planned) -> bool {
    matches!(&planned.fault, Fault::Partition(partition) if groups(&partition.cut).1.iter().any(|group| group.is_empty()))
}

/// The quiet periods, in which links were plain and no operation was counted.
fn quiet(outcome: &Outcome) -> String {
    let periods = &outcome.scenario.planning.limits.quiet;
    if periods.is_empty() {
        return String::new();
    }
    let periods: Vec<String> =
        periods.iter().map(|(from, to)| format!("[{}, {}]", time(*from), time(*to))).collect();
    format!("quiet: [{}]\n", periods.join(", "))
}

/// What links did by the profile of the run: for the whole phase but the quiet periods.
fn of_links(outcome: &Outcome) -> Vec<String> {
    let mut out = Vec::new();
    let planning = &outcome.scenario.planning;
    let (mut open, mut from) = (Vec::new(), 0);
    for (begin, end) in &planning.limits.quiet {
        open.push((from, *begin));
        from = *end;
    }
    let over = phase(outcome);
    open.push((from, over));
    for (profile, from, until) in profiles(outcome) {
        let within = |(begin, end): &(u64, u64)| ((*begin).max(from), (*end).min(until).min(over));
        out.extend(of_profile(profile, &open.iter().map(within).collect::<Vec<_>>(), outcome));
    }
    out
}

/// The profiles of a run, each with its time from when faults could begin.
fn profiles(outcome: &Outcome) -> Vec<(&FaultSpec, u64, u64)> {
    let begin = begin(outcome);
    let since = |at: &SimTime| at.0.saturating_sub(begin.0);
    let all = std::iter::once((&outcome.profile, 0))
        .chain(outcome.anew.iter().map(|(at, profile)| (profile, since(at))));
    let ends = outcome.anew.iter().map(|(at, _)| since(at)).chain([u64::MAX]);
    all.zip(ends).map(|((profile, from), until)| (profile, from, until)).collect()
}

/// What links did by a profile in these times.
fn of_profile(profile: &FaultSpec, open: &[(u64, u64)], outcome: &Outcome) -> Vec<String> {
    let (mut out, planning) = (Vec::new(), &outcome.scenario.planning);
    for declaration in Kind::DECLARATIONS.iter().filter(|d| d.is_of_links() && profile.is_on(d.kind)) {
        let strength = strength(declaration, profile.get(declaration.kind));
        let everywhere = vec![(Vec::new(), Vec::new())];
        for (from, to) in planning.links.get(&declaration.kind).unwrap_or(&everywhere) {
            let ends = ends(from, to, outcome);
            for (begin, end) in open.iter().copied() {
                if begin < end {
                    let (at, duration) = (time(begin), time(end - begin));
                    let name = declaration.name;
                    out.push(format!("at: {at}, fault: {name}{strength}{ends}, duration: {duration}"));
                }
            }
        }
    }
    out
}

/// How long the phase of faults was.
fn phase(outcome: &Outcome) -> u64 {
    let configured = outcome.scenario.fault_time;
    let said = outcome.decisions.overrides.get(&Choice { part: Part::Run, site: phase_end() });
    said.map_or(configured, |said| said.value.min(configured))
}

/// What the log of the run says beside its faults: no schedule of faults can say it, so a run with the schedule is another one.
fn unsaid(outcome: &Outcome) -> String {
    let unsaid = beside_faults(&outcome.decisions);
    if unsaid.is_empty() {
        return String::new();
    }
    format!(
        "# The run has more that no schedule of faults says, so a run with this file is another one: {}.\n",
        unsaid.join("; ")
    )
}

fn beside_faults(log: &Log) -> Vec<String> {
    let ends = Choice { part: Part::Run, site: workload_end() };
    let of_clients = |choice: &&Choice| {
        matches!(choice.site, Site::Operation { .. } | Site::Arrival { .. }) && **choice != ends
    };
    let mut unsaid = Vec::new();
    if log.overrides.contains_key(&ends) {
        unsaid.push("the workload ends earlier".to_owned());
    }
    match log.overrides.keys().filter(of_clients).count() {
        0 => {}
        count => unsaid.push(format!("{count} operations of clients that are left out or changed")),
    }
    let drawn_anew = |about: &[Concern]| {
        log.epochs.iter().any(|epoch| epoch.concerns.iter().any(|concern| about.contains(concern)))
    };
    if drawn_anew(&[Concern::Workload, Concern::GuestRandom]) {
        unsaid.push("operations and random numbers of programs that are not those of the seed".to_owned());
    }
    let about = [Concern::Network, Concern::Scheduler];
    if drawn_anew(&about) || log.plain.iter().any(|concern| about.contains(concern)) {
        unsaid.push("delays of packets and turns of tasks that are not those of the seed".to_owned());
    }
    unsaid
}

/// The ends of links, where they are not all.
fn ends(from: &[NodeId], to: &[NodeId], outcome: &Outcome) -> String {
    let mut out = String::new();
    for (key, list) in [("from", from), ("to", to)] {
        if !list.is_empty() {
            let _ = write!(out, ", {key}: [{}]", names(list, outcome));
        }
    }
    out
}

/// The operations of programs, and questions to name servers, that met faults. An error if the log of the run says something of them
/// that its seed does not.
fn single(outcome: &Outcome) -> Result<Vec<String>, Failure> {
    if !outcome.met.is_empty() && are_redrawn(&outcome.decisions) {
        return Err(Failure::usage(format!(
            "--save-faults: the run is a branch or a narrowed one, and what its faults of operations do is not as seed {} draws it\n\
             help: save the faults of a run of a seed",
            outcome.seed
        )));
    }
    let volumes = &outcome.scenario.planning.volumes;
    let one = |Single { kind, node, volume, nth }: &Single| {
        let late = match kind {
            Kind::DnsDelay => format!(", time_ms: {}", decimal(late(*node, *nth, outcome), 6)),
            _ => String::new(),
        };
        let place = match volume.and_then(|volume| volumes.get(volume.0 as usize)) {
            Some(volume) => format!("volume: {}", quoted(&volume.name)),
            None => format!("service: {}", name(*node, outcome)),
        };
        format!("nth: {nth}, fault: {kind}, {place}{late}")
    };
    Ok(outcome.met.iter().map(one).collect())
}

/// How late at most an answer was, from which its delay is drawn.
fn late(node: NodeId, nth: u64, outcome: &Outcome) -> u64 {
    let by_number = |entry: &&Scheduled| {
        entry.kind == Kind::DnsDelay && entry.trigger == Trigger::Nth(nth) && entry.nodes.contains(&node)
    };
    let written = outcome.scenario.planning.schedule.iter().find(by_number).and_then(|entry| entry.most);
    written.unwrap_or_default().max(outcome.profile.get(Kind::DnsDelay).time.1)
}

/// Whether a log says anything about single operations beside the seed of the run, but for whether a fault happens at one.
fn are_redrawn(log: &Log) -> bool {
    let about = [Concern::Faults, Concern::Disk, Concern::Network];
    let happens = Word::new("happens");
    let of_one = |site: &Site| match site {
        Site::DiskCall { part, .. } | Site::Call { part, .. } => *part != happens,
        Site::Fault { kind, part, .. } => *kind == Word::new(Kind::VanishedFile.name()) && *part != happens,
        _ => false,
    };
    log.epochs.iter().any(|epoch| epoch.concerns.iter().any(|concern| about.contains(concern)))
        || log.plain.iter().any(|concern| about.contains(concern))
        || log.overrides.keys().any(|choice| of_one(&choice.site))
}

fn name(id: NodeId, outcome: &Outcome) -> String {
    quoted(&timeline::name(&outcome.scenario, id))
}

fn names(ids: &[NodeId], outcome: &Outcome) -> String {
    ids.iter().map(|id| name(*id, outcome)).collect::<Vec<_>>().join(", ")
}

/// When faults could begin.
fn begin(outcome: &Outcome) -> SimTime {
    ready(outcome).after(outcome.scenario.fault_start)
}

fn entry(planned: &Planned, begin: SimTime, outcome: &Outcome) -> Result<String, Failure> {
    let declaration = planned.fault.kind().declaration();
    let at = time(planned.begin.0.saturating_sub(begin.0));
    let mut out = format!("{{at: {at}, fault: {}", declaration.name);
    match &planned.fault {
        Fault::Partition(partition) => {
            let (shape, groups) = groups(&partition.cut);
            let groups: Vec<String> =
                groups.iter().map(|group| format!("[{}]", names(group, outcome))).collect();
            let _ = write!(out, ", partition: {}, groups: [{}]", shape.as_str(), groups.join(", "));
        }
        Fault::Window(window) => {
            out.push_str(&strength(declaration, &window.setting));
            out.push_str(&ends(&window.from, &window.to, outcome));
        }
        fault => {
            let by_node = declaration.has_target() || declaration.kind == Kind::Reset;
            let volume = fault.disk_place().and_then(|place| place.volume.as_ref());
            if let Some(volume) = volume {
                let _ = write!(out, ", volume: {}", quoted(&volume.name));
            } else if let Some(node) = fault.node().filter(|_| by_node) {
                let _ = write!(out, ", service: {}", name(node, outcome));
            }
            out.push_str(&group(fault, outcome));
            // Of these kinds there is nothing else to say.
            if !matches!(declaration.kind, Kind::Crash | Kind::Pause | Kind::Reset) {
                let (seed, nth) = drawn(planned, outcome)?;
                if declaration.begins == Begins::Standing {
                    let _ = write!(out, ", time_ms: {}", decimal(most(planned, outcome), 6));
                }
                let _ = write!(out, ", drawn: {{seed: {seed}, nth: {nth}}}");
            }
        }
    }
    // A time of 0 that is not the heal's stands for what is configured otherwise.
    let has_time = declaration.begins == Begins::Link || declaration.has_time();
    if has_time && (planned.duration > 0 || declaration.lasts_without_time()) {
        let _ = write!(out, ", duration: {}", time(planned.duration));
    }
    out.push('}');
    Ok(out)
}

/// The group that a fault hits: by its name, or else its services.
fn group(fault: &Fault, outcome: &Outcome) -> String {
    let (group, nodes) = match fault {
        Fault::GroupPower(power) => (&power.group, &power.nodes),
        Fault::GroupPartition(cut) => (&cut.group, &cut.nodes),
        fault => match fault.rollout() {
            Some(rollout) => (&rollout.group, &rollout.nodes),
            None => return String::new(),
        },
    };
    match outcome.scenario.planning.groups.iter().any(|named| named.name == *group) {
        true => format!(", service: {}", quoted(group)),
        false => format!(", services: [{}]", names(nodes, outcome)),
    }
}

/// The entry of a schedule that an entry of the plan is.
fn written<'a>(planned: &Planned, outcome: &'a Outcome) -> Option<&'a Scheduled> {
    planned.id.place().and_then(|place| outcome.scenario.planning.schedule.get(place))
}

/// How much a kind that stands for the whole phase does at most.
fn most(planned: &Planned, outcome: &Outcome) -> u64 {
    let configured = || outcome.scenario.faults.get(planned.id.kind).time.1;
    written(planned, outcome).and_then(|written| written.most).unwrap_or_else(configured)
}

/// By what the parameters of an entry are drawn: seed and number. An error if the log of the run has other ones in their place.
fn drawn(planned: &Planned, outcome: &Outcome) -> Result<(u64, u64), Failure> {
    if let Some(What::As(seed, id)) = written(planned, outcome).map(|written| &written.what) {
        return Ok((*seed, id.nth));
    }
    if !is_as_drawn(planned, outcome) {
        let said = said_of(planned.id, &outcome.decisions);
        let said = if said.is_empty() { "another seed".to_owned() } else { said.join(", ") };
        return Err(Failure::usage(format!(
            "--save-faults: what {} does at {} is not as seed {} draws it, and no schedule can say by how much ({said})\n\
             help: save the faults of the finding that it was made from, and take out the entries that are not needed",
            planned.id.kind, planned.begin, outcome.seed
        )));
    }
    let of_entry = |epoch: &&Epoch| of_faults(epoch) && planned.id.is_of_epoch(epoch.from);
    let epoch = outcome.decisions.epochs.iter().rev().find(of_entry);
    Ok((epoch.map_or(outcome.seed, |epoch| epoch.seed), planned.id.nth))
}

fn of_faults(epoch: &Epoch) -> bool {
    epoch.concerns.contains(&Concern::Faults)
}

/// Whether the seed of the run draws an entry as it was: when it begins and how long it lasts is written.
fn is_as_drawn(planned: &Planned, outcome: &Outcome) -> bool {
    if !is_redrawn(planned.id, &outcome.decisions, ready(outcome)) {
        return true;
    }
    if planned.id.is_drawn_anew() {
        return false;
    }
    let ready = ready(outcome);
    let (_, plan) = drawn_by_seed(&outcome.scenario, ready, &mut Decisions::seeded(outcome.seed));
    plan.iter().any(|entry| entry.id == planned.id && entry.fault == planned.fault)
}

/// What a log says of the parameters of an entry.
fn said_of(id: FaultId, log: &Log) -> Vec<String> {
    let named =
        |(choice, to): (&Choice, &Override)| format!("{} = {} of {}", choice.site, to.value, to.bound);
    log.overrides.iter().filter(|(choice, _)| is_of(id, &choice.site)).map(named).collect()
}

/// Whether a choice is about the parameters of an entry.
fn is_of(id: FaultId, site: &Site) -> bool {
    let written =
        ["gap", "begins", BEGINS_AT, "duration", STRENGTH, AT_ITS_TIME, LATER].map(|part| id.site(part));
    let of_id = match site {
        Site::Fault { kind, target, nth, .. } => {
            (*kind, *target, *nth) == (Word::new(id.kind.name()), id.target, id.nth)
        }
        _ => false,
    };
    of_id && !written.contains(site)
}

/// Whether a log says anything about the parameters of an entry beside the seed of the run, or of the epoch that has drawn it. The plan was drawn first at `begun`.
fn is_redrawn(id: FaultId, log: &Log, begun: SimTime) -> bool {
    let before = |epoch: &Epoch| of_faults(epoch) && epoch.from <= begun.0;
    let epochs = !id.is_drawn_anew() && log.epochs.iter().any(before);
    epochs || log.plain.contains(&Concern::Faults) || !said_of(id, log).is_empty()
}

/// The keys of a kind of links.
fn strength(declaration: &Declaration, setting: &Setting) -> String {
    let mut out = String::new();
    if declaration.switch().is_some() {
        let _ = write!(out, ", rate: {}", decimal(u64::from(setting.rate), 9));
    }
    if declaration.has_time() {
        let _ = write!(out, ", time_ms: {}", decimal(setting.time.1, 6));
    }
    if declaration.kind == Kind::Bandwidth {
        let _ = write!(out, ", kbit: {}", setting.number);
    }
    out
}

/// The shape of a partition with its groups.
fn groups(cut: &PartitionKind) -> (Shape, Vec<&[NodeId]>) {
    match cut {
        PartitionKind::Symmetric(a, b) => (Shape::Symmetric, vec![a, b]),
        PartitionKind::OneWay(a, b) => (Shape::OneWay, vec![a, b]),
        PartitionKind::MajorityMinority(a, b) => (Shape::MajorityMinority, vec![a, b]),
        PartitionKind::Isolate(node, rest) => (Shape::Isolate, vec![std::slice::from_ref(node), rest]),
        PartitionKind::Bridge(node, a, b) => (Shape::Bridge, vec![std::slice::from_ref(node), a, b]),
    }
}

/// A time that is read as exactly this.
fn time(ns: u64) -> String {
    match ns {
        ns if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}

/// A number with so many places behind the point, without zeros at its end.
fn decimal(value: u64, places: usize) -> String {
    let whole = 10u64.pow(places as u32);
    let text = format!("{}.{:0places$}", value / whole, value % whole);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A name that YAML reads as it is.
fn quoted(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let word = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    let taken = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if plain && word && !taken.contains(&name.to_ascii_lowercase().as_str()) {
        return name.to_owned();
    }
    format!("{name:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloodhound_decisions::WORD;
    use bloodhound_workloads::http::left_out;

    #[test]
    fn an_earlier_end_of_the_workload_is_no_operation() {
        let in_run = |site| Choice { part: Part::Run, site };
        let ends = Log::new(0, 7).with(in_run(workload_end()), WORD, 5);
        assert_eq!(beside_faults(&ends), ["the workload ends earlier"]);
        let both = ends.with(in_run(left_out(1, 2)), WORD, 5);
        let said = ["the workload ends earlier", "1 operations of clients that are left out or changed"];
        assert_eq!(beside_faults(&both), said);
    }

    #[test]
    fn parameters_that_a_log_replaces_are_known() {
        let id = FaultId { kind: Kind::ClockJump, target: 2, nth: 1 };
        let with = |id: FaultId, part: &str| {
            let choice = Choice { part: Part::Run, site: id.site(part) };
            Log::new(0, 7).with(choice, WORD, 0)
        };
        assert!(!is_redrawn(id, &Log::new(0, 7), SimTime(0)));
        assert!(!is_redrawn(id, &with(id, "begins"), SimTime(0)));
        assert!(!is_redrawn(id, &with(FaultId { nth: 2, ..id }, "size"), SimTime(0)));
        assert!(is_redrawn(id, &with(id, "size"), SimTime(0)));
        let branch = |concern| Log {
            epochs: vec![Epoch { from: 5, seed: 8, concerns: vec![concern] }],
            ..Log::new(0, 7)
        };
        assert!(is_redrawn(id, &branch(Concern::Faults), SimTime(5)));
        assert!(!is_redrawn(id, &branch(Concern::Faults), SimTime(4)), "a later epoch draws others");
        assert!(!is_redrawn(id, &branch(Concern::Network), SimTime(5)));
        assert!(is_redrawn(id, &Log { plain: vec![Concern::Faults], ..Log::new(0, 7) }, SimTime(0)));
    }

    #[test]
    fn that_an_operation_meets_no_fault_redraws_none() {
        let site = |part| Site::Call {
            node: 1,
            life: 1,
            task: Default::default(),
            kind: Word::new("enfile"),
            nth: 2,
            part: Word::new(part),
        };
        let with = |part| Log::new(0, 7).with(Choice { part: Part::Run, site: site(part) }, WORD, 0);
        assert!(!are_redrawn(&Log::new(0, 7)) && !are_redrawn(&with("happens")) && are_redrawn(&with("as")));
        assert!(are_redrawn(&Log { plain: vec![Concern::Disk], ..Log::new(0, 7) }));
    }

    #[test]
    fn numbers_and_names_are_read_as_they_were() {
        assert_eq!(
            (time(0), time(1_500_000_000), time(1_001)),
            ("0ms".into(), "1500ms".into(), "1001ns".into())
        );
        assert_eq!(decimal(10_000_000, 9), "0.01");
        assert_eq!(decimal(1_000_000_000, 9), "1");
        assert_eq!(decimal(500_000, 6), "0.5");
        assert_eq!(
            (quoted("kv-2"), quoted("on"), quoted("7")),
            ("kv-2".into(), "\"on\"".into(), "\"7\"".into())
        );
    }
}
