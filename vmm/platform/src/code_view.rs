//! The code view: which bytes a processor is shown instead of a page of code, so that instructions which the host would carry
//! out by itself trap ([`frame`]). It is the one owner of changed bytes in code; nothing of it is part of the simulated world,
//! whose own pages keep what the program put there.
//!
//! The answer is a pure function of what stands in a page and around it ([`CodePage`]) and of the set of patches ([`Patches`]).
//! So it is kept by content, once for the process: copies of a binary on other nodes, in other worlds and of other seeds are
//! shown the same frames.
//!
//! Neighbours: `patch` finds and replaces the instructions; `bloodhound-sim` asks for pages that it is about to map.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bloodhound_abi::instructions::may_be_answered;
use bloodhound_frames::Frame;

use crate::patch;
use crate::{Abilities, CpuidTrap};

/// Frames of pages that programs have written themselves, at most; more of them are forgotten all at once. Files need no bound:
/// their pages are as many as the host has programs.
const MOST_PRIVATE: usize = 4096;

/// Kinds of instructions that are made to trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Patches {
    /// `cpuid`.
    pub cpuid: bool,
    /// `rdtsc` and `rdtscp`.
    pub rdtsc: bool,
    /// `xgetbv`, which no processor can trap: it tells which state the host's kernel has enabled.
    pub xgetbv: bool,
}

impl Patches {
    /// Code is shown as it is.
    pub const NONE: Patches = Patches { cpuid: false, rdtsc: false, xgetbv: false };

    /// What has to be patched on a platform of these abilities.
    #[must_use]
    pub fn needed(abilities: &Abilities) -> Patches {
        let cpuid = abilities.cpuid == CpuidTrap::NeedsPatch;
        Patches { cpuid, rdtsc: !abilities.traps_rdtsc, xgetbv: true }
    }
}

/// A page of code and what else it takes to tell the instructions in it.
#[derive(Clone, Debug)]
pub struct CodePage<'a> {
    /// The page as the program sees it.
    pub frame: &'a Frame,
    /// The bytes before it and after it, at most [`crate::CODE_CONTEXT`] each, as far as they are code.
    pub before: &'a [u8],
    /// See `before`.
    pub after: &'a [u8],
    /// An offset at which an instruction begins, for certain: the program has jumped there.
    pub entry: Option<usize>,
    /// Where in the page its file has instructions, if the file says so: tables look like code sometimes.
    pub sections: Option<&'a [Range<usize>]>,
    /// It is a page of a file that nobody has changed.
    pub of_file: bool,
}

/// Frames by a hash of content, surroundings and patches. `None`: the page is shown as it is.
struct Known {
    of_files: BTreeMap<u128, Option<Frame>>,
    private: BTreeMap<u128, Option<Frame>>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { of_files: BTreeMap::new(), private: BTreeMap::new() });

/// The frame that a processor is shown instead of a page, `None` if it is shown the page itself. Who maps the frame keeps the
/// handle as long as it is mapped.
#[must_use]
pub fn frame(page: &CodePage<'_>, patches: Patches) -> Option<Frame> {
    if patches == Patches::NONE || !may_be_answered(page.frame.bytes()) {
        return None;
    }
    let key = key(page, patches);
    // No code that could panic runs while the lock is held but allocation, so what it guards is whole.
    let known = |known: &Known| match page.of_file {
        true => known.of_files.get(&key).cloned(),
        false => known.private.get(&key).cloned(),
    };
    if let Some(answer) = known(&KNOWN.lock().unwrap_or_else(PoisonError::into_inner)) {
        return answer;
    }
    let answer = patched(page, patches);
    let mut guard = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if page.of_file {
        // Another thread may have been faster: its frame is the one that is shared.
        return guard.of_files.entry(key).or_insert(answer).clone();
    }
    if guard.private.len() >= MOST_PRIVATE {
        guard.private.clear();
    }
    guard.private.entry(key).or_insert(answer).clone()
}

/// 128 bits: contents that differ have different ones.
fn key(page: &CodePage<'_>, patches: Patches) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        patches.hash(&mut hasher);
        page.frame.bytes().hash(&mut hasher);
        (page.before, page.after, page.entry, page.sections).hash(&mut hasher);
        hasher.finish()
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

fn patched(page: &CodePage<'_>, patches: Patches) -> Option<Frame> {
    let mut copy = Frame::from_bytes(page.frame.bytes());
    let bytes = copy.make_unique();
    if patch::patch(bytes, page.before, page.after, page.entry, patches) == 0 {
        return None;
    }
    if let Some(sections) = page.sections {
        let code = |at: usize| sections.iter().any(|range| range.contains(&at));
        for (at, (byte, original)) in bytes.iter_mut().zip(page.frame.bytes()).enumerate() {
            if *byte != *original && !code(at) {
                *byte = *original;
            }
        }
    }
    (bytes != page.frame.bytes()).then_some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xor eax, eax; xor ecx, ecx; cpuid; ret
    const CODE: &[u8] = b"\x31\xc0\x31\xc9\x0f\xa2\xc3";
    const CPUID: Patches = Patches { cpuid: true, ..Patches::NONE };

    fn page(frame: &Frame) -> CodePage<'_> {
        CodePage { frame, before: &[], after: &[], entry: None, sections: None, of_file: true }
    }

    #[test]
    fn copies_share_a_frame_and_keep_their_bytes() {
        let (one, two) = (Frame::from_slice(CODE), Frame::from_slice(CODE));
        let shown = frame(&page(&one), CPUID).expect("a patch");
        assert!(shown.same(&frame(&page(&two), CPUID).expect("a patch")), "the copy is shown the same frame");
        assert_eq!((&one.bytes()[..7], &shown.bytes()[4..6]), (CODE, &b"\xf4\xa2"[..]));
        assert_eq!(frame(&page(&one), Patches::NONE), None);
        assert_eq!(frame(&page(&one), Patches { rdtsc: true, xgetbv: true, cpuid: false }), None);
        assert_eq!(frame(&page(&Frame::zeroed()), CPUID), None);
    }

    #[test]
    fn what_lies_around_decides_as_well() {
        let original = Frame::from_slice(CODE);
        // The section of instructions ends before the pair.
        let until = |end: usize| std::iter::once(0..end).collect::<Vec<_>>();
        let (short, long) = (until(4), until(7));
        assert_eq!(frame(&CodePage { sections: Some(&short), ..page(&original) }, CPUID), None);
        assert!(frame(&CodePage { sections: Some(&long), ..page(&original) }, CPUID).is_some());
        // The second byte of a cpuid in the next page.
        let mut end = Frame::zeroed();
        end.make_unique().fill(0x90);
        end.make_unique()[4095] = 0x0f;
        assert_eq!(frame(&page(&end), CPUID), None);
        let shown = frame(&CodePage { after: b"\xa2\xc3", ..page(&end) }, CPUID).expect("a patch");
        assert_eq!(shown.bytes()[4095], 0x06);
    }
}
