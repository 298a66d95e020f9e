//! Which of the pages that a platform shows are still the right ones: after another world took the place of the one
//! that they were mapped for, only what differs has to go (design.md section 5).

use bloodhound_abi::consts as c;
use bloodhound_frames::Frame;

use super::{Backing, Mm, PAGE, Vma};
use crate::node::Node;

/// Pages that a platform shows, read-only, one frame behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// User address of the first page.
    pub addr: u64,
    /// Number of pages.
    pub pages: u64,
    /// Offset of the first frame in the frame store's memfd.
    pub frame: u64,
    /// The pages may be executed.
    pub exec: bool,
}

impl Node {
    /// Calls `stale` with the ranges (address, bytes) of `run` at which `mm` has something else. `stands_for` says of the frame
    /// of a file's page and of a frame that is shown for execution whether the second one is shown in the place of the first.
    pub fn stale(
        &self,
        mm: &Mm,
        run: Shown,
        stands_for: impl Fn(u64, u64) -> bool,
        mut stale: impl FnMut(u64, u64),
    ) {
        let mut vma: Option<&Vma> = None;
        let mut from = None;
        for n in 0..run.pages {
            let addr = run.addr + n * PAGE;
            if vma.is_none_or(|v| addr >= v.end) {
                vma = mm.find(addr);
            }
            let right = vma.is_some_and(|v| {
                v.prot & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC) != 0
                    && mm.executable(v, addr, |ino| self.vfs.is_pristine(ino)) == run.exec
                    && self.shown(mm, v, addr).is_some_and(|frame| {
                        let is = run.frame + n * PAGE;
                        frame == is || run.exec && stands_for(frame, is)
                    })
            });
            match (right, from) {
                (true, Some(first)) => {
                    stale(first, addr - first);
                    from = None;
                }
                (false, None) => from = Some(addr),
                _ => {}
            }
        }
        if let Some(first) = from {
            stale(first, run.addr + run.pages * PAGE - first);
        }
    }

    /// Offset of the frame that a read of the page sees, if it is there without a fault that changes something.
    fn shown(&self, mm: &Mm, vma: &Vma, addr: u64) -> Option<u64> {
        if let Some(frame) = mm.pages.get(addr / PAGE) {
            // With other bytes in the place of its own, which depend on more than the frame.
            let itself = mm.pages.surroundings(addr / PAGE).is_none();
            return itself.then(|| frame.offset());
        }
        let into = addr - vma.start;
        match vma.backing {
            Backing::Anon => Some(Frame::shared_zero().offset()),
            // Its first access makes a copy, which a mapping of the file's page would put off.
            Backing::File { .. } if self.copied_at_once(vma) => None,
            Backing::File { ino, offset } => Some(self.vfs.page(ino, (offset + into) / PAGE)?.offset()),
            Backing::Shm { id, offset } => {
                Some(self.shm.get(id)?.pages.get(&((offset + into) / PAGE))?.offset())
            }
            Backing::Special("[vdso]") => Some(mm.vdso.get((into / PAGE) as usize)?.offset()),
            // The page of the clock moves before the next run.
            Backing::Special(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MmId;
    use crate::mm::Access;
    use crate::mm::fault::Fault;
    use crate::testing::Bench;

    const AT: u64 = 0x2000_0000;

    /// A bench with eight pages of anonymous memory, of which the first four are there: frames of those.
    fn bench() -> (Bench, MmId, Vec<u64>) {
        let mut b = Bench::new();
        let pid = b.node.task(b.tid).pid;
        let mm = b.node.process(pid).mm;
        b.node.mms[mm].insert(Vma {
            start: AT,
            end: AT + 8 * PAGE,
            prot: c::PROT_READ | c::PROT_WRITE,
            shared: false,
            backing: Backing::Anon,
            on_fork: Default::default(),
            may_write: true,
            marks: Default::default(),
        });
        for n in 0..4 {
            b.node.mms[mm].pages.set(AT / PAGE + n, Frame::zeroed());
        }
        let frames = (0..4).filter_map(|n| b.node.mms[mm].pages.get(AT / PAGE + n).map(Frame::offset));
        let frames = frames.collect();
        (b, mm, frames)
    }

    fn stale(b: &Bench, mm: MmId, run: Shown) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        b.node.stale(&b.node.mms[mm], run, |_, _| false, |at, len| out.push(((at - AT) / PAGE, len / PAGE)));
        out
    }

    #[test]
    fn what_a_fault_maps_is_right() {
        let (mut b, mm, _) = bench();
        let stack = b.node.mms[mm].stack_top - 64;
        let text = b.node.mms[mm].vmas().find(|v| v.prot & c::PROT_EXEC != 0).expect("code").start;
        for (addr, access) in [(stack, Access::Write), (text, Access::Exec), (AT, Access::Read)] {
            let Fault::Map(pages) = b.node.page_fault(mm, addr, access) else {
                panic!("no page at {addr:#x}")
            };
            assert!(!pages.is_empty());
            for p in pages {
                let run = Shown { addr: p.addr, pages: 1, frame: p.frame, exec: p.exec };
                b.node.stale(&b.node.mms[mm], run, |_, _| false, |at, _| panic!("{at:#x} is stale at once"));
            }
        }
    }

    #[test]
    fn pages_with_another_frame_are_stale() {
        let (mut b, mm, frames) = bench();
        let one = |n: u64, frame| Shown { addr: AT + n * PAGE, pages: 1, frame, exec: false };
        assert_eq!(stale(&b, mm, one(1, frames[1])), []);
        assert_eq!(stale(&b, mm, one(1, frames[2])), [(1, 1)]);
        assert_eq!(stale(&b, mm, Shown { exec: true, ..one(1, frames[1]) }), [(1, 1)]);
        assert_eq!(stale(&b, mm, one(5, Frame::shared_zero().offset())), []);
        assert_eq!(stale(&b, mm, one(5, frames[0])), [(5, 1)]);
        assert_eq!(stale(&b, mm, one(9, frames[0])), [(9, 1)], "nothing is there");
        // The copy of a page that is shared with another world.
        let copy = b.node.clone();
        b.node.mms[mm].pages.make_exclusive(AT / PAGE + 1);
        assert_eq!(stale(&b, mm, one(1, frames[1])), [(1, 1)]);
        b.node = copy;
        assert_eq!(stale(&b, mm, one(1, frames[1])), []);
    }

    #[test]
    fn stale_pages_are_told_in_ranges() {
        let (mut b, mm, _) = bench();
        let run = Frame::zeroed_run(4);
        for (n, frame) in run.iter().enumerate() {
            b.node.mms[mm].pages.set(AT / PAGE + n as u64, frame.clone());
        }
        if !run.windows(2).all(|w| w[1].offset() == w[0].offset() + PAGE) {
            // The frame store had no four in a row.
            return;
        }
        let all = Shown { addr: AT, pages: 4, frame: run[0].offset(), exec: false };
        assert_eq!(stale(&b, mm, all), []);
        b.node.mms[mm].pages.remove_range(AT / PAGE + 1, AT / PAGE + 3);
        assert_eq!(stale(&b, mm, all), [(1, 2)]);
        b.node.mms[mm].remove(AT, AT + 8 * PAGE);
        assert_eq!(stale(&b, mm, all), [(0, 4)]);
    }
}
