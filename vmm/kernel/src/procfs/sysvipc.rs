//! /proc/sysvipc (proc(5)): the System V objects of the IPC namespace.

use std::fmt::Write;

use super::View;
use crate::ids::Pid;
use crate::ipc::{Entry, Namespace, Perm};
use crate::mm::PAGE;

/// /proc/sysvipc/msg.
pub(super) fn msg(view: &View<'_>) -> String {
    table(view, MESSAGES, |ns| ns.queues.iter().map(|entry| message(view, entry)).collect())
}

/// /proc/sysvipc/sem.
pub(super) fn sem(view: &View<'_>) -> String {
    table(view, SEMAPHORES, |ns| ns.sets.iter().map(semaphores).collect())
}

/// /proc/sysvipc/shm.
pub(super) fn shm(view: &View<'_>) -> String {
    table(view, SEGMENTS, |ns| ns.segments.iter().map(|entry| segment(view, entry)).collect())
}

const MESSAGES: &str = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      \
    rtime      ctime\n";
const SEMAPHORES: &str =
    "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n";
const SEGMENTS: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
    atime      dtime      ctime                   rss                  swap\n";

fn table(view: &View<'_>, head: &str, rows: impl FnOnce(&Namespace) -> Vec<String>) -> String {
    let rows = view.node.sysv.get(view.container().ipc).map(rows).unwrap_or_default();
    format!("{head}{}", rows.concat())
}

fn number(view: &View<'_>, pid: Option<Pid>) -> u32 {
    pid.map_or(0, |pid| pid.number_in(view.pid.ns()))
}

/// Name, id and permission bits, with which each line begins.
fn begin<T>(entry: &Entry<T>) -> String {
    format!("{:10} {:10}  {:4o} ", entry.perm.key, entry.id, entry.perm.mode)
}

fn owners(perm: &Perm) -> String {
    let Perm { uid, gid, cuid, cgid, .. } = perm;
    format!("{uid:5} {gid:5} {cuid:5} {cgid:5} ")
}

fn message(view: &View<'_>, entry: &Entry<crate::ipc::queue::Queue>) -> String {
    let (queue, mut out) = (&entry.item, begin(entry));
    let (sender, receiver) = (number(view, queue.sender), number(view, queue.receiver));
    let _infallible = write!(out, " {:10} {:10} {sender:5} {receiver:5} ", queue.bytes, queue.len());
    out + &owners(&entry.perm) + &format!("{:10} {:10} {:10}\n", queue.stime, queue.rtime, entry.ctime)
}

fn semaphores(entry: &Entry<crate::ipc::sem::SemSet>) -> String {
    let times = format!("{:10} {:10}\n", entry.item.otime, entry.ctime);
    format!("{}{:10} {}{times}", begin(entry), entry.item.sems.len(), owners(&entry.perm))
}

fn segment(view: &View<'_>, entry: &Entry<crate::ipc::segment::Segment>) -> String {
    let (segment, mut out) = (&entry.item, begin(entry));
    let (maker, last) = (number(view, Some(segment.maker)), number(view, segment.last));
    let shm = &view.node.shm[segment.shm];
    let _infallible = write!(out, "{:21} {maker:5} {last:5}  {:5} ", segment.size, shm.refs);
    let times = format!("{:10} {:10} {:10} ", segment.atime, segment.dtime, entry.ctime);
    out + &owners(&entry.perm) + &times + &format!("{:21} {:21}\n", shm.pages.len() as u64 * PAGE, 0)
}
