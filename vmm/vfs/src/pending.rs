//! The list of changes that are not durable yet.
//!
//! Key types: [`Op`], [`Pending`], [`PendingList`]. The list is kept in segments, so that cloning a world with a long
//! list copies few of its entries. Used by `journal` and `power`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::inode::{Inode, Meta};
use crate::pages::PAGE;
use crate::types::{Ino, Name, Timestamp};

/// A name of a directory that gets another meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) dir: Ino,
    pub(crate) name: Name,
    /// `None` if the name goes away.
    pub(crate) to: Option<(Ino, bool)>,
}

/// A change that is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Bytes were written; the file grows as needed.
    Data { offset: u64, bytes: Arc<[u8]> },
    /// Application code may have stored into this page of a shared mapping; its bytes are looked up when needed.
    Mapped { index: u64 },
    /// The size was set.
    Size { size: u64 },
    /// A range was made zero without a change of size.
    Zero { from: u64, to: u64 },
    /// Metadata other than link count and the times of content.
    Attributes(Box<Meta>),
    /// The inode was made.
    Create(Arc<Inode>),
    /// Names changed, in one step.
    Names(Vec<Edit>),
}

impl Op {
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Op::Data { .. } | Op::Mapped { .. })
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Op::Data { bytes, .. } => bytes.len() as u64,
            Op::Mapped { .. } => PAGE,
            _ => 0,
        }
    }
}

/// An operation with the inode that it is about (of [`Op::Names`]: the first directory) and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) ino: Ino,
    pub(crate) time: Timestamp,
    pub(crate) op: Op,
}

/// Entries of a full segment.
const SEGMENT: usize = 128;

/// Changes in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingList {
    full: VecDeque<Arc<Vec<Pending>>>,
    last: Vec<Pending>,
    len: usize,
    bytes: u64,
}

impl PendingList {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of file content on the list.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        self.len += 1;
        self.bytes += pending.op.bytes();
        self.last.push(pending);
        if self.last.len() == SEGMENT {
            self.full.push_back(Arc::new(std::mem::take(&mut self.last)));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.full.iter().flat_map(|segment| segment.iter()).chain(&self.last)
    }

    /// Adds a whole segment; a short one is merged.
    pub(crate) fn push_segment(&mut self, segment: Arc<Vec<Pending>>) {
        if segment.len() < SEGMENT / 2 {
            segment.iter().for_each(|pending| self.push(pending.clone()));
            return;
        }
        if !self.last.is_empty() {
            self.full.push_back(Arc::new(std::mem::take(&mut self.last)));
        }
        self.len += segment.len();
        self.bytes += segment.iter().map(|pending| pending.op.bytes()).sum::<u64>();
        self.full.push_back(segment);
    }

    /// The list's parts in order.
    pub(crate) fn into_segments(self) -> impl Iterator<Item = Arc<Vec<Pending>>> {
        self.full.into_iter().chain([Arc::new(self.last)])
    }

    /// Takes the oldest segment, or what there is.
    pub(crate) fn take_oldest(&mut self) -> Arc<Vec<Pending>> {
        let taken = self.full.pop_front().unwrap_or_else(|| Arc::new(std::mem::take(&mut self.last)));
        self.len -= taken.len();
        self.bytes -= taken.iter().map(|pending| pending.op.bytes()).sum::<u64>();
        taken
    }
}

impl FromIterator<Pending> for PendingList {
    fn from_iter<I: IntoIterator<Item = Pending>>(all: I) -> PendingList {
        let mut list = PendingList::default();
        all.into_iter().for_each(|pending| list.push(pending));
        list
    }
}
