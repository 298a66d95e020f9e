//! What a case of a kind of faults is: which program runs, with which faults, and how it is judged. The cases themselves are in `cases.rs`.

/// What runs in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `calls.c`: one service that asks its kernel for all that can be denied.
    Calls,
    /// `network.c`: `one` sends to `two`, which sends back.
    Network,
    /// `lives.c`: one service with a second thread and a worker.
    Lives,
    /// `data/clock/pair.c`: two services that compare their clocks.
    Clocks,
    /// `sectors.c`: one service that reads a file over and over, by calls and by mappings.
    Sectors,
}

impl Program {
    /// All of them.
    pub const ALL: [Program; 5] =
        [Program::Calls, Program::Network, Program::Lives, Program::Clocks, Program::Sectors];

    /// The name of the file that runs.
    pub fn name(self) -> &'static str {
        match self {
            Program::Calls => "calls",
            Program::Network => "network",
            Program::Lives => "lives",
            Program::Clocks => "clocks",
            Program::Sectors => "sectors",
        }
    }

    /// Where its source is, below `runner/tests`.
    pub fn source(self) -> &'static str {
        match self {
            Program::Calls => "every_fault/calls.c",
            Program::Network => "every_fault/network.c",
            Program::Lives => "every_fault/lives.c",
            Program::Clocks => "data/clock/pair.c",
            Program::Sectors => "every_fault/sectors.c",
        }
    }

    /// Whether a service `two` runs it as well.
    pub fn is_pair(self) -> bool {
        matches!(self, Program::Network | Program::Clocks)
    }

    /// Its argument in a service of a pair: what it is, or whom it talks to.
    pub fn argument(self, service: &'static str) -> &'static str {
        match (self, service) {
            (Program::Clocks, "one") => "two",
            (Program::Clocks, _) => "one",
            _ => service,
        }
    }
}

/// What the service `one` prints if it sees the fault, and does not without it.
#[derive(Clone, Copy, Debug)]
pub enum Sees {
    /// These lines in this order, with whatever between.
    InOrder(&'static [&'static str]),
    /// What this holds of.
    That(fn(&[&str]) -> bool),
}

/// The case of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The kind's name.
    pub kind: &'static str,
    pub program: Program,
    /// Keys of the section `faults`. Faults can begin half a second after the services are ready, and are healed two seconds later.
    pub faults: &'static str,
    /// What stands in lines of the timeline, one after the other: that it begins, and that it ends.
    pub told: &'static [&'static str],
    pub sees: Sees,
}

/// A case that is judged by lines of the service.
pub const fn case(
    kind: &'static str,
    program: Program,
    faults: &'static str,
    told: &'static [&'static str],
    sees: &'static [&'static str],
) -> Case {
    Case { kind, program, faults, told, sees: Sees::InOrder(sees) }
}

/// A case that is judged by what a function says of these lines.
pub const fn case_that(
    kind: &'static str,
    program: Program,
    faults: &'static str,
    told: &'static [&'static str],
    holds: fn(&[&str]) -> bool,
) -> Case {
    Case { kind, program, faults, told, sees: Sees::That(holds) }
}

/// By how many ms the wall clock was set, each time.
fn steps(lines: &[&str]) -> Vec<i64> {
    let of = |line: &&str| line.strip_prefix("step ")?.strip_suffix(" ms alike")?.parse().ok();
    lines.iter().filter_map(of).collect()
}

/// By how many ms the clocks of the two services differed, each time: CLOCK_MONOTONIC and CLOCK_REALTIME.
fn apart(lines: &[&str]) -> Vec<(i64, i64)> {
    let of = |line: &&str| {
        let (mono, real) = line.strip_prefix("apart ")?.strip_suffix(" us")?.split_once(' ')?;
        Some((mono.parse::<i64>().ok()? / 1000, real.parse::<i64>().ok()? / 1000))
    };
    lines.iter().filter_map(of).collect()
}

/// The wall clock is wrong by so much for a while.
fn set_and_set_right(lines: &[&str], least: i64, most: i64) -> bool {
    let steps = steps(lines);
    let is_wrong = |by: &i64| (least..=most).contains(&by.abs());
    steps.len() == 2 && steps.first().is_some_and(is_wrong) && steps.iter().sum::<i64>().abs() <= 2
}

/// By three seconds, forward or back.
pub fn jumps(lines: &[&str]) -> bool {
    set_and_set_right(lines, 2_990, 3_010)
}

/// By up to a second.
pub fn is_skewed(lines: &[&str]) -> bool {
    set_and_set_right(lines, 5, 1_000)
}

/// Ten percent for a second, which the monotonic clock keeps and the wall clock does not.
pub fn drifts(lines: &[&str]) -> bool {
    let last = apart(lines).last().copied();
    last.is_some_and(|(mono, real)| (80..=120).contains(&mono.abs()) && real.abs() < 5)
}

/// The wall clock goes back by a second, once, and stays there.
pub fn repeats_a_second(lines: &[&str]) -> bool {
    matches!(steps(lines)[..], [by] if (-1_002..=-998).contains(&by))
}

/// One of the threads stands still, and the others go on.
pub fn one_is_late(lines: &[&str]) -> bool {
    lines.iter().filter(|line| line.ends_with(" late")).count() == 1
}

/// A block cannot be read and is SIGBUS in both mappings, until all of it is written.
pub fn is_bad_until_written(lines: &[&str]) -> bool {
    let is = |line: &&str, (what, how): &(&str, &str)| line.starts_with(what) && line.ends_with(how);
    let expected = [
        ("read ", " EIO"),
        ("mapped ", " SIGBUS"),
        ("mapped ", " SIGBUS"),
        ("memory ", " EFAULT"),
        ("part ", " EIO"),
        ("whole ", " 4096"),
        ("then ", " good"),
    ];
    lines.len() == expected.len() && lines.iter().zip(&expected).all(|(line, expected)| is(line, expected))
}
