//! One platform with frames of its own ([`Side`]); both sides' frames have the same contents.

use bloodhound_frames::{Frame, FrameBytes};
use bloodhound_platform::{GUEST_TOP, Mapping, Platform, Prot, Regs, SpaceId, Stops, TaskKey, Trap, XState};
use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::FRAMES;
use crate::PAGE;

const MAX_INSTRUCTION: usize = 15;

pub(crate) struct Side<P> {
    pub platform: P,
    pub frames: Vec<Frame>,
}

fn id(space: usize) -> SpaceId {
    SpaceId(space as u64 + 1)
}

impl<P: Platform> Side<P> {
    pub fn new(platform: P) -> Side<P> {
        Side { platform, frames: Frame::zeroed_run(FRAMES) }
    }

    /// Makes both spaces empty, in one of four ways.
    pub fn forget(&mut self, how: u64) {
        for space in [id(0), id(1)] {
            match how {
                0 => self.platform.drop_space(space),
                1 => self.platform.reset_space(space),
                _ => self.platform.unmap(space, 0, GUEST_TOP),
            }
        }
    }

    pub fn map(&mut self, space: usize, addr: u64, frame: usize, prot: Prot) {
        let frame_offset = self.frames[frame].offset();
        self.platform.map(id(space), &[Mapping { addr, frame_offset, pages: 1, prot }]);
    }

    pub fn unmap(&mut self, space: usize, addr: u64, pages: u64) {
        self.platform.unmap(id(space), addr, pages * PAGE);
    }

    pub fn write_protect(&mut self, space: usize) {
        self.platform.write_protect(id(space));
    }

    pub fn load(&mut self, space: usize, task: usize, state: &XState) {
        self.platform.load_xstate(id(space), TaskKey(task as u64), state).expect("load_xstate");
    }

    pub fn save(&mut self, space: usize) -> Option<(TaskKey, XState)> {
        self.platform.save_xstate(id(space)).expect("save_xstate")
    }

    pub fn go(&mut self, space: usize, task: usize, regs: &mut Regs, step: bool) -> Trap {
        let (space, task) = (id(space), TaskKey(task as u64));
        let done = match step {
            true => self.platform.step(space, task, regs),
            false => self.platform.run(space, task, regs, &mut Stops::default()),
        };
        done.expect("the platform works")
    }

    /// What a space maps, page by page: address, number of the frame, protection.
    pub fn mapped(&self, space: usize) -> Vec<(u64, Option<usize>, Prot)> {
        let mut list = Vec::new();
        self.platform.mapped(id(space), &mut list);
        let pages = list.iter().flat_map(|m| {
            (0..u64::from(m.pages)).map(|n| (m.addr + n * PAGE, m.frame_offset + n * PAGE, m.prot))
        });
        let number = |offset| self.frames.iter().position(|frame| frame.offset() == offset);
        pages.map(|(addr, offset, prot)| (addr, number(offset), prot)).collect()
    }

    /// Frame by frame.
    pub fn contents(&self) -> impl Iterator<Item = &FrameBytes> {
        self.frames.iter().map(Frame::bytes)
    }

    /// The frame that a space maps at an address, and where in it.
    fn place(&self, space: usize, addr: u64) -> Option<(usize, usize)> {
        let page = addr & !(PAGE - 1);
        let number =
            self.mapped(space).into_iter().find(|(at, ..)| *at == page).and_then(|(_, frame, _)| frame);
        number.map(|number| (number, (addr - page) as usize))
    }

    /// Overwrites what a space maps with zeros.
    pub fn clear(&mut self, space: usize, addrs: impl Iterator<Item = u64>) {
        for addr in addrs {
            if let Some((frame, at)) = self.place(space, addr) {
                self.frames[frame].write_shared(at, &[0]);
            }
        }
    }

    /// The instruction at an address, as far as it is mapped, and its bytes.
    pub fn instruction(&self, space: usize, rip: u64) -> (Vec<u8>, Instruction) {
        let places = (0..MAX_INSTRUCTION as u64).map_while(|n| self.place(space, rip.wrapping_add(n)));
        let mut code: Vec<u8> = places.map(|(frame, at)| self.frames[frame].bytes()[at]).collect();
        let instruction = Decoder::with_ip(64, &code, rip, DecoderOptions::NONE).decode();
        code.truncate(instruction.len().max(1));
        (code, instruction)
    }
}
