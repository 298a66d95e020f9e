//! Makes the points of a program from what its tables say, in each unit.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::analyse::Found;
use crate::boundaries::{Starts, blocks};
use crate::elf::{Binary, Symbol};
use crate::functions::{Functions, complete};
use crate::program::{Item, Places, Point, Row, Scope, innermost};
use crate::tables::{Declared, Tables, nest};
use crate::written::{Unwritten, unwritten};
use crate::{Program, Rules};

/// Functions that compilers and the C library add to each program.
const STARTUP: &[&str] = &[
    "_start",
    "_init",
    "_fini",
    "_dl_relocate_static_pie",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
    "__libc_csu_init",
    "__libc_csu_fini",
];

/// A program in the making.
pub(crate) struct Build<'w, 'a> {
    binary: &'w Binary<'a>,
    rules: &'w Rules,
    found: Found<'a>,
    program: Program,
    functions: Functions,
    /// Paths of files, and their places in [`Program::files`].
    files: BTreeMap<String, u32>,
    /// Of each of [`Program::files`], the lines that the user wrote no code in.
    unwritten: Vec<BTreeMap<u32, Unwritten>>,
}

/// A wanted point: its address, what it counts for, and its function.
struct Wanted<K> {
    address: u64,
    key: K,
    function: Option<u32>,
}

impl<'w, 'a> Build<'w, 'a> {
    pub(crate) fn new(
        name: &str,
        binary: &'w Binary<'a>,
        rules: &'w Rules,
        mut found: Found<'a>,
    ) -> Build<'w, 'a> {
        let mut program = Program {
            name: name.to_owned(),
            digest: Sha256::digest(binary.bytes).into(),
            build_id: binary.build_id.clone(),
            unit: rules.unit.unwrap_or_default(),
            points: Vec::new(),
            items: Vec::new(),
            members: Vec::new(),
            functions: Vec::new(),
            files: Vec::new(),
            notes: std::mem::take(&mut found.notes),
            places: None,
        };
        // Sorted, so that equal programs are equal whatever order their tables have.
        let paths: BTreeSet<&String> = found.sources.paths.iter().flatten().collect();
        program.files = paths.into_iter().cloned().collect();
        let files = program.files.iter().cloned().zip(0..).collect();
        let unwritten = program.files.iter().map(|path| {
            let text = rules.checkout.text(path);
            text.map(|text| unwritten(path, &text)).unwrap_or_default()
        });
        let unwritten = unwritten.collect();
        Build { binary, rules, found, program, functions: Functions::default(), files, unwritten }
    }

    /// Whether the user wrote code in a line of one of [`Program::files`].
    fn is_written(&self, file: u32, line: u32) -> bool {
        self.unwritten(file, line).is_none()
    }

    fn unwritten(&self, file: u32, line: u32) -> Option<Unwritten> {
        self.unwritten.get(file as usize)?.get(&line).copied()
    }

    /// The place of a table's file in the program's files, if it counts.
    fn counted(&self, file: u32) -> Option<u32> {
        self.files.get(self.found.sources.paths.get(file as usize)?.as_ref()?).copied()
    }

    /// Points for lines: all statements.
    pub(crate) fn lines(mut self, mut tables: Tables) -> Program {
        self.add_symbols(&mut tables);
        let scopes = nest(std::mem::take(&mut tables.stretches));
        let owner = |address| innermost(&scopes, address).map(|scope| scopes[scope as usize].function);
        let owned = tables.statements.iter().filter_map(|s| Some((owner(s.address)?, s.file, s.line)));
        complete(&mut tables.functions, &scopes, &self.found.symbols, owned);
        // Where a statement has its beginning, what goes on elsewhere in the same function may have been moved there, before the
        // condition that it depends on.
        let scope = |address| innermost(&scopes, address);
        let begun = tables.statements.iter().filter(|s| !s.later).map(|s| (scope(s.address), s.file, s.line));
        let begun: BTreeSet<(Option<u32>, u32, u32)> = begun.collect();
        let last = last_lines(&tables, &scopes);
        let mut wanted = Vec::with_capacity(tables.statements.len());
        for statement in &tables.statements {
            let Some(file) = self.counted(statement.file) else { continue };
            let scope = scope(statement.address);
            let returns = match tables.has_ends {
                true => statement.end,
                false => {
                    scope.is_some_and(|scope| last.get(&scope) == Some(&(statement.file, statement.line)))
                }
            };
            match self.unwritten(file, statement.line) {
                Some(Unwritten::Brackets) if returns => {}
                Some(_) => continue,
                None if statement.later && begun.contains(&(scope, statement.file, statement.line)) => {
                    continue;
                }
                None => {}
            }
            let function = scope.map(|scope| scopes[scope as usize].function);
            let function = function.and_then(|f| self.function(f, &tables.functions));
            wanted.push(Wanted { address: statement.address, key: (file, statement.line), function });
        }
        self.add_heads(&mut wanted, &tables, &scopes);
        self.points(wanted, &tables, |(file, line)| Item {
            file: Some(file),
            line,
            function: None,
            offset: 0,
        });
        self.finish(tables, scopes)
    }

    /// Whoever comes to the beginning of a function, or of an inlined copy of it, has reached the line that declares it. Of that line an
    /// optimiser may leave nothing but what is done when something goes wrong.
    fn add_heads(&mut self, wanted: &mut Vec<Wanted<(u32, u32)>>, tables: &Tables, scopes: &[Scope]) {
        let known: BTreeSet<(u32, u32)> = wanted.iter().map(|wanted| wanted.key).collect();
        for scope in scopes {
            let Some(declared) = tables.functions.get(scope.function as usize) else { continue };
            let Some(file) = declared.file.and_then(|file| self.counted(file)) else { continue };
            let key = (file, declared.line);
            if known.contains(&key) {
                let inner = innermost(scopes, scope.start).map(|inner| scopes[inner as usize].function);
                let function = inner.and_then(|inner| self.function(inner, &tables.functions));
                wanted.push(Wanted { address: scope.start, key, function });
            }
        }
    }

    /// Adds the functions of symbols that have statements but no entry of their own: with line tables only, LLVM leaves out functions
    /// that nothing is inlined into.
    fn add_symbols(&self, tables: &mut Tables) {
        let known: BTreeSet<u64> =
            tables.stretches.iter().filter(|s| s.call.is_none()).map(|s| s.start).collect();
        let mut added = BTreeSet::new();
        for symbol in self.found.symbols.iter().filter(|symbol| symbol.size > 0) {
            let (start, end) = (symbol.address, symbol.address.saturating_add(symbol.size));
            let first = tables.statements.partition_point(|statement| statement.address < start);
            let stated = tables.statements.get(first).is_some_and(|statement| statement.address < end);
            if !stated || known.contains(&start) || !added.insert(start) {
                continue;
            }
            let Ok(function) = u32::try_from(tables.functions.len()) else { break };
            let name = crate::names::demangle(&symbol.name);
            tables.functions.push(Declared { name, linked: true, file: None, line: 0 });
            tables.stretches.push(whole(start, end, function));
        }
    }

    /// Points for functions: where their code and its inlined copies begin; without tables, where symbols are.
    pub(crate) fn functions(mut self, tables: Option<Tables>) -> Program {
        let mut tables = tables.unwrap_or_default();
        let scopes = self.declare(&mut tables);
        let mut wanted = Vec::new();
        for scope in &scopes {
            if let Some(function) = self.counted_function(scope.function, &tables) {
                wanted.push(Wanted { address: scope.start, key: function, function: Some(function) });
            }
        }
        let places: Vec<(Option<u32>, u32)> = self.functions.list.iter().map(|f| (f.file, f.line)).collect();
        self.points(wanted, &tables, |function| {
            let (file, line) = places[function as usize];
            Item { file, line, function: Some(function), offset: 0 }
        });
        self.finish(tables, scopes)
    }

    /// Points for blocks, of functions that count; of all functions without tables.
    pub(crate) fn blocks(mut self, tables: Option<Tables>) -> Program {
        let mut tables = tables.unwrap_or_default();
        if tables.names.is_empty() {
            self.add_frames();
        }
        let scopes = self.declare(&mut tables);
        let mut wanted = Vec::new();
        // What lies within another function is found from there; looking again from each could take the square of the time.
        let own = |scope: &&Scope| scope.call.is_none() && scope.parent.is_none();
        for scope in scopes.iter().filter(own) {
            let Some(function) = self.counted_function(scope.function, &tables) else { continue };
            for address in blocks(self.binary, scope.start, scope.end) {
                wanted.push(Wanted { address, key: (function, address), function: Some(function) });
            }
        }
        wanted.sort_by_key(|wanted| wanted.address);
        wanted.dedup_by_key(|wanted| wanted.address);
        let places: Vec<(Option<u32>, u32)> = self.functions.list.iter().map(|f| (f.file, f.line)).collect();
        let binary = self.binary;
        self.points(wanted, &tables, |(function, address)| {
            let ((file, line), offset) = (places[function as usize], binary.offset(address).unwrap_or(0));
            Item { file, line, function: Some(function), offset }
        });
        self.finish(tables, scopes)
    }

    /// Adds a symbol for each function of the unwinder's table that has none: a stripped program keeps those at most that others
    /// may link to.
    fn add_frames(&mut self) {
        let symbols = &mut self.found.symbols;
        let mut named: Vec<(u64, u64)> =
            symbols.iter().map(|s| (s.address, s.address.saturating_add(s.size.max(1)))).collect();
        named.sort_unstable();
        // The furthest end of those that begin up to here: one may lie within another.
        let mut furthest = 0;
        for (_, end) in &mut named {
            furthest = furthest.max(*end);
            *end = furthest;
        }
        for (start, end) in &self.found.frames {
            let before = named[..named.partition_point(|(at, _)| at <= start)].last();
            if before.is_none_or(|(_, end)| end <= start) {
                let name = Cow::Owned(format!("function at {start:#x}").into_bytes());
                symbols.push(Symbol { name, address: *start, size: end - start });
            }
        }
    }

    /// Completes the functions of tables; without tables, makes them of the symbols.
    fn declare(&mut self, tables: &mut Tables) -> Vec<Scope> {
        if tables.functions.is_empty() {
            self.found.symbols.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
            self.found.symbols.dedup_by_key(|symbol| symbol.address);
            for (index, symbol) in self.found.symbols.iter().enumerate() {
                let name = crate::names::demangle(&symbol.name);
                let Ok(function) = u32::try_from(tables.functions.len()) else { break };
                let next = self.found.symbols.get(index + 1).map_or(u64::MAX, |next| next.address);
                let end = if symbol.size > 0 { symbol.address.saturating_add(symbol.size) } else { next };
                if !STARTUP.contains(&name.as_str()) {
                    tables.functions.push(Declared { name, linked: true, file: None, line: 0 });
                    tables.stretches.push(whole(symbol.address, end, function));
                }
            }
        }
        self.add_symbols(tables);
        let scopes = nest(std::mem::take(&mut tables.stretches));
        let owner = |address| innermost(&scopes, address).map(|scope| scopes[scope as usize].function);
        let owned = tables.statements.iter().filter_map(|s| Some((owner(s.address)?, s.file, s.line)));
        complete(&mut tables.functions, &scopes, &self.found.symbols, owned);
        scopes
    }

    /// The function of a declared one, if it counts: if its file does, or no file is known of any.
    fn counted_function(&mut self, index: u32, tables: &Tables) -> Option<u32> {
        let declared = tables.functions.get(index as usize)?;
        let file = declared.file.and_then(|file| self.counted(file));
        let counts = tables.names.is_empty() || file.is_some_and(|file| self.is_written(file, declared.line));
        counts.then(|| self.function(index, &tables.functions))?
    }

    fn function(&mut self, index: u32, declared: &[Declared]) -> Option<u32> {
        let declared = declared.get(index as usize)?;
        let file = declared.file.and_then(|file| self.counted(file));
        Some(self.functions.number(index, declared, |_| file))
    }

    /// Proves the addresses and makes the points and items.
    fn points<K: Ord + Copy>(
        &mut self,
        mut wanted: Vec<Wanted<K>>,
        tables: &Tables,
        item: impl Fn(K) -> Item,
    ) {
        wanted.sort_by_key(|wanted| (wanted.address, wanted.key));
        wanted.dedup_by_key(|wanted| (wanted.address, wanted.key));
        let mut addresses: Vec<u64> = wanted.iter().map(|wanted| wanted.address).collect();
        addresses.dedup();
        let symbols = self.found.symbols.iter();
        let symbols: Vec<(u64, u64)> =
            symbols.map(|s| (s.address, s.address.saturating_add(s.size.max(1)))).collect();
        let others: Vec<(u64, u64)> = tables.starts.iter().map(|start| (*start, start + 1)).collect();
        let starts = Starts::new(self.binary, &[&self.found.frames, &tables.ranges, &symbols, &others]);
        let proven = starts.proven(self.binary, &addresses);
        let proven: BTreeSet<u64> =
            addresses.iter().zip(proven).filter(|(_, proven)| *proven).map(|(address, _)| *address).collect();
        let dropped = addresses.len() - proven.len();
        if dropped > 0 {
            let all = addresses.len();
            let note =
                format!("{dropped} of {all} addresses are no proven starts of instructions: not counted");
            self.program.notes.push(note);
        }
        wanted.retain(|wanted| proven.contains(&wanted.address));
        let keys: BTreeSet<K> = wanted.iter().map(|wanted| wanted.key).collect();
        let keys: BTreeMap<K, u32> = keys.into_iter().zip(0..).collect();
        self.program.items = keys.keys().map(|key| item(*key)).collect();
        let placed = wanted.iter().filter_map(|w| Some((self.binary.offset(w.address)?, w)));
        let mut placed: Vec<(u64, &Wanted<K>)> = placed.collect();
        placed.sort_by_key(|(offset, wanted)| (*offset, wanted.key));
        for (offset, wanted) in placed {
            let member = keys[&wanted.key];
            let first = u32::try_from(self.program.members.len()).unwrap_or(u32::MAX);
            match self.program.points.last_mut() {
                Some(last) if last.offset == offset => last.count += 1,
                _ => {
                    let (address, function) = (wanted.address, wanted.function);
                    self.program.points.push(Point { offset, address, function, first, count: 1 });
                }
            }
            self.program.members.push(member);
            let item = &mut self.program.items[member as usize];
            item.offset = if item.offset == 0 { offset } else { item.offset.min(offset) };
        }
        for point in &self.program.points {
            if let Some(function) = point.function.and_then(|f| self.functions.list.get_mut(f as usize)) {
                function.counted = true;
            }
        }
    }

    /// Adds what [`Program::place`] needs.
    fn finish(mut self, tables: Tables, mut scopes: Vec<Scope>) -> Program {
        if self.rules.places {
            let mut numbers = Vec::with_capacity(tables.names.len());
            for (index, named) in (0..).zip(&tables.names) {
                numbers.push(self.counted(index).unwrap_or_else(|| {
                    let next = u32::try_from(self.program.files.len()).unwrap_or(u32::MAX);
                    *self.files.entry(named.path.clone()).or_insert_with(|| {
                        self.program.files.push(named.path.clone());
                        next
                    })
                }));
            }
            let file = |file: u32| numbers.get(file as usize).copied().unwrap_or(u32::MAX);
            for scope in &mut scopes {
                let Some(declared) = tables.functions.get(scope.function as usize) else { continue };
                scope.function = self.functions.number(scope.function, declared, |f| Some(file(f)));
                scope.call = scope.call.map(|(at, line)| (file(at), line));
            }
            let rows = tables.rows.iter().map(|(address, at, line)| Row {
                address: *address,
                file: file(*at),
                line: *line,
            });
            let mut rows: Vec<Row> = rows.collect();
            // Of rows at one address the last one holds; the end of a sequence comes before the beginning of the next one.
            rows.sort_by_key(|row| (row.address, row.line > 0));
            let mut code: Vec<(u64, u64, u64)> =
                self.binary.code.iter().map(|code| (code.address, code.length, code.offset)).collect();
            code.sort_by_key(|(_, _, offset)| *offset);
            self.program.places = Some(Places { code, rows, scopes });
        }
        self.program.functions = self.functions.list;
        self.program
    }
}

/// The last line of each function that is not inlined, by its scope, in the file of its first one.
fn last_lines(tables: &Tables, scopes: &[Scope]) -> BTreeMap<u32, (u32, u32)> {
    let mut last: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for statement in &tables.statements {
        let Some(scope) = innermost(scopes, statement.address) else { continue };
        if scopes[scope as usize].call.is_some() {
            continue;
        }
        let (file, line) = last.entry(scope).or_insert((statement.file, statement.line));
        if *file == statement.file {
            *line = statement.line.max(*line);
        }
    }
    last
}

fn whole(start: u64, end: u64, function: u32) -> crate::tables::Stretch {
    crate::tables::Stretch { start, end, depth: 0, function, call: None }
}
