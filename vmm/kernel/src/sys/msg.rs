//! Message queues: msgget(2), msgsnd(2), msgrcv(2), msgctl(2).

use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::caps::CAP_SYS_RESOURCE;
use crate::ctx::*;
use crate::ipc::queue::{MAX_BYTES, Message, Queue, Request, Select};
use crate::ipc::{Entry, Named, Wanted};
use crate::task::Task;
use crate::wait::{Progress, Restart, SysResult, Wait, WaitOn};

/// MSGMAX: the longest text.
const LONGEST: u64 = 8192;
/// MSGMNI: queues, at most.
const MOST: u32 = 32000;
const READ: u32 = 0o444;
const WRITE: u32 = 0o222;

/// As kernel.msgmni has it.
fn most(k: &Ctx<'_>) -> u32 {
    k.container().number("kernel/msgmni").map_or(MOST, |most| most as u32)
}

/// msgget(2). EEXIST, ENOENT, EACCES, ENOSPC.
pub fn msgget(k: &mut Ctx<'_>, key: i32, flags: IpcFlags) -> SysResult {
    let wanted = Wanted { key, flags: flags.bits() as u32 };
    match k.ipc_named(&wanted, |ns| &mut ns.queues, |_| Ok(()))? {
        Named::Is(id) => Ok(id as u64),
        Named::Make(perm) => {
            let now = k.seconds();
            let most = most(k);
            Ok(k.ipc().queues.add(most, perm, now, Queue::default())? as u64)
        }
    }
}

fn queue<'a>(k: &'a mut Ctx<'_>, id: i32) -> SysResult<&'a Entry<Queue>> {
    Ok(k.ipc().queues.get(id).ok_or(Errno::EINVAL)?)
}

/// msgsnd(2). EAGAIN for a full queue, EACCES; EIDRM if the queue is removed meanwhile.
pub fn msgsnd(k: &mut Ctx<'_>, id: i32, msg: Ptr, size: u64, flags: IpcFlags) -> SysResult {
    let slept = match k.progress() {
        Some(Progress::MessageOut(message)) => Some(message.clone()),
        _ => None,
    };
    let resumed = slept.is_some();
    let message = match slept {
        Some(message) => message,
        None => {
            // The type is read before anything is looked at (ksys_msgsnd), the text after all of it (do_msgsnd).
            let kind: i64 = k.read_obj(msg)?;
            if size > LONGEST || id < 0 || kind < 1 {
                return err(Errno::EINVAL);
            }
            let mut text = vec![0; size as usize];
            k.read_bytes(msg.0 + 8, &mut text)?;
            Message { kind, text: Arc::new(text) }
        }
    };
    let gone = if resumed { Errno::EIDRM } else { Errno::EINVAL };
    let perm = k.ipc().queues.get(id).ok_or(gone)?.perm;
    k.ipc_may(&perm, WRITE)?;
    let (pid, tid, now, ns) = (k.pid, k.tid, k.seconds(), k.container().ipc);
    let Some(entry) = k.ipc().queues.get_mut(id) else { return err(gone) };
    if !entry.item.fits(message.text.len() as u64) {
        if flags.contains(IpcFlags::IPC_NOWAIT) {
            return err(Errno::EAGAIN);
        }
        entry.item.wait_for_room(tid);
        let wait = Wait::on(WaitOn::Messages(ns, id)).restart(Restart::NoHand);
        return Err(wait.progress(Progress::MessageOut(message)).into());
    }
    entry.item.forget(tid);
    for (receiver, result) in entry.item.send(pid, message, now) {
        k.node.message_received(receiver, result);
    }
    Ok(0)
}

/// msgrcv(2). ENOMSG, E2BIG, EACCES; EIDRM if the queue is removed meanwhile.
pub fn msgrcv(k: &mut Ctx<'_>, id: i32, msg: Ptr, size: u64, kind: i64, flags: ReceiveFlags) -> SysResult {
    let woken = k.ipc_woken(Errno::EAGAIN, |progress| match progress {
        Progress::MessageIn(result) => Some(result.clone()),
        _ => None,
    });
    if let Some(end) = woken {
        return end.and_then(|message| give(k, msg, size, &message));
    }
    if id < 0 || size.cast_signed() < 0 {
        return err(Errno::EINVAL);
    }
    // "IPC_NOWAIT must be specified in conjunction with MSG_COPY", and MSG_EXCEPT must not (msgrcv(2)).
    let no_wait = flags.contains(ReceiveFlags::IPC_NOWAIT);
    let copy = flags.contains(ReceiveFlags::MSG_COPY);
    if copy {
        if flags.contains(ReceiveFlags::MSG_EXCEPT) || !no_wait {
            return err(Errno::EINVAL);
        }
        // "Create dummy message to copy real message to": of what is in the buffer, which so has to be readable (prepare_copy).
        let mut dummy = vec![0; size.min(LONGEST) as usize];
        k.read_bytes(msg.0, &mut dummy)?;
    }
    let perm = queue(k, id)?.perm;
    k.ipc_may(&perm, READ)?;
    let request = Request {
        select: selection(kind, flags),
        room: size,
        cut: flags.contains(ReceiveFlags::MSG_NOERROR),
    };
    if copy {
        let message = queue(k, id)?.item.peek(kind as u64).cloned().ok_or(Errno::ENOMSG)?;
        if request.room < message.text.len() as u64 {
            // MSG_NOERROR does not help: what is copied is not cut ("if (src->m_ts > dst->m_ts) return ERR_PTR(-EINVAL)", copy_msg).
            return err(if request.cut { Errno::EINVAL } else { Errno::E2BIG });
        }
        return give(k, msg, size, &message);
    }
    let (pid, tid, now, ns) = (k.pid, k.tid, k.seconds(), k.container().ipc);
    let Some(entry) = k.ipc().queues.get_mut(id) else { return err(Errno::EINVAL) };
    match entry.item.receive(pid, &request, now) {
        Some(result) => {
            let message = result?;
            k.node.room_for_messages(ns, id);
            give(k, msg, size, &message)
        }
        None if no_wait => err(Errno::ENOMSG),
        None => {
            entry.item.wait(tid, request);
            let wait = Wait::on(WaitOn::Messages(ns, id)).restart(Restart::NoHand);
            Err(wait.progress(Progress::MessageIn(None)).into())
        }
    }
}

/// What the type and the flags of msgrcv(2) ask for.
fn selection(kind: i64, flags: ReceiveFlags) -> Select {
    match kind {
        0 => Select::Any,
        kind if kind < 0 => Select::UpTo(kind.checked_neg().unwrap_or(i64::MAX)),
        kind if flags.contains(ReceiveFlags::MSG_EXCEPT) => Select::Except(kind),
        kind => Select::Kind(kind),
    }
}

/// Stores a message; the number of bytes of its text.
fn give(k: &mut Ctx<'_>, msg: Ptr, size: u64, message: &Message) -> SysResult {
    let text = &message.text[..message.text.len().min(size as usize)];
    k.write_obj(msg, &message.kind)?;
    k.write_bytes(msg.0 + 8, text)?;
    Ok(text.len() as u64)
}

/// Commands of msgctl(2).
mod cmd {
    pub const RMID: u32 = 0;
    pub const SET: u32 = 1;
    pub const STAT: u32 = 2;
    pub const INFO: u32 = 3;
    pub const MSG_STAT: u32 = 11;
    pub const MSG_INFO: u32 = 12;
    pub const MSG_STAT_ANY: u32 = 13;
}

/// msgctl(2). EINVAL for unknown commands and queues, EACCES, EPERM.
pub fn msgctl(k: &mut Ctx<'_>, id: i32, cmd: u32, buf: Ptr) -> SysResult {
    if id < 0 {
        return err(Errno::EINVAL);
    }
    match cmd {
        cmd::INFO | cmd::MSG_INFO => info(k, cmd, buf),
        cmd::STAT | cmd::MSG_STAT | cmd::MSG_STAT_ANY => stat(k, id, cmd, buf),
        cmd::SET => change(k, id, buf),
        cmd::RMID => remove(k, id),
        _ => err(Errno::EINVAL),
    }
}

/// IPC_INFO and MSG_INFO: `struct msginfo`.
fn info(k: &mut Ctx<'_>, cmd: u32, buf: Ptr) -> SysResult {
    let most = most(k);
    let queues = &k.ipc().queues;
    let highest = queues.highest();
    // msgpool, msgmap, msgmax, msgmnb, msgmni, msgssz, msgtql, msgseg
    let (most, room) = (most as i32, MAX_BYTES as i32);
    let mut words = [0, room, LONGEST as i32, room, most, 16, room, 0xffff];
    words[0] = (u64::from(MOST) * MAX_BYTES / 1024) as i32;
    if cmd == cmd::MSG_INFO {
        words[0] = queues.len() as i32;
        words[1] = queues.iter().map(|entry| entry.item.len()).sum::<u64>() as i32;
        words[6] = queues.iter().map(|entry| entry.item.bytes).sum::<u64>() as i32;
    }
    k.write_obj(buf, &words)?;
    Ok(highest)
}

/// IPC_STAT, and MSG_STAT of an index: `struct msqid64_ds`.
fn stat(k: &mut Ctx<'_>, id: i32, cmd: u32, buf: Ptr) -> SysResult {
    let viewer = k.pid_ns();
    let queues = &k.ipc().queues;
    let entry = if cmd == cmd::STAT { queues.get(id) } else { queues.at(id) };
    let Some(Entry { id, perm, ctime, item, .. }) = entry else { return err(Errno::EINVAL) };
    let number = |pid: Option<crate::ids::Pid>| u64::from(pid.map_or(0, |pid| pid.number_in(viewer)));
    let (id, perm) = (*id, *perm);
    let [a, b, c, d, e, f] = perm.words(id);
    let pids = number(item.sender) | number(item.receiver) << 32;
    let (times, sizes) = ([item.stime, item.rtime, *ctime], [item.bytes, item.len(), item.max_bytes]);
    let [[stime, rtime, ctime], [bytes, count, room]] = [times, sizes];
    let words = [a, b, c, d, e, f, stime, rtime, ctime, bytes, count, room, pids, 0, 0];
    if cmd != cmd::MSG_STAT_ANY {
        k.ipc_may(&perm, READ)?;
    }
    k.write_obj(buf, &words)?;
    Ok(if cmd == cmd::STAT { 0 } else { id as u64 })
}

/// IPC_SET. EPERM for more room than MSGMNB without CAP_SYS_RESOURCE.
fn change(k: &mut Ctx<'_>, id: i32, buf: Ptr) -> SysResult {
    let [a, b, c, d, e, f, _, _, _, _, _, room, ..] = k.read_obj::<[u64; 15]>(buf)?;
    let perm = queue(k, id)?.perm;
    k.ipc_owns(&perm)?;
    // It is an int on its way, and a negative one much room.
    let room = room as i32;
    if u64::from(room.cast_unsigned()) > MAX_BYTES && !k.capable(CAP_SYS_RESOURCE) {
        return err(Errno::EPERM);
    }
    let (now, ns) = (k.seconds(), k.container().ipc);
    let Some(entry) = k.ipc().queues.get_mut(id) else { return err(Errno::EINVAL) };
    entry.perm.set(&[a, b, c, d, e, f])?;
    entry.item.max_bytes = i64::from(room).cast_unsigned();
    entry.ctime = now;
    let perm = entry.perm;
    // "Sleeping receivers might be excluded by stricter permissions" (msgctl_down). The others stand in line again in their order; who
    // has a signal to take ends its call with that.
    for tid in queue(k, id)?.item.receivers() {
        let may = |task: &Task| perm.allows(&task.credentials, READ).is_ok();
        if k.node.tasks.get(&tid).is_none_or(may) || k.node.signal_deliverable(tid) {
            continue;
        }
        if let Some(entry) = k.ipc().queues.get_mut(id) {
            entry.item.forget(tid);
        }
        k.node.message_received(tid, Err(Errno::EACCES));
    }
    k.node.room_for_messages(ns, id);
    Ok(0)
}

/// IPC_RMID.
fn remove(k: &mut Ctx<'_>, id: i32) -> SysResult {
    let perm = queue(k, id)?.perm;
    k.ipc_owns(&perm)?;
    let Some(mut entry) = k.ipc().queues.remove(id) else { return err(Errno::EINVAL) };
    for tid in entry.item.take_receivers() {
        k.node.message_received(tid, Err(Errno::EIDRM));
    }
    for tid in entry.item.senders() {
        k.node.wake_if_blocked(tid);
    }
    Ok(0)
}
