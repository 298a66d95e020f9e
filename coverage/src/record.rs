//! What a campaign gathers while it runs: which points of which programs were reached, by which seed first.
//!
//! A point is removed from a program when it was reached once, for all services that run the same file. So what was reached is kept by
//! program, and services say which programs they ran. Records of workers are joined; the result does not depend on which worker ran
//! which seed, except for which of several seeds is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{self, Coverage, File, Moment, Part, Service, merged};
use crate::read::Report;
use crate::{NotMeasured, Program, Rules, Unit};

/// SHA-256 of a program's file.
pub type Digest = [u8; 32];

/// What was reached.
#[derive(Clone, Debug, Default)]
pub struct Record {
    programs: BTreeMap<Digest, Hits>,
    services: BTreeMap<String, Service>,
    ran: BTreeMap<String, BTreeSet<Digest>>,
    /// What other tools reported, by service and tool.
    reports: BTreeMap<(String, String), Reports>,
    seeds: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Hits {
    program: Arc<Program>,
    /// By point.
    reached: Vec<Option<Arc<Moment>>>,
}

/// What a tool reported of a service.
#[derive(Clone, Debug, Default)]
struct Reports {
    /// By the name that the tool has for the file. Which file of the checkout that is, is told by all names together.
    files: BTreeMap<String, Reported>,
    rules: Arc<Rules>,
    notes: BTreeSet<String>,
}

/// What a tool reported of one file.
#[derive(Clone, Debug, Default)]
struct Reported {
    lines: BTreeMap<u32, Option<Arc<Moment>>>,
    functions: BTreeMap<(u32, String), Option<Arc<Moment>>>,
}

impl Record {
    /// An empty record.
    pub fn new() -> Record {
        Record::default()
    }

    /// Says that a service ran a program of which something can be counted.
    pub fn ran(&mut self, service: &str, program: &Arc<Program>) {
        self.ran.entry(service.to_owned()).or_default().insert(program.digest);
        self.programs
            .entry(program.digest)
            .or_insert_with(|| Hits { reached: vec![None; program.points.len()], program: program.clone() });
    }

    /// Says that a service ran a program of which nothing is counted.
    pub fn not_measured(&mut self, service: &str, program: &str, reason: NotMeasured) {
        let service = self.services.entry(service.to_owned()).or_default();
        service.not_measured.entry(program.to_owned()).or_insert(reason);
    }

    /// Says that a seed was run.
    pub fn seed(&mut self, seed: u64) {
        match self.seeds.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(seed) => *last = seed,
            _ => self.seeds.push((seed, seed)),
        }
    }

    /// Says that a point was reached. Of several moments, the smallest is kept. Whether the point was not reached before.
    pub fn reach(&mut self, program: &Digest, point: usize, at: &Arc<Moment>) -> bool {
        let Some(hits) = self.programs.get_mut(program) else { return false };
        let Some(own) = hits.reached.get_mut(point) else { return false };
        let new = own.is_none();
        sooner(own, Some(at));
        new
    }

    /// Adds what another tool reported of a service: files are those of the checkout that count, others are left out.
    pub fn report(
        &mut self,
        service: &str,
        tool: &str,
        report: &Report,
        rules: &Arc<Rules>,
        at: &Arc<Moment>,
    ) {
        let own = self.reports.entry((service.to_owned(), tool.to_owned())).or_default();
        own.rules = rules.clone();
        for (name, file) in &report.files {
            let own = own.files.entry(name.clone()).or_default();
            for (line, covered) in &file.lines {
                sooner(own.lines.entry(*line).or_default(), covered.then_some(at));
            }
            for (function, covered) in &file.functions {
                sooner(own.functions.entry(function.clone()).or_default(), covered.then_some(at));
            }
        }
    }

    /// Notes something about the report of a tool.
    pub fn note(&mut self, service: &str, tool: &str, note: String) {
        let own = self.reports.entry((service.to_owned(), tool.to_owned())).or_default();
        own.notes.insert(note);
    }

    /// Adds what another worker's record has.
    pub fn join(&mut self, other: &Record) {
        for (digest, hits) in &other.programs {
            let own = self.programs.entry(*digest).or_insert_with(|| hits.clone());
            for (own, other) in own.reached.iter_mut().zip(&hits.reached) {
                sooner(own, other.as_ref());
            }
        }
        for (service, programs) in &other.ran {
            self.ran.entry(service.clone()).or_default().extend(programs);
        }
        for (name, service) in &other.services {
            let own = self.services.entry(name.clone()).or_default();
            for (program, reason) in &service.not_measured {
                own.not_measured.entry(program.clone()).or_insert_with(|| reason.clone());
            }
        }
        for (part, reports) in &other.reports {
            let own = self.reports.entry(part.clone()).or_insert_with(|| reports.clone());
            own.notes.extend(reports.notes.iter().cloned());
            for (name, file) in &reports.files {
                own.files.entry(name.clone()).or_default().join(file);
            }
        }
        self.seeds.extend(&other.seeds);
        self.seeds = merged(std::mem::take(&mut self.seeds));
    }

    /// What of the source was reached.
    pub fn coverage(&self) -> Coverage {
        let mut moments = Moments::default();
        let mut coverage = Coverage { seeds: merged(self.seeds.clone()), ..Coverage::default() };
        coverage.services = self.services.clone();
        for (digest, hits) in &self.programs {
            coverage.parts.insert(hex(digest), hits.part(&mut moments));
        }
        for (service, programs) in &self.ran {
            let parts = &mut coverage.services.entry(service.clone()).or_default().parts;
            parts.extend(programs.iter().map(|digest| hex(digest)));
        }
        for ((service, tool), reports) in &self.reports {
            let part = reports.part(tool, &mut moments);
            let name = format!("{service}: {tool}");
            coverage.services.entry(service.clone()).or_default().parts.insert(name.clone());
            coverage.parts.insert(name, part);
        }
        coverage.moments = moments.list;
        coverage.tidy();
        coverage
    }
}

/// Keeps the smaller moment.
fn sooner(own: &mut Option<Arc<Moment>>, other: Option<&Arc<Moment>>) {
    if let Some(other) = other
        && own.as_ref().is_none_or(|own| other < own)
    {
        *own = Some(other.clone());
    }
}

/// Numbers of moments.
#[derive(Default)]
struct Moments {
    list: Vec<Moment>,
    numbers: BTreeMap<Arc<Moment>, u32>,
}

impl Moments {
    fn number(&mut self, moment: Option<&Arc<Moment>>) -> Option<u32> {
        let moment = moment?;
        if let Some(number) = self.numbers.get(moment) {
            return Some(*number);
        }
        let number = u32::try_from(self.list.len()).ok()?;
        self.list.push((**moment).clone());
        self.numbers.insert(moment.clone(), number);
        Some(number)
    }
}

impl Reports {
    fn part(&self, tool: &str, moments: &mut Moments) -> Part {
        let mut part = Part { name: tool.to_owned(), unit: Unit::Lines, ..Part::default() };
        part.notes = self.notes.clone();
        let (files, notes) = self.rules.files(self.files.keys());
        part.notes.extend(notes);
        // Several names may mean one file: links, or a directory that is mounted twice.
        let mut by_path: BTreeMap<String, Reported> = BTreeMap::new();
        for (reported, path) in self.files.values().zip(files) {
            if let Some(path) = path {
                by_path.entry(path).or_default().join(reported);
            }
        }
        part.files = by_path.iter().map(|(path, reported)| (path.clone(), reported.file(moments))).collect();
        part
    }
}

impl Reported {
    fn join(&mut self, other: &Reported) {
        for (line, at) in &other.lines {
            sooner(self.lines.entry(*line).or_default(), at.as_ref());
        }
        for (function, at) in &other.functions {
            sooner(self.functions.entry(function.clone()).or_default(), at.as_ref());
        }
    }

    fn file(&self, moments: &mut Moments) -> File {
        let functions = self.functions.iter().map(|((line, name), at)| model::Function {
            line: *line,
            name: name.clone(),
            reached: moments.number(at.as_ref()),
            blocks: BTreeMap::new(),
        });
        let functions = functions.collect();
        let lines = self.lines.iter().map(|(line, at)| (*line, moments.number(at.as_ref()))).collect();
        File { lines, functions }
    }
}

impl Hits {
    /// From points to items and functions.
    fn part(&self, moments: &mut Moments) -> Part {
        let program = &self.program;
        let mut items: Vec<Option<&Arc<Moment>>> = vec![None; program.items.len()];
        let mut functions: Vec<Option<&Arc<Moment>>> = vec![None; program.functions.len()];
        for (index, (point, at)) in program.points.iter().zip(&self.reached).enumerate() {
            let Some(at) = at else { continue };
            let first = |slot: &mut Option<&Arc<Moment>>| -> bool { slot.is_none_or(|own| at < own) };
            for item in program.items_of(index) {
                let slot = &mut items[*item as usize];
                if first(slot) {
                    *slot = Some(at);
                }
            }
            if let Some(slot) = point.function.and_then(|function| functions.get_mut(function as usize))
                && first(slot)
            {
                *slot = Some(at);
            }
        }
        let mut part = Part { name: program.name.clone(), unit: program.unit, ..Part::default() };
        part.notes.extend(program.notes.iter().cloned());
        let path = |file: Option<u32>| {
            file.and_then(|file| program.files.get(file as usize)).cloned().unwrap_or_default()
        };
        let mut blocks: BTreeMap<u32, BTreeMap<u64, Option<u32>>> = BTreeMap::new();
        for (item, at) in program.items.iter().zip(items) {
            let reached = moments.number(at);
            match (program.unit, item.function) {
                (Unit::Lines, _) => {
                    part.files.entry(path(item.file)).or_default().lines.insert(item.line, reached);
                }
                (Unit::Blocks, Some(function)) => {
                    blocks.entry(function).or_default().insert(item.offset, reached);
                }
                _ => {}
            }
        }
        for (number, (function, at)) in (0..).zip(program.functions.iter().zip(functions)) {
            if function.counted {
                part.files.entry(path(function.file)).or_default().functions.push(model::Function {
                    line: function.line,
                    name: function.name.clone(),
                    reached: moments.number(at),
                    blocks: blocks.remove(&number).unwrap_or_default(),
                });
            }
        }
        part
    }
}

/// A digest as reports name it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
