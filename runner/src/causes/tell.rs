//! What a search for causes has come to, for people ([`text`], Markdown) and for machines ([`json`]).

use std::fmt::Write as _;

use bloodhound_abi::SimTime;
use serde_json::{Value, json};

use super::around::Side;
use super::future::Later;
use super::runs::End;
use super::when::{Jump, Sample, When, interval, share};
use super::which::weight;
use crate::finding::Record;

/// So many things that were taken out are listed.
const MOST: usize = 12;

/// A choice that decides, with both runs around it.
#[derive(Clone, Debug)]
pub struct Decides {
    /// In words.
    pub what: String,
    pub at: SimTime,
    /// The name of the choice, and its value on both sides, where it is one choice.
    pub site: Option<String>,
    pub values: Option<(String, String)>,
    /// How other futures end, with it and without it.
    pub with: Vec<End>,
    pub without: Vec<End>,
    /// The digests of both runs, each of which was seen twice.
    pub digests: (String, String),
    pub around: Vec<(Side, String)>,
}

/// Something else that was taken out alone.
#[derive(Clone, Debug)]
pub struct Single {
    pub what: String,
    pub at: SimTime,
    /// How the run ends without it.
    pub end: End,
    /// Futures with and without it, where they were looked at.
    pub weight: Option<(Vec<End>, Vec<End>)>,
    pub is_operation: bool,
}

/// All of it.
pub struct Told<'a> {
    pub record: &'a Record,
    pub text: String,
    pub violated: SimTime,
    pub source: &'static str,
    pub reduced: Option<String>,
    /// In the words of `always`: it fails even in the plainest run.
    pub plainest: Option<End>,
    pub when: When,
    pub cause: Option<Decides>,
    pub singles: Vec<Single>,
    /// How many things were not taken out alone.
    pub untried: usize,
    pub fewest: Option<(Vec<String>, bool)>,
    pub parting: Option<(Decides, usize)>,
    /// Why a passing future was not narrowed to one choice.
    pub not_parted: Option<String>,
    pub near: Vec<String>,
    pub runs: u32,
    pub early: Option<&'static str>,
}

fn of(ends: &[End]) -> String {
    let (failing, tried) = share(ends);
    let others = ends.iter().filter(|end| matches!(end, End::Otherwise(_))).count();
    let unknown = ends.len() as u64 - tried;
    let mut out = format!("{failing} of {tried}");
    if others > 0 {
        let _ = write!(out, " ({others} in another way)");
    }
    if unknown > 0 {
        let _ = write!(out, " ({unknown} without a verdict)");
    }
    out
}

fn percent(mille: u64) -> String {
    format!("{}.{} %", mille / 10, mille % 10)
}

/// A share with its interval.
fn sure(ends: &[End]) -> String {
    let (low, high) = interval(share(ends));
    format!("{} fail (95 %: {} to {})", of(ends), percent(low), percent(high))
}

/// The answer.
pub fn text(told: &Told<'_>) -> String {
    let Told { record, text, violated, source, reduced, runs, early, .. } = told;
    let mut out = format!("# Why seed {} violates {} ({})\n\n", record.seed, record.property, record.kind);
    let _ = writeln!(out, "    {violated} {}\n", text.lines().next().unwrap_or_default());
    let _ = writeln!(out, "Looked at: {source}; {runs} runs.");
    if let Some(reduced) = reduced {
        let _ = writeln!(out, "{reduced}");
    }
    if record.virtual_time_ns != violated.0 {
        let _ = writeln!(
            out,
            "The finding itself was violated at {}: times are those of the run with less in it.",
            SimTime(record.virtual_time_ns)
        );
    }
    if let Some(why) = early {
        let _ = writeln!(
            out,
            "The search ended early, as {why}: what stands here was seen, but less was tried than is usual."
        );
    }
    out.push_str("\n## What made it fail\n\n");
    cause(&mut out, told);
    out.push_str("\n## When\n\n");
    when(&mut out, &told.when, &told.near);
    out.push_str("\n## With the same faults\n\n");
    if let Some(why) = &told.not_parted {
        let _ = writeln!(
            out,
            "There is a future that passes, but it was not found which one choice parts it from the failing run: {why}."
        );
    } else if told.when.latest_passing().is_none() {
        out.push_str(&none_passes(&told.when));
    } else if told.parting.is_none() {
        out.push_str("The choice at which a passing run parts from the failing one is the one above.\n");
    }
    if let Some((parting, among)) = &told.parting {
        let _ = writeln!(
            out,
            "A run that is the same up to {} and passes parts from it there by one choice, found among {among}:\n",
            parting.at
        );
        decides(&mut out, parting);
    }
    out
}

/// That no future with the same faults passes, of how many.
fn none_passes(when: &When) -> String {
    let stays = when.curves.iter().filter(|curve| curve.later == Later::Stay);
    match stays.flat_map(|curve| &curve.samples).map(|sample| sample.share().1).sum::<u64>() {
        0 => "Nothing is known: no future with the same faults was tried and had a verdict.\n".to_owned(),
        tried => format!("None of the {tried} futures passes that were drawn anew with the same faults.\n"),
    }
}

fn cause(out: &mut String, told: &Told<'_>) {
    if told.when.always() && told.cause.is_none() {
        let _ = write!(out, "It fails in every future from the start on that was tried");
        match &told.plainest {
            Some(End::Fails) => {
                let _ = writeln!(
                    out,
                    ", and in the plainest run as well: without any fault, delay of a packet or other order of tasks. No fault and no choice is \
                     needed; look at what the service does, not at when."
                );
            }
            Some(end) => {
                let _ = writeln!(out, "; the plainest run, without any fault, {}.", ended(end));
            }
            None => out.push_str(".\n"),
        }
    }
    let needs_nothing = told.when.always() && told.plainest == Some(End::Fails);
    match &told.cause {
        Some(cause) => decides(out, cause),
        None if needs_nothing => {}
        None if told.singles.iter().all(|single| single.is_operation || single.end != End::Passes) => {
            let tried = told.singles.iter().filter(|single| !single.is_operation).count();
            match tried {
                0 if told.untried > 0 => {
                    out.push_str("Nothing is known: the search ended before anything was taken out alone, or there was too much of it.\n");
                }
                0 => out.push_str(
                    "There was no fault and no choice that is not plain which could be taken out alone.\n",
                ),
                1 => out.push_str("The one fault or choice that was taken out alone does not decide it.\n"),
                _ => {
                    let _ = writeln!(
                        out,
                        "No single one of {tried} faults and choices that were taken out alone decides it."
                    );
                }
            }
        }
        None => {}
    }
    if let Some((set, minimal)) = &told.fewest {
        let open = if *minimal { "" } else { " (not all smaller sets of these were tried)" };
        let _ = writeln!(out, "It passes without these together, and fails with any one of them{open}:\n");
        for what in set {
            let _ = writeln!(out, "- {what}");
        }
    }
    singles(out, told);
    if told.untried > 0 {
        let _ = writeln!(out, "\nNot taken out alone: {} further choices and operations.", told.untried);
    }
}

fn ended(end: &End) -> String {
    match end {
        End::Fails => "fails in the same way".into(),
        End::Passes => "passes".into(),
        End::Otherwise(property) => format!("violates {property} instead"),
        End::Unknown(why) => format!("has no verdict ({})", why.lines().next().unwrap_or_default()),
    }
}

fn decides(out: &mut String, decides: &Decides) {
    let _ = writeln!(out, "**{}**, at {}.", decides.what, decides.at);
    match &decides.values {
        Some((failing, passing)) => {
            let _ = writeln!(out, "\n- in the failing run: {failing}\n- in the passing run: {passing}");
        }
        None => out.push_str("Without it the run passes.\n"),
    }
    futures(out, &decides.with, &decides.without);
    let (failing, passing) = &decides.digests;
    let _ =
        writeln!(out, "\nBoth were run again, and ended so again: failing {failing}, passing {passing}.\n");
    for (side, line) in &decides.around {
        let _ = writeln!(out, "    {:<8}{line}", side.name());
    }
}

/// How other futures end with something and without it.
fn futures(out: &mut String, with: &[End], without: &[End]) {
    let Some(weight) = weight(with, without) else {
        out.push_str("\nWhether it decides in other futures is not known: with it or without it none was tried and had a verdict.\n");
        return;
    };
    let _ = writeln!(
        out,
        "\nIn other futures from there on: with it {}; without it {}.",
        sure(with),
        sure(without)
    );
    if weight <= 0 {
        out.push_str("So it decides in this run, and not in general: much else does as well.\n");
    }
}

fn singles(out: &mut String, told: &Told<'_>) {
    let flips = told.singles.iter().filter(|single| single.end == End::Passes);
    let flips: Vec<&Single> = flips
        .filter(|single| {
            told.cause.as_ref().is_none_or(|cause| cause.what != single.what || cause.at != single.at)
        })
        .collect();
    if !flips.is_empty() {
        out.push_str("\nIt passes without each of these, too:\n\n");
    }
    let more = flips.len().saturating_sub(MOST);
    for single in flips.into_iter().take(MOST) {
        let weight = single.weight.as_ref().map(|(with, without)| {
            format!(" (other futures: with it {} fail, without it {})", of(with), of(without))
        });
        let _ = writeln!(out, "- {} {}{}", single.at, single.what, weight.unwrap_or_default());
    }
    further(out, more);
    let others: Vec<&Single> = told.singles.iter().filter(|single| single.end != End::Passes).collect();
    if !others.is_empty() {
        out.push_str("\nThese do not decide it alone:\n\n");
    }
    let more = others.len().saturating_sub(MOST);
    for single in others.into_iter().take(MOST) {
        let _ = writeln!(out, "- {} {}: without it the run {}", single.at, single.what, ended(&single.end));
    }
    further(out, more);
}

fn further(out: &mut String, more: usize) {
    if more > 0 {
        let _ = writeln!(out, "- and {more} more (causes.json)");
    }
}

fn curve_name(later: Later) -> &'static str {
    match later {
        Later::Stay => "with the faults as they were planned",
        Later::Out => "without the faults that begin later",
    }
}

fn when(out: &mut String, when: &When, near: &[String]) {
    match &when.jump {
        Some(Jump { later, before, after }) => {
            let _ = writeln!(
                out,
                "Failing became likely between {} and {}: of futures that are drawn anew from there on, {}, {} before and {} after.",
                before.at,
                after.at,
                curve_name(*later),
                sure(&before.ends),
                sure(&after.ends)
            );
            if !near.is_empty() {
                out.push_str("\nAround that moment:\n\n");
            }
            for line in near {
                let _ = writeln!(out, "    {line}");
            }
        }
        None if when.curves.iter().all(|curve| curve.known().nth(1).is_none()) => {
            out.push_str(
                "Nothing is known: of fewer than two moments a future was tried and had a verdict.\n",
            );
        }
        None => out.push_str("There is no moment at which failing became much more likely.\n"),
    }
    out.push_str("\nFutures that fail, by the moment from which they are drawn anew (other schedule, network, random numbers, operations):\n");
    for curve in &when.curves {
        let _ =
            writeln!(out, "\n{}:\n\n| from | fail | 95 % |   |\n|---|---|---|---|", curve_name(curve.later));
        for Sample { at, ends } in &curve.samples {
            let (low, high) = interval(share(ends));
            let mille = share(ends);
            let bar = "#".repeat((mille.0 * 10).checked_div(mille.1).unwrap_or_default() as usize);
            let _ = writeln!(out, "| {at} | {} | {} to {} | {bar} |", of(ends), percent(low), percent(high));
        }
    }
}

fn ends_json(ends: &[End]) -> Value {
    let (failing, tried) = share(ends);
    let (low, high) = interval((failing, tried));
    let others = ends.iter().filter(|end| matches!(end, End::Otherwise(_))).count();
    json!({
        "failing": failing, "tried": tried, "in_another_way": others, "without_verdict": ends.len() as u64 - tried,
        "wilson_95_permille": [low, high],
    })
}

fn end_json(end: &End) -> Value {
    match end {
        End::Fails => json!("fails"),
        End::Passes => json!("passes"),
        End::Otherwise(property) => json!({"violates": property}),
        End::Unknown(why) => json!({"no_verdict": why}),
    }
}

fn decides_json(decides: &Decides) -> Value {
    let around: Vec<Value> =
        decides.around.iter().map(|(side, line)| json!({"side": side.name(), "line": line})).collect();
    json!({
        "what": decides.what, "virtual_time_ns": decides.at.0, "site": decides.site,
        "values": decides.values.as_ref().map(|(failing, passing)| json!({"failing": failing, "passing": passing})),
        "futures_with": ends_json(&decides.with), "futures_without": ends_json(&decides.without),
        "digest_failing": decides.digests.0, "digest_passing": decides.digests.1, "around": around,
    })
}

fn sample_json(sample: &Sample) -> Value {
    let mut json = ends_json(&sample.ends);
    json["virtual_time_ns"] = sample.at.0.into();
    json
}

/// The same for machines.
pub fn json(told: &Told<'_>) -> Value {
    let later = |later| if later == Later::Stay { "stay" } else { "left-out" };
    let curves: Vec<Value> = told
        .when
        .curves
        .iter()
        .map(|curve| {
            let samples: Vec<Value> = curve.samples.iter().map(sample_json).collect();
            json!({"later_faults": later(curve.later), "samples": samples})
        })
        .collect();
    let jump = told.when.jump.as_ref().map(|jump| {
        json!({
            "later_faults": later(jump.later), "before": sample_json(&jump.before), "after": sample_json(&jump.after),
            "events": told.near,
        })
    });
    let singles: Vec<Value> = told
        .singles
        .iter()
        .map(|single| {
            let weight = single.weight.as_ref();
            json!({
                "what": single.what, "virtual_time_ns": single.at.0, "without_it": end_json(&single.end),
                "operation": single.is_operation,
                "futures": weight.map(|(with, without)| json!({"with": ends_json(with), "without": ends_json(without)})),
            })
        })
        .collect();
    json!({
        "schema": "bloodhound.causes/v1",
        "property": told.record.property, "kind": told.record.kind, "seed": told.record.seed,
        "virtual_time_ns": told.violated.0, "source": told.source, "reduced": told.reduced,
        "runs": told.runs, "ended_early": told.early,
        "always": told.when.always() && told.cause.is_none(), "plainest": told.plainest.as_ref().map(end_json),
        "cause": told.cause.as_ref().map(decides_json),
        "taken_out": singles, "not_taken_out": told.untried,
        "fewest": told.fewest.as_ref().map(|(set, minimal)| json!({"faults": set, "minimal": minimal})),
        "jump": jump, "curves": curves,
        "parting": told.parting.as_ref().map(|(parting, among)| {
            let mut json = decides_json(parting);
            json["among"] = (*among).into();
            json
        }),
        "not_parted": told.not_parted,
    })
}

#[cfg(test)]
mod tests {
    use super::super::when::Curve;
    use super::*;

    fn curve(ends: &[&[End]]) -> When {
        let sample = |(at, ends): (usize, &&[End])| Sample { at: SimTime(at as u64), ends: ends.to_vec() };
        let samples = ends.iter().enumerate().map(sample).collect();
        When { curves: vec![Curve { later: Later::Stay, samples }], jump: None }
    }

    #[test]
    fn without_runs_nothing_is_said_to_be_so() {
        let unknown = [End::Unknown("too long".into())];
        for nothing in [curve(&[]), curve(&[&unknown, &unknown])] {
            let mut out = String::new();
            when(&mut out, &nothing, &[]);
            assert!(out.starts_with("Nothing is known"), "{out}");
            assert!(none_passes(&nothing).starts_with("Nothing is known"));
        }
        let mut out = String::new();
        let some = curve(&[&[End::Fails], &[End::Fails, End::Unknown("too long".into())]]);
        when(&mut out, &some, &[]);
        assert!(out.starts_with("There is no moment"), "{out}");
        assert!(none_passes(&some).starts_with("None of the 2 futures passes"));
    }

    #[test]
    fn what_decides_in_general_is_said_of_tried_futures_only() {
        let said = |with: &[End], without: &[End]| {
            let mut out = String::new();
            futures(&mut out, with, without);
            out
        };
        let unknown = End::Unknown("too long".into());
        for (with, without) in
            [(vec![], vec![]), (vec![End::Fails], vec![unknown.clone()]), (vec![unknown], vec![])]
        {
            let out = said(&with, &without);
            assert!(out.contains("is not known") && !out.contains("in general"), "{out}");
        }
        assert!(said(&[End::Fails], &[End::Fails]).contains("not in general"));
        assert!(!said(&[End::Fails], &[End::Passes]).contains("in general"));
    }
}
