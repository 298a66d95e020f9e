//! Maps of sparse files: which of their bytes are in the archive, one behind the other. GNU tar has written them in
//! four ways (its manual, "Storing Sparse Files"): in the header, in records (0.0 and 0.1), and before the bytes (1.0).

use super::Extent;
use super::header::{BLOCK, number};
use crate::error::Error;

/// Pieces of one file, at most.
pub(super) const MOST: usize = 1 << 16;

/// Bytes of a file that are there.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) len: u64,
}

/// The pieces of a header of old GNU tar: two numbers of 12 bytes each; an empty one ends the list.
pub(super) fn pieces(fields: &[u8], map: &mut Vec<Piece>) -> Result<(), Error> {
    for piece in fields.chunks_exact(24) {
        if piece[0] == 0 {
            break;
        }
        let value = |field: &[u8]| {
            let value = number(field).and_then(|value| u64::try_from(value).ok());
            value.ok_or_else(|| Error::damaged("a number in its map is none"))
        };
        if map.len() >= MOST {
            return Err(Error::limit(format!("more than {MOST} pieces")));
        }
        map.push(Piece { at: value(&piece[..12])?, len: value(&piece[12..])? });
    }
    Ok(())
}

/// The map of version 1.0, which stands in whole blocks before the bytes: decimal numbers, each in a line, first how many pieces.
pub(super) fn leading_map(
    mut block: impl FnMut() -> Result<[u8; BLOCK as usize], Error>,
) -> Result<Vec<Piece>, Error> {
    let mut text: Vec<u8> = Vec::new();
    let mut used = 0;
    let mut number = || -> Result<u64, Error> {
        loop {
            if let Some(end) = text[used..].iter().position(|byte| *byte == b'\n') {
                let line = std::str::from_utf8(&text[used..used + end]).ok();
                used += end + 1;
                return line
                    .and_then(|line| line.parse().ok())
                    .ok_or_else(|| Error::damaged("a number in its map is none"));
            }
            if text.len() - used > 64 {
                return Err(Error::damaged("a number in its map is none"));
            }
            text.drain(..used);
            used = 0;
            text.extend(block()?);
        }
    };
    let count = number()?;
    if count > MOST as u64 {
        return Err(Error::limit(format!("{count} pieces; more than {MOST} are refused")));
    }
    (0..count).map(|_| Ok(Piece { at: number()?, len: number()? })).collect()
}

/// Where the pieces lie in the archive, checked: in order, within the file, and all of the stored bytes.
pub(super) fn extents(map: &[Piece], size: u64, begin: u64, stored: u64) -> Result<Vec<Extent>, Error> {
    let (mut offset, mut last) = (begin, 0);
    let mut extents = Vec::new();
    for piece in map {
        let end = piece.at.checked_add(piece.len).filter(|end| piece.at >= last && *end <= size);
        last = end.ok_or_else(|| Error::damaged("a piece of it lies before another or behind its end"))?;
        if piece.len > 0 {
            extents.push(Extent { at: piece.at, offset, len: piece.len });
        }
        offset = offset.saturating_add(piece.len);
    }
    if offset - begin > stored {
        return Err(Error::damaged(format!(
            "its pieces have {} bytes, the archive {stored}",
            offset - begin
        )));
    }
    Ok(extents)
}
