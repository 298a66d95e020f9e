//! statfs(2) and fstatfs(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Statfs;
use bloodhound_vfs::StatFs;
use bloodhound_vfs::flags::{ST_NODEV, ST_NOEXEC, ST_NOSUID, ST_RDONLY, ST_RELATIME, ST_VALID};

use crate::ctx::*;
use crate::file::FileKind;
use crate::path::Place;
use crate::procfs::{Tree, cgroup};
use crate::wait::SysResult;

/// statfs(2), "the following magic numbers".
const PIPEFS_MAGIC: u64 = 0x5049_5045;
const SOCKFS_MAGIC: u64 = 0x534f_434b;
const ANON_INODE_FS_MAGIC: u64 = 0x0904_1934;

/// statfs(2).
pub fn statfs(k: &mut Ctx<'_>, path: Path, buf: Ptr) -> SysResult {
    let path = k.read_path(path)?;
    let place = k.resolve(Fd(c::AT_FDCWD), &path, true)?;
    answer(k, &place, buf)
}

/// fstatfs(2); O_PATH descriptors are allowed since Linux 3.12.
pub fn fstatfs(k: &mut Ctx<'_>, fd: Fd, buf: Ptr) -> SysResult {
    k.fd(fd)?;
    let place = k.fd_place(fd)?;
    answer(k, &place, buf)
}

fn answer(k: &mut Ctx<'_>, place: &Place, buf: Ptr) -> SysResult {
    let s = match place {
        Place::Ino(ino) => k.node.vfs.statfs_ino(*ino)?,
        Place::Synth(synth) => {
            let read_only = if synth.tree == Tree::Sys { ST_RDONLY } else { 0 };
            let flags = match synth.tree {
                Tree::Ns => ST_VALID,
                _ => ST_VALID | ST_RELATIME | ST_NOSUID | ST_NODEV | ST_NOEXEC | read_only,
            };
            let magic = if cgroup::has(synth) { cgroup::MAGIC } else { synth.tree.magic() };
            StatFs { flags, ..empty(magic, 4096) }
        }
        Place::File(id) => empty(
            match k.node.files.get(*id).ok_or(Errno::EBADF)?.kind {
                FileKind::Pipe { .. } | FileKind::Console(_) => PIPEFS_MAGIC,
                FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => SOCKFS_MAGIC,
                _ => ANON_INODE_FS_MAGIC,
            },
            4096,
        ),
    };
    let out = Statfs {
        ftype: s.magic as i64,
        bsize: s.bsize as i64,
        blocks: s.blocks,
        bfree: s.bfree,
        bavail: s.bavail,
        files: s.files,
        ffree: s.ffree,
        fsid: [s.fsid as i32, (s.fsid >> 32) as i32],
        namelen: s.namelen as i64,
        frsize: s.bsize as i64,
        flags: s.flags as i64,
        ..Statfs::default()
    };
    k.write_obj(buf, &out)?;
    Ok(0)
}

/// A file system that stores nothing.
fn empty(magic: u64, bsize: u64) -> StatFs {
    StatFs {
        magic,
        bsize,
        blocks: 0,
        bfree: 0,
        bavail: 0,
        files: 0,
        ffree: 0,
        namelen: 255,
        flags: ST_VALID | ST_RELATIME,
        fsid: 0,
    }
}
