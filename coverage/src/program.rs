//! The result of an analysis: points of a program, and what they count for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a percentage counts. Two units are never added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Lines of source, as the program's line tables have them.
    #[default]
    Lines,
    /// Functions, as the symbol table has them.
    Functions,
    /// Basic blocks: stretches of instructions that run from the first to the last.
    Blocks,
}

impl Unit {
    /// The word of the configuration and of reports.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Lines => "lines",
            Unit::Functions => "functions",
            Unit::Blocks => "blocks",
        }
    }

    /// The unit with this word.
    pub fn named(name: &str) -> Option<Unit> {
        [Unit::Lines, Unit::Functions, Unit::Blocks].into_iter().find(|unit| unit.name() == name)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What can be covered in one file with native code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The path in the service.
    pub name: String,
    /// SHA-256 of the file.
    pub digest: [u8; 32],
    /// The linker's `.note.gnu.build-id`.
    pub build_id: Option<Vec<u8>>,
    /// What [`Program::items`] are.
    pub unit: Unit,
    /// Proven starts of instructions, by rising offset, no two equal.
    pub points: Vec<Point>,
    /// What counts once: lines, functions or blocks. An item is covered when one of its points was reached.
    pub items: Vec<Item>,
    /// The items of all points, one point's after another's: see [`Program::items_of`].
    pub members: Vec<u32>,
    /// Functions that a point, an item or a place refers to.
    pub functions: Vec<Function>,
    /// Source files by their paths in the checkout, with `/`; of files outside of it, which only [`Program::place`] needs, the
    /// paths that the program names.
    pub files: Vec<String>,
    /// What was damaged, dropped or refused, in words for the user.
    pub notes: Vec<String>,
    /// What [`Program::place`] needs, if [`Rules::places`](crate::Rules::places) asked for it.
    pub places: Option<Places>,
}

/// The first byte of an instruction that can be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Where it is in the file.
    pub offset: u64,
    /// Where the file's headers say that it is loaded, before relocation.
    pub address: u64,
    /// The function it belongs to, by its place in [`Program::functions`]; an inlined function where one is.
    pub function: Option<u32>,
    /// The first of its items in [`Program::members`].
    pub first: u32,
    /// How many items it has. A point has several where instructions of several lines begin at one address.
    pub count: u32,
}

/// A line, a function or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Item {
    /// The source file, by its place in [`Program::files`].
    pub file: Option<u32>,
    /// The line from 1; 0 where it is not known.
    pub line: u32,
    /// The function, where the unit is functions or blocks.
    pub function: Option<u32>,
    /// Where its first instruction is in the file.
    pub offset: u64,
}

/// A function of the source. All its copies, inlined or instantiated for several types, are one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// The name, demangled.
    pub name: String,
    /// The source file, by its place in [`Program::files`].
    pub file: Option<u32>,
    /// Its first line, from 1; 0 where it is not known.
    pub line: u32,
    /// Whether it has points.
    pub counted: bool,
}

/// Tables of a whole program, from an address to source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Where code is: address, length, offset in the file, by rising offset.
    pub code: Vec<(u64, u64, u64)>,
    /// Rows of the line table by rising address.
    pub rows: Vec<Row>,
    /// Functions and inlined calls, an enclosing one before what it encloses.
    pub scopes: Vec<Scope>,
}

/// From its address to that of the next row, code belongs to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The address of the first instruction.
    pub address: u64,
    /// The file, by its place in [`Program::files`].
    pub file: u32,
    /// The line from 1; 0 where what follows belongs to none.
    pub line: u32,
}

/// A stretch of code that belongs to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The function, by its place in [`Program::functions`].
    pub function: u32,
    /// The enclosing scope, which has a smaller number.
    pub parent: Option<u32>,
    /// Of an inlined function: where it is called, as file and line.
    pub call: Option<(u32, u32)>,
}

/// A place in the source: what a line of a stack shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function, demangled.
    pub function: String,
    /// The file.
    pub file: Option<String>,
    /// The line from 1; 0 where it is not known.
    pub line: u32,
    /// Whether the function is inlined into that of the next frame.
    pub inlined: bool,
}

/// Why nothing of a program is counted, and what helps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NotMeasured {
    /// Why.
    pub reason: String,
    /// What to add to the build or to the configuration.
    pub hint: String,
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.hint)
    }
}

impl Program {
    /// The items of a point, by their places in [`Program::items`].
    pub fn items_of(&self, point: usize) -> &[u32] {
        let Some(point) = self.points.get(point) else { return &[] };
        let first = point.first as usize;
        self.members.get(first..first + point.count as usize).unwrap_or_default()
    }

    /// Where an instruction is in the source: the innermost function first, then what it is inlined into. Empty where nothing is
    /// known, or where [`Rules::places`](crate::Rules::places) did not ask for it.
    pub fn place(&self, offset: u64) -> Vec<Frame> {
        let Some(places) = &self.places else { return Vec::new() };
        let Some(address) = places.address(offset) else { return Vec::new() };
        let (mut file, mut line) = places.line(address).map_or((None, 0), |(file, line)| (Some(file), line));
        let mut frames = Vec::new();
        let mut scope = places.scope(address);
        while let Some(index) = scope {
            let at = places.scopes[index as usize];
            frames.push(Frame {
                function: self.function_name(at.function),
                file: self.file_name(file),
                line,
                inlined: at.call.is_some(),
            });
            let Some(call) = at.call else { break };
            (file, line) = (Some(call.0), call.1);
            scope = at.parent;
        }
        if frames.is_empty() && file.is_some() {
            let function = "?".to_owned();
            frames.push(Frame { function, file: self.file_name(file), line, inlined: false });
        }
        frames
    }

    fn function_name(&self, function: u32) -> String {
        self.functions.get(function as usize).map_or_else(|| "?".to_owned(), |function| function.name.clone())
    }

    fn file_name(&self, file: Option<u32>) -> Option<String> {
        self.files.get(file? as usize).cloned()
    }
}

impl Places {
    fn address(&self, offset: u64) -> Option<u64> {
        let after = self.code.partition_point(|(_, _, at)| *at <= offset);
        let (address, length, at) = *self.code.get(after.checked_sub(1)?)?;
        (offset - at < length).then(|| address + (offset - at))
    }

    fn line(&self, address: u64) -> Option<(u32, u32)> {
        let after = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows.get(after.checked_sub(1)?)?;
        (row.line > 0).then_some((row.file, row.line))
    }

    /// The innermost scope around an address.
    pub(crate) fn scope(&self, address: u64) -> Option<u32> {
        innermost(&self.scopes, address)
    }
}

/// The innermost of `scopes`, which are sorted as in [`Places::scopes`], around an address.
pub(crate) fn innermost(scopes: &[Scope], address: u64) -> Option<u32> {
    let after = scopes.partition_point(|scope| scope.start <= address);
    let mut at = u32::try_from(after.checked_sub(1)?).ok()?;
    // A parent has a smaller number, so this ends. The last scope that begins before the address may have ended before it; then
    // what encloses it is asked.
    loop {
        let scope = scopes.get(at as usize)?;
        if address < scope.end {
            return Some(at);
        }
        at = scope.parent.filter(|parent| *parent < at)?;
    }
}
