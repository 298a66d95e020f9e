//! The vDSO's code as it is checked in is what its source assembles to.
//!
//! After a change of `src/vdso/code.s`: `BLESS=1 cargo test -p bloodhound-kernel --test vdso` writes `code.bin`.
#![allow(clippy::disallowed_methods)] // reads the environment

use std::arch::global_asm;

global_asm!(
    ".pushsection .rodata.vdso_test,\"a\",@progbits",
    ".globl vdso_test_begin",
    ".globl vdso_test_end",
    "vdso_test_begin:",
    include_str!("../src/vdso/code.s"),
    "vdso_test_end:",
    ".popsection",
);

unsafe extern "C" {
    static vdso_test_begin: u8;
    static vdso_test_end: u8;
}

#[test]
fn code_is_what_the_source_assembles_to() {
    let (begin, end) = (&raw const vdso_test_begin, &raw const vdso_test_end);
    // SAFETY: both symbols are in this program's constant data, and everything between them is the assembled code.
    let assembled = unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/vdso/code.bin");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, assembled).expect("code.bin");
    }
    let kept = std::fs::read(path).expect("code.bin");
    assert!(kept == assembled, "src/vdso/code.bin is not what src/vdso/code.s assembles to");
}
