//! Functions as `.eh_frame` has them, which also stripped programs keep: the unwinder needs it.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};

use crate::elf::Binary;

/// Entries of `.eh_frame`, at most; a program of 200 MB has about a million.
const MOST: usize = 20_000_000;

/// The address ranges of `.eh_frame`'s entries whose beginning is code, sorted.
pub(crate) fn functions(binary: &Binary<'_>, damage: &mut Vec<String>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let Some((address, bytes)) = section(binary) else { return found };
    let frame = EhFrame::new(bytes, LittleEndian);
    let text = binary.code.first().map_or(0, |code| code.address);
    let bases = BaseAddresses::default().set_eh_frame(address).set_text(text);
    let mut entries = frame.entries(&bases);
    loop {
        match entries.next() {
            Ok(None) => break,
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(Some(CieOrFde::Fde(partial))) => {
                let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
                let (start, length) = (entry.initial_address(), entry.len());
                let code = binary.code_at(start);
                if length > 0 && code.is_some_and(|c| !c.glue && length <= c.length - (start - c.address)) {
                    found.push((start, start + length));
                }
            }
            Err(error) => {
                damage.push(format!(".eh_frame is damaged: {error}"));
                break;
            }
        }
        if found.len() >= MOST {
            damage.push(format!(".eh_frame has more than {MOST} entries"));
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The address of `.eh_frame` and its bytes.
pub(crate) fn section<'a>(binary: &Binary<'a>) -> Option<(u64, &'a [u8])> {
    binary.raw(".eh_frame").or_else(|| by_header(binary))
}

/// `.eh_frame` of a program without section headers, by the pointer of `.eh_frame_hdr`.
fn by_header<'a>(binary: &Binary<'a>) -> Option<(u64, &'a [u8])> {
    let (address, place) = binary.frame_header.clone()?;
    let header = gimli::EhFrameHdr::new(&binary.bytes[place], LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let header: gimli::ParsedEhFrameHdr<EndianSlice<'_, LittleEndian>> = header.parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(at) = header.eh_frame_ptr() else { return None };
    Some((at, binary.loaded(at)?))
}
