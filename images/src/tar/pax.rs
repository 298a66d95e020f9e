//! Extended records of a PAX archive: `LENGTH KEY=VALUE\n`, in the member before the one they are about.

use super::sparse::{MOST, Piece};
use crate::error::{Error, shown};

/// What the records before a member say.
#[derive(Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) sparse: Sparse,
    some: bool,
}

/// Records `GNU.sparse.*`.
#[derive(Default)]
pub(super) struct Sparse {
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) map: Vec<Piece>,
    /// The map stands before the file's bytes (version 1.0), not in records.
    pub(super) version_1: bool,
    offset: Option<u64>,
}

impl Pax {
    pub(super) fn is_empty(&self) -> bool {
        !self.some
    }

    /// Takes the records of one extended header.
    pub(super) fn add(&mut self, mut records: &[u8]) -> Result<(), Error> {
        self.some = true;
        while !records.is_empty() {
            // Some programs fill the header up with zeros.
            if records.iter().all(|byte| *byte == 0) {
                break;
            }
            let (key, value, rest) = record(records).ok_or_else(|| {
                Error::damaged(format!("{} is no record of an extended tar header", shown(records)))
            })?;
            self.set(key, value)?;
            records = rest;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let number = || {
            let text = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            text.ok_or_else(|| wrong(key, value))
        };
        let text = || {
            if value.contains(&0) { Err(wrong(key, value)) } else { Ok(value.to_vec()) }
        };
        match key {
            // An empty value takes back what an earlier record said (POSIX).
            b"path" => self.path = Some(text()?).filter(|path| !path.is_empty()),
            b"linkpath" => self.link = Some(text()?).filter(|path| !path.is_empty()),
            b"size" => self.size = Some(number()?),
            b"uid" => self.uid = Some(number()?),
            b"gid" => self.gid = Some(number()?),
            b"mtime" => self.mtime = Some(time(value).ok_or_else(|| wrong(key, value))?),
            b"GNU.sparse.name" => self.sparse.name = Some(text()?),
            b"GNU.sparse.major" => self.sparse.version_1 = number()? == 1,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse.size = Some(number()?),
            b"GNU.sparse.map" => self.map(value)?,
            b"GNU.sparse.offset" => self.sparse.offset = Some(number()?),
            b"GNU.sparse.numbytes" => {
                let at = self.sparse.offset.take().ok_or_else(|| wrong(key, value))?;
                self.piece(Piece { at, len: number()? })?;
            }
            _ => {
                // The name after the prefix may have an equals sign, which record() has taken care of.
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    if name.is_empty() || name.contains(&0) {
                        return Err(wrong(key, value));
                    }
                    self.xattrs.retain(|(other, _)| other != name);
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// `offset,length,offset,length`, of version 0.1.
    fn map(&mut self, value: &[u8]) -> Result<(), Error> {
        let bad = || wrong(b"GNU.sparse.map", value);
        let text = std::str::from_utf8(value).map_err(|_| bad())?;
        let numbers: Vec<u64> = text
            .split(',')
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().map_err(|_| bad()))
            .collect::<Result<_, _>>()?;
        if !numbers.len().is_multiple_of(2) {
            return Err(bad());
        }
        self.sparse.map.clear();
        numbers.chunks(2).try_for_each(|pair| self.piece(Piece { at: pair[0], len: pair[1] }))
    }

    fn piece(&mut self, piece: Piece) -> Result<(), Error> {
        if self.sparse.map.len() >= MOST {
            return Err(Error::limit(format!("a sparse file has more than {MOST} pieces")));
        }
        self.sparse.map.push(piece);
        Ok(())
    }
}

fn wrong(key: &[u8], value: &[u8]) -> Error {
    Error::damaged(format!("{}={} in an extended tar header makes no sense", shown(key), shown(value)))
}

/// Key, value and what follows the first record.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
    let body = records.get(space + 1..length)?;
    let body = body.strip_suffix(b"\n")?;
    // Names of extended attributes may have an equals sign; keys that we know have none.
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], &records[length..]))
}

/// Seconds and nanoseconds of `1350244992.023960108`; a negative time may have a fraction too.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let mut pax = Pax::default();
        let records =
            b"19 path=a\nb=\xff/long\n30 mtime=1350244992.023960108\n27 SCHILY.xattr.user.x=1\0\n\n";
        pax.add(&records[..19]).expect("a path");
        assert_eq!(pax.path.as_deref(), Some(&b"a\nb=\xff/long"[..]));
        pax.add(&records[19..49]).expect("a time");
        assert_eq!(pax.mtime, Some((1_350_244_992, 23_960_108)));
        pax.add(&records[49..]).expect("an attribute");
        assert_eq!(pax.xattrs, [(b"user.x".to_vec(), b"1\0\n".to_vec())]);
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        for wrong in
            [&b"5 a=b\n"[..], b"99 a=b\n", b"x a=b\n", b"3 \n", b"0 a=b\n", b"9 size=x\n", b"10 path=\0\n"]
        {
            assert!(Pax::default().add(wrong).is_err(), "{}", shown(wrong));
        }
    }
}
