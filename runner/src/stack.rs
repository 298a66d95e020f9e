//! Stacks of tasks in words: functions, files and lines by the tables of the programs that are mapped ([`Symbols`]), for the accesses of
//! a critical pair and for tasks that hang ([`told`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bloodhound_abi::Regs;
use bloodhound_coverage::{HostFiles, Program, symbols, unwind, variable};
use bloodhound_sim::Machine;
use bloodhound_sim::trace::{Captured, CodeMapping};
use bloodhound_sim::world::{Finding, FindingKind};
use bloodhound_vfs::FileImage;

use crate::coverage;

/// Frames of a stack that are shown, at most.
const MOST_FRAMES: usize = 24;

/// What is known of the programs that were asked for.
#[derive(Default)]
pub struct Symbols {
    /// By the digest of the file.
    programs: BTreeMap<[u8; 32], File>,
}

struct File {
    bytes: Vec<u8>,
    program: Option<Program>,
}

/// What starts threads and calls main.
const STARTERS: [&str; 8] = [
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
    "__libc_start_call_main",
    "__libc_start_main",
    "__libc_start_main_impl",
    "_start",
];

/// A frame of a stack.
struct Line {
    text: String,
    /// Its line in the source is known, and it is no function that only leads to those of the program.
    known: bool,
}

impl Symbols {
    /// The stack of a task, innermost frame first.
    pub fn stack(&mut self, captured: &Captured) -> Vec<String> {
        let mut registers = of(&captured.regs);
        let mut lines: Vec<Line> = Vec::new();
        let mut returned = false;
        while lines.len() < MOST_FRAMES {
            let Some(at) = registers[16] else { break };
            let inside = |mapping: &&CodeMapping| {
                (mapping.start..mapping.end).contains(&at.wrapping_sub(u64::from(returned)))
            };
            let Some(mapping) = captured.files.iter().find(inside) else { break };
            let offset = mapping.offset + (at - mapping.start);
            let file = self.file(mapping);
            lines.extend(file.lines(mapping, offset.saturating_sub(u64::from(returned))));
            let read = |address: u64| eight(captured, address);
            let Some(above) = unwind::caller(&file.bytes, offset, returned, &registers, &read) else { break };
            (registers, returned) = (above, true);
        }
        // What lies below the program's own functions says nothing.
        if let Some(last) = lines.iter().rposition(|line| line.known) {
            lines.truncate(last + 1);
        }
        lines.into_iter().map(|line| line.text).collect()
    }

    /// What the tables of a file say, and its bytes; `None`: it is no program.
    pub fn program(&mut self, path: &[u8], image: &Arc<FileImage>) -> Option<(&Program, &[u8])> {
        let file = self.of_image(path, image);
        Some((file.program.as_ref()?, &file.bytes))
    }

    /// The variable of a program at an address, if its symbols have it.
    pub fn variable(&mut self, captured: &Captured, address: u64) -> Option<String> {
        // That of the nearest program, as the address space is laid out at random.
        let mut mappings: Vec<&CodeMapping> = captured.files.iter().collect();
        mappings.sort_by_key(|mapping| mapping.start.abs_diff(address));
        mappings.into_iter().find_map(|mapping| {
            let distance = address.wrapping_sub(mapping.start).cast_signed();
            variable(&self.file(mapping).bytes, mapping.offset, distance)
        })
    }

    fn file(&mut self, mapping: &CodeMapping) -> &File {
        self.of_image(&mapping.path, &mapping.image)
    }

    fn of_image(&mut self, path: &[u8], image: &FileImage) -> &File {
        self.programs.entry(image.sha256()).or_insert_with(|| {
            let bytes = coverage::read(image);
            let name = String::from_utf8_lossy(path).into_owned();
            File { program: symbols(&name, &bytes, &HostFiles::default()), bytes }
        })
    }
}

impl File {
    /// The frames at a place: a function, and what it is inlined into.
    fn lines(&self, mapping: &CodeMapping, offset: u64) -> Vec<Line> {
        let frames = self.program.as_ref().map(|program| program.place(offset)).unwrap_or_default();
        if frames.is_empty() {
            let path = String::from_utf8_lossy(&mapping.path);
            return vec![Line { text: format!("{path}+{offset:#x}"), known: false }];
        }
        let line = |frame: bloodhound_coverage::Frame| {
            let inlined = if frame.inlined { " (inlined)" } else { "" };
            match frame.file {
                Some(file) if frame.line > 0 => Line {
                    text: format!("{} at {}:{}{inlined}", frame.function, short(&file), frame.line),
                    known: !STARTERS.contains(&frame.function.as_str()),
                },
                _ => {
                    let path = String::from_utf8_lossy(&mapping.path);
                    Line { text: format!("{} in {path}", frame.function), known: false }
                }
            }
        };
        frames.into_iter().map(line).collect()
    }
}

/// What a finding says, and for a `hang` the stack of its task, innermost frame first.
pub fn told(finding: &Finding, machine: &Machine) -> String {
    let captured = machine.hung().filter(|_| finding.kind == FindingKind::Hang);
    let Some(captured) = captured else { return finding.text.clone() };
    let frames = Symbols::default().stack(&captured);
    let lines = frames.iter().enumerate().map(|(number, frame)| format!("\n  #{number} {frame}"));
    finding.text.clone() + &lines.collect::<String>()
}

/// A path as it is from the current directory, if it lies below.
fn short(path: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    Path::new(path).strip_prefix(here).map_or_else(|_| path.to_owned(), |below| below.display().to_string())
}

/// Eight bytes of a stack that was captured.
fn eight(captured: &Captured, address: u64) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(captured.regs.rsp)?).ok()?;
    let bytes = captured.stack.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Registers in DWARF's order.
fn of(regs: &Regs) -> unwind::Registers {
    let Regs { rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, .. } = *regs;
    let Regs { r8, r9, r10, r11, r12, r13, r14, r15, rip, .. } = *regs;
    [rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, rip].map(Some)
}
