//! Breakpoints of `exec`, `run` and `replay`: places that the user names, of which each hit is told with its stack.
//!
//! Key types: [`Breaks`] (what the command line says), [`Setting`] (the breakpoints of one command). Neighbours: `bloodhound_sim::breakpoints` stops tasks
//! without any trace in the run, `bloodhound_coverage::named` finds places in programs, [`crate::stack`] has words for stacks.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bloodhound_abi::Regs;
use bloodhound_coverage::named::{Looked, Wanted, find};
use bloodhound_sim::breakpoints::{CodePoint, Hit, Watcher};
use bloodhound_sim::scenario::Scenario;
use bloodhound_sim::trace::Captured;
use bloodhound_sim::{CodeFile, Machine, timeline};
use clap::builder::RangedU64ValueParser;

use crate::output;
use crate::session::Failure;
use crate::stack::Symbols;

/// Hits of a breakpoint that are told, unless it is said how many.
const MOST: u64 = 100;
/// Places of a breakpoint and names like it that are named at most.
const NAMED: usize = 8;

/// What the command line says of breakpoints.
#[derive(clap::Args, Clone, Debug)]
pub struct Breaks {
    /// Tell of each time a task comes to a function, to FILE:LINE or to MODULE+0xOFFSET, with its stack (may be given several times); the
    /// run is the same as without
    #[arg(long = "break", value_name = "WHERE", value_parser = wanted)]
    breaks: Vec<Wanted>,
    /// Tell of so many hits of each breakpoint at most; behind that the program runs there at full speed
    #[arg(long, value_name = "N", requires = "breaks", default_value_t = MOST, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    break_limit: u64,
    /// Write hits to a file instead of standard error
    #[arg(long, value_name = "FILE", requires = "breaks")]
    break_output: Option<PathBuf>,
    /// Tell the general registers of each hit as well
    #[arg(long, requires = "breaks")]
    break_registers: bool,
}

fn wanted(text: &str) -> Result<Wanted, String> {
    text.parse()
}

/// One breakpoint.
struct Breakpoint {
    wanted: Wanted,
    /// Where it is, in words.
    places: Vec<String>,
    hits: u64,
    notes: BTreeSet<String>,
    /// Names like it, with the distance.
    near: BTreeSet<(usize, String)>,
}

struct State {
    scenario: Arc<Scenario>,
    breakpoints: Vec<Breakpoint>,
    symbols: Symbols,
    most: u64,
    registers: bool,
    file: Option<File>,
    /// What the host said to a write.
    failed: Option<String>,
}

/// The breakpoints of one command.
pub struct Setting(Arc<Mutex<State>>);

impl Breaks {
    /// Whether there are any.
    pub fn wanted(&self) -> bool {
        !self.breaks.is_empty()
    }

    /// Sets them in a machine, before anything runs. `None`: there are none.
    ///
    /// # Errors
    /// The output cannot be written; the platform has no single steps.
    pub fn set(&self, machine: &mut Machine) -> Result<Option<Setting>, Failure> {
        if !self.wanted() {
            return Ok(None);
        }
        let create = |path: &PathBuf| {
            File::create(path)
                .map_err(|e| Failure::environment(format!("--break-output {}: {e}", path.display())))
        };
        let file = self.break_output.as_ref().map(create).transpose()?;
        let breakpoint = |wanted: &Wanted| Breakpoint {
            wanted: wanted.clone(),
            places: Vec::new(),
            hits: 0,
            notes: BTreeSet::new(),
            near: BTreeSet::new(),
        };
        let state = Arc::new(Mutex::new(State {
            scenario: machine.scenario().clone(),
            breakpoints: self.breaks.iter().map(breakpoint).collect(),
            symbols: Symbols::default(),
            most: self.break_limit,
            registers: self.break_registers,
            file,
            failed: None,
        }));
        if !machine.set_breakpoints(Box::new(Watching(state.clone())), self.break_limit) {
            return Err(Failure::environment(
                "--break: this platform has no single steps, which breakpoints need",
            ));
        }
        Ok(Some(Setting(state)))
    }
}

impl Setting {
    /// Tells what became of each breakpoint, at the end of the run.
    ///
    /// # Errors
    /// What the host said to a write.
    pub fn finish(self) -> Result<(), Failure> {
        let mut state = lock(&self.0);
        let text: String =
            state.breakpoints.iter().map(|breakpoint| breakpoint.summary(state.most)).collect();
        state.print(&format!("breakpoints:\n{text}"));
        match state.failed.take() {
            Some(error) => Err(Failure::environment(format!("--break-output: {error}"))),
            None => Ok(()),
        }
    }
}

impl Breakpoint {
    fn summary(&self, most: u64) -> String {
        let name = &self.wanted;
        let notes: String = self.notes.iter().take(NAMED).map(|note| format!("    {note}\n")).collect();
        let places = listed(&self.places);
        let line = match (self.hits, self.places.is_empty()) {
            (0, true) => {
                let near: Vec<String> = self.near.iter().map(|(_, name)| name.clone()).collect();
                let help = if near.is_empty() {
                    String::new()
                } else {
                    format!("; did you mean {}?", listed(&near))
                };
                format!("NEVER REACHED: nothing that was executed has such a place{help}")
            }
            (0, false) => format!("NEVER REACHED, at {places}"),
            (hits, _) if hits == most => format!("{hits} hits or more (--break-limit), at {places}"),
            (1, _) => format!("1 hit, at {places}"),
            (hits, _) => format!("{hits} hits, at {places}"),
        };
        format!("  {name}: {line}\n{notes}")
    }
}

fn listed(words: &[String]) -> String {
    let mut text = words.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if words.len() > NAMED {
        text += &format!(" and {} more", words.len() - NAMED);
    }
    text
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Whoever panicked in here has ended the process.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the machine asks and tells.
struct Watching(Arc<Mutex<State>>);

impl Watcher for Watching {
    fn points(&mut self, file: &CodeFile<'_>) -> Vec<CodePoint> {
        lock(&self.0).points(file)
    }

    fn stack(&mut self, captured: &Captured) -> Vec<String> {
        lock(&self.0).symbols.stack(captured)
    }

    fn hit(&mut self, hit: &Hit) {
        lock(&self.0).hit(hit);
    }
}

impl State {
    fn points(&mut self, file: &CodeFile<'_>) -> Vec<CodePoint> {
        let mut points = Vec::new();
        let mut told = String::new();
        let State { breakpoints, symbols, .. } = self;
        for (number, breakpoint) in (0..).zip(breakpoints.iter_mut()) {
            let Some((program, bytes)) = symbols.program(file.path, file.image) else { break };
            let Looked { starts, notes, near } = find(program, bytes, &breakpoint.wanted);
            breakpoint.notes.extend(notes);
            breakpoint.near.extend(near);
            let word = |start: &bloodhound_coverage::named::Start| {
                let place = program.place(start.offset).into_iter().next();
                let line = place.filter(|frame| frame.line > 0).map(|frame| {
                    let file = frame.file.unwrap_or_default();
                    let file = file.rsplit('/').next().unwrap_or_default();
                    format!(" ({} at {file}:{})", frame.function, frame.line)
                });
                format!("{}+{:#x}{}", program.name, start.offset, line.unwrap_or_default())
            };
            let places: Vec<String> = starts.iter().map(word).collect();
            if places.len() > 1 {
                let (wanted, count) = (&breakpoint.wanted, places.len());
                told += &format!("break {wanted}: {count} places are meant: {}\n", listed(&places));
            }
            breakpoint.places.extend(places);
            let point = |start: bloodhound_coverage::named::Start| CodePoint {
                offset: start.offset,
                breakpoint: number,
                code: start.code,
            };
            points.extend(starts.into_iter().map(point));
        }
        self.print(&told);
        points
    }

    fn hit(&mut self, hit: &Hit) {
        let Some(breakpoint) = self.breakpoints.get_mut(hit.breakpoint as usize) else { return };
        breakpoint.hits = hit.nth;
        let mut text = format!(
            "break {}, hit {}: {} {}, process {}, task {} ({})\n",
            breakpoint.wanted,
            hit.nth,
            hit.at,
            timeline::name(&self.scenario, hit.service),
            hit.pid.number(),
            hit.tid.number(),
            hit.comm
        );
        for (number, line) in hit.stack.iter().enumerate() {
            text += &format!("    #{number} {line}\n");
        }
        if self.registers {
            text += &registers(&hit.regs);
        }
        self.print(&text);
    }

    fn print(&mut self, text: &str) {
        match &mut self.file {
            Some(file) => {
                if let Err(error) = file.write_all(text.as_bytes()) {
                    self.failed.get_or_insert(error.to_string());
                }
            }
            None => output::eprint(text),
        }
    }
}

/// The general registers, four in a line.
fn registers(regs: &Regs) -> String {
    let Regs { rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, .. } = *regs;
    let Regs { r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags, .. } = *regs;
    let all = [
        ("rax", rax),
        ("rbx", rbx),
        ("rcx", rcx),
        ("rdx", rdx),
        ("rsi", rsi),
        ("rdi", rdi),
        ("rbp", rbp),
        ("rsp", rsp),
        ("r8", r8),
        ("r9", r9),
        ("r10", r10),
        ("r11", r11),
        ("r12", r12),
        ("r13", r13),
        ("r14", r14),
        ("r15", r15),
        ("rip", rip),
        ("rflags", rflags),
    ];
    let line = |four: &[(&str, u64)]| {
        let words: Vec<String> = four.iter().map(|(name, value)| format!("{name}={value:#x}")).collect();
        format!("    {}\n", words.join(" "))
    };
    all.chunks(4).map(line).collect()
}
