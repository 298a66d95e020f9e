//! The list of changes that are not durable yet.
//!
//! Key types: [`Op`], [`Pending`], [`PendingList`]. The list is kept in segments, so that cloning a world with a long
//! list copies few of its entries. Used by `journal` and `power`.

use std::collections::VecDeque;
use std::sync::Arc;

use bloodhound_abi::SimTime;

use crate::inode::{Inode, Meta};
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

    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self, Op::Mapped { .. })
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Op::Data { bytes, .. } => bytes.len() as u64,
            _ => 0,
        }
    }
}

/// An operation with the inode that it is about (of [`Op::Names`]: the first directory) and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) ino: Ino,
    /// By the wall clock, for the times of inodes.
    pub(crate) time: Timestamp,
    /// How old it is, whatever the wall clock says.
    pub(crate) at: SimTime,
    /// Of data: its blocks were allocated early, so that it is on the disk when the metadata around it is ([`PendingList::allocate`]).
    pub(crate) allocated: bool,
    pub(crate) op: Op,
}

impl Pending {
    /// Whether it is content that the flusher writes some time, and no part of a transaction of the file system's journal.
    pub(crate) fn is_loose(&self) -> bool {
        !self.allocated && (self.op.is_data() || matches!(self.op, Op::Zero { .. }))
    }
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
    /// Those of [`Op::Mapped`], which stay until the page is clean.
    mapped: usize,
}

impl PendingList {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many of them can be written back for good.
    pub(crate) fn settleable(&self) -> usize {
        self.len - self.mapped
    }

    /// Bytes of file content on the list.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        self.len += 1;
        self.bytes += pending.op.bytes();
        self.mapped += usize::from(pending.op.is_mapped());
        self.last.push(pending);
        if self.last.len() == SEGMENT {
            self.full.push_back(Arc::new(std::mem::take(&mut self.last)));
        }
    }

    /// The newest.
    pub(crate) fn last(&self) -> Option<&Pending> {
        self.last.last().or_else(|| self.full.back().and_then(|segment| segment.last()))
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
        self.mapped += segment.iter().filter(|pending| pending.op.is_mapped()).count();
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
        self.mapped -= taken.iter().filter(|pending| pending.op.is_mapped()).count();
        taken
    }

    /// When the last change of the oldest full segment was made: all of that segment are as old at least.
    pub(crate) fn age_of_oldest(&self) -> Option<SimTime> {
        self.full.front()?.last().map(|pending| pending.at)
    }

    /// Pages of shared mappings of a file that may be dirty.
    pub(crate) fn mapped_pages(&self, ino: Ino) -> Vec<u64> {
        let of = |pending: &Pending| match pending.op {
            Op::Mapped { index } if pending.ino == ino => Some(index),
            _ => None,
        };
        if self.mapped == 0 { Vec::new() } else { self.iter().filter_map(of).collect() }
    }

    /// The blocks of all that was written to a file until now are allocated, so that the next transaction takes the data along.
    pub(crate) fn allocate(&mut self, ino: Ino) {
        let waits = |pending: &Pending| pending.ino == ino && pending.is_loose() && !pending.op.is_mapped();
        let mark = |segment: &mut Vec<Pending>| {
            segment.iter_mut().filter(|pending| waits(pending)).for_each(|pending| pending.allocated = true);
        };
        for segment in self.full.iter_mut().filter(|segment| segment.iter().any(waits)) {
            mark(Arc::make_mut(segment));
        }
        mark(&mut self.last);
    }
}

impl FromIterator<Pending> for PendingList {
    fn from_iter<I: IntoIterator<Item = Pending>>(all: I) -> PendingList {
        let mut list = PendingList::default();
        all.into_iter().for_each(|pending| list.push(pending));
        list
    }
}
