//! `cargo xtask experiment`: strategies of exploration against each other, on bugs that are planted in the example service and on others that are named.
//!
//! Key types: [`Args`], [`Cell`] (an arm on a bug: the campaigns of all repetitions). Each arm has the same processor time for each bug, and the repetitions of all
//! arms have the same seeds. Modules: [`campaign`] runs one, [`statistics`] compares samples, [`report`] writes tables, [`plot`] draws.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // measures processor time

mod campaign;
mod plot;
mod report;
mod statistics;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use serde_json::json;

use crate::failure::{Failure, broken_at};
use crate::long::{BLOODHOUND, EXAMPLE, names_in};
use campaign::{Campaign, Order};

/// The arms that others are compared with: independent seeds with every kind of fault, and with a swarm profile each.
const UNIFORM: &str = "random";
const SWARM: &str = "swarm";

/// Runs strategies of exploration against each other: how much processor time each takes to find bugs
#[derive(Parser, Debug)]
pub struct Args {
    /// A strategy of `bloodhound explore`; several times (default: random, swarm, coverage-guided)
    #[arg(long = "arm", value_name = "STRATEGY")]
    arms: Vec<String>,
    /// A planted bug of examples/distributed-kv by its name (`stale-read`, `deep/clears-vote`), or a configuration of any other service; several
    /// times (default: all planted bugs that are not deep)
    #[arg(long = "bug", value_name = "NAME|FILE")]
    bugs: Vec<String>,
    /// Campaigns of each arm for each bug
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// Processor time of a campaign, in seconds
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Most runs of a campaign
    #[arg(long, default_value_t = 100_000)]
    runs: u64,
    /// ptrace, kvm or auto
    #[arg(long, default_value = "auto")]
    platform: String,
    /// Campaigns at the same time (default: as many as there are processors)
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// The command
    #[arg(long, default_value = BLOODHOUND)]
    bloodhound: PathBuf,
    /// Where results, tables and plots are written
    #[arg(long, default_value = "target/experiment")]
    out: PathBuf,
    /// A short form that shows that all of it works: one bug, two repetitions, a few runs
    #[arg(long, conflicts_with_all = ["bugs", "repetitions", "runs"])]
    short: bool,
}

/// An arm on a bug.
#[derive(Clone, Debug)]
struct Cell {
    bug: String,
    arm: String,
    campaigns: Vec<Campaign>,
}

impl Cell {
    /// Processor time of each campaign; one that has found nothing counts with all of its budget.
    fn seconds(&self) -> Vec<f64> {
        self.campaigns.iter().map(|campaign| campaign.seconds).collect()
    }

    fn found(&self) -> usize {
        self.campaigns.iter().filter(|campaign| campaign.found).count()
    }
}

/// What is run.
struct Design {
    arms: Vec<String>,
    /// Names and configurations.
    bugs: Vec<(String, PathBuf)>,
    repetitions: u64,
    runs: u64,
    seconds: f64,
}

impl Design {
    fn of(args: &Args) -> Result<Design, Failure> {
        let arms = match args.arms.as_slice() {
            [] => [UNIFORM, SWARM, "coverage-guided"].map(str::to_owned).to_vec(),
            arms => arms.to_vec(),
        };
        let (bugs, repetitions, runs) = match args.short {
            true => (vec!["stale-read".to_owned()], 2, 24),
            false => (args.bugs.clone(), args.repetitions, args.runs),
        };
        let planted = Path::new(EXAMPLE).join("bugs");
        let mut names = names_in(&planted)?;
        let bugs = if bugs.is_empty() { names.clone() } else { bugs };
        names.extend(names_in(&planted.join("deep"))?.iter().map(|name| format!("deep/{name}")));
        let bugs = bugs.iter().map(|bug| {
            if names.contains(bug) {
                return Ok((bug.clone(), planted.join(format!("{bug}.yaml"))));
            }
            let path = PathBuf::from(bug);
            if !path.is_file() {
                let known = names.join(", ");
                return Err(Failure::Broken(format!("`{bug}` is neither a file nor a planted bug: {known}")));
            }
            Ok((bug.clone(), path))
        });
        Ok(Design {
            arms,
            bugs: bugs.collect::<Result<_, _>>()?,
            repetitions,
            runs,
            seconds: f64::from(args.seconds),
        })
    }

    /// All campaigns. Arms alternate within a repetition, so that what else the machine does meets all of them.
    fn orders<'a>(&'a self, args: &'a Args) -> Vec<(usize, Order<'a>)> {
        let mut orders = Vec::new();
        for (at, (bug, config)) in self.bugs.iter().enumerate() {
            for repetition in 0..self.repetitions {
                for (nth, arm) in self.arms.iter().enumerate() {
                    let place = bug.replace(['/', '.'], "-");
                    let order = Order {
                        bloodhound: &args.bloodhound,
                        config,
                        arm,
                        platform: &args.platform,
                        repetition,
                        runs: self.runs,
                        seconds: self.seconds,
                        out: args.out.join("campaigns").join(format!("{place}-{arm}-{repetition}")),
                    };
                    orders.push((at * self.arms.len() + nth, order));
                }
            }
        }
        orders
    }
}

/// Runs the experiment and writes what came of it. Fails if a campaign cannot be run, not by what it finds.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let design = Design::of(args)?;
    fs::create_dir_all(&args.out).map_err(broken_at(&args.out))?;
    let orders = design.orders(args);
    let jobs =
        args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let campaigns = all(&orders, jobs)?;
    let mut cells: Vec<Cell> = Vec::new();
    for (bug, _) in &design.bugs {
        for arm in &design.arms {
            cells.push(Cell { bug: bug.clone(), arm: arm.clone(), campaigns: Vec::new() });
        }
    }
    for ((cell, _), campaign) in orders.iter().zip(campaigns) {
        cells[*cell].campaigns.push(campaign);
    }
    let results = cells.iter().map(|cell| {
        let campaigns: Vec<_> = cell.campaigns.iter().map(Campaign::json).collect();
        json!({"bug": cell.bug, "arm": cell.arm, "campaigns": campaigns})
    });
    let results = json!({
        "schema": "bloodhound.experiment/v1",
        "seconds": design.seconds, "runs": design.runs, "cells": results.collect::<Vec<_>>(),
    });
    let table = report::text(&cells, design.seconds);
    write(&args.out.join("results.json"), &format!("{results:#}\n"))?;
    write(&args.out.join("report.md"), &table)?;
    for (at, (bug, _)) in design.bugs.iter().enumerate() {
        let cells = &cells[at * design.arms.len()..(at + 1) * design.arms.len()];
        let name = format!("{}.svg", bug.replace(['/', '.'], "-"));
        write(&args.out.join(name), &plot::svg(cells, design.seconds))?;
    }
    print!("{table}");
    Ok(0)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(broken_at(path))
}

/// Runs all campaigns, so many at the same time, and returns them in their order.
fn all(orders: &[(usize, Order<'_>)], jobs: usize) -> Result<Vec<Campaign>, Failure> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![None; orders.len()]));
    let work = || -> Result<(), Failure> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((_, order)) = orders.get(at) else { return Ok(()) };
            let campaign =
                campaign::run(order).inspect_err(|_| next.store(orders.len(), Ordering::Relaxed))?;
            let word = if campaign.found { "found" } else { "not found" };
            let config = order.config.file_stem().unwrap_or_default().to_string_lossy();
            eprintln!(
                "{} of {}: {config}, {}, repetition {}: {word} within {:.1} s, {} runs",
                at + 1,
                orders.len(),
                order.arm,
                order.repetition,
                campaign.seconds,
                campaign.runs
            );
            done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(campaign);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(Failure::Broken("a worker of the experiment panicked".into())))
        })
    })?;
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().collect::<Option<_>>().ok_or_else(|| Failure::Broken("a campaign was not run".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_have_the_same_seeds_and_alternate() {
        let args = Args::parse_from(["experiment", "--arm", "random", "--arm", "swarm"]);
        let config = PathBuf::from("a.yaml");
        let design = Design {
            arms: args.arms.clone(),
            bugs: vec![("a".into(), config.clone()), ("b".into(), config)],
            repetitions: 2,
            runs: 7,
            seconds: 1.0,
        };
        let orders = design.orders(&args);
        let told: Vec<(usize, &str, u64)> =
            orders.iter().map(|(cell, order)| (*cell, order.arm, order.repetition)).collect();
        assert_eq!(told[..4], [(0, "random", 0), (1, "swarm", 0), (0, "random", 1), (1, "swarm", 1)]);
        assert_eq!(told[4], (2, "random", 0));
        assert!(orders.iter().all(|(_, order)| order.runs == 7));
    }
}
