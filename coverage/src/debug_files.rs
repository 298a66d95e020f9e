//! Finding the files that a program's debug information is in when it is not in the program.
//!
//! As gdb does ("Debugging Information in Separate Files"): by build-id, then by `.gnu_debuglink` with its checksum. A file that
//! belongs to another build is refused.

use std::path::{Path, PathBuf};

use crate::elf::Binary;

/// Bytes of a debug file, at most.
const MOST: u64 = 8 << 30;

/// Where files can be read: on this machine, or in an image.
pub trait DebugFiles {
    /// The bytes of the file at an absolute path; `None` if there is none.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;
}

/// No debug files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl DebugFiles for NoFiles {
    fn read(&self, _: &Path) -> Option<Vec<u8>> {
        None
    }
}

/// Files below directories of this machine, the first that has one.
#[derive(Clone, Debug)]
pub struct HostFiles {
    /// The roots: `/` for the machine's own files.
    pub roots: Vec<PathBuf>,
}

impl Default for HostFiles {
    fn default() -> HostFiles {
        HostFiles { roots: vec![PathBuf::from("/")] }
    }
}

impl DebugFiles for HostFiles {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let below = path.strip_prefix("/").unwrap_or(path);
        self.roots.iter().map(|root| root.join(below)).find_map(|path| {
            let about = std::fs::metadata(&path).ok()?;
            if !about.is_file() || about.len() > MOST {
                return None;
            }
            std::fs::read(&path).ok()
        })
    }
}

/// Where the debug file with a build-id is.
fn by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    // A build-id of one byte would leave no name.
    let (first, rest) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

/// The separate debug file of a program, with its path. Files that do not belong to it are noted.
pub(crate) fn separate(
    name: &str,
    binary: &Binary<'_>,
    files: &dyn DebugFiles,
    notes: &mut Vec<String>,
) -> Option<(PathBuf, Vec<u8>)> {
    if let Some(path) = binary.build_id.as_deref().and_then(by_build_id)
        && let Some(bytes) = files.read(&path)
    {
        match Binary::read(&bytes) {
            Ok(debug) if debug.build_id == binary.build_id => return Some((path, bytes)),
            Ok(_) => notes.push(format!("{} has another build-id: not used", path.display())),
            Err(reason) => notes.push(format!("{}: {reason}", path.display())),
        }
    }
    let (link, checksum) = binary.debug_link()?;
    // A name with a slash could lead anywhere.
    if link.is_empty() || link.contains('/') {
        return None;
    }
    let directory = Path::new(name).parent().unwrap_or(Path::new("/"));
    let below = directory.strip_prefix("/").unwrap_or(directory);
    let places = [
        directory.join(&link),
        directory.join(".debug").join(&link),
        Path::new("/usr/lib/debug").join(below).join(&link),
    ];
    for path in places.into_iter().filter(|path| path != Path::new(name)) {
        let Some(bytes) = files.read(&path) else { continue };
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        if crc.sum() == checksum {
            return Some((path, bytes));
        }
        notes.push(format!("{} has another checksum: not used", path.display()));
    }
    None
}

/// The file that debug files share, which `dwz` makes.
pub(crate) fn shared(path: &Path, debug: &Binary<'_>, files: &dyn DebugFiles) -> Option<Vec<u8>> {
    let (name, build_id) = debug.shared_debug_link()?;
    let beside = path.parent().map(|directory| directory.join(&name));
    beside.into_iter().chain(by_build_id(&build_id)).find_map(|path| {
        let bytes = files.read(&path)?;
        let right = Binary::read(&bytes).is_ok_and(|shared| shared.build_id.as_ref() == Some(&build_id));
        right.then_some(bytes)
    })
}
