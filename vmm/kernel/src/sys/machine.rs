//! Calls by which the administrator of a machine asks about it and names it: sethostname(2), setdomainname(2), syslog(2), sysfs(2),
//! ustat(2), vhangup(2), and kcmp(2), which compares what processes have.

use std::cmp::Ordering;

use bloodhound_abi::Errno;

use crate::caps::{CAP_SYS_ADMIN, CAP_SYS_TTY_CONFIG, CAP_SYSLOG};
use crate::ctx::*;
use crate::file::FileKind;
use crate::procfs::system;
use crate::wait::{SysResult, Wait};

/// __NEW_UTS_LEN.
const NAME_MAX: u64 = 64;

impl Ctx<'_> {
    fn needs(&self, cap: u32) -> Result<(), Errno> {
        if self.capable(cap) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// CAP_SYSLOG, or as before Linux 2.6.37 CAP_SYS_ADMIN (check_syslog_permissions).
    pub(super) fn may_read_log(&self) -> Result<(), Errno> {
        // "A value of 0 [...] there are no restrictions" (proc(5), dmesg_restrict).
        if self.container().number("kernel/dmesg_restrict") == Some(0) {
            return Ok(());
        }
        self.needs(CAP_SYSLOG).or(self.needs(CAP_SYS_ADMIN))
    }

    /// The bytes of a name that a machine is given. "EINVAL len is negative or [...] larger than the maximum allowed size".
    fn machine_name(&mut self, name: Ptr, len: i32) -> Result<String, Errno> {
        self.needs(CAP_SYS_ADMIN)?;
        let len = u64::try_from(len).ok().filter(|len| *len <= NAME_MAX).ok_or(Errno::EINVAL)?;
        let mut bytes = vec![0; len as usize];
        self.read_bytes(name.0, &mut bytes)?;
        // What is shown ends at the first zero byte, as everywhere.
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// sethostname(2). EPERM without CAP_SYS_ADMIN, EINVAL for a name that is too long.
pub fn sethostname(k: &mut Ctx<'_>, name: Ptr, len: i32) -> SysResult {
    let name = k.machine_name(name, len)?;
    k.set_parameter("kernel/hostname", name);
    Ok(0)
}

/// setdomainname(2): as sethostname.
pub fn setdomainname(k: &mut Ctx<'_>, name: Ptr, len: i32) -> SysResult {
    let name = k.machine_name(name, len)?;
    k.set_parameter("kernel/domainname", name);
    Ok(0)
}

impl Ctx<'_> {
    /// Gives a parameter of the kernel another value.
    pub(crate) fn set_parameter(&mut self, path: &str, value: String) {
        let container = self.process().container;
        self.node.container_mut(container).written.insert(path.to_owned(), value);
    }
}

/// How large the kernel's log is (CONFIG_LOG_BUF_SHIFT 17).
const LOG_SIZE: u64 = 1 << 17;

/// syslog(2): the kernel's log, in which nothing stands. EPERM without CAP_SYSLOG (dmesg_restrict is 1), EINVAL.
pub fn syslog(k: &mut Ctx<'_>, action: i32, buf: Ptr, len: i32) -> SysResult {
    const READ: i32 = 2;
    const READ_ALL: i32 = 3;
    const READ_CLEAR: i32 = 4;
    const CONSOLE_LEVEL: i32 = 8;
    k.may_read_log()?;
    match action {
        READ | READ_ALL | READ_CLEAR if buf.is_null() || len < 0 => err(Errno::EINVAL),
        // "wait until the log is nonempty, and then read at most len bytes".
        READ if len > 0 => Err(Wait::until(None).into()),
        CONSOLE_LEVEL if !(1..=8).contains(&len) => err(Errno::EINVAL),
        // Close, open, what is read, clear; the console, which nothing is written to; what is unread.
        0..=9 => Ok(0),
        10 => Ok(LOG_SIZE),
        _ => err(Errno::EINVAL),
    }
}

/// sysfs(2): the types of file systems by number and name. EINVAL.
pub fn sysfs(k: &mut Ctx<'_>, option: i32, first: u64, second: u64) -> SysResult {
    let names = system::filesystems();
    match option {
        1 => {
            let name = k.read_path(Path(first))?;
            names
                .iter()
                .position(|known| known.as_bytes() == name)
                .map_or(err(Errno::EINVAL), |at| Ok(at as u64))
        }
        2 => {
            let name = names.get(first as u32 as usize).ok_or(Errno::EINVAL)?;
            k.write_bytes(second, &[name.as_bytes(), b"\0"].concat())?;
            Ok(0)
        }
        3 => Ok(names.len() as u64),
        _ => err(Errno::EINVAL),
    }
}

/// ustat(2): free blocks and inodes of a mounted file system. "EINVAL dev does not refer to a device containing a mounted filesystem."
pub fn ustat(k: &mut Ctx<'_>, dev: u32, buf: Ptr) -> SysResult {
    // new_decode_dev.
    let (major, minor) = ((dev >> 8) & 0xfff, dev & 0xff | (dev >> 12) & 0xf_ff00);
    let mounts = k.node.vfs.mounts();
    let mount = mounts.iter().find(|m| (m.dev.major, m.dev.minor) == (major, minor)).ok_or(Errno::EINVAL)?;
    let ino = match k.resolve(Fd(bloodhound_abi::consts::AT_FDCWD), &mount.path.clone(), true)? {
        crate::path::Place::Ino(ino) => k.node.vfs.statfs_ino(ino).map(|s| (s.bfree, s.ffree))?,
        _ => (0, 0),
    };
    // struct ustat: f_tfree (int, padded), f_tinode (long), two names of six bytes.
    let words = [u64::from(ino.0 as u32), ino.1, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    k.write_bytes(buf.0, &bytes)?;
    Ok(0)
}

/// vhangup(2), of the terminal of the caller's session. EPERM without CAP_SYS_TTY_CONFIG.
pub fn vhangup(k: &mut Ctx<'_>) -> SysResult {
    k.needs(CAP_SYS_TTY_CONFIG)?;
    if let Some(pty) = k.process().tty {
        k.node.hang_up_side(pty, false);
    }
    Ok(0)
}

/// kcmp(2): 0 for the same, 1 for less, 2 for greater. ESRCH, EPERM, EINVAL; EBADF for descriptors.
pub fn kcmp(k: &mut Ctx<'_>, pid1: i32, pid2: i32, kind: i32, idx1: u64, idx2: u64) -> SysResult {
    const FILE: i32 = 0;
    const EPOLL_TFD: i32 = 7;
    let find = |k: &Ctx<'_>, pid: i32| {
        let tid = u32::try_from(pid).ok().filter(|pid| *pid != 0).map(|pid| k.pid_ns().tid(pid));
        tid.filter(|tid| k.node.tasks.contains_key(tid)).ok_or(Errno::ESRCH)
    };
    let tids = [find(k, pid1)?, find(k, pid2)?];
    let pids = tids.map(|tid| k.node.task(tid).pid);
    if tids.iter().any(|tid| !k.may_attach(*tid)) {
        return err(Errno::EPERM);
    }
    let file = |k: &Ctx<'_>, at: usize, fd: u64| {
        let fd = i32::try_from(fd as u32).map_err(|_| Errno::EBADF)?;
        k.node.fds_of(tids[at]).get(fd).map(|entry| entry.file)
    };
    let order = match kind {
        FILE => file(k, 0, idx1)?.cmp(&file(k, 1, idx2)?),
        1 => k.node.process(pids[0]).mm.cmp(&k.node.process(pids[1]).mm),
        2 => k.node.task(tids[0]).common.table.cmp(&k.node.task(tids[1]).common.table),
        3 => k.node.task(tids[0]).common.place.cmp(&k.node.task(tids[1]).common.place),
        4 => k.node.process(pids[0]).actions.cmp(&k.node.process(pids[1]).actions),
        // No task has a context of I/O or a list of undone operations of its own.
        5 | 6 => Ordering::Equal,
        EPOLL_TFD => {
            let first = file(k, 0, idx1)?;
            // struct kcmp_epoll_slot: the instance, the number of what it watches, which of several.
            let [instance, target, nth]: [u32; 3] = k.read_obj(Ptr(idx2))?;
            let instance = file(k, 1, instance.into())?;
            let FileKind::Epoll(id) = k.node.files[instance].kind else { return err(Errno::EINVAL) };
            first.cmp(&k.node.epolls[id].watched(target as i32, nth as usize).ok_or(Errno::ENOENT)?)
        }
        _ => return err(Errno::EINVAL),
    };
    Ok(match order {
        Ordering::Equal => 0,
        Ordering::Less => 1,
        Ordering::Greater => 2,
    })
}
