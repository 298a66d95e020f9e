//! fcntl(2), "Managing signals": the calls. What they set up is in [`crate::fasync`].

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::caps::CAP_FOWNER;
use crate::ctx::*;
use crate::fasync::{Whom, can_tell};
use crate::file::FileKind;
use crate::ids::*;
use crate::wait::SysResult;

/// Flags that F_SETFL changes by itself; O_ASYNC is a matter of the kind of file.
const SETTABLE: u64 = c::O_APPEND | c::O_DIRECT | c::O_NOATIME | c::O_NONBLOCK;
/// Most signals (`valid_signal`).
const NSIG: u64 = 64;

impl Ctx<'_> {
    /// F_SETFL. EINVAL for O_DIRECT of what cannot have it. O_ASYNC stays what it was where a file cannot tell, without an error.
    pub(super) fn set_status_flags(&mut self, fd: Fd, id: FileId, arg: u64) -> SysResult {
        let file = &self.node.files[id];
        // "O_APPEND cannot be cleared if the file is marked as append-only" (setfl).
        let append = (file.flags ^ arg) & c::O_APPEND != 0;
        if append && file.ino().is_some_and(|ino| self.node.vfs.is_append_only(ino)) {
            return err(Errno::EPERM);
        }
        // "O_NOATIME can only be set by the owner or superuser" (setfl).
        if arg & !file.flags & c::O_NOATIME != 0 {
            let place = self.fd_place(fd)?;
            if self.place_stat(&place)?.uid != self.fs_cred().uid && !self.capable(CAP_FOWNER) {
                return err(Errno::EPERM);
            }
        }
        let file = &self.node.files[id];
        // "Pipe packetized mode is controlled by O_DIRECT flag" (setfl of Linux); of others it is asked whether they can.
        let direct = match file.kind {
            FileKind::Regular(ino) => self.node.vfs.takes_direct(ino),
            FileKind::Pipe { .. } | FileKind::Console(_) => true,
            _ => false,
        };
        if arg & c::O_DIRECT != 0 && !direct {
            return err(Errno::EINVAL);
        }
        let differs = (file.flags ^ arg) & c::O_ASYNC != 0;
        if differs && can_tell(&file.kind) {
            self.node.set_async(id, fd.0, arg & c::O_ASYNC != 0);
        }
        let file = &mut self.node.files[id];
        file.flags = (file.flags & !SETTABLE) | (arg & SETTABLE);
        Ok(0)
    }

    /// FIOASYNC: ENOTTY where a file cannot tell, unless nothing changes.
    pub(super) fn switch_async(&mut self, fd: Fd, id: FileId, arg: Ptr) -> SysResult {
        let on: i32 = self.read_obj(arg)?;
        let file = &self.node.files[id];
        if (file.flags & c::O_ASYNC != 0) == (on != 0) {
            return Ok(0);
        }
        if !can_tell(&file.kind) {
            return err(Errno::ENOTTY);
        }
        self.node.set_async(id, fd.0, on != 0);
        Ok(0)
    }

    /// F_SETOWN: "Process group IDs are specified by supplying arg as negative". Also FIOSETOWN.
    pub(super) fn set_owner(&mut self, id: FileId, number: i32) -> SysResult {
        let (whom, number) = match number {
            i32::MIN => return err(Errno::EINVAL),
            n if n < 0 => (Whom::Group, -n),
            n => (Whom::Process, n),
        };
        self.node.set_owner(id, whom, number, self.tid)?;
        Ok(0)
    }

    /// F_GETOWN: groups are negative numbers. Also FIOGETOWN.
    pub(super) fn owner(&self, id: FileId) -> i32 {
        let number = self.node.living_owner(id).map_or(0, |pid| pid.number_in(self.pid_ns()) as i32);
        if self.node.files[id].owner.whom == Whom::Group { -number } else { number }
    }

    /// Commands about owner and signal; `None` for all others.
    pub(super) fn fcntl_owner(&mut self, id: FileId, cmd: u64, arg: u64) -> Option<SysResult> {
        Some(match cmd {
            c::F_SETOWN => self.set_owner(id, arg as i32),
            c::F_GETOWN => Ok(self.owner(id) as i64 as u64),
            c::F_SETOWN_EX => self.set_owner_ex(id, Ptr(arg)),
            c::F_GETOWN_EX => self.get_owner_ex(id, Ptr(arg)),
            c::F_GETOWNER_UIDS => {
                let ids = self.node.files[id].owner.ids;
                self.write_obj(Ptr(arg), &ids).map(|()| 0).map_err(Into::into)
            }
            c::F_SETSIG if arg <= NSIG => {
                self.node.files[id].owner.signo = arg as u32;
                Ok(0)
            }
            c::F_SETSIG => err(Errno::EINVAL),
            c::F_GETSIG => Ok(u64::from(self.node.files[id].owner.signo)),
            _ => return None,
        })
    }

    fn set_owner_ex(&mut self, id: FileId, arg: Ptr) -> SysResult {
        let [kind, number]: [i32; 2] = self.read_obj(arg)?;
        let whom = match kind {
            0 => Whom::Thread,
            1 => Whom::Process,
            2 => Whom::Group,
            _ => return err(Errno::EINVAL),
        };
        self.node.set_owner(id, whom, number, self.tid)?;
        Ok(0)
    }

    fn get_owner_ex(&mut self, id: FileId, arg: Ptr) -> SysResult {
        let number = self.node.living_owner(id).map_or(0, |pid| pid.number_in(self.pid_ns()) as i32);
        let kind = match self.node.files[id].owner.whom {
            Whom::Thread => 0,
            Whom::Process => 1,
            Whom::Group => 2i32,
        };
        self.write_obj(arg, &[kind, number])?;
        Ok(0)
    }
}
