//! System calls as text, in strace(1)'s manner. Made only when somebody listens.

use bloodhound_abi::Errno;
use bloodhound_abi::table::{self, ArgKind};
use bloodhound_kernel::ctx::{Ctx, Outside, Path};
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::Node;

/// Longest string that is shown.
const SHOWN: usize = 64;

/// `name(arguments)` of the call that `tid` is about to make.
pub fn format_call<'a>(node: &'a mut Node, tid: Tid, outside: Outside<'a>) -> String {
    let regs = node.task(tid).regs;
    let Some(info) = table::info(regs.orig_rax) else { return format!("syscall_{}()", regs.orig_rax) };
    let mut ctx = Ctx::new(node, tid, outside);
    let mut parts = Vec::with_capacity(6);
    for ((_, kind), value) in info.args.iter().zip(regs.syscall_args()) {
        parts.push(match kind {
            ArgKind::Fd => match value as i32 {
                bloodhound_abi::consts::AT_FDCWD => "AT_FDCWD".to_string(),
                fd => fd.to_string(),
            },
            ArgKind::Path => match ctx.read_path(Path(value)) {
                Ok(path) => quote(&path),
                Err(_) => format!("{value:#x}"),
            },
            ArgKind::Ptr if value == 0 => "NULL".to_string(),
            ArgKind::Ptr | ArgKind::Hex | ArgKind::Flags(_) => format!("{value:#x}"),
            ArgKind::I32 => (value as i32).to_string(),
            ArgKind::U32 => (value as u32).to_string(),
            ArgKind::I64 => (value as i64).to_string(),
            ArgKind::U64 => value.to_string(),
        });
    }
    if matches!(info.name, "write" | "sendto" | "pwrite64") {
        let [_, at, len, ..] = regs.syscall_args();
        let mut data = vec![0; (len as usize).min(SHOWN)];
        if ctx.read_bytes(at, &mut data).is_ok() {
            parts[1] = quote(&data) + if len as usize > SHOWN { "..." } else { "" };
        }
    }
    format!("{}({})", info.name, parts.join(", "))
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
