//! The command: `cargo xtask fuzz`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::case::{Case, parse};
use crate::generate::{FAMILIES, case};
use crate::hunt::{Difference, Lab};
use crate::machine::{Machine, build_guest};
use crate::shrink::shrink;

const USAGE: &str = "usage: cargo xtask fuzz [OPTION...] [CASE-FILE...]

Makes cases from a seed and compares what this kernel and Bloodhound answer. With files, replays their cases.

  --seed N           the first seed (0)
  --cases N          how many cases (2000)
  --minutes N        how long at most, in place of a number of cases
  --family NAME      only this family; several times for several
  --platform NAME    ptrace or kvm; several times for both (ptrace)
  --bloodhound FILE  the command (target/release/bloodhound)
  --out DIRECTORY    where differences are written (target/fuzz)
  --known N          end after this many different differences (20)
  --print            print the cases, or what this kernel answers to the files, and compare nothing
  --lie N            the guest answers operation N wrongly when it is simulated";

struct Options {
    seed: u64,
    cases: u64,
    minutes: Option<u64>,
    families: Vec<String>,
    platforms: Vec<String>,
    bloodhound: PathBuf,
    out: PathBuf,
    known: usize,
    print: bool,
    lie: Option<usize>,
    files: Vec<PathBuf>,
}

fn options(args: &[String]) -> Result<Options, String> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let mut options = Options {
        seed: 0,
        cases: 2000,
        minutes: None,
        families: Vec::new(),
        platforms: Vec::new(),
        bloodhound: target.join("release/bloodhound"),
        out: target.join("fuzz"),
        known: 20,
        print: false,
        lie: None,
        files: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{arg} wants a value\n{USAGE}"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number\n{USAGE}"));
        match arg.as_str() {
            "--seed" => options.seed = number(value()?)?,
            "--cases" => options.cases = number(value()?)?,
            "--minutes" => options.minutes = Some(number(value()?)?),
            "--family" => options.families.push(value()?),
            "--platform" => options.platforms.push(value()?),
            "--bloodhound" => options.bloodhound = value()?.into(),
            "--out" => options.out = value()?.into(),
            "--known" => options.known = number(value()?)? as usize,
            "--lie" => options.lie = Some(number(value()?)? as usize),
            "--print" => options.print = true,
            "--help" | "-h" => return Err(USAGE.to_owned()),
            file if !file.starts_with('-') => options.files.push(file.into()),
            other => return Err(format!("{other} is no option\n{USAGE}")),
        }
    }
    if options.platforms.is_empty() {
        options.platforms.push("ptrace".to_owned());
    }
    if let Some(unknown) = options.families.iter().find(|f| FAMILIES.iter().all(|(name, _)| name != f)) {
        let names: Vec<&str> = FAMILIES.iter().map(|(name, _)| *name).collect();
        return Err(format!("{unknown} is no family; there are {}", names.join(", ")));
    }
    Ok(options)
}

/// Carries out the command; its exit code is 1 if there are differences.
///
/// # Errors
///
/// What is wrong with the arguments, or with the machine.
pub fn run(args: &[String]) -> Result<u8, String> {
    let options = options(args)?;
    let lab = Lab {
        guest: build_guest(&options.out)?,
        simulated: options
            .platforms
            .iter()
            .map(|platform| Machine::Simulated {
                bloodhound: options.bloodhound.clone(),
                platform: platform.clone(),
            })
            .collect(),
        lie: options.lie,
    };
    if !options.files.is_empty() { replay(&lab, &options) } else { search(&lab, &options) }
}

/// Replays the cases of files.
fn replay(lab: &Lab, options: &Options) -> Result<u8, String> {
    let mut cases = Vec::new();
    for file in &options.files {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        cases.extend(parse(&text));
    }
    if options.print {
        for (case, lines) in cases.iter().zip(lab.run(&Machine::Native, &cases)) {
            println!("{}{}", case.text(), lines.join("\n"));
        }
        return Ok(0);
    }
    let hunted = lab.hunt(&cases);
    for difference in &hunted.found {
        println!("{}", difference.text());
    }
    println!(
        "{} cases, {} differences, {} without a definite answer, {} that newer kernels answer so",
        cases.len(),
        hunted.found.len(),
        hunted.vague,
        hunted.newer
    );
    Ok(u8::from(!hunted.found.is_empty()))
}

/// Looks for differences in new cases.
fn search(lab: &Lab, options: &Options) -> Result<u8, String> {
    const BATCH: u64 = 100;
    let begun = Instant::now();
    let limit = options.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let (mut done, mut unclear, mut newer, mut ops) = (0, 0, 0, 0);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    while limit.map_or(done < options.cases, |limit| begun.elapsed() < limit) && counts.len() < options.known
    {
        let batch: Vec<Case> = (0..BATCH).map(|i| case(options.seed + done + i, &options.families)).collect();
        if options.print {
            batch.iter().for_each(|case| print!("{}", case.text()));
            done += BATCH;
            continue;
        }
        ops += batch.iter().map(|case| case.ops.len()).sum::<usize>();
        let hunted = lab.hunt(&batch);
        (done, unclear, newer) = (done + BATCH, unclear + hunted.vague, newer + hunted.newer);
        for difference in hunted.found {
            let count = counts.entry(difference.key.clone()).or_default();
            *count += 1;
            if *count == 1 {
                report(lab, options, difference)?;
            }
        }
    }
    for (key, count) in &counts {
        println!("{count:6} {key}");
    }
    println!(
        "{done} cases, {ops} operations, {} kinds of differences, {unclear} cases without a definite answer, {newer} that newer kernels \
         answer so, {} s",
        counts.len(),
        begun.elapsed().as_secs()
    );
    Ok(u8::from(!counts.is_empty()))
}

fn report(lab: &Lab, options: &Options, difference: Difference) -> Result<(), String> {
    let small = shrink(lab, difference);
    let name: String = small.key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name: String = name.chars().take(60).collect();
    let file = options.out.join(format!("{}-{name}.case", small.case.name));
    println!("{}\n", small.text());
    std::fs::write(&file, small.text()).map_err(|e| format!("{}: {e}", file.display()))
}
