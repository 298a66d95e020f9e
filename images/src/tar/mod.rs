//! Reading tar archives as a stream of [`Member`]s, each with the place of its bytes in the archive. Nothing is ever
//! written or created from it, so no name in an archive can reach the host's files.
//!
//! V7, ustar, GNU (long names, sparse files, base-256 numbers) and PAX (names, sizes, times, extended attributes,
//! sparse files) are understood: what docker, podman, buildah, BuildKit, umoci, kaniko, GNU tar, bsdtar and Go write.
//! `header` has the fixed block, `pax` extended records, `sparse` the maps of sparse files. The neighbours are
//! `layer`, which makes a tree of the members, and `archive`, which looks for the files of an image among them.

mod header;
mod pax;
mod sparse;

use std::io::{self, Read, Seek, SeekFrom};

use crate::error::{Error, shown};
use crate::limits::{Limits, exceeded};

pub(crate) use header::BLOCK;
use header::{Header, Type};
use pax::Pax;

/// Bytes of extended records, or of a GNU long name, of one member. Linux's names have at most 4096 bytes; attributes
/// at most 64 KiB each.
const RECORDS: u64 = 1 << 20;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Char,
    Block,
    Dir,
    Fifo,
}

/// Bytes of a sparse file that are in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where in the file.
    pub(crate) at: u64,
    /// Where in the archive.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// One file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its name as it stands in the archive.
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    /// Target of a link, as it stands in the archive.
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: (i64, u32),
    /// Size of the file; for a sparse one with its holes.
    pub(crate) size: u64,
    /// Where its bytes begin in the archive.
    pub(crate) offset: u64,
    pub(crate) device: (u32, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// For a sparse file what is there.
    pub(crate) extents: Option<Vec<Extent>>,
}

/// Where a [`Reader`] reads from.
pub(crate) trait Source: Read {
    /// Passes over bytes.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// A source that can only be read.
pub(crate) struct Stream<R>(pub(crate) R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Source for Stream<R> {
    fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        while bytes > 0 {
            let part = buffer.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            match self.0.read(&mut buffer[..part])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => bytes -= read as u64,
            }
        }
        Ok(())
    }
}

/// A source that can seek, so that files are passed over without reading them.
pub(crate) struct Seekable<R> {
    inner: io::BufReader<R>,
    position: u64,
    end: u64,
}

impl<R: Read + Seek> Seekable<R> {
    pub(crate) fn new(mut inner: R) -> io::Result<Seekable<R>> {
        let end = inner.seek(SeekFrom::End(0))?;
        inner.seek(SeekFrom::Start(0))?;
        Ok(Seekable { inner: io::BufReader::new(inner), position: 0, end })
    }
}

impl<R: Read> Read for Seekable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl<R: Read + Seek> Source for Seekable<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match self.position.checked_add(bytes) {
            Some(to) if to <= self.end => {
                self.position = to;
                self.inner.seek_relative(i64::try_from(bytes).map_err(|_| io::ErrorKind::UnexpectedEof)?)
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Reads an archive member by member.
pub(crate) struct Reader<'a, S> {
    source: S,
    /// How far the source was read.
    position: u64,
    /// Where the next header is.
    next: u64,
    limits: &'a Limits,
    members: u64,
    names: u64,
}

impl<'a, S: Source> Reader<'a, S> {
    pub(crate) fn new(source: S, limits: &'a Limits) -> Reader<'a, S> {
        Reader { source, position: 0, next: 0, limits, members: 0, names: 0 }
    }

    /// The source, when no more members are wanted.
    pub(crate) fn into_source(self) -> S {
        self.source
    }

    /// The next member, or `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, Error> {
        let mut pax = Pax::default();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let pass = self.next - self.position;
            self.source.skip(pass).map_err(|e| self.broken(&e))?;
            self.position = self.next;
            let Some(header) = self.header()? else {
                if pax.is_empty() && long_name.is_none() && long_link.is_none() {
                    return Ok(None);
                }
                return Err(Error::damaged("the archive ends after the extended header of a member"));
            };
            self.next = self.after(header.size)?;
            match header.kind {
                Type::Pax => pax.add(&self.records(header.size)?)?,
                // What holds for all members is a comment (git archive) or nothing; engines take nothing from it.
                Type::PaxGlobal | Type::Label => {}
                Type::LongName => long_name = Some(name(self.records(header.size)?)),
                Type::LongLink => long_link = Some(name(self.records(header.size)?)),
                Type::Member(kind) => return self.member(header, kind, pax, long_name, long_link).map(Some),
                Type::Sparse => return self.member(header, Kind::File, pax, long_name, long_link).map(Some),
            }
        }
    }

    /// Completes a member from its header and what came before it.
    fn member(
        &mut self,
        header: Header,
        kind: Kind,
        mut pax: Pax,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Member, Error> {
        let sparse_name = pax.sparse.name.take();
        let name = sparse_name.or(pax.path.take()).or(long_name).unwrap_or(header.name);
        // A header of version 7 has directories as files with a slash at the end.
        let kind = if kind == Kind::File && name.ends_with(b"/") { Kind::Dir } else { kind };
        let mut member = Member {
            kind,
            link: pax.link.take().or(long_link).unwrap_or(header.link),
            mode: header.mode & 0o7777,
            uid: identity(pax.uid.unwrap_or(header.uid), "owner", &name)?,
            gid: identity(pax.gid.unwrap_or(header.gid), "group", &name)?,
            mtime: pax.mtime.unwrap_or((header.mtime, 0)),
            size: 0,
            offset: self.position,
            device: header.device,
            xattrs: std::mem::take(&mut pax.xattrs),
            extents: None,
            name,
        };
        self.count(&member)?;
        if kind != Kind::File {
            // Links, devices and directories have no bytes, whatever their size says; so does Go's archive/tar.
            self.next = self.position;
            return Ok(member);
        }
        let stored = pax.size.unwrap_or(header.size);
        self.next = self.after(stored)?;
        member.size = stored;
        self.sparse(&mut member, header.sparse, pax, stored)?;
        Ok(member)
    }

    /// If the file is a sparse one: its real size, and where the bytes that are there lie.
    fn sparse(
        &mut self,
        member: &mut Member,
        header: Option<header::OldSparse>,
        pax: Pax,
        stored: u64,
    ) -> Result<(), Error> {
        let place = |e: Error| e.at(format!("sparse file {}", shown(&member.name)));
        let map = if let Some(mut old) = header {
            while old.extended {
                let block =
                    self.block()?.ok_or_else(|| place(Error::damaged("the archive ends in its map")))?;
                old.extend(&block).map_err(place)?;
                // The blocks of the map are not part of the stored bytes.
                self.next = self.next.saturating_add(BLOCK);
            }
            Some((old.map, old.size))
        } else if pax.sparse.version_1 {
            let map = sparse::leading_map(|| {
                self.block()?.ok_or_else(|| Error::damaged("the archive ends in its map"))
            })
            .map_err(place)?;
            Some((map, pax.sparse.size.unwrap_or(0)))
        } else if !pax.sparse.map.is_empty() || pax.sparse.size.is_some() {
            Some((pax.sparse.map, pax.sparse.size.unwrap_or(0)))
        } else {
            None
        };
        if let Some((map, size)) = map {
            let begin = self.position;
            let mapped = (begin - member.offset).min(stored);
            // Blocks of an old map precede the stored bytes, those of version 1.0 belong to them.
            let stored = if pax.sparse.version_1 { stored - mapped } else { stored };
            member.extents = Some(sparse::extents(&map, size, begin, stored).map_err(place)?);
            (member.size, member.offset) = (size, begin);
        }
        let pieces = member.extents.as_ref().map_or(0, Vec::len);
        self.remember(pieces * size_of::<Extent>())
    }

    /// Bounds what all members together may take in memory.
    fn count(&mut self, member: &Member) -> Result<(), Error> {
        self.members += 1;
        if self.members > self.limits.entries {
            let variable = "BLOODHOUND_IMAGE_MAX_ENTRIES";
            return Err(exceeded("the archive has", self.limits.entries, "members", variable));
        }
        let attributes: usize = member.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.remember(member.name.len() + member.link.len() + attributes)
    }

    fn remember(&mut self, bytes: usize) -> Result<(), Error> {
        self.names += bytes as u64;
        if self.names > self.limits.names {
            let (most, variable) = (self.limits.names, "BLOODHOUND_IMAGE_MAX_NAMES");
            return Err(exceeded("names, links and attributes of the archive have", most, "bytes", variable));
        }
        Ok(())
    }

    /// Where the header after these bytes is.
    fn after(&self, size: u64) -> Result<u64, Error> {
        let padded = size.checked_next_multiple_of(BLOCK).and_then(|size| self.position.checked_add(size));
        padded.filter(|end| *end <= i64::MAX as u64).ok_or_else(|| {
            let place = self.position - BLOCK;
            Error::damaged(format!("the member at byte {place} says that it has {size} bytes"))
        })
    }

    fn header(&mut self) -> Result<Option<Header>, Error> {
        let place = self.position;
        let Some(block) = self.block()? else { return Ok(None) };
        // The end is marked by two blocks of zeros; one is taken for it as well, as GNU tar does.
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Header::parse(&block).map(Some).map_err(|e| e.at(format!("the tar header at byte {place}")))
    }

    /// A whole block, or `None` at the end of the source.
    fn block(&mut self) -> Result<Option<[u8; BLOCK as usize]>, Error> {
        let mut block = [0; BLOCK as usize];
        let mut filled = 0;
        while filled < block.len() {
            match self.source.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.broken(&io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.broken(&e)),
            }
        }
        self.position += BLOCK;
        Ok(Some(block))
    }

    /// The bytes of an extended header.
    fn records(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        if size > RECORDS {
            let place = self.position - BLOCK;
            let text = format!(
                "the extended header at byte {place} has {size} bytes; more than {RECORDS} are refused"
            );
            return Err(Error::limit(text));
        }
        let mut records = vec![0; usize::try_from(size).unwrap_or(0)];
        self.source.read_exact(&mut records).map_err(|e| self.broken(&e))?;
        self.position += size;
        Ok(records)
    }

    fn broken(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::damaged(format!("the archive is truncated: it ends after byte {}", self.position))
            }
            // Errors of a decompressor and of the bounds come through as they are.
            _ => Error::damaged(format!("{error}")),
        }
    }
}

/// The name in a GNU long name, which ends with a NUL.
fn name(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

fn identity(value: u64, what: &str, name: &[u8]) -> Result<u32, Error> {
    // 2^32 - 1 is "unchanged" to chown(2), so it can be no owner.
    u32::try_from(value)
        .ok()
        .filter(|id| *id != u32::MAX)
        .ok_or_else(|| Error::damaged(format!("{}: {value} is no number of an {what}", shown(name))))
}

#[cfg(test)]
mod tests;
