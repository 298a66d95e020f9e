//! Between the kernel's and the platform's views of one thing: extended state, page mappings. The kernel does not know the
//! platform, so this is the only place where both meet.

use std::sync::Arc;

use bloodhound_kernel::mm::fault::PageMapping;
use bloodhound_platform as platform;

/// Saved extended state as the kernel keeps it.
pub fn xstate_bytes(x: &platform::XState) -> Arc<Vec<u8>> {
    Arc::new(x.area().to_vec())
}

/// Extended state for the platform; `None` is the initial one.
pub fn xstate(bytes: Option<&Arc<Vec<u8>>>) -> platform::XState {
    bytes.and_then(|b| platform::XState::from_area(b)).unwrap_or_default()
}

/// Page mappings for the platform, neighbours joined into runs.
pub fn mappings(pages: &[PageMapping], out: &mut Vec<platform::Mapping>) {
    out.clear();
    for p in pages {
        let prot = platform::Prot { read: true, write: p.write, exec: p.exec };
        if let Some(last) = out.last_mut() {
            let bytes = u64::from(last.pages) * 4096;
            if last.prot == prot && last.addr + bytes == p.addr && last.frame_offset + bytes == p.frame {
                last.pages += 1;
                continue;
            }
        }
        out.push(platform::Mapping { addr: p.addr, frame_offset: p.frame, pages: 1, prot });
    }
}
