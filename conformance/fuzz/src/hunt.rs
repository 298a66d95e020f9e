//! Looking for differences.

use std::path::PathBuf;

use crate::case::Case;
use crate::machine::{Machine, Outcome};
use crate::versions;

/// What is needed to compare.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The guest program.
    pub guest: PathBuf,
    /// Where it is simulated.
    pub simulated: Vec<Machine>,
    /// The operation that the guest answers wrongly when it is simulated, to prove that this is noticed.
    pub lie: Option<usize>,
}

/// What a hunt has found.
#[derive(Clone, Debug, Default)]
pub struct Hunted {
    /// The differences.
    pub found: Vec<Difference>,
    /// Cases that the native kernel answers differently each time.
    pub vague: usize,
    /// Cases in which the native kernel does what those after Linux 6.1 do ([`versions`]).
    pub newer: usize,
}

/// Two machines disagree about a case.
#[derive(Clone, Debug)]
pub struct Difference {
    /// About this one.
    pub case: Case,
    /// What the native kernel does.
    pub native: Outcome,
    /// What is simulated.
    pub simulated: Outcome,
    /// On which platform.
    pub platform: String,
    /// Which operation differs first, and how: differences with equal keys are likely to be one.
    pub key: String,
}

/// The first lines that differ.
pub fn first_difference<'a>(a: &'a [String], b: &'a [String]) -> Option<(&'a str, &'a str)> {
    let longer = a.len().max(b.len());
    let line = |lines: &'a [String], i: usize| lines.get(i).map_or("nothing", String::as_str);
    (0..longer).map(|i| (line(a, i), line(b, i))).find(|(a, b)| a != b)
}

/// What an outcome says whichever of two actors that run at once is faster: its lines in no order, without what a call returned in an operation in which
/// its own thread and another actor ended. The other one may have ended the process, and whether the thread tells what its call returned before it is killed depends on
/// the processors.
fn unordered(outcome: &Outcome) -> Vec<&str> {
    let ended: Vec<(&str, &str)> =
        outcome.iter().filter_map(|line| line.strip_suffix(" has ended")?.split_once(' ')).collect();
    let is_killed = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let (op, actor, sign) = (words.next(), words.next(), words.nth(1));
        let with = |other: &&(&str, &str)| Some(other.0) == op;
        sign.is_some_and(|rest| rest.starts_with("= "))
            && ended.iter().filter(with).count() > 1
            && ended.iter().any(|(at, who)| (Some(*at), Some(*who)) == (op, actor))
    };
    let mut lines: Vec<&str> = outcome.iter().map(String::as_str).filter(|line| !is_killed(line)).collect();
    lines.sort_unstable();
    lines
}

/// What was done and how it ended, without numbers of operations and contents.
fn essence(line: &str) -> String {
    if line.starts_with("the run ended") {
        return line.chars().take(160).collect();
    }
    let words: Vec<&str> = line.split_whitespace().skip(2).take(3).collect();
    match words.as_slice() {
        [call, "=", result] if result.starts_with('-') => format!("{call} = {result}"),
        [call, "=", ..] => format!("{call} = good"),
        _ => line.split_whitespace().skip(1).take(3).collect::<Vec<_>>().join(" "),
    }
}

impl Difference {
    /// A difference of two outcomes, if they differ.
    pub fn of(case: &Case, native: &Outcome, simulated: &Outcome, platform: &str) -> Option<Difference> {
        let (a, b) = first_difference(native, simulated)?;
        Some(Difference {
            case: case.clone(),
            native: native.clone(),
            simulated: simulated.clone(),
            platform: platform.to_owned(),
            key: format!("{} | {}", essence(a), essence(b)),
        })
    }

    /// As it is written to a file: the case, and what was printed where the two differ.
    pub fn text(&self) -> String {
        let mut text = format!("# {}\n{}", self.key, self.case.text());
        let mut side = |name: &str, lines: &Outcome, other: &Outcome| {
            text.push_str(&format!("# {name}:\n"));
            for (i, line) in lines.iter().enumerate() {
                let mark = if other.get(i) == Some(line) { ' ' } else { '!' };
                text.push_str(&format!("#{mark}   {line}\n"));
            }
        };
        side("native", &self.native, &self.simulated);
        side(&self.platform, &self.simulated, &self.native);
        text
    }
}

impl Lab {
    fn extra(&self, machine: &Machine) -> Vec<String> {
        match (machine, self.lie) {
            (Machine::Simulated { .. }, Some(op)) => vec!["--lie".to_owned(), op.to_string()],
            _ => Vec::new(),
        }
    }

    /// Carries out cases on one machine.
    pub fn run(&self, machine: &Machine, cases: &[Case]) -> Vec<Outcome> {
        let extra = self.extra(machine);
        let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
        machine.run(&self.guest, &extra, cases)
    }

    /// The cases about which a machine disagrees with the native kernel, unconfirmed.
    pub fn compare(&self, machine: &Machine, cases: &[Case], native: &[Outcome]) -> Vec<Difference> {
        let simulated = self.run(machine, cases);
        let pairs = cases.iter().zip(native.iter().zip(&simulated));
        pairs.filter_map(|(case, (a, b))| Difference::of(case, a, b, machine.name())).collect()
    }

    /// Whether a difference is one: a case that the native kernel answers otherwise each time says nothing.
    pub fn confirmed(&self, difference: &Difference) -> bool {
        let cases = vec![difference.case.clone(); 12];
        let natives = self.run(&Machine::Native, &cases);
        natives.iter().all(|native| *native == difference.native)
    }

    /// The differences in a batch of cases, confirmed, on all platforms.
    pub fn hunt(&self, cases: &[Case]) -> Hunted {
        let native = self.run(&Machine::Native, cases);
        let kernel = versions::running();
        let mut hunted = Hunted::default();
        for machine in &self.simulated {
            for difference in self.compare(machine, cases, &native) {
                let is_race = unordered(&difference.native) == unordered(&difference.simulated);
                if is_race || !self.confirmed(&difference) {
                    hunted.vague += 1;
                } else if self.lie.is_none() && versions::explain(&difference, kernel) {
                    hunted.newer += 1;
                } else {
                    hunted.found.push(difference);
                }
            }
        }
        hunted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> Outcome {
        text.lines().map(str::to_owned).collect()
    }

    /// A signal to another thread kills all, one of them while it returns from kill(2).
    #[test]
    fn who_dies_of_another_may_or_may_not_tell_what_its_call_returned() {
        let told = outcome("5 1 read = -22\n6 2 kill = 0\n6 0 has ended\n6 2 has ended");
        let killed = outcome("5 1 read = -22\n6 2 has ended\n6 0 has ended");
        assert_eq!(unordered(&told), unordered(&killed));
        let other = outcome("5 1 read = 0\n6 2 has ended\n6 0 has ended");
        assert_ne!(unordered(&other), unordered(&killed));
        // Nobody else died, or it lived on: then what it returned counts.
        for end in ["6 2 has ended", "6 0 has ended\n6 1 has ended"] {
            let (zero, one) =
                (outcome(&format!("6 2 kill = 0\n{end}")), outcome(&format!("6 2 kill = 1\n{end}")));
            assert_ne!(unordered(&zero), unordered(&one), "{end}");
        }
    }
}
