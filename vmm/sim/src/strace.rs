//! System calls as text, in strace(1)'s manner: a listener of the run's events.
//!
//! Key types: [`Strace`] (hands over a line for each call). [`format_call`] serves messages about calls, too.

use std::collections::BTreeMap;

use bloodhound_abi::Errno;
use bloodhound_abi::args::ArgKind;
use bloodhound_abi::call::Call;
use bloodhound_kernel::ids::Tid;
use bloodhound_net::NodeId;

use crate::event::{Event, Listener, Memory, Moment};

/// Longest string that is shown.
const SHOWN: usize = 64;
/// Longest path (PATH_MAX).
const LONGEST_PATH: u64 = 4096;

/// Makes a line of each call when it ends, as its arguments were when it began.
pub struct Strace<F: FnMut(&str)> {
    /// Calls under way.
    begun: BTreeMap<(Option<NodeId>, Tid), String>,
    print: F,
}

impl<F: FnMut(&str)> Strace<F> {
    /// Lines go to `print`.
    pub fn new(print: F) -> Strace<F> {
        Strace { begun: BTreeMap::new(), print }
    }
}

impl<F: FnMut(&str)> Listener for Strace<F> {
    fn hear(&mut self, moment: &Moment, event: &Event<'_>) {
        let (tid, text) = match event {
            Event::Trap { tid, call, memory, .. } => {
                self.begun.insert((moment.node, *tid), format_call(call, *memory));
                return;
            }
            Event::Call { tid, call, result, .. } => {
                let begun = self.begun.remove(&(moment.node, *tid));
                let begun = begun.unwrap_or_else(|| format!("{}(...)", call.name()));
                (tid, format!("{begun} = {}", format_result(*result)))
            }
            Event::Exception { tid, signo, .. } => {
                (tid, format!("--- {} ---", bloodhound_kernel::signal::name(*signo)))
            }
            Event::Preempted { tid, .. } => (tid, "--- preempted ---".to_owned()),
            _ => return,
        };
        (self.print)(&format!("{} [{}] {text}\n", moment.at, tid.number()));
    }
}

/// `name(arguments)` of a call that is about to be made.
pub fn format_call(call: &Call, memory: &dyn Memory) -> String {
    if let Call::Unknown { nr, .. } = call {
        return format!("syscall_{nr}()");
    }
    let mut parts = Vec::with_capacity(6);
    for argument in call.arguments() {
        let value = argument.value;
        parts.push(match argument.kind {
            ArgKind::Fd => match value as i32 {
                bloodhound_abi::consts::AT_FDCWD => "AT_FDCWD".to_string(),
                fd => fd.to_string(),
            },
            ArgKind::Path => string(memory, value).map_or_else(|| format!("{value:#x}"), |path| quote(&path)),
            ArgKind::Ptr if value == 0 => "NULL".to_string(),
            ArgKind::Ptr | ArgKind::Hex | ArgKind::Flags(_) => format!("{value:#x}"),
            ArgKind::I32 => (value as i32).to_string(),
            ArgKind::U32 => (value as u32).to_string(),
            ArgKind::I64 => (value as i64).to_string(),
            ArgKind::U64 => value.to_string(),
        });
    }
    if let Some((at, len)) = written(call) {
        let mut data = vec![0; (len as usize).min(SHOWN)];
        if memory.read(at, &mut data) {
            parts[1] = quote(&data) + if len as usize > SHOWN { "..." } else { "" };
        }
    }
    format!("{}({})", call.name(), parts.join(", "))
}

/// The bytes that a call writes, where its second argument points to them.
fn written(call: &Call) -> Option<(u64, u64)> {
    if !matches!(call, Call::write { .. } | Call::sendto { .. } | Call::pwrite64 { .. }) {
        return None;
    }
    let mut values = call.arguments().map(|argument| argument.value).skip(1);
    Some((values.next()?, values.next()?))
}

/// The NUL-terminated string at an address.
fn string(memory: &dyn Memory, addr: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while (out.len() as u64) < LONGEST_PATH {
        let at = addr.checked_add(out.len() as u64)?;
        // Up to the end of the page: what lies behind it may not be there.
        let mut chunk = vec![0; (4096 - at % 4096) as usize];
        if !memory.read(at, &mut chunk) {
            return None;
        }
        if let Some(end) = chunk.iter().position(|b| *b == 0) {
            out.extend_from_slice(&chunk[..end]);
            return Some(out);
        }
        out.extend_from_slice(&chunk);
    }
    None
}

/// The result of a call.
pub fn format_result(value: u64) -> String {
    let signed = value as i64;
    match signed {
        -516..=-512 => "? ERESTART".to_string(),
        -4095..=-1 => {
            let e = Errno((-signed) as u16);
            format!("-1 {} ({})", e.name(), e.text())
        }
        0..=0xffff => signed.to_string(),
        _ => format!("{value:#x}"),
    }
}

/// A byte string in C's quotes.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for b in bytes.iter().take(SHOWN) {
        match b {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x20..=0x7e => out.push(char::from(*b)),
            _ => out.push_str(&format!("\\{b:o}")),
        }
    }
    out.push('"');
    out
}
