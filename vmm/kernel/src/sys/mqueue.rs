//! POSIX message queues: mq_open(2), mq_unlink(2), mq_timedsend(2), mq_timedreceive(2), mq_notify(2), mq_getsetattr(2).

use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::caps::{CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_RESOURCE};
use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::ipc::mqueue::{COOKIE, MqQueue, Notify, Told};
use crate::wait::{Progress, SysResult, Wait, WaitOn};

/// /proc/sys/fs/mqueue/msg_max, msgsize_max, msg_default, msgsize_default, queues_max.
const MOST: u64 = 10;
const LONGEST: u64 = 8192;
const QUEUES: u64 = 256;
/// What nobody may exceed (HARD_MSGMAX, HARD_MSGSIZEMAX).
const HARD_MOST: u64 = 65536;
const HARD_LONGEST: u64 = 16 << 20;
/// MQ_PRIO_MAX.
const PRIORITIES: u32 = 32768;
/// What Linux's own structures take for each message (`mqueue_create`), for RLIMIT_MSGQUEUE.
const OVERHEAD: u64 = 96;
const NAME_MAX: usize = 255;
const RLIMIT_MSGQUEUE: usize = 12;

/// The name of a queue, without its slash, as the program gives it. ENOENT for an empty one.
fn given_name(k: &mut Ctx<'_>, name: Ptr) -> SysResult<Vec<u8>> {
    let name = k.read_cstr(name.0, 4096, Errno::ENAMETOOLONG)?;
    if name.is_empty() { err(Errno::ENOENT) } else { Ok(name) }
}

/// What is no name of a file: EACCES with a slash in it, ENAMETOOLONG (lookup_one_len).
fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"." | b".." => Err(Errno::EACCES),
        name if name.contains(&b'/') => Err(Errno::EACCES),
        long if long.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

/// mq_open(2). ENOENT, EEXIST, EACCES, EINVAL for sizes that are not allowed, EMFILE, ENOSPC.
pub fn mq_open(k: &mut Ctx<'_>, path: Ptr, flags: OpenFlags, mode: u32, attr: Ptr) -> SysResult {
    let bits = flags.bits();
    let (create, exclusive) = (bits & c::O_CREAT != 0, bits & c::O_EXCL != 0);
    // Read also where no queue is to be made, before all else.
    let sizes = if attr.is_null() { None } else { Some(k.read_obj::<[u64; 8]>(attr)?) };
    let key = (k.container().ipc, given_name(k, path)?);
    let limit = k.process().limits[c::RLIMIT_NOFILE as usize].cur;
    k.table().lowest_free(0, limit)?;
    check_name(&key.1)?;
    let id = match k.node.mqueues.names.get(&key).copied() {
        Some(_) if create && exclusive => return err(Errno::EEXIST),
        Some(id) => {
            let queue = &k.node.mqueues.all[id];
            let wanted = match bits & c::O_ACCMODE {
                c::O_RDONLY => 4,
                c::O_WRONLY => 2,
                c::O_RDWR => 6,
                _ => return err(Errno::EINVAL),
            };
            may(k, queue, wanted)?;
            id
        }
        None if !create => return err(Errno::ENOENT),
        None => {
            let queue = make(k, mode, sizes)?;
            let id = k.node.mqueues.all.insert(queue);
            k.node.mqueues.names.insert(key, id);
            id
        }
    };
    // do_mq_open calls dentry_open with what it was given: all flags are kept but those that do_dentry_open itself takes away, and those
    // too with O_PATH.
    let path = bits & c::O_PATH != 0;
    let status = if path { bits } else { bits & !(c::O_CREAT | c::O_EXCL | c::O_NOCTTY | c::O_TRUNC) };
    // "EINVAL The filesystem does not support the O_DIRECT flag" (open(2)). A queue that was made for it stays.
    if !path && bits & c::O_DIRECT != 0 {
        return err(Errno::EINVAL);
    }
    k.node.mqueues.all[id].refs += 1;
    Ok(k.open_file(File::new(FileKind::Mq(id), status), true)?)
}

/// A new queue: of the sizes that are asked for, or the usual ones.
fn make(k: &Ctx<'_>, mode: u32, sizes: Option<[u64; 8]>) -> SysResult<MqQueue> {
    let set = |name: &str, usual: u64| k.container().number(&format!("fs/mqueue/{name}")).unwrap_or(usual);
    let (set_most, set_longest) = (set("msg_max", MOST), set("msgsize_max", LONGEST));
    // "If msg_default exceeds msg_max, a new queue's default mq_maxmsg value is capped to the msg_max limit" (mq_overview(7)).
    let usual = || (set("msg_default", MOST).min(set_most), set("msgsize_default", LONGEST).min(set_longest));
    let (most, longest) = sizes.map_or_else(usual, |[_, most, longest, ..]| (most, longest));
    let privileged = k.capable(CAP_SYS_RESOURCE);
    let (max_most, max_longest) =
        if privileged { (HARD_MOST, HARD_LONGEST) } else { (set_most, set_longest) };
    if !(1..=max_most).contains(&most) || !(1..=max_longest).contains(&longest) {
        return err(Errno::EINVAL);
    }
    let ns = k.container().ipc;
    if !privileged
        && k.node.mqueues.names.keys().filter(|(of, _)| *of == ns).count() as u64 >= set("queues_max", QUEUES)
    {
        return err(Errno::ENOSPC);
    }
    // RLIMIT_MSGQUEUE: "the number of bytes that can be allocated for POSIX message queues for the real user ID of the calling
    // process" (getrlimit(2)), of all its queues as they are when they are full.
    let user = k.credentials().real_ids[0];
    let room = |most: u64, longest: u64| most * (longest + OVERHEAD);
    let theirs = k.node.mqueues.all.iter().filter(|(_, queue)| queue.user == user);
    let used: u64 = theirs.map(|(_, queue)| room(queue.most, queue.longest)).sum();
    if used + room(most, longest) > k.process().limits[RLIMIT_MSGQUEUE].cur {
        return err(Errno::EMFILE);
    }
    let cred = k.fs_cred();
    Ok(MqQueue::new(user, (cred.uid, cred.gid), mode & 0o7777 & !k.place().umask, most, longest))
}

/// Whether the caller may open a queue to read (4) or write (2). EACCES.
pub(super) fn may(k: &Ctx<'_>, queue: &MqQueue, wanted: u32) -> Result<(), Errno> {
    let cred = k.fs_cred();
    let granted = if cred.uid == queue.owner.0 {
        queue.mode >> 6
    } else if cred.gid == queue.owner.1 || cred.groups.contains(&queue.owner.1) {
        queue.mode >> 3
    } else {
        queue.mode
    };
    let allowed = wanted & !granted == 0 || k.capable(CAP_DAC_OVERRIDE);
    if allowed { Ok(()) } else { Err(Errno::EACCES) }
}

/// mq_unlink(2). ENOENT; EPERM for another user's, which the C library makes EACCES of.
pub fn mq_unlink(k: &mut Ctx<'_>, path: Ptr) -> SysResult {
    let key = (k.container().ipc, given_name(k, path)?);
    check_name(&key.1)?;
    let id = *k.node.mqueues.names.get(&key).ok_or(Errno::ENOENT)?;
    if k.fs_cred().uid != k.node.mqueues.all[id].owner.0 && !k.capable(CAP_FOWNER) {
        return err(Errno::EPERM);
    }
    k.node.mqueues.names.remove(&key);
    k.node.mq_unref(id);
    Ok(0)
}

/// The queue of a descriptor with this access. EBADF.
fn opened(k: &mut Ctx<'_>, fd: Fd, write: bool) -> SysResult<(MqId, bool)> {
    let file = k.pin(fd)?;
    let file = &k.node.files[file];
    let allowed = if write { file.writable() } else { file.readable() };
    match file.kind {
        FileKind::Mq(id) if allowed => Ok((id, file.nonblocking())),
        _ => err(Errno::EBADF),
    }
}

/// mq_timedsend(2). EAGAIN, ETIMEDOUT, EMSGSIZE.
pub fn mq_timedsend(k: &mut Ctx<'_>, fd: Fd, msg: Ptr, len: u64, priority: u32, timeout: Ptr) -> SysResult {
    let woken = k.ipc_woken(Errno::ETIMEDOUT, |progress| match progress {
        Progress::MqOut(result) => Some(*result),
        _ => None,
    });
    if let Some(end) = woken {
        return end.map(|()| 0);
    }
    // The timeout first, with its own errors (mq_timedsend and do_mq_timedsend of Linux).
    let timeout = k.read_timeout(timeout)?;
    if priority >= PRIORITIES {
        return err(Errno::EINVAL);
    }
    let (id, nonblock) = opened(k, fd, true)?;
    if len > k.node.mqueues.all[id].longest {
        return err(Errno::EMSGSIZE);
    }
    let mut text = vec![0; len as usize];
    k.read_bytes(msg.0, &mut text)?;
    let message = (Arc::new(text), priority);
    let (tid, sender) = (k.tid, (k.pid, k.credentials().real_ids[0]));
    let queue = &mut k.node.mqueues.all[id];
    if queue.len() < queue.most {
        k.node.mq_send(id, message, sender);
        return Ok(0);
    }
    let wait = waiting(k, id, nonblock, timeout)?;
    k.node.mq_wait_for_room(id, tid, message);
    Err(wait.progress(Progress::MqOut(None)).into())
}

/// mq_timedreceive(2). EAGAIN, ETIMEDOUT, EMSGSIZE for less room than a message of the queue may need.
pub fn mq_timedreceive(
    k: &mut Ctx<'_>,
    fd: Fd,
    msg: Ptr,
    len: u64,
    priority: Ptr,
    timeout: Ptr,
) -> SysResult {
    let woken = k.ipc_woken(Errno::ETIMEDOUT, |progress| match progress {
        Progress::MqIn(result) => Some(result.clone()),
        _ => None,
    });
    let message = match woken {
        Some(end) => end?,
        None => {
            let timeout = k.read_timeout(timeout)?;
            let (id, nonblock) = opened(k, fd, false)?;
            if len < k.node.mqueues.all[id].longest {
                return err(Errno::EMSGSIZE);
            }
            match k.node.mq_receive(id) {
                Some(message) => message,
                None => {
                    let wait = waiting(k, id, nonblock, timeout)?;
                    let tid = k.tid;
                    k.node.mq_wait(id, tid);
                    return Err(wait.progress(Progress::MqIn(None)).into());
                }
            }
        }
    };
    let (text, urgency) = message;
    if !priority.is_null() {
        k.write_obj(priority, &urgency)?;
    }
    k.write_bytes(msg.0, &text)?;
    Ok(text.len() as u64)
}

/// The sleep of a call on a queue, until an absolute time of CLOCK_REALTIME. EAGAIN, ETIMEDOUT.
fn waiting(k: &Ctx<'_>, id: MqId, nonblock: bool, timeout: Option<u64>) -> SysResult<Wait> {
    if nonblock {
        return err(Errno::EAGAIN);
    }
    let deadline = timeout.map(|ns| k.clock_deadline(ns, true));
    if deadline.is_some_and(|end| end.at <= k.now()) {
        return err(Errno::ETIMEDOUT);
    }
    Ok(Wait::on(WaitOn::Mq(id)).ends(deadline))
}

/// mq_notify(2). EBUSY if somebody is to be told already; EINVAL. SIGEV_THREAD is how the C library asks with a netlink socket: ENOTSOCK.
pub fn mq_notify(k: &mut Ctx<'_>, fd: Fd, event: Ptr) -> SysResult {
    let mut wanted = None;
    if !event.is_null() {
        // `struct sigevent`, which is read as a whole.
        let [value, kind, ..] = k.read_obj::<[u64; 8]>(event)?;
        let (signo, how) = (kind as i32, (kind >> 32) as i32);
        let how = match how {
            // Signal 0 is a valid number for `valid_signal` of Linux.
            0 if (0..=64).contains(&signo) => Told::Signal(signo as u32, value),
            1 => Told::Nothing,
            // `signo` is the descriptor of a netlink socket, which is sent the bytes that `value` points to.
            2 => {
                let cookie: [u8; COOKIE] = k.read_obj(Ptr(value))?;
                match k.file(Fd(signo))?.kind {
                    FileKind::Netlink(socket) => Told::Cookie(socket, cookie),
                    FileKind::Inet(_) | FileKind::Unix(_) => return err(Errno::EINVAL),
                    _ => return err(Errno::ENOTSOCK),
                }
            }
            _ => return err(Errno::EINVAL),
        };
        wanted = Some(Notify { pid: k.pid, how, by_former: false });
    }
    let id = match k.file(fd)?.kind {
        FileKind::Mq(id) => id,
        _ => return err(Errno::EBADF),
    };
    let pid = k.pid;
    let queue = &mut k.node.mqueues.all[id];
    match (wanted, queue.notify) {
        (None, Some(notify)) if notify.pid == pid => k.node.mq_forget_notify(id),
        (None, _) => {}
        (Some(_), Some(_)) => return err(Errno::EBUSY),
        (Some(_), None) => queue.notify = wanted,
    }
    Ok(0)
}

/// mq_getsetattr(2): `struct mq_attr`. EINVAL for other flags than O_NONBLOCK.
pub fn mq_getsetattr(k: &mut Ctx<'_>, fd: Fd, new: Ptr, old: Ptr) -> SysResult {
    let wanted = if new.is_null() { None } else { Some(k.read_obj::<[u64; 8]>(new)?[0]) };
    if wanted.is_some_and(|flags| flags & !c::O_NONBLOCK != 0) {
        return err(Errno::EINVAL);
    }
    let file = k.file_mut(fd)?;
    let FileKind::Mq(id) = file.kind else { return err(Errno::EBADF) };
    let before = file.flags & c::O_NONBLOCK;
    if let Some(flags) = wanted {
        file.flags = file.flags & !c::O_NONBLOCK | flags;
    }
    if !old.is_null() {
        let queue = &k.node.mqueues.all[id];
        let attr = [before, queue.most, queue.longest, queue.len(), 0, 0, 0, 0];
        k.write_obj(old, &attr)?;
    }
    Ok(0)
}
