//! The files in an archive of images: a tar, compressed or not, or a directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::decompress::{self, Bounded, Compression};
use crate::error::{Error, shown};
use crate::limits::exceeded;
use crate::store::{Store, read_bounded};
use crate::tar::{Kind, Reader, Seekable};

/// Links that are followed from one name in an archive.
const LINKS: u32 = 8;

/// An archive.
pub(super) enum Outer {
    Directory(PathBuf),
    Tar { file: Arc<File>, members: BTreeMap<Vec<u8>, Member> },
}

/// A file of a tar.
pub(super) enum Member {
    File {
        offset: u64,
        size: u64,
    },
    /// Old versions of docker and podman have equal layers once, and links to them.
    Link(Vec<u8>),
}

impl Outer {
    pub(super) fn open(store: &Store, path: &Path) -> Result<Outer, Error> {
        if path.is_dir() {
            return Ok(Outer::Directory(path.to_owned()));
        }
        let io = |e: io::Error| Error::new(crate::ErrorKind::Io, e.to_string());
        let mut file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(Error::refused("it is neither a file nor a directory"));
        }
        let mut first = [0; 6];
        let have = file.read(&mut first).map_err(io)?;
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        let compression = Compression::of(&first[..have]).map_err(|e| Error::refused(e.to_string()))?;
        if compression == Compression::None {
            return Outer::tar(file, store);
        }
        Outer::from_stream(store, file)
    }

    /// Keeps a stream in a temporary file of the cache, uncompressed, because its parts are not read in order.
    pub(super) fn from_stream(store: &Store, stream: impl Read) -> Result<Outer, Error> {
        let limit = store.limits().image;
        let plain = decompress::reader(stream).map_err(|e| Error::damaged(e.to_string()))?;
        let mut plain = Bounded::new(plain, limit, "the archive has", "BLOODHOUND_IMAGE_MAX_SIZE");
        let mut file = store.scratch()?;
        io::copy(&mut plain, &mut file).map_err(|e| Error::damaged(e.to_string()))?;
        Outer::tar(file, store)
    }

    fn tar(file: File, store: &Store) -> Result<Outer, Error> {
        let io = |e: io::Error| Error::new(crate::ErrorKind::Io, e.to_string());
        let seekable = Seekable::new(file.try_clone().map_err(io)?).map_err(io)?;
        let mut reader = Reader::new(seekable, store.limits());
        let mut members = BTreeMap::new();
        while let Some(member) = reader.next()? {
            let name = clean(&member.name);
            let what = match member.kind {
                Kind::File if member.extents.is_some() => {
                    return Err(Error::refused(format!("{} in it is a sparse file", shown(&name))));
                }
                Kind::File => Member::File { offset: member.offset, size: member.size },
                Kind::HardLink => Member::Link(clean(&member.link)),
                Kind::Symlink => {
                    let dir = name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
                    Member::Link(clean(&[&name[..dir], &member.link].concat()))
                }
                _ => continue,
            };
            members.insert(name, what);
        }
        Ok(Outer::Tar { file: Arc::new(file), members })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Outer::Directory(path) => path.join(name).is_file(),
            Outer::Tar { .. } => self.find(name).is_ok(),
        }
    }

    /// The first names, for an error.
    pub(super) fn some_names(&self) -> String {
        let names: Vec<String> = match self {
            Outer::Directory(path) => {
                let mut names: Vec<_> = std::fs::read_dir(path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| shown(entry.file_name().as_encoded_bytes()))
                    .collect();
                names.sort();
                names
            }
            Outer::Tar { members, .. } => members.keys().take(5).map(|name| shown(name)).collect(),
        };
        match names.len() {
            0 => "nothing".to_owned(),
            _ => names.into_iter().take(4).collect::<Vec<_>>().join(", "),
        }
    }

    fn find(&self, name: &str) -> Result<(u64, u64), Error> {
        let Outer::Tar { members, .. } = self else { return Err(Error::damaged("it is a directory")) };
        let mut at = clean(name.as_bytes());
        for _ in 0..LINKS {
            match members.get(&at) {
                Some(Member::File { offset, size }) => return Ok((*offset, *size)),
                Some(Member::Link(target)) => at.clone_from(target),
                None => return Err(Error::damaged(format!("{} is not in it", shown(&at)))),
            }
        }
        Err(Error::damaged(format!("{} is a loop of links", shown(name.as_bytes()))))
    }

    /// Opens a file of the archive, of so many bytes.
    pub(super) fn open_file(&self, name: &str) -> Result<(Box<dyn Read + Send>, u64), Error> {
        match self {
            Outer::Directory(path) => {
                let path = path.join(name);
                let file = File::open(&path).and_then(|file| file.metadata().map(|meta| (file, meta)));
                match file {
                    Ok((file, meta)) if meta.is_file() => Ok((Box::new(file), meta.len())),
                    Ok(_) => Err(Error::damaged(format!("{name} is no file"))),
                    Err(e) => Err(Error::damaged(format!("{name} in it: {e}"))),
                }
            }
            Outer::Tar { file, .. } => {
                let (offset, size) = self.find(name)?;
                Ok((Box::new(Section { file: file.clone(), at: offset, end: offset + size }), size))
            }
        }
    }

    /// A whole file of the archive, of at most so many bytes.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        if let Outer::Directory(path) = self {
            return read_bounded(&path.join(name), most);
        }
        let (mut file, size) = self.open_file(name)?;
        if size > most {
            return Err(exceeded(&format!("{name} has"), most, "bytes", "BLOODHOUND_IMAGE_MAX_MANIFEST"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| Error::damaged(format!("{name}: {e}")))?;
        if bytes.len() as u64 != size {
            return Err(Error::damaged(format!("{name} is truncated")));
        }
        Ok(bytes)
    }
}

/// A name without `.`, `..` and double slashes; it is only compared with other names.
fn clean(name: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// A part of a file, read without moving its offset, so that several can be read at once.
struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
