//! ioctl(2): what every descriptor takes, and commands of files, devices and timers. Those of sockets are in
//! [`super::netdevice`], those of terminals in [`super::tty`]; what is no terminal has none of them: ENOTTY.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::Wanted;

use crate::caps::{CAP_LINUX_IMMUTABLE, CAP_SYS_RESOURCE};
use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::procfs::nsfs;
use crate::wait::{Object, SysResult};

const FIBMAP: u64 = 1;
/// linux/nsfs.h.
const NS_GET_USERNS: u64 = 0xb701;
const NS_GET_PARENT: u64 = 0xb702;
const NS_GET_NSTYPE: u64 = 0xb703;
const NS_GET_OWNER_UID: u64 = 0xb704;
/// linux/falloc.h.
const FS_IOC_RESVSP: u64 = 0x4030_5828;
const FS_IOC_UNRESVSP: u64 = 0x4030_5829;
const FS_IOC_RESVSP64: u64 = 0x4030_582a;
const FS_IOC_UNRESVSP64: u64 = 0x4030_582b;
const FS_IOC_ZERO_RANGE: u64 = 0x4030_5839;
const FIFREEZE: u64 = 0xc004_5877;
const FITHAW: u64 = 0xc004_5878;
const TFD_IOC_SET_TICKS: u64 = 0x4008_5400;
const FIGETBSZ: u64 = 2;
const FIOQSIZE: u64 = 0x5460;
const FICLONERANGE: u64 = 0x4020_940d;
const FIDEDUPERANGE: u64 = 0xc018_9436;
const FS_IOC_FIEMAP: u64 = 0xc020_660b;
const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;
const RNDGETENTCNT: u64 = 0x8004_5200;
/// RNDADDTOENTCNT, RNDADDENTROPY, RNDZAPENTCNT, RNDCLEARPOOL, RNDRESEEDCRNG.
const RANDOM_ADMIN: [u64; 5] = [0x4004_5201, 0x4008_5203, 0x5204, 0x5206, 0x5207];
/// Block size of every file system here, but /proc (proc_fill_super).
const BLOCK: i32 = 4096;
const PROC_BLOCK: i32 = 1024;

fn is_of_proc(kind: &FileKind) -> bool {
    match kind {
        FileKind::Synthetic { path, .. } | FileKind::SyntheticDir { path, .. } => path.starts_with(b"/proc"),
        _ => false,
    }
}

/// ioctl(2). ENOTTY for commands that the kind of file does not have.
pub fn ioctl(k: &mut Ctx<'_>, fd: Fd, cmd: Hex, arg: Ptr) -> SysResult {
    let id = k.file_id(fd)?;
    let kind = k.node.files[id].kind.clone();
    let cmd = cmd.0 & 0xffff_ffff;
    match cmd {
        c::FIOCLEX | c::FIONCLEX => {
            k.table_mut().get_mut(fd.0)?.cloexec = cmd == c::FIOCLEX;
            Ok(0)
        }
        c::FIONBIO => k.switch_nonblock(id, arg),
        c::FIOASYNC => k.switch_async(fd, id, arg),
        // Of every file, also those without a name (do_vfs_ioctl): the size of blocks of its file system.
        FIGETBSZ => {
            k.write_obj(arg, if is_of_proc(&kind) { &PROC_BLOCK } else { &BLOCK })?;
            Ok(0)
        }
        _ => match kind {
            FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => k.socket_ioctl(id, cmd, arg),
            FileKind::Pipe { pipe, .. } if cmd == c::FIONREAD => {
                let n = k.node.pipes[pipe].len() as i32;
                k.write_obj(arg, &n)?;
                Ok(0)
            }
            FileKind::Tty { pty, master, .. } => k.tty_ioctl(id, (pty, master), cmd, arg),
            FileKind::Listener(listener) => {
                k.pin(fd)?;
                k.listener_ioctl(listener, cmd, arg)
            }
            FileKind::Inotify(id) if cmd == c::FIONREAD => {
                k.may_have_lost(id);
                let n = k.node.inotifies[id].unread() as i32;
                k.write_obj(arg, &n)?;
                Ok(0)
            }
            FileKind::Console(_) if cmd == c::FIONREAD => {
                let n = if k.node.files[id].readable() { k.console_readable()? } else { 0 };
                k.write_obj(arg, &(n as i32))?;
                Ok(0)
            }
            FileKind::Regular(ino) if cmd == c::FIONREAD => {
                // Beyond the end there are less than none.
                let left = k.node.vfs.size(ino).wrapping_sub(k.node.files[id].offset);
                k.write_obj(arg, &(left as i32))?;
                Ok(0)
            }
            // A queue is a regular file of its file system (do_vfs_ioctl).
            FileKind::Mq(queue) if cmd == c::FIONREAD => {
                let left = k.node.mqueues.all[queue].file_size as i64 - k.node.files[id].offset as i64;
                k.write_obj(arg, &(left as i32))?;
                Ok(0)
            }
            FileKind::Regular(_) if let Some(mode) = reserving(cmd) => {
                super::storage::reserve(k, id, mode, arg)
            }
            FileKind::Regular(ino) => k.file_ioctl(ino, true, cmd, arg),
            FileKind::Dir(ino) => k.file_ioctl(ino, false, cmd, arg),
            FileKind::Device { dev, .. } if dev.major == 1 && matches!(dev.minor, 8 | 9) => match cmd {
                RNDGETENTCNT => {
                    k.write_obj(arg, &256i32)?;
                    Ok(0)
                }
                // CAP_SYS_ADMIN.
                _ if RANDOM_ADMIN.contains(&cmd) => err(Errno::EPERM),
                _ => err(Errno::EINVAL),
            },
            FileKind::TimerFd(id) if cmd == TFD_IOC_SET_TICKS => {
                // "Adjust the number of timer expirations that have occurred [...] the next read will return this value"
                // (timerfd_create(2)).
                let ticks: u64 = k.read_obj(arg)?;
                if ticks == 0 {
                    return err(Errno::EINVAL);
                }
                k.node.timerfds[id].expired = ticks;
                k.node.notify_object(Object::TimerFd(id), c::EPOLLIN as u32);
                Ok(0)
            }
            FileKind::Synthetic { path, .. } if let Some(kind) = nsfs::kind(&path) => {
                k.namespace_ioctl(kind, cmd, arg)
            }
            _ => err(Errno::ENOTTY),
        },
    }
}

/// What FS_IOC_RESVSP and its kind do, in terms of fallocate(2).
fn reserving(cmd: u64) -> Option<FallocateMode> {
    match cmd {
        FS_IOC_RESVSP | FS_IOC_RESVSP64 => Some(FallocateMode::empty()),
        FS_IOC_UNRESVSP | FS_IOC_UNRESVSP64 => Some(FallocateMode::FALLOC_FL_PUNCH_HOLE),
        FS_IOC_ZERO_RANGE => Some(FallocateMode::FALLOC_FL_ZERO_RANGE),
        _ => None,
    }
}

impl Ctx<'_> {
    /// Commands of a namespace's file (ioctl_ns(2)); all namespaces belong to the one user namespace, which is root's.
    fn namespace_ioctl(&mut self, kind: u64, cmd: u64, arg: Ptr) -> SysResult {
        match cmd {
            NS_GET_NSTYPE => Ok(kind),
            NS_GET_USERNS if kind != c::CLONE_NEWUSER => {
                let path = std::sync::Arc::new(nsfs::user(self.container()));
                let kind = FileKind::Synthetic { path, data: std::sync::Arc::default() };
                Ok(self.open_file(File::new(kind, c::O_RDONLY), true)?)
            }
            // "EPERM: The requested namespace is outside of the caller's namespace scope."
            NS_GET_USERNS => err(Errno::EPERM),
            NS_GET_PARENT if matches!(kind, c::CLONE_NEWUSER | c::CLONE_NEWPID) => err(Errno::EPERM),
            NS_GET_OWNER_UID if kind == c::CLONE_NEWUSER => {
                self.write_obj(arg, &0u32)?;
                Ok(0)
            }
            // "EINVAL: fd refers to a nonhierarchical namespace", "does not refer to a user namespace".
            NS_GET_PARENT | NS_GET_OWNER_UID => err(Errno::EINVAL),
            _ => err(Errno::ENOTTY),
        }
    }

    fn set_flags(&mut self, ino: bloodhound_vfs::Ino, wanted: Wanted) -> Result<(), Errno> {
        let caps = &self.credentials().caps;
        let privileged = [caps.has(CAP_LINUX_IMMUTABLE), caps.has(CAP_SYS_RESOURCE)];
        let (cred, now) = (self.fs_cred(), self.now());
        self.node.vfs.set_flags(ino, &cred, privileged, wanted, now)?;
        // Pages that programs store into without notice are noticed again.
        self.node.drop_moved_pages();
        Ok(())
    }

    fn switch_nonblock(&mut self, id: FileId, arg: Ptr) -> SysResult {
        let on: i32 = self.read_obj(arg)?;
        let file = &mut self.node.files[id];
        file.flags = file.flags & !c::O_NONBLOCK | if on != 0 { c::O_NONBLOCK } else { 0 };
        Ok(0)
    }

    /// Commands of files and directories.
    fn file_ioctl(&mut self, ino: bloodhound_vfs::Ino, regular: bool, cmd: u64, arg: Ptr) -> SysResult {
        match cmd {
            FIOQSIZE => {
                let bytes = self.node.vfs.stat_ino(ino)?.blocks * 512;
                self.write_obj(arg, &bytes)?;
            }
            // Of a `long`, the first four bytes (ioctl_iflags(2), BUGS).
            FS_IOC_GETFLAGS => {
                let flags = self.node.vfs.flags(ino)?;
                self.write_obj(arg, &flags)?;
            }
            FS_IOC_SETFLAGS => {
                let flags = self.read_obj(arg)?;
                self.set_flags(ino, Wanted::Flags(flags))?;
            }
            // struct fsxattr: fsx_xflags, fsx_extsize, fsx_nextents, fsx_projid, fsx_cowextsize and 8 bytes that are 0.
            FS_IOC_FSGETXATTR => {
                let xflags = self.node.vfs.extended_flags(ino)?;
                self.write_obj(arg, &[xflags, 0, 0, 0, 0, 0, 0])?;
            }
            FS_IOC_FSSETXATTR => {
                let [xflags, extent, _, project, cow, ..]: [u32; 7] = self.read_obj(arg)?;
                self.set_flags(ino, Wanted::Extended([xflags, extent, project, cow]))?;
            }
            // CAP_SYS_RAWIO.
            FIBMAP if regular => return err(Errno::EPERM),
            // CAP_SYS_ADMIN.
            FIFREEZE | FITHAW => return err(Errno::EPERM),
            // No reflinks, no extents: cp(1) and its kind copy bytes then.
            c::FICLONE | FICLONERANGE | FIDEDUPERANGE | FS_IOC_FIEMAP => return err(Errno::EOPNOTSUPP),
            _ => return err(Errno::ENOTTY),
        }
        Ok(0)
    }
}
