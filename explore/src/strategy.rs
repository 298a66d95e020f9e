//! [`Strategy`]: by which rule a search chooses its runs.

use std::str::FromStr;

/// By which rule runs are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Independent seeds, each with every configured kind of fault at its configured rate.
    Random,
    /// Independent seeds, each with a swarm profile of its own.
    Swarm,
    /// States are gone on from in the order of their depth.
    Bfs,
    /// The deepest and newest state is gone on from first.
    Dfs,
    /// States that showed what is rare, or came near a violation, are gone on from most; what has paid is done more.
    CoverageGuided,
    /// One random number that a program has asked for is another one.
    InputTree,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 6] = [
        Strategy::Random,
        Strategy::Swarm,
        Strategy::Bfs,
        Strategy::Dfs,
        Strategy::CoverageGuided,
        Strategy::InputTree,
    ];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Random => "random",
            Strategy::Swarm => "swarm",
            Strategy::Bfs => "bfs",
            Strategy::Dfs => "dfs",
            Strategy::CoverageGuided => "coverage-guided",
            Strategy::InputTree => "input-tree",
        }
    }

    /// Whether what runs have shown decides about those that come later. Runs of the others are independent seeds.
    pub fn is_guided(self) -> bool {
        !matches!(self, Strategy::Random | Strategy::Swarm)
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Strategy, String> {
        let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Strategy::ALL.iter().map(|strategy| strategy.name()).collect();
            format!("`{text}` is no strategy; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_again() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.name().parse(), Ok(strategy));
        }
        assert!("breadth".parse::<Strategy>().is_err_and(|why| why.contains("coverage-guided")));
    }
}
