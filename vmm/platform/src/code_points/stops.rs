//! The stop points of one space, and the kept ones ([`Stopping`]): copies of the frames that it shows, with an `int3` at each point.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bloodhound_frames::{FRAME_SIZE, Frame};
use iced_x86::{ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use super::counter::{JUMP, LOOKED_AT};
use super::counting::Counting;
use crate::extents::Extents;
use crate::{Mapping, Prot, Regs, StopPoint, Stops};

const PAGE: u64 = FRAME_SIZE as u64;
const INT3: u8 = 0xcc;

/// A page that is shown with stop points.
pub(super) struct Copy {
    frame: Frame,
    /// Offset in the arena of the frame in whose place it is shown.
    original: u64,
    prot: Prot,
    /// Points by their offset in the page: the byte that belongs there, and what the instruction does if it is a jump.
    points: BTreeMap<u16, (u8, Option<Jump>)>,
}

/// What a jump does, as far as it is a function of registers and flags.
#[derive(Clone, Copy, Debug)]
enum Jump {
    /// To an address if a condition holds, else to the next instruction.
    Near { condition: ConditionCode, to: u64, next: u64 },
    /// To the address in a register.
    Register(Register),
}

/// See the module's text. By page address.
#[derive(Default)]
pub(super) struct Stopping {
    pages: BTreeMap<u64, Copy>,
    /// The set of points that is shown ([`Stops::set`]), and the changes of the space's memory by then; `None`: it has no number.
    shown: Option<(u64, u64)>,
    /// Addresses of kept points, rising.
    kept: Vec<u64>,
    /// Those in whose place the instruction stands for now.
    lifted: Vec<u64>,
    /// Which points are counted at native speed.
    pub counting: Counting,
}

/// Where a space is to trap: addresses of stop points and of kept points, each rising.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    stops: &'a [StopPoint],
    kept: &'a [u64],
}

impl<'a> Wanted<'a> {
    fn has(&self, address: u64) -> bool {
        self.stops.binary_search_by_key(&address, |point| point.address).is_ok()
            || self.kept.binary_search(&address).is_ok()
    }

    /// Whether there is one in a page.
    fn any_in(&self, page: u64) -> bool {
        let stop = self.stops.get(self.stops.partition_point(|point| point.address < page));
        let kept = self.kept.get(self.kept.partition_point(|address| *address < page));
        let here = |address: &u64| *address - page < PAGE;
        stop.is_some_and(|point| here(&point.address)) || kept.is_some_and(here)
    }

    fn all(&self) -> impl Iterator<Item = u64> + 'a {
        self.stops.iter().map(|point| point.address).chain(self.kept.iter().copied())
    }
}

impl Copy {
    /// A byte of the original has changed: an observing point is gone.
    pub fn take_over(&self, original: u64) {
        let at = (original % PAGE) as usize;
        let mut byte = [0];
        if !self.points.contains_key(&(at as u16))
            && bloodhound_frames::read_at(original, &mut byte).is_some()
        {
            self.frame.replace_byte(at, byte[0]);
        }
    }
}

impl Stopping {
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.kept.is_empty()
    }

    /// These are the kept points from now on; what is shown follows with the next run.
    pub fn keep(&mut self, points: &[u64]) {
        if self.kept != points {
            self.kept = points.to_vec();
            self.shown = None;
        }
    }

    /// Whether there are kept points.
    pub fn keeps_some(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether a kept point is at an address.
    pub fn keeps(&self, address: u64) -> bool {
        self.kept.binary_search(&address).is_ok()
    }

    /// Whether there are kept points from an address on, in so many bytes.
    pub fn keeps_any(&self, address: u64, bytes: u64) -> bool {
        let after = self.kept.partition_point(|kept| *kept < address);
        self.kept.get(after).is_some_and(|kept| kept - address < bytes)
    }

    /// Puts the instructions in the place of kept points from an address on, in so many bytes, until [`Stopping::settle`].
    pub fn reveal(&mut self, address: u64, bytes: u64) {
        let from = self.kept.partition_point(|kept| *kept < address);
        for at in from..self.kept.len() {
            let kept = self.kept[at];
            if kept - address >= bytes {
                break;
            }
            if !self.lifted.contains(&kept) {
                self.lift(kept, true);
                self.lifted.push(kept);
            }
        }
    }

    /// Puts the points back.
    pub fn settle(&mut self) {
        for kept in std::mem::take(&mut self.lifted) {
            self.lift(kept, false);
        }
    }

    /// Whether a stop point or a kept one is shown at an address.
    pub fn is_point(&self, addr: u64) -> bool {
        self.point(addr).is_some()
    }

    fn point(&self, addr: u64) -> Option<(&Copy, u8, Option<Jump>)> {
        let copy = self.pages.get(&(addr & !(PAGE - 1)))?;
        copy.points.get(&((addr % PAGE) as u16)).map(|(byte, jump)| (copy, *byte, *jump))
    }

    /// If the space shows one of these copies at an address (whose offset in the arena is `offset`), the offset of the byte that
    /// the copy stands for.
    pub fn original(&self, addr: u64, offset: u64) -> Option<(u64, &Copy)> {
        let copy = self.pages.get(&(addr & !(PAGE - 1)))?;
        (copy.frame.offset() == offset & !(PAGE - 1)).then(|| (copy.original + addr % PAGE, copy))
    }

    /// Puts the instruction of a point in its place, or the point again.
    pub fn lift(&self, addr: u64, lifted: bool) {
        if let Some((copy, byte, _)) = self.point(addr) {
            copy.frame.replace_byte((addr % PAGE) as usize, if lifted { byte } else { INT3 });
        }
    }

    /// What stands from an address on, as it is without stop points; `None` if that is not all in one page that is shown with points.
    pub fn code(&self, addr: u64) -> Option<[u8; LOOKED_AT]> {
        let copy = self.pages.get(&(addr & !(PAGE - 1)))?;
        let at = (addr % PAGE) as u16;
        let mut bytes = [0; LOOKED_AT];
        if usize::from(at) + LOOKED_AT > FRAME_SIZE {
            return None;
        }
        copy.frame.read(usize::from(at), &mut bytes);
        for (point, (byte, _)) in copy.points.range(at..at + LOOKED_AT as u16) {
            bytes[usize::from(point - at)] = *byte;
        }
        Some(bytes)
    }

    /// The address behind the instruction at an address of such a page; `None` also for one that goes on in the next page.
    pub fn next(&self, addr: u64) -> Option<u64> {
        let code = self.code(addr)?;
        let instruction = Decoder::with_ip(64, &code, addr, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then(|| instruction.next_ip())
    }

    /// Whether the byte at an address of such a page is the program's, and no point's.
    pub fn is_the_programs(&self, addr: u64) -> bool {
        let Some(copy) = self.pages.get(&(addr & !(PAGE - 1))) else { return false };
        let at = (addr % PAGE) as u16;
        let mut byte = [0];
        copy.frame.read(usize::from(at), &mut byte);
        !copy.points.contains_key(&at) && byte[0] != INT3
    }

    /// Puts other bytes in the place of those from an address on, all in one page that is shown with points; what was there. No task of
    /// the space runs meanwhile.
    pub fn replace(&self, addr: u64, bytes: [u8; JUMP as usize]) -> Option<[u8; JUMP as usize]> {
        let copy = self.pages.get(&(addr & !(PAGE - 1)))?;
        let at = (addr % PAGE) as usize;
        let mut before = [0; JUMP as usize];
        copy.frame.read(at, &mut before);
        for (place, byte) in (at..).zip(bytes) {
            copy.frame.replace_byte(place, byte);
        }
        Some(before)
    }

    /// Whether the instruction at a point is a jump that [`Stopping::jump`] carries out.
    pub fn is_jump(&self, addr: u64) -> bool {
        self.point(addr).is_some_and(|(_, _, jump)| jump.is_some())
    }

    /// Carries out the instruction at a point if it is a jump.
    pub fn jump(&self, regs: &mut Regs) -> bool {
        let Some((_, _, Some(jump))) = self.point(regs.rip) else { return false };
        regs.rip = match jump {
            Jump::Near { condition, to, next } => {
                if holds(condition, regs.rflags) {
                    to
                } else {
                    next
                }
            }
            Jump::Register(register) => match crate::decode::register_value(regs, register) {
                Some(to) => to,
                None => return false,
            },
        };
        true
    }

    /// Whether the space shows these points already.
    pub fn shows(&self, memory: &Extents, stops: &Stops) -> bool {
        (stops.set != 0 || stops.points.is_empty()) && self.shown == Some((stops.set, memory.changes()))
    }

    /// The space, whose memory is this now, shows these points.
    pub fn has_shown(&mut self, memory: &Extents, stops: &Stops) {
        let has_number = stops.set != 0 || stops.points.is_empty();
        self.shown = has_number.then(|| (stops.set, memory.changes()));
    }

    /// What has to be mapped so that the space shows just these points and the kept ones, as far as their pages are there and may be
    /// executed but not written. `observed` tells of an offset in the arena which byte belongs there, if an observing point stands there.
    pub fn show(
        &mut self,
        memory: &Extents,
        stops: &Stops,
        observed: impl Fn(u64) -> Option<u8>,
    ) -> Vec<Mapping> {
        let mut changes = Vec::new();
        let all = Wanted { stops: &stops.points, kept: &self.kept };
        let wanted = |page: u64| all.any_in(page);
        self.pages.retain(|page, copy| {
            let shown = memory.get(*page).is_some_and(|(offset, _)| offset == copy.frame.offset());
            if shown && !wanted(*page) {
                changes.push(Mapping { addr: *page, frame_offset: copy.original, pages: 1, prot: copy.prot });
            }
            shown && wanted(*page)
        });
        for address in all.all() {
            let page = address & !(PAGE - 1);
            let copy = match self.pages.entry(page) {
                Entry::Occupied(copy) => copy.into_mut(),
                Entry::Vacant(room) => {
                    let Some(copy) = copy_of(memory, page) else { continue };
                    let (frame_offset, prot) = (copy.frame.offset(), copy.prot);
                    changes.push(Mapping { addr: page, frame_offset, pages: 1, prot });
                    room.insert(copy)
                }
            };
            let at = (address % PAGE) as u16;
            if copy.points.contains_key(&at) {
                continue;
            }
            let mut byte = [0];
            copy.frame.read(usize::from(at), &mut byte);
            if byte[0] == INT3 {
                // An `int3` of the program's own is no point: it traps anyway.
                let Some(there) = observed(copy.original + u64::from(at)) else { continue };
                copy.frame.replace_byte(usize::from(at), there);
                byte[0] = there;
            }
            copy.points.insert(at, (byte[0], jump_in(&copy.frame, usize::from(at), address)));
            copy.frame.replace_byte(usize::from(at), INT3);
        }
        // Points of earlier runs that are not wanted any more, in pages that are.
        for (page, copy) in &mut self.pages {
            let frame = &copy.frame;
            copy.points.retain(|at, (byte, _)| {
                let wanted = all.has(page + u64::from(*at));
                if !wanted {
                    frame.replace_byte(usize::from(*at), *byte);
                }
                wanted
            });
        }
        changes
    }
}

/// A copy of the page that a space shows, if the page may be executed and not written.
fn copy_of(memory: &Extents, page: u64) -> Option<Copy> {
    let (original, prot) = memory.get(page)?;
    let mut bytes = [0; FRAME_SIZE];
    if !prot.exec || prot.write {
        return None;
    }
    bloodhound_frames::read_at(original, &mut bytes)?;
    Some(Copy { frame: Frame::from_bytes(&bytes), original, prot, points: BTreeMap::new() })
}

/// The jump that stands in a frame; `None` also for one that goes on in the next page.
fn jump_in(frame: &Frame, at: usize, address: u64) -> Option<Jump> {
    let mut bytes = [0; FRAME_SIZE];
    frame.read(0, &mut bytes);
    let instruction = Decoder::with_ip(64, &bytes[at..], address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then(|| jump_of(&instruction)).flatten()
}

fn jump_of(instruction: &Instruction) -> Option<Jump> {
    let near = instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near();
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch if near => Some(Jump::Near {
            condition: instruction.condition_code(),
            to: instruction.near_branch_target(),
            next: instruction.next_ip(),
        }),
        FlowControl::IndirectBranch
            if instruction.op0_kind() == OpKind::Register && instruction.op0_register().is_gpr64() =>
        {
            Some(Jump::Register(instruction.op0_register()))
        }
        _ => None,
    }
}

/// Whether a condition holds (Intel SDM, volume 1, appendix B, "EFLAGS condition codes").
fn holds(condition: ConditionCode, rflags: u64) -> bool {
    let flag = |bit: u32| rflags >> bit & 1 == 1;
    let (cf, pf, zf, sf, of) = (flag(0), flag(2), flag(6), flag(7), flag(11));
    match condition {
        ConditionCode::None => true,
        ConditionCode::o => of,
        ConditionCode::no => !of,
        ConditionCode::b => cf,
        ConditionCode::ae => !cf,
        ConditionCode::e => zf,
        ConditionCode::ne => !zf,
        ConditionCode::be => cf || zf,
        ConditionCode::a => !cf && !zf,
        ConditionCode::s => sf,
        ConditionCode::ns => !sf,
        ConditionCode::p => pf,
        ConditionCode::np => !pf,
        ConditionCode::l => sf != of,
        ConditionCode::ge => sf == of,
        ConditionCode::le => zf || sf != of,
        ConditionCode::g => !zf && sf == of,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_as_the_processor_has_them() {
        // cmp of two numbers, as flags: equal; less by signs and by size; greater.
        let (equal, less, greater) = (1 << 6 | 1 << 2, 1 | 1 << 7, 0);
        let of = |flags, conditions: &[ConditionCode]| conditions.iter().all(|c| holds(*c, flags));
        use ConditionCode as C;
        assert!(of(equal, &[C::e, C::be, C::ae, C::le, C::ge, C::ns, C::no, C::p, C::None]));
        assert!(of(less, &[C::ne, C::b, C::be, C::l, C::le, C::s, C::np]));
        assert!(of(greater, &[C::ne, C::a, C::ae, C::g, C::ge, C::ns]));
        assert!(!of(equal, &[C::l]) && !of(less, &[C::ge]) && !of(greater, &[C::le]) && !of(equal, &[C::a]));
        // Overflow turns the sign round.
        assert!(of(1 << 11, &[C::l, C::le, C::o]) && of(1 << 11 | 1 << 7, &[C::ge, C::g]));
    }
}
