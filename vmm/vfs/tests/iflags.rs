//! Flags of inodes (ioctl_iflags(2)) on the kinds of file systems that there are.

mod common;

use bloodhound_abi::Errno;
use bloodhound_vfs::flags::*;
use bloodhound_vfs::*;
use common::{NOW, Node};

const IMMUTABLE: u32 = 0x10;
const EXTENTS: u32 = 0x8_0000;

/// An immutable file that somebody has open: ext4 looks at each write, an overlay and a tmpfs do not.
#[test]
fn immutable_files_that_are_open() {
    let mut base = MemBase::new();
    let vfs = Vfs::new(Config::default(), &mut base).unwrap();
    let mut node = Node { vfs, base };
    let tmpfs = MountSpec::Tmpfs { mode: 0o755, size: None, owner: (0, 0) };
    node.vfs.mount(&mut node.base, b"/data", MountSpec::Volume { read_only: false }).unwrap();
    node.vfs.mount(&mut node.base, b"/mem", tmpfs).unwrap();
    let (root, cannot, may) = (Cred::root(), [false; 2], [true, false]);
    for (path, usual, goes_on) in [("/data/f", EXTENTS, false), ("/mem/f", 0, true), ("/f", EXTENTS, true)] {
        let at = |dir| At { dir, path: path.as_bytes() };
        let ino = node.call(|vfs, ctx, dir| vfs.open(ctx, at(dir), O_CREAT | O_RDWR, 0o644)).unwrap().ino;
        let vfs = &mut node.vfs;
        vfs.write_at(ino, 0, b"12", NOW).unwrap();
        assert_eq!(vfs.flags(ino), Ok(usual), "{path}");
        let wanted = Wanted::Flags(usual | IMMUTABLE);
        assert_eq!(vfs.set_flags(ino, &root, cannot, wanted, NOW), Err(Errno::EPERM), "{path}");
        assert_eq!(vfs.set_flags(ino, &root, may, wanted, NOW), Ok(()), "{path}");
        assert_eq!(vfs.write_at(ino, 0, b"3", NOW).is_ok(), goes_on, "{path}");
        assert_eq!(vfs.page_mut(ino, 0, NOW).is_ok(), goes_on, "{path}");
        assert_eq!(vfs.truncate_to(ino, 1, NOW).is_ok(), goes_on, "{path}");
        assert_eq!(vfs.access_ino(ino, &root, MAY_WRITE), Err(Errno::EPERM), "{path}");
        assert_eq!(vfs.may_reserve(ino, true), Err(Errno::EPERM), "{path}");
    }
}
