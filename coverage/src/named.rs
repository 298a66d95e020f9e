//! Places in a program as people name them ([`Wanted`]): a function, a line of source, an offset in a file ([`find`]).
//!
//! Neighbours: `analyse` makes the [`Program`] whose tables are asked; `boundaries` proves where instructions begin.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use iced_x86::{Decoder, DecoderOptions};

use crate::boundaries::Starts;
use crate::elf::Binary;
use crate::names::{demangle, without_parameters};
use crate::{Places, Program, frames};

/// Names that are like one that is not there, at most.
const MOST_NEAR: usize = 3;
/// What compilers put behind the name of a copy of a function.
const COPIES: [&str; 5] = [".constprop", ".isra", ".part", ".lto_priv", ".specialized"];

/// What a user calls a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A function by its name, or the last parts of it.
    Function(String),
    /// A line of a source file, whose path ends so.
    Line(String, u32),
    /// An offset in a program or library, whose path ends so.
    Offset(String, u64),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Function(name) => f.write_str(name),
            Wanted::Line(file, line) => write!(f, "{file}:{line}"),
            Wanted::Offset(module, offset) => write!(f, "{module}+{offset:#x}"),
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        if let Some((module, offset)) = text.rsplit_once("+0x")
            && !module.is_empty()
        {
            let offset = u64::from_str_radix(offset, 16).map_err(|_| format!("`0x{offset}` is no offset"))?;
            return Ok(Wanted::Offset(module.to_owned(), offset));
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && !file.is_empty()
            && !file.ends_with(':')
            && line.bytes().all(|byte| byte.is_ascii_digit())
        {
            let line = line.parse().ok().filter(|line| *line > 0);
            let line =
                line.ok_or_else(|| "behind FILE: the number of a line is needed, from 1".to_owned())?;
            return Ok(Wanted::Line(file.to_owned(), line));
        }
        match text.trim() {
            "" => Err("a function, FILE:LINE or MODULE+0xOFFSET is needed".to_owned()),
            name => Ok(Wanted::Function(name.to_owned())),
        }
    }
}

/// An instruction at a place that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Where it is in the file: a proven start.
    pub offset: u64,
    /// Its bytes.
    pub code: Vec<u8>,
}

/// What a program has at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// By rising offset.
    pub starts: Vec<Start>,
    /// What a user should know of them.
    pub notes: Vec<String>,
    /// If there is nothing: what has a name that is like it, with the distance.
    pub near: Vec<(usize, String)>,
}

/// Looks for a place in a program, whose bytes these are; `program` is what [`symbols`](crate::symbols) says of them.
pub fn find(program: &Program, bytes: &[u8], wanted: &Wanted) -> Looked {
    let (Ok(binary), Some(places)) = (Binary::read(bytes), &program.places) else { return Looked::default() };
    let mut looked = Looked::default();
    let addresses = match wanted {
        Wanted::Function(name) => functions(program, places, &binary, name, &mut looked),
        Wanted::Line(file, line) => lines(program, places, (file, *line), &mut looked),
        Wanted::Offset(module, offset) if is_path_of(&program.name, module) => {
            let code =
                binary.code.iter().find(|code| (code.offset..code.offset + code.length).contains(offset));
            if code.is_none() {
                looked.notes.push(format!("{} has no code at {offset:#x}", program.name));
            }
            code.map(|code| code.address + (offset - code.offset)).into_iter().collect()
        }
        Wanted::Offset(..) => Vec::new(),
    };
    prove(&binary, places, &addresses, &mut looked);
    looked
}

/// Keeps what is a proven start of an instruction.
fn prove(binary: &Binary<'_>, places: &Places, addresses: &[u64], looked: &mut Looked) {
    let functions = frames::functions(binary, &mut Vec::new());
    let symbols: Vec<(u64, u64)> =
        binary.symbols().iter().map(|s| (s.address, s.address.saturating_add(s.size.max(1)))).collect();
    let scopes: Vec<(u64, u64)> = places.scopes.iter().map(|scope| (scope.start, scope.start + 1)).collect();
    let starts = Starts::new(binary, &[&functions, &symbols, &scopes]);
    for (address, proven) in addresses.iter().zip(starts.proven(binary, addresses)) {
        let Some(offset) = binary.offset(*address) else { continue };
        let rest = binary.instructions(*address, address.saturating_add(16));
        let instruction = Decoder::with_ip(64, rest, *address, DecoderOptions::NONE).decode();
        if !proven || instruction.is_invalid() {
            looked.notes.push(format!("{offset:#x} is no proven beginning of an instruction"));
            continue;
        }
        looked.starts.push(Start { offset, code: rest[..instruction.len()].to_vec() });
    }
    looked.starts.sort_by_key(|start| start.offset);
}

/// An inlined copy of a function: the scope around it, the function, and where it is called.
type Copy = (Option<u32>, u32, Option<(u32, u32)>);

/// Where functions of this name begin, and their inlined copies.
fn functions(
    program: &Program,
    places: &Places,
    binary: &Binary<'_>,
    wanted: &str,
    looked: &mut Looked,
) -> Vec<u64> {
    let mut named: Vec<(u64, String)> = Vec::new();
    for symbol in binary.symbols() {
        if binary.code_at(symbol.address).is_none_or(|code| code.glue) {
            continue;
        }
        let raw = String::from_utf8_lossy(&symbol.name).into_owned();
        named.push((symbol.address, demangle(&symbol.name)));
        named.push((symbol.address, raw.split('@').next().unwrap_or_default().to_owned()));
    }
    let of_symbols: BTreeSet<u64> = named.iter().map(|(address, _)| *address).collect();
    let with_symbol: BTreeSet<u32> =
        places.scopes.iter().filter(|s| of_symbols.contains(&s.start)).map(|s| s.function).collect();
    // One inlined copy may have several stretches of code; the first begins it.
    let mut inlined: BTreeMap<Copy, u64> = BTreeMap::new();
    for scope in &places.scopes {
        if scope.call.is_some() {
            let first = inlined.entry((scope.parent, scope.function, scope.call)).or_insert(scope.start);
            *first = scope.start.min(*first);
        } else if !with_symbol.contains(&scope.function) {
            named.push((scope.start, name_of(program, scope.function)));
        }
    }
    named.extend(inlined.into_iter().map(|((_, function, _), start)| (start, name_of(program, function))));
    let ranks = |(address, name): &(u64, String)| Some((rank(name, wanted)?, *address));
    let found: Vec<(u8, u64)> = named.iter().filter_map(ranks).collect();
    let best = found.iter().map(|(rank, _)| *rank).min();
    let mut addresses: Vec<u64> =
        found.iter().filter(|(rank, _)| Some(*rank) == best).map(|(_, address)| *address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        looked.near = near(named.iter().map(|(_, name)| name.as_str()), wanted);
    }
    addresses
}

fn name_of(program: &Program, function: u32) -> String {
    program.functions.get(function as usize).map(|function| function.name.clone()).unwrap_or_default()
}

/// How well a name is the wanted one: 0 in full, 1 by its last parts. `None`: not at all. Parameters, parameters of types and what marks copies may be
/// left out.
fn rank(name: &str, wanted: &str) -> Option<u8> {
    if name.contains(".cold") && !wanted.contains(".cold") {
        return None;
    }
    let copy = COPIES.iter().filter_map(|mark| name.find(mark)).min();
    let one = &name[..copy.unwrap_or(name.len())];
    let plain = plain(one);
    if [name, one, &plain].contains(&wanted) {
        return Some(0);
    }
    let ends = |name: &str| {
        let before = name.strip_suffix(wanted);
        before.is_some_and(|before| before.ends_with("::") || before.ends_with('.') || before.ends_with('/'))
    };
    (ends(one) || ends(&plain)).then_some(1)
}

/// A name without parameters and without parameters of types.
fn plain(name: &str) -> String {
    without_parameters(name).trim_end_matches("::").replace("::::", "::")
}

/// The names that are most like one that is not there.
fn near<'a>(names: impl Iterator<Item = &'a str>, wanted: &str) -> Vec<(usize, String)> {
    let last = |name: &str| {
        let plain = plain(name);
        plain.rsplit("::").next().unwrap_or(&plain).rsplit('.').next().unwrap_or_default().to_lowercase()
    };
    let target = last(wanted);
    let most = target.chars().count().div_ceil(3);
    let mut all: BTreeSet<(usize, String)> = BTreeSet::new();
    for name in names {
        let distance = strsim::osa_distance(&target, &last(name));
        if distance <= most && name.len() > 2 && !name.starts_with("_Z") && !name.starts_with("_R") {
            all.insert((distance, name.to_owned()));
        }
    }
    all.into_iter().take(MOST_NEAR).collect()
}

/// Where code of a line begins, in each function that has some: of the next line with code, if this one has none.
fn lines(program: &Program, places: &Places, (file, line): (&str, u32), looked: &mut Looked) -> Vec<u64> {
    let of_file: BTreeSet<u32> =
        (0..).zip(&program.files).filter(|(_, path)| is_path_of(path, file)).map(|(n, _)| n).collect();
    if of_file.is_empty() {
        let names = program.files.iter().map(|path| path.rsplit('/').next().unwrap_or(path));
        looked.near = near_files(names, file);
        return Vec::new();
    }
    let rows = || places.rows.iter().filter(|row| of_file.contains(&row.file) && row.line >= line);
    let Some(next) = rows().map(|row| row.line).min() else {
        looked.notes.push(format!("{file} has no code in line {line} or behind it"));
        return Vec::new();
    };
    if next != line {
        looked.notes.push(format!("{file} has no code in line {line}; the next line with code is {next}"));
    }
    let mut first: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for row in rows().filter(|row| row.line == next) {
        let start = first.entry(places.scope(row.address)).or_insert(row.address);
        *start = row.address.min(*start);
    }
    let mut addresses: Vec<u64> = first.into_values().collect();
    addresses.sort_unstable();
    addresses
}

fn near_files<'a>(names: impl Iterator<Item = &'a str>, wanted: &str) -> Vec<(usize, String)> {
    let target = wanted.rsplit('/').next().unwrap_or(wanted);
    let most = target.chars().count().div_ceil(3);
    let distances = names.map(|name| (strsim::osa_distance(target, name), name.to_owned()));
    let all: BTreeSet<(usize, String)> = distances.filter(|(distance, _)| *distance <= most).collect();
    all.into_iter().take(MOST_NEAR).collect()
}

/// Whether a path is the named one, or ends with it, part by part.
fn is_path_of(path: &str, named: &str) -> bool {
    path.strip_suffix(named)
        .is_some_and(|before| before.is_empty() || before.ends_with('/') || named.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_people_write_them() {
        let is = |text: &str, wanted: Wanted| {
            assert_eq!(text.parse(), Ok(wanted.clone()));
            assert_eq!(wanted.to_string(), text);
        };
        is("main", Wanted::Function("main".into()));
        is("kv::log::push", Wanted::Function("kv::log::push".into()));
        is("main.(*Store).Get", Wanted::Function("main.(*Store).Get".into()));
        is("src/a.c:12", Wanted::Line("src/a.c".into(), 12));
        is("libc.so.6+0x1f", Wanted::Offset("libc.so.6".into(), 0x1f));
        for wrong in ["", " ", "a.c:0", "a.c:99999999999", "prog+0xyz"] {
            assert!(wrong.parse::<Wanted>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_found_in_full_or_by_their_last_parts() {
        assert_eq!(rank("main", "main"), Some(0));
        assert_eq!(rank("Store<int>::get(int const&) const", "Store::get"), Some(0));
        assert_eq!(rank("Store<int>::get(int const&) const", "Store<int>::get(int const&) const"), Some(0));
        assert_eq!(rank("kv::log::push", "log::push"), Some(1));
        assert_eq!(rank("kv::log::push", "push"), Some(1));
        assert_eq!(rank("kv::log::push", "ush"), None);
        assert_eq!(rank("main.(*Store).Get", "(*Store).Get"), Some(1));
        assert_eq!(rank("main.compute", "compute"), Some(1));
        assert_eq!(rank("work.constprop.0", "work"), Some(0));
        assert_eq!(rank("work.cold", "work"), None);
        assert_eq!(rank("_start", "start"), None);
    }

    #[test]
    fn names_that_are_alike_are_told() {
        let names = ["compute", "compare", "kv::commute", "main", "_Z7computev"];
        let alike = [(1, "compute"), (2, "kv::commute"), (3, "compare")];
        assert_eq!(
            near(names.into_iter(), "conpute"),
            alike.map(|(distance, name)| (distance, name.to_owned()))
        );
        assert!(is_path_of("/src/kv/main.c", "kv/main.c") && !is_path_of("/src/kv/main.c", "v/main.c"));
    }
}
