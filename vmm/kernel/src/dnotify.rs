//! F_NOTIFY of fcntl(2): signals when something happens in a directory. It hears what inotify instances hear
//! ([`bloodhound_vfs::Happened`]).

use bloodhound_abi::Errno;
use bloodhound_vfs::flags::*;
use bloodhound_vfs::{Happened, Ino};

use crate::ctx::*;
use crate::fasync::Band;
use crate::file::FileKind;
use crate::ids::*;
use crate::node::Node;
use crate::wait::SysResult;

const DN_ACCESS: u32 = 1;
const DN_MODIFY: u32 = 2;
const DN_CREATE: u32 = 4;
const DN_DELETE: u32 = 8;
const DN_RENAME: u32 = 0x10;
const DN_ATTRIB: u32 = 0x20;
const DN_MULTISHOT: u32 = 0x8000_0000;

/// Who is told of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dnotify {
    /// The description by which it was asked for, whose owner gets the signals.
    pub file: FileId,
    /// The table that the descriptor was in; closing any of it there ends this.
    pub table: TableId,
    /// The descriptor: si_fd.
    pub fd: i32,
    /// DN_*.
    pub mask: u32,
}

/// What DN_* flags an event is (`convert_arg`), without DN_RENAME.
fn events(mask: u32) -> u32 {
    let of = |events: u32, flag: u32| if mask & events != 0 { flag } else { 0 };
    of(IN_ACCESS, DN_ACCESS)
        | of(IN_MODIFY, DN_MODIFY)
        | of(IN_CREATE | IN_MOVED_TO, DN_CREATE)
        | of(IN_DELETE | IN_MOVED_FROM, DN_DELETE)
        | of(IN_ATTRIB, DN_ATTRIB)
}

impl Node {
    /// Tells what has happened. "DN_RENAME: A file was renamed within this directory".
    pub(crate) fn dnotify_deliver(&mut self, happened: &[Happened]) {
        if self.dnotify.is_empty() {
            return;
        }
        for (at, event) in happened.iter().enumerate() {
            if let Some((dir, _)) = &event.place {
                let next = happened.get(at + 1);
                let other = next.filter(|n| event.cookie != 0 && n.cookie == event.cookie);
                if event.mask & IN_MOVED_FROM != 0
                    && other.and_then(|n| n.place.as_ref()).is_some_and(|(to, _)| to == dir)
                {
                    self.dnotify_tell(*dir, DN_RENAME);
                }
                self.dnotify_tell(*dir, events(event.mask));
            }
            if let Some(ino) = event.ino.filter(|_| event.mask & IN_ISDIR != 0) {
                self.dnotify_tell(ino, events(event.mask));
            }
        }
    }

    /// "By default [...] the notification must be reregistered to receive further notifications"; with DN_MULTISHOT it stays.
    fn dnotify_tell(&mut self, dir: Ino, events: u32) {
        let Some(list) = self.dnotify.get(&dir) else { return };
        let hit: Vec<Dnotify> = list.iter().filter(|d| d.mask & events != 0).cloned().collect();
        for told in hit {
            self.send_sigio(told.file, told.fd, Band::Message);
            if told.mask & DN_MULTISHOT == 0 {
                self.dnotify_remove(dir, told.file, told.table);
            }
        }
    }

    fn dnotify_remove(&mut self, dir: Ino, file: FileId, table: TableId) {
        let Some(list) = self.dnotify.get_mut(&dir) else { return };
        let before = list.len();
        list.retain(|d| (d.file, d.table) != (file, table));
        let gone = before - list.len();
        if list.is_empty() {
            self.dnotify.remove(&dir);
        }
        (0..gone).for_each(|_| self.vfs.unwatch(dir));
    }

    /// A descriptor of this description in this table was closed (`dnotify_flush`).
    pub(crate) fn dnotify_closed_by(&mut self, id: FileId, table: TableId) {
        if self.dnotify.is_empty() {
            return;
        }
        if let Some(FileKind::Dir(dir)) = self.files.get(id).map(|f| f.kind.clone()) {
            self.dnotify_remove(dir, id, table);
        }
    }
}

impl Ctx<'_> {
    /// F_NOTIFY. "A series of F_NOTIFY requests is cumulative, with the events in arg being added to the set already monitored. To
    /// disable notification of all events, make an F_NOTIFY call specifying arg as 0."
    pub(crate) fn notify_directory(&mut self, fd: Fd, id: FileId, arg: u64) -> SysResult {
        let (mask, table) = (arg as u32, self.task().common.table);
        if mask & !DN_MULTISHOT == 0 {
            self.node.dnotify_closed_by(id, table);
            return Ok(0);
        }
        let dir = match self.node.files[id].kind {
            FileKind::Dir(ino) => ino,
            FileKind::SyntheticDir { .. } => {
                return Err(crate::wait::Stop::Unsupported(
                    "fcntl F_NOTIFY of a directory of /proc or /sys".into(),
                ));
            }
            _ => return err(Errno::ENOTDIR),
        };
        self.node.own_by_default(id, self.tid);
        let list = self.node.dnotify.get_or_default(dir);
        match list.iter_mut().find(|d| (d.file, d.table) == (id, table)) {
            Some(known) => {
                known.mask |= mask;
                known.fd = fd.0;
            }
            None => {
                // The newest is told first.
                list.insert(0, Dnotify { file: id, table, fd: fd.0, mask });
                self.node.vfs.watch(dir);
            }
        }
        Ok(0)
    }
}
