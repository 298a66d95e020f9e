//! From a file to its points: chooses the tables that say what can be covered, and which of their files count.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::build::Build;
use crate::checkout::{Meant, Named, foreign};
use crate::dwarf::{self, Sections};
use crate::elf::{Binary, Symbol};
use crate::rules::ambiguous;
use crate::tables::Tables;
use crate::{DebugFiles, NotMeasured, Program, Rules, Unit, debug_files, frames, golang};

/// Notes of one kind about source files, at most.
const MOST_NOTES: usize = 8;

/// Finds what can be covered in a program: an executable or a shared library, given whole. `name` is its path in the service;
/// separate debug files are asked of `files`.
///
/// # Errors
/// Why nothing of it can be counted in the wanted unit, and what helps.
pub fn analyse(
    name: &str,
    bytes: &[u8],
    files: &dyn DebugFiles,
    rules: &Rules,
) -> Result<Program, NotMeasured> {
    let binary = Binary::read(bytes).map_err(|reason| NotMeasured {
        reason,
        hint: "exclude it from the coverage, or name the report that its own tools write".to_owned(),
    })?;
    let mut found = Found { notes: binary.damage.clone(), ..Found::default() };
    found.frames = frames::functions(&binary, &mut found.notes);
    found.take_symbols(binary.symbols(), &binary);
    let tables = found.tables(name, &binary, files, rules);
    let sources = tables.as_ref().map_or(0, |tables| tables.names.len());
    if rules.unit.unwrap_or_default() == Unit::Lines && sources == 0 {
        return Err(without_lines(&binary, &found.notes));
    }
    if sources > 0 && found.sources.paths.iter().all(Option::is_none) {
        return Err(elsewhere(tables.as_ref(), rules, &found.notes));
    }
    let build = Build::new(name, &binary, rules, found);
    let program = match (rules.unit.unwrap_or_default(), tables) {
        (Unit::Lines, tables) => build.lines(tables.unwrap_or_default()),
        (Unit::Functions, tables) => build.functions(tables),
        (Unit::Blocks, tables) => build.blocks(tables),
    };
    if program.points.is_empty() {
        let unit = program.unit;
        let reason = format!("no {unit} of it can be counted{}", told(&program.notes));
        let hint = match unit {
            Unit::Lines => flag(&binary).to_owned(),
            Unit::Functions => "do not strip it, or count blocks (coverage.unit: blocks)".to_owned(),
            Unit::Blocks => "exclude it from the coverage: it has no table of functions".to_owned(),
        };
        return Err(NotMeasured { reason, hint });
    }
    Ok(program)
}

/// Makes [`Program::place`] answer for a program, whatever of it counts for coverage: by its line tables, else by the symbols of its
/// functions. `None`: the file is no program.
pub fn symbols(name: &str, bytes: &[u8], files: &dyn DebugFiles) -> Option<Program> {
    let binary = Binary::read(bytes).ok()?;
    let rules = Rules { places: true, ..Rules::default() };
    let mut found = Found::default();
    found.frames = frames::functions(&binary, &mut found.notes);
    found.take_symbols(binary.symbols(), &binary);
    let tables = found.tables(name, &binary, files, &rules);
    let lines = tables.as_ref().is_some_and(|tables| !tables.names.is_empty());
    let build = Build::new(name, &binary, &rules, found);
    Some(if lines { build.lines(tables.unwrap_or_default()) } else { build.functions(tables) })
}

/// The offsets of the beginnings of all blocks of a program that are known without its line tables, whoever wrote it. Nothing if the
/// file is no program.
pub fn blocks(bytes: &[u8]) -> Vec<u64> {
    let Ok(binary) = Binary::read(bytes) else { return Vec::new() };
    let rules = Rules { unit: Some(Unit::Blocks), ..Rules::default() };
    let mut found = Found::default();
    found.frames = frames::functions(&binary, &mut found.notes);
    found.take_symbols(binary.symbols(), &binary);
    let program = Build::new("", &binary, &rules, found).blocks(None);
    program.points.iter().map(|point| point.offset).collect()
}

/// What was read of a program before its points are made.
#[derive(Default)]
pub(crate) struct Found<'a> {
    pub symbols: Vec<Symbol<'a>>,
    /// Functions of `.eh_frame`.
    pub frames: Vec<(u64, u64)>,
    pub sources: Sources,
    pub notes: Vec<String>,
}

/// The files that tables name.
#[derive(Default)]
pub(crate) struct Sources {
    /// Of each that counts, its path in the checkout.
    pub paths: Vec<Option<String>>,
}

impl<'a> Found<'a> {
    fn take_symbols(&mut self, symbols: Vec<Symbol<'a>>, binary: &Binary<'_>) {
        let code = |symbol: &Symbol<'_>| binary.code_at(symbol.address).is_some_and(|code| !code.glue);
        self.symbols.extend(symbols.into_iter().filter(code));
    }

    /// Lines and functions of the source, from the program or from a separate file.
    fn tables(
        &mut self,
        name: &str,
        binary: &Binary<'a>,
        files: &dyn DebugFiles,
        rules: &Rules,
    ) -> Option<Tables> {
        if has_lines(binary) {
            return Some(self.dwarf((Path::new(name), binary), binary, files, rules));
        }
        if let Some((path, bytes)) = debug_files::separate(name, binary, files, &mut self.notes)
            && let Ok(debug) = Binary::read(&bytes)
            && has_lines(&debug)
        {
            // The names are in a file that is given back soon.
            let symbols = debug.symbols().into_iter();
            let owned = |s: Symbol<'_>| Symbol { name: Cow::Owned(s.name.into_owned()), ..s };
            self.take_symbols(symbols.map(owned).collect(), binary);
            return Some(self.dwarf((&path, &debug), binary, files, rules));
        }
        let mut tables = golang::read(binary, rules.places, |names| self.choose(binary, names, rules))?;
        self.notes.append(&mut tables.notes);
        Some(tables)
    }

    fn dwarf(
        &mut self,
        (path, debug): (&Path, &Binary<'_>),
        binary: &Binary<'a>,
        files: &dyn DebugFiles,
        rules: &Rules,
    ) -> Tables {
        let sections = Sections::load(debug, false, &mut self.notes);
        let shared = debug_files::shared(path, debug, files);
        let shared = shared.as_ref().and_then(|bytes| Binary::read(bytes).ok());
        let shared = shared.map(|shared| Sections::load(&shared, false, &mut self.notes));
        let root = rules.checkout.root();
        let path_map: Vec<(String, PathBuf)> =
            rules.path_map.iter().map(|(from, to)| (from.clone(), root.join(to))).collect();
        let source = dwarf::Source {
            binary,
            path,
            sections: &sections,
            shared: shared.as_ref(),
            files,
            path_map: &path_map,
            whole: rules.places,
        };
        let mut tables = dwarf::read(&source, |names| self.choose(binary, names, rules));
        self.notes.append(&mut tables.notes);
        tables
    }

    /// Finds the files in the checkout. Gives which count.
    fn choose(&mut self, binary: &Binary<'_>, names: &[Named], rules: &Rules) -> Vec<bool> {
        let of_go = golang::is_go(binary).then(|| golang::own_files(binary, names));
        let names = of_go.as_deref().unwrap_or(names);
        let mut notes = Vec::new();
        for meant in rules.checkout.map(names, &rules.path_map) {
            let path = match meant {
                Meant::File(path) => Some(path).filter(|path| rules.counts(path)),
                Meant::Changed(path) if rules.counts(&path) => {
                    notes.push(format!("{path} is not counted: it has changed since the program was built"));
                    None
                }
                Meant::Ambiguous(one, other) if rules.counts(&one) || rules.counts(&other) => {
                    notes.push(ambiguous(&one, &other));
                    None
                }
                _ => None,
            };
            self.sources.paths.push(path);
        }
        notes.sort_unstable();
        notes.dedup();
        let more = notes.len().saturating_sub(MOST_NOTES);
        self.notes.extend(notes.into_iter().take(MOST_NOTES));
        if more > 0 {
            self.notes.push(format!("{more} more source files are not counted for such reasons"));
        }
        self.sources.paths.iter().map(Option::is_some).collect()
    }
}

fn has_lines(binary: &Binary<'_>) -> bool {
    let has = |name: &str| binary.has(&format!(".debug_{name}")) || binary.has(&format!(".zdebug_{name}"));
    has("line") && has("info")
}

/// What was noted, as the end of a sentence.
fn told(notes: &[String]) -> String {
    if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) }
}

fn without_lines(binary: &Binary<'_>, notes: &[String]) -> NotMeasured {
    NotMeasured {
        reason: format!("it has no line tables{}", told(notes)),
        hint: format!("{}, or count functions or blocks (coverage.unit)", flag(binary)),
    }
}

/// What adds line tables to a build.
fn flag(binary: &Binary<'_>) -> &'static str {
    let (_, comment) = binary.raw(".comment").unwrap_or_default();
    if golang::is_go(binary) {
        "build it with Go 1.16 or later"
    } else if comment.windows(5).any(|word| word == b"rustc") {
        "set debug = \"line-tables-only\" in its profile in Cargo.toml and do not strip it"
    } else {
        "compile it with -g and do not strip it, or provide its debug file"
    }
}

/// None of the files that line tables name counts.
fn elsewhere(tables: Option<&Tables>, rules: &Rules, notes: &[String]) -> NotMeasured {
    let names = tables.map_or(&[][..], |tables| &tables.names);
    let likely = names.iter().find(|named| !foreign(&named.path)).or(names.first());
    let example = likely.map(|named| format!(", which has for example {}", named.path)).unwrap_or_default();
    let root = rules.checkout.root().display();
    NotMeasured {
        reason: format!(
            "no file of its line tables{example}, is among those that count in {root}{}",
            told(notes)
        ),
        hint: "say in coverage.path_map what stands for the directory of its build, or exclude it".to_owned(),
    }
}
