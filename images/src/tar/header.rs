//! The block of 512 bytes before each member of a tar archive. See tar(5) of FreeBSD, and `src/tar.h` of GNU tar for
//! what the types mean.

use super::Kind;
use super::sparse::{Piece, pieces};
use crate::error::{Error, shown};

/// Everything in an archive is a multiple of this.
pub(crate) const BLOCK: u64 = 512;

/// What a header stands before.
pub(super) enum Type {
    Member(Kind),
    /// A file with a sparse map in the header, of old GNU tar.
    Sparse,
    /// Records for the next member.
    Pax,
    /// Records for all further members.
    PaxGlobal,
    LongName,
    LongLink,
    /// The name of the volume.
    Label,
}

/// A sparse map of old GNU tar, as far as it was read.
pub(super) struct OldSparse {
    pub(super) map: Vec<Piece>,
    pub(super) size: u64,
    /// Another block of it follows.
    pub(super) extended: bool,
}

impl OldSparse {
    /// Takes a block that continues the map: 21 pieces, and whether another follows.
    pub(super) fn extend(&mut self, block: &[u8]) -> Result<(), Error> {
        pieces(&block[..504], &mut self.map)?;
        self.extended = block[504] != 0;
        Ok(())
    }
}

pub(super) struct Header {
    pub(super) kind: Type,
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    pub(super) mtime: i64,
    pub(super) device: (u32, u32),
    pub(super) sparse: Option<OldSparse>,
}

impl Header {
    pub(super) fn parse(block: &[u8; BLOCK as usize]) -> Result<Header, Error> {
        checksum(block)?;
        let text = |from: usize, len: usize| {
            let field = &block[from..from + len];
            field[..field.iter().position(|byte| *byte == 0).unwrap_or(len)].to_vec()
        };
        let gnu = &block[257..265] == b"ustar  \0";
        let ustar = &block[257..263] == b"ustar\0";
        let mut name = text(0, 100);
        let prefix = if ustar { text(345, 155) } else { Vec::new() };
        if !prefix.is_empty() {
            name = [prefix.as_slice(), b"/", &name].concat();
        }
        let kind = match block[156] {
            b'0' | 0 | b'7' => Type::Member(Kind::File),
            b'1' => Type::Member(Kind::HardLink),
            b'2' => Type::Member(Kind::Symlink),
            b'3' => Type::Member(Kind::Char),
            b'4' => Type::Member(Kind::Block),
            b'5' => Type::Member(Kind::Dir),
            b'6' => Type::Member(Kind::Fifo),
            b'x' | b'X' => Type::Pax,
            b'g' => Type::PaxGlobal,
            b'L' => Type::LongName,
            b'K' => Type::LongLink,
            b'V' => Type::Label,
            b'S' if gnu => Type::Sparse,
            other => {
                let text = format!("{} has type {}, which no layer may have", shown(&name), shown(&[other]));
                return Err(Error::refused(text));
            }
        };
        let field = |what: &str, from: usize, len: usize| {
            number(&block[from..from + len]).ok_or_else(|| {
                let wrong = shown(&block[from..from + len]);
                Error::damaged(format!("the {what} of {} is no number: {wrong}", shown(&name)))
            })
        };
        let positive = |what: &str, from: usize, len: usize| {
            let value = field(what, from, len)?;
            u64::try_from(value)
                .map_err(|_| Error::damaged(format!("the {what} of {} is negative: {value}", shown(&name))))
        };
        let device = if matches!(kind, Type::Member(Kind::Char | Kind::Block)) {
            (device(positive("device", 329, 8)?), device(positive("device", 337, 8)?))
        } else {
            (0, 0)
        };
        let sparse = if matches!(kind, Type::Sparse) {
            let mut map = Vec::new();
            pieces(&block[386..482], &mut map)?;
            Some(OldSparse { map, size: positive("real size", 483, 12)?, extended: block[482] != 0 })
        } else {
            None
        };
        Ok(Header {
            mode: u32::try_from(positive("mode", 100, 8)? & 0o7777).unwrap_or(0),
            uid: positive("owner", 108, 8)?,
            gid: positive("group", 116, 8)?,
            size: positive("size", 124, 12)?,
            mtime: field("time", 136, 12)?,
            link: text(157, 100),
            kind,
            name,
            device,
            sparse,
        })
    }
}

/// Linux has 12 bits for the major and 20 for the minor number; what is larger cannot be a device, and is no reason to
/// refuse the image.
fn device(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn checksum(block: &[u8; BLOCK as usize]) -> Result<(), Error> {
    let said = number(&block[148..156]);
    let others =
        block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { b' ' } else { *byte });
    let unsigned: i64 = others.clone().map(i64::from).sum();
    // Some old programs added the bytes as signed characters.
    let signed: i64 = others.map(|byte| i64::from(byte.cast_signed())).sum();
    if said == Some(unsigned) || said == Some(signed) {
        Ok(())
    } else {
        Err(Error::damaged("its checksum is wrong: this is no tar archive, or a damaged one"))
    }
}

/// A number of a header: octal digits, or base 256 if the first bit is set (GNU; two's complement).
pub(super) fn number(field: &[u8]) -> Option<i64> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        for (index, byte) in field.iter().enumerate() {
            // The marking bit is no part of the number; of a negative one it is the sign.
            let byte = if index == 0 && !negative { byte & 0x7f } else { *byte };
            value = (value << 8) | i128::from(byte);
            if value > i128::from(i64::MAX) || value < i128::from(i64::MIN) {
                return None;
            }
        }
        return i64::try_from(value).ok();
    }
    let mut digits = field;
    while let [b' ' | 0, rest @ ..] = digits {
        digits = rest;
    }
    let end = digits.iter().position(|byte| matches!(byte, b' ' | 0)).unwrap_or(digits.len());
    let mut value: i64 = 0;
    for digit in &digits[..end] {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(i64::from(digit))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"00000000008 "), None);
        assert_eq!(number(b"\x80\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(number(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"\xff\0\0\0\0\0\0\0\0\0\0\0"), None);
    }
}
