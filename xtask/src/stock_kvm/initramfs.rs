//! What boots: an archive with busybox, the modules, the script that prepares the machine, and the commands.
//!
//! Function: [`write`]. The format is the kernel's "newc" (Documentation/driver-api/early-userspace/buffer-format.rst); it is
//! not compressed, because unpacking costs the emulated processor more than reading.

use std::path::Path;

use super::host;
use super::kernel::Kernel;
use crate::failure::{Failure, broken_at};

/// The first process: mounts, loads modules, and goes over to the files of the host.
const INIT: &str = include_str!("guest/init.sh");
/// What it becomes there: runs the commands and tells how they ended.
const GUEST: &str = include_str!("guest/guest.sh");

/// Kinds of files in stat(2)'s st_mode.
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// Writes the archive.
///
/// # Errors
/// busybox cannot be read, or the file not written.
pub fn write(path: &Path, kernel: &Kernel, commands: &str, no_npt: bool) -> Result<(), Failure> {
    let busybox = host::find("busybox").ok_or_else(|| Failure::Missing("busybox is gone".into()))?;
    let busybox = std::fs::read(&busybox).map_err(broken_at(&busybox))?;
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "host", "modules", "new", "proc", "stock-kvm", "sys", "upper"] {
        archive.add(directory, DIRECTORY, (0, 0), &[]);
    }
    // The kernel opens it for the first process before anything is mounted.
    archive.add("dev/console", DEVICE, (5, 1), &[]);
    archive.add("bin/busybox", PROGRAM, (0, 0), &busybox);
    for (name, bytes) in &kernel.modules {
        archive.add(&format!("modules/{name}"), FILE, (0, 0), bytes);
        if no_npt && name.ends_with("-kvm_amd.ko") {
            archive.add(&format!("modules/{name}.options"), FILE, (0, 0), b"npt=0");
        }
    }
    archive.add("stock-kvm/guest.sh", PROGRAM, (0, 0), GUEST.as_bytes());
    archive.add("stock-kvm/commands.sh", FILE, (0, 0), commands.as_bytes());
    archive.add("init", PROGRAM, (0, 0), INIT.as_bytes());
    std::fs::write(path, archive.end()).map_err(broken_at(path))
}

/// An archive in the making.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a file; `device` is the major and minor number of a device.
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.entries += 1;
        let length = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length(data.len()),
            0,
            0,
            device.0,
            device.1,
            length(name.len() + 1),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(data);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The archive with its last entry, which has a name of its own.
    fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_the_trailer_ends_them() {
        let mut archive = Archive::default();
        archive.add("init", PROGRAM, (0, 0), b"hello");
        let bytes = archive.end();
        // magic, ino, mode, uid, gid, nlink, mtime, filesize
        let header =
            ["070701", "00000001", "000081ed", "00000000", "00000000", "00000001", "00000000", "00000005"];
        let header = header.concat();
        assert!(bytes.starts_with(header.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
        // 110 bytes of header, the name with its zero: 115; the data starts at 116 and ends at 121, padded to 124.
        assert_eq!(&bytes[110..116], b"init\0\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        // 124 + 110 + 11 is 245, padded to 248.
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
        assert_eq!(bytes.len(), 248);
    }
}
