//! A function's record in the coverage mapping: its regions, and how the counts of regions are made of counters.

use super::bytes::Bytes;
use super::regions::{Kind, Region};

/// Lines of a region, at most: more are damage.
const MOST_LINES: u32 = 1_000_000;
/// How deep macros may be nested.
const DEEPEST: usize = 64;

/// A function with its regions.
#[derive(Clone, Debug, Default)]
pub(super) struct Mapped {
    /// By its own numbers, what the list of files has.
    files: Vec<u32>,
    expressions: Vec<Expression>,
    regions: Vec<Counted>,
}

/// A region and what counts it.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Among the function's files.
    file: usize,
    /// Without its count.
    region: Region,
    counter: Counter,
    /// Of a macro: the file that has its source, among those of the function.
    expanded: Option<usize>,
}

/// Where a count comes from.
#[derive(Clone, Copy, Debug)]
enum Counter {
    Zero,
    Number(usize),
    Expression(usize),
}

/// A sum or a difference.
#[derive(Clone, Copy, Debug)]
struct Expression {
    minus: bool,
    left: Counter,
    right: Counter,
}

impl Mapped {
    /// Reads the record of a function whose files are in a list.
    pub(super) fn read(mut bytes: Bytes<'_>, list: &[u32]) -> Result<Mapped, String> {
        let mut mapped = Mapped::default();
        for _ in 0..bytes.count()? {
            let file = usize::try_from(bytes.leb()?).ok().and_then(|file| list.get(file));
            mapped.files.push(*file.ok_or_else(|| bytes.wrong("a file is not in its list,"))?);
        }
        let expressions = bytes.count()?;
        // Counters say whether an expression is a sum; until one does, it is a difference.
        mapped.expressions =
            vec![Expression { minus: true, left: Counter::Zero, right: Counter::Zero }; expressions];
        for index in 0..expressions {
            let (left, right) = (bytes.leb()?, bytes.leb()?);
            let (left, right) = (mapped.counter(left, &bytes)?, mapped.counter(right, &bytes)?);
            (mapped.expressions[index].left, mapped.expressions[index].right) = (left, right);
        }
        for file in 0..mapped.files.len() {
            let mut line = 0_u32;
            for _ in 0..bytes.count()? {
                mapped.region(file, &mut line, &mut bytes)?;
            }
        }
        mapped.take_over();
        Ok(mapped)
    }

    /// The lowest two bits say what a counter is: nothing, a counter, a difference, a sum.
    fn counter(&mut self, encoded: u64, bytes: &Bytes<'_>) -> Result<Counter, String> {
        let number = usize::try_from(encoded >> 2).unwrap_or(usize::MAX);
        Ok(match encoded & 3 {
            0 => Counter::Zero,
            1 => Counter::Number(number),
            kind => {
                let expression = self.expressions.get_mut(number);
                expression.ok_or_else(|| bytes.wrong("an expression is not there,"))?.minus = kind == 2;
                Counter::Expression(number)
            }
        })
    }

    fn region(&mut self, file: usize, line: &mut u32, bytes: &mut Bytes<'_>) -> Result<(), String> {
        let encoded = bytes.leb()?;
        let (mut kind, mut counter) = (Some(Kind::Code), Counter::Zero);
        if encoded & 3 != 0 {
            counter = self.counter(encoded, bytes)?;
        } else if encoded & 4 != 0 {
            kind = Some(Kind::Expansion);
        } else {
            match encoded >> 3 {
                0 => {}
                2 => kind = Some(Kind::Skipped),
                // Branches and decisions are no source of their own; their numbers are passed over.
                4 => (kind, _, _) = (None, bytes.leb()?, bytes.leb()?),
                5 => (kind, _, _) = (None, bytes.leb()?, bytes.leb()?),
                6 => {
                    for _ in 0..5 {
                        bytes.leb()?;
                    }
                    kind = None;
                }
                other => return Err(bytes.wrong(&format!("a region has the unknown kind {other}"))),
            }
        }
        let (more, column) = (bytes.small()?, bytes.small()?);
        let (lines, mut end) = (bytes.small()?, bytes.small()?);
        *line = line.checked_add(more).ok_or_else(|| bytes.wrong("a line has too large a number"))?;
        // The highest bit of the last column: the region is a gap.
        if end >> 31 != 0 {
            end &= !(1 << 31);
            kind = kind.map(|_| Kind::Gap);
        }
        let whole = column == 0 && end == 0;
        let (column, end) = if whole { (1, u32::MAX) } else { (column, end) };
        let last = line.checked_add(lines).filter(|_| lines < MOST_LINES);
        let last = last.ok_or_else(|| bytes.wrong("a region has too many lines"))?;
        let (start, end) = ((*line, column), (last, end));
        if end < start {
            return Err(bytes.wrong("a region ends before it begins,"));
        }
        if let Some(kind) = kind {
            let expanded = usize::try_from(encoded >> 3).ok().filter(|_| kind == Kind::Expansion);
            let region = Region { start, end, kind, count: 0 };
            self.regions.push(Counted { file, region, counter, expanded });
        }
        Ok(())
    }

    /// The count of a macro is that of the first region of its source, which may be a macro itself.
    fn take_over(&mut self) {
        for _ in 0..self.files.len().min(DEEPEST) {
            let mut macros: Vec<Option<usize>> = vec![None; self.files.len()];
            for (at, counted) in self.regions.iter().enumerate() {
                if let Some(slot) = counted.expanded.and_then(|file| macros.get_mut(file)) {
                    *slot = Some(at);
                }
            }
            for at in 0..self.regions.len() {
                let Counted { file, counter, .. } = self.regions[at];
                if let Some(of_macro) = macros[file].take() {
                    self.regions[of_macro].counter = counter;
                }
            }
        }
    }

    /// The regions with their counts, and the file of each.
    pub(super) fn counted(&self, counters: &[u64]) -> impl Iterator<Item = (u32, Region)> {
        let values = self.values(counters);
        self.regions.iter().map(move |counted| {
            let count = match counted.counter {
                Counter::Zero => 0,
                Counter::Number(number) => counters.get(number).copied().unwrap_or(0),
                // Less than nothing is possible while a function runs: what was counted at its end is missing.
                Counter::Expression(number) => u64::try_from(values[number].max(0)).unwrap_or(u64::MAX),
            };
            (self.files[counted.file], Region { count, ..counted.region })
        })
    }

    /// The values of all expressions.
    fn values(&self, counters: &[u64]) -> Vec<i128> {
        let mut values: Vec<Option<i128>> = vec![None; self.expressions.len()];
        let mut begun = vec![false; self.expressions.len()];
        let mut todo: Vec<usize> = Vec::new();
        for root in 0..self.expressions.len() {
            todo.push(root);
            while let Some(at) = todo.last().copied() {
                let Expression { minus, left, right } = self.expressions[at];
                let inner = |counter: Counter| match counter {
                    Counter::Expression(number) => Some(number),
                    _ => None,
                };
                let unknown = [inner(left), inner(right)].into_iter().flatten();
                let before = todo.len();
                if !begun[at] {
                    begun[at] = true;
                    todo.extend(unknown.filter(|number| values[*number].is_none() && !begun[*number]));
                }
                if todo.len() > before {
                    continue;
                }
                let value = |counter: Counter| match counter {
                    Counter::Zero => 0,
                    Counter::Number(number) => counters.get(number).map_or(0, |count| i128::from(*count)),
                    // What refers to itself is damage, and counts nothing.
                    Counter::Expression(number) => values[number].unwrap_or(0),
                };
                let (left, right) = (value(left), value(right));
                let value = if minus { left.saturating_sub(right) } else { left.saturating_add(right) };
                values[at].get_or_insert(value);
                todo.pop();
            }
        }
        values.into_iter().map(|value| value.unwrap_or(0)).collect()
    }
}
