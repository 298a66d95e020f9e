//! The situation of the world: what each node is doing, and which faults are under way.
//!
//! Key types: [`Situation`]. What a node is doing is known by what it says to other services: the last thing that it asked them, the last that it
//! answered them, and its last line of a log that it does not write all the time. That tells a leader from a follower without a name for either.
//! The states of all nodes together, sorted, are a state of the world: nodes of one class may change places. Neighbours: [`super::gather`].

use bloodhound_abi::SimTime;
use bloodhound_faults::Kind;
use bloodhound_net::NodeId;
use bloodhound_sim::event::Moment;
use bloodhound_sim::faults::{FaultId, Planned};

use super::book::{Aspect, Book};
use super::classes::Classes;
use super::messages::Shape;
use super::table::mix;

/// After so many changes of the situation a service of a branch that was not heard is taken for one that says nothing.
const SETTLED: u32 = 64;

/// What one service is doing.
#[derive(Clone, Debug, Default)]
struct State {
    class: u64,
    asked: u64,
    answered: u64,
    line: u64,
    /// 0: it runs; else how its last change left it.
    life: u64,
    /// Faults that are under way on it alone, one bit for each kind.
    faults: u64,
}

/// All services, and all faults that are under way.
#[derive(Clone, Debug)]
pub struct Situation {
    nodes: Vec<(NodeId, State)>,
    /// With whom they hit, and when they are over: the end of some (a crash) is told by the start of the service alone.
    under_way: Vec<(FaultId, Option<NodeId>, SimTime)>,
    /// Kinds that are under way anywhere, one bit for each.
    kinds: u64,
    /// The same as a part of features.
    pub faults: u64,
    /// The last fault: its kind and whom it hit.
    last: Option<(Kind, Option<NodeId>)>,
    /// How often the situation changed.
    changes: u32,
    /// Buffer for states in order.
    sorted: Vec<u64>,
}

impl Situation {
    /// The beginning of a run.
    pub fn new(classes: &Classes) -> Situation {
        let state = |node: &NodeId| State { class: classes.of(Some(*node)), ..State::default() };
        Situation {
            nodes: classes.services().iter().map(|node| (*node, state(node))).collect(),
            under_way: Vec::new(),
            kinds: 0,
            faults: 0,
            last: None,
            changes: 0,
            sorted: Vec::new(),
        }
    }

    /// A message with data was sent.
    #[inline]
    pub fn said(&mut self, at: &Moment, shape: &Shape, book: &mut Book) {
        let is_service = |node: Option<NodeId>| node.is_some_and(|node| self.place(node).is_some());
        let (Some(from), true) = (shape.from, is_service(shape.to)) else { return };
        let Some(place) = self.place(from) else { return };
        let state = &mut self.nodes[place].1;
        let slot = if shape.asks { &mut state.asked } else { &mut state.answered };
        if *slot != shape.said {
            *slot = shape.said;
            self.changed(at, book);
        }
    }

    /// A node wrote a line that it does not write all the time.
    pub fn wrote(&mut self, at: &Moment, line: u64, book: &mut Book) {
        let Some(place) = at.node.and_then(|node| self.place(node)) else { return };
        let state = &mut self.nodes[place].1;
        if state.line != line {
            state.line = line;
            self.changed(at, book);
        }
    }

    /// The life of a service has taken a turn; 0: it runs.
    pub fn lives(&mut self, at: &Moment, life: u64, book: &mut Book) {
        let Some(place) = at.node.and_then(|node| self.place(node)) else { return };
        let state = &mut self.nodes[place].1;
        // Who starts anew has said nothing yet.
        *state = State { class: state.class, faults: state.faults, life, ..State::default() };
        self.count_faults(at, book);
    }

    /// A fault begins.
    pub fn fault(&mut self, at: &Moment, planned: &Planned, classes: &Classes, book: &mut Book) {
        let (kind, target) = (planned.id.kind, planned.fault.node());
        let word = book.part(mix(kind as u64, 1), |_| kind.name().to_owned());
        let place = target.and_then(|node| self.place(node));
        let role = place.map_or(0, |place| self.role(place, book));
        let class = book.part(classes.of(target), |_| classes.name(target).to_owned());
        if place.is_none_or(|place| self.is_known(place, book)) {
            book.see(at.at, Aspect::FaultAt, &[word, class, role, self.faults]);
        }
        if let Some((before, whom)) = self.last.replace((kind, target)) {
            let same = whom == target;
            let before = book.part(mix(before as u64, 1), |_| before.name().to_owned());
            let same = book.part(mix(u64::from(same), 5), |_| {
                if same { "on the same" } else { "on another" }.to_owned()
            });
            book.see(at.at, Aspect::FaultPair, &[before, word, same, self.faults]);
        }
        if planned.duration > 0 {
            self.under_way.push((planned.id, target, at.at.after(planned.duration)));
            self.count_faults(at, book);
        }
    }

    /// A fault is over.
    pub fn fault_over(&mut self, at: &Moment, id: FaultId, book: &mut Book) {
        self.under_way.retain(|(other, ..)| *other != id);
        self.count_faults(at, book);
    }

    /// All faults are over.
    pub fn healed(&mut self, at: &Moment, book: &mut Book) {
        self.under_way.clear();
        self.count_faults(at, book);
    }

    fn count_faults(&mut self, at: &Moment, book: &mut Book) {
        self.under_way.retain(|(.., until)| *until > at.at);
        let bit = |id: &FaultId| 1u64 << (id.kind as u64 % 64);
        self.kinds = self.under_way.iter().fold(0, |all, (id, ..)| all | bit(id));
        for (node, state) in &mut self.nodes {
            let own = self.under_way.iter().filter(|(_, target, _)| *target == Some(*node));
            state.faults = own.fold(0, |all, (id, ..)| all | bit(id));
        }
        let kinds = self.kinds;
        self.faults = if kinds == 0 { 0 } else { book.part(mix(kinds, 2), |_| names(kinds)) };
        book.see(at.at, Aspect::Faults, &[self.faults]);
        self.changed(at, book);
    }

    fn place(&self, node: NodeId) -> Option<usize> {
        // Few stacks have more than a handful of services.
        self.nodes.iter().position(|(other, _)| *other == node)
    }

    /// Whether it is known what a node is doing: in a branch, when it was heard.
    fn is_known(&self, place: usize, book: &Book) -> bool {
        let State { asked, answered, line, life, .. } = self.nodes[place].1;
        book.is_whole()
            || self.changes > SETTLED
            || [asked, answered, line, life].iter().any(|part| *part != 0)
    }

    /// What a node is doing, as a part.
    fn role(&self, place: usize, book: &mut Book) -> u64 {
        let state = &self.nodes[place].1;
        let parts = [state.asked, state.answered, state.line, state.life, state.faults];
        let hash = parts.iter().fold(state.class, |hash, part| mix(hash, *part));
        book.part(hash, |book| {
            let mut said: Vec<String> = Vec::new();
            let told = [
                ("asks", state.asked),
                ("answers", state.answered),
                ("wrote", state.line),
                ("is", state.life),
            ];
            said.extend(
                told.iter()
                    .filter(|(_, part)| *part != 0)
                    .map(|(verb, part)| format!("{verb} {}", book.words(*part))),
            );
            if state.faults != 0 {
                said.push(format!("under {}", names(state.faults)));
            }
            format!("[{}]", said.join(", "))
        })
    }

    /// A node does something else: the state of the world is another.
    fn changed(&mut self, at: &Moment, book: &mut Book) {
        self.changes = self.changes.saturating_add(1);
        if !(0..self.nodes.len()).all(|place| self.is_known(place, book)) {
            return;
        }
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.clear();
        sorted.extend((0..self.nodes.len()).map(|place| self.role(place, book)));
        sorted.sort_unstable();
        let all = sorted.iter().fold(0, |hash, part| mix(hash, *part));
        let all =
            book.part(all, |book| sorted.iter().map(|part| book.words(*part)).collect::<Vec<_>>().join(" "));
        self.sorted = sorted;
        book.see(at.at, Aspect::Together, &[all]);
        if self.kinds != 0 {
            book.see(at.at, Aspect::TogetherUnder, &[all, self.faults]);
        }
    }
}

/// The kinds of a set.
fn names(kinds: u64) -> String {
    let within =
        Kind::DECLARATIONS.iter().filter(|declaration| kinds >> (declaration.kind as u64 % 64) & 1 == 1);
    within.map(|declaration| declaration.name).collect::<Vec<_>>().join(" + ")
}
