//! Rows of line programs: where statements begin.

use super::{Debug, Source};
use crate::boundaries::end_by_jump;
use crate::tables::{Statement, Tables};

/// Rows of a program, at most: a gibibyte of memory.
const MOST_ROWS: usize = 48_000_000;

/// One row of a sequence.
struct Row {
    address: u64,
    file: Option<u32>,
    line: u32,
    statement: bool,
    end: bool,
}

impl<'d> Debug<'d> {
    /// Reads the rows of a line program, if it has files that count or all rows are wanted.
    pub(super) fn read_lines(&mut self, program: usize, source: &Source<'_, '_>, tables: &mut Tables) {
        let chosen = |file: u32| tables.chosen.get(file as usize).copied().unwrap_or(false);
        let counts = self.programs[program].files.iter().flatten().any(|file| chosen(*file));
        if !counts && !source.whole {
            return;
        }
        let this = &self.programs[program];
        let at = this.offset.0;
        let lines = self.dwarf.debug_line.program(this.offset, this.address_size, this.directory, this.name);
        let mut rows = match lines {
            Ok(lines) => lines.rows(),
            Err(error) => return self.note(format!("the line table at {at:#x} is damaged: {error}")),
        };
        let mut sequence: Vec<Row> = Vec::new();
        let damage = loop {
            let row = match rows.next_row() {
                Ok(Some((_, row))) => row,
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            };
            if !self.supply.take(1) || tables.statements.len() + tables.rows.len() > MOST_ROWS {
                break Some("it has too many rows".to_owned());
            }
            if row.end_sequence() {
                finish(&sequence, row.address(), source, tables);
                sequence.clear();
                continue;
            }
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
            let file = usize::try_from(row.file_index()).ok();
            let file = file.and_then(|file| this.files.get(file).copied().flatten());
            let (address, statement, end) = (row.address(), row.is_stmt(), row.epilogue_begin());
            tables.has_ends |= end;
            sequence.push(Row { address, file, line, statement, end });
        };
        if let Some(error) = damage {
            self.note(format!("the line table at {at:#x} is damaged: {error}"));
        }
    }
}

/// Takes over the rows of a sequence, if it lies in code: the linker sets the addresses of what it discards to 0 or to the largest.
fn finish(sequence: &[Row], end: u64, source: &Source<'_, '_>, tables: &mut Tables) {
    let Some(first) = sequence.first() else { return };
    let Some(code) = source.binary.code_at(first.address) else { return };
    if end <= first.address || end - code.address > code.length {
        return;
    }
    let mut counts = false;
    let mut before: Option<&Row> = None;
    for row in sequence.iter().filter(|row| row.address >= first.address && row.address < end) {
        // A row that only goes on with a line is no beginning, unless nobody comes to it from what stands before: `} else if (a)` has
        // the jump at the end of the first block, then the condition.
        let same = before.filter(|before| (before.file, before.line) == (row.file, row.line));
        let goes_on = same.is_some_and(|before| !end_by_jump(source.binary, before.address, row.address));
        let begins = row.statement || same.is_some() && !goes_on;
        before = Some(row);
        let chosen = |file: &u32| tables.chosen.get(*file as usize).copied().unwrap_or(false);
        // DWARF 5, 6.2.2: line 0 is that of an instruction that cannot be attributed to any line.
        if let Some(file) =
            row.file.filter(chosen).filter(|_| row.line > 0 && (begins || row.end || !goes_on))
        {
            let later = !begins;
            tables.statements.push(Statement {
                address: row.address,
                file,
                line: row.line,
                later,
                end: row.end,
            });
            counts = true;
        }
        if source.whole {
            let (file, line) = row.file.map_or((0, 0), |file| (file, row.line));
            tables.rows.push((row.address, file, line));
        }
    }
    if counts {
        tables.starts.push(first.address);
    }
    if source.whole {
        tables.rows.push((end, 0, 0));
    }
}
