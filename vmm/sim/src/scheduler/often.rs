//! Runs in which tasks give way again and again ([`Often`]): at which instructions, at which passes of them, and who goes first then.
//!
//! Some bugs need many switches, or a certain task to go first of very many. No single rule finds all of them, so each seed draws one
//! of a list.
//!
//! Neighbours: [`crate::switches`] carries it out, [`super::priorities`] knows who goes first.

use std::fmt;

/// How tasks give way often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Often {
    /// At which passes.
    pub when: When,
    /// At which instructions.
    pub at: At,
    /// Who goes before a task that has given way.
    pub behind: Behind,
}

/// At which passes of an instruction a task gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After a number of passes from 0 to below twice this, which is drawn each time; 0: at each pass.
    Mean(u64),
    /// Once: at a pass that is the same for all tasks, one of the first [`FIRST`].
    Once,
}

/// How many first passes of an instruction [`When::Once`] is drawn from.
pub const FIRST: u64 = 3;

/// At which instructions tasks give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// So many at most, whoever comes by.
    Places(u32),
    /// Those that access one variable: each task gives way at one of them that it comes by.
    Variable,
}

/// By priority: which tasks go before one that has given way. All do that have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Of the others that have, those with a higher new priority, which each draws.
    Drawn,
    /// All others, so that they take turns.
    All,
    /// All others as well, but a third of the tasks stay behind these for good: the rest take turns without them.
    Starving,
    /// Those with a higher number.
    Younger,
    /// Those with a lower number.
    Older,
}

/// What is drawn from, after [`FEW`] numbers for runs without any. At many instructions at random, at few of them each time, and so that a
/// certain task goes first among those that have given way: one of very many threads that must come between two steps of all others is
/// found so. Strict turns at the accesses to one variable are drawn several times: nothing else finds what needs a switch at each of them.
const LIST: [Often; 36] = [
    places(1, 12, Behind::Drawn),
    places(1, 12, Behind::Drawn),
    places(1, 12, Behind::Drawn),
    places(1, 12, Behind::Drawn),
    places(2, 12, Behind::Drawn),
    places(2, 12, Behind::Drawn),
    places(6, 12, Behind::Drawn),
    places(1, 12, Behind::All),
    places(0, 1, Behind::Drawn),
    places(0, 2, Behind::All),
    places(0, 2, Behind::Younger),
    places(0, 1, Behind::Older),
    places(0, 2, Behind::Older),
    places(1, 1, Behind::Younger),
    places(1, 2, Behind::Younger),
    places(1, 4, Behind::Younger),
    variable(0, Behind::Starving),
    variable(0, Behind::Starving),
    variable(0, Behind::Starving),
    variable(0, Behind::Starving),
    variable(0, Behind::Starving),
    variable(0, Behind::All),
    variable(0, Behind::Drawn),
    variable(0, Behind::Younger),
    variable(0, Behind::Older),
    variable(1, Behind::Drawn),
    variable(1, Behind::Starving),
    once(1, Behind::Younger),
    once(1, Behind::Younger),
    once(1, Behind::Younger),
    once(1, Behind::Younger),
    once(1, Behind::Older),
    once(1, Behind::Drawn),
    once(2, Behind::Drawn),
    once(2, Behind::Younger),
    once(4, Behind::Drawn),
];

/// How many numbers stand for a run without any.
const FEW: u64 = 26;

const fn places(mean: u64, count: u32, behind: Behind) -> Often {
    Often { when: When::Mean(mean), at: At::Places(count), behind }
}

const fn variable(mean: u64, behind: Behind) -> Often {
    Often { when: When::Mean(mean), at: At::Variable, behind }
}

const fn once(count: u32, behind: Behind) -> Often {
    Often { when: When::Once, at: At::Places(count), behind }
}

impl Often {
    /// The bound of the numbers for [`Often::at`].
    pub const DRAWN: u64 = FEW + LIST.len() as u64;

    /// What a number below [`Often::DRAWN`] stands for; `None`: tasks give way a few times in the whole run.
    pub fn at(number: u64) -> Option<Often> {
        number.checked_sub(FEW).map(|at| LIST[at as usize % LIST.len()])
    }

    /// Whether it means nothing where tasks have no priorities.
    pub fn needs_priorities(self) -> bool {
        self.at == At::Variable || self.when == When::Once
    }
}

impl fmt::Display for Often {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::Mean(0) => f.write_str("switches at each pass of ")?,
            When::Mean(mean) => write!(f, "switches at one pass in {mean} of ")?,
            When::Once => f.write_str("each task switches once at ")?,
        }
        match self.at {
            At::Places(1) => f.write_str("one instruction"),
            At::Places(places) => write!(f, "{places} instructions at most"),
            At::Variable => f.write_str("the accesses to one variable"),
        }
    }
}
