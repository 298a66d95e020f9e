//! Tests on made-up code, and on the machine's own libraries with objdump as the judge.

use super::*;
use crate::{Abilities, CpuidTrap};
use std::collections::BTreeSet;
use std::process::Command;

const CPUID_TOO: Patches = Patches { cpuid: true, rdtsc: false, xgetbv: true };
const RDTSC_TOO: Patches = Patches { cpuid: false, rdtsc: true, xgetbv: true };
const ALL: Patches = Patches { cpuid: true, rdtsc: true, xgetbv: true };

fn patch_cpuid(page: &mut [u8; PAGE], before: &[u8], after: &[u8], entry: Option<usize>) -> usize {
    patch(page, before, after, entry, CPUID_TOO)
}

fn patch_rdtsc(page: &mut [u8; PAGE], before: &[u8], after: &[u8], entry: Option<usize>) -> usize {
    patch(page, before, after, entry, RDTSC_TOO)
}

fn patch_all(page: &mut [u8; PAGE], before: &[u8], after: &[u8], entry: Option<usize>) -> usize {
    patch(page, before, after, entry, ALL)
}

fn page(code: &[u8], at: usize) -> [u8; PAGE] {
    let mut page = [0x90; PAGE];
    page[at..at + code.len()].copy_from_slice(code);
    page
}

#[test]
fn instructions_are_replaced_wherever_they_stand() {
    // push rbx; xor ecx, ecx; mov eax, 7; cpuid; mov [rdi], ebx; pop rbx; ret
    let code = b"\x53\x31\xc9\xb8\x07\0\0\0\x0f\xa2\x89\x1f\x5b\xc3";
    for at in [0, 1, 100, 4000, PAGE - code.len()] {
        let mut page = page(code, at);
        assert_eq!(patch_cpuid(&mut page, &[], &[], None), 1, "at {at}");
        assert_eq!(page[at + 8..at + 10], [0xf4, 0xa2]);
        assert_eq!(patch_cpuid(&mut page, &[], &[], None), 0, "once is enough");
    }
}

#[test]
fn time_stamp_counters_are_replaced() {
    // lfence; rdtsc; shl rdx, 32; or rax, rdx; ret, and rdtscp; mov [rdi], eax; ret
    let code = b"\x0f\xae\xe8\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3\x0f\x01\xf9\x89\x07\xc3";
    let mut replaced = page(code, 500);
    assert_eq!(patch_rdtsc(&mut replaced, &[], &[], None), 2);
    assert_eq!((replaced[503], replaced[504], replaced[513], replaced[514]), (6, 0x31, 6, 1));
    let mut other = page(code, 500);
    assert_eq!(patch_cpuid(&mut other, &[], &[], None), 0);
    assert_eq!(patch_all(&mut other, &[], &[], None), 2);
    assert_eq!(other, replaced);
    // mov eax, 0x310f
    assert_eq!(patch_rdtsc(&mut page(b"\xb8\x0f\x31\0\0\xc3", 500), &[], &[], None), 0);
    // rdtscp across the page's end.
    let mut first = page(b"\x0f\x01", PAGE - 2);
    assert_eq!(patch_rdtsc(&mut first, &[], b"\xf9\x89\x07\xc3", None), 1);
    assert_eq!(patch_rdtsc(&mut page(b"\x0f\x01", PAGE - 2), &[], b"\xf8\x89\x07\xc3", None), 0, "swapgs");
}

#[test]
fn extended_control_registers_are_replaced_always() {
    // mov ecx, edi; xgetbv; shl rdx, 32; or rax, rdx; ret
    let code = b"\x89\xf9\x0f\x01\xd0\x48\xc1\xe2\x20\x48\x09\xd0\xc3";
    for cpuid in [CpuidTrap::Faulting, CpuidTrap::NeedsPatch] {
        for traps_rdtsc in [false, true] {
            let abilities = Abilities { traps_rdtsc, cpuid, traps_steps: true, trap_cost_ns: 0 };
            for at in [0, 100, 4000] {
                let mut page = page(code, at);
                assert_eq!(patch(&mut page, &[], &[], None, Patches::needed(&abilities)), 1);
                assert_eq!(page[at + 2..at + 5], [6, 1, 0xd0]);
            }
        }
    }
    // From a table of exception handlers.
    let table = b"\x3c\xbf\x01\x01\x0f\x01\xd0\x01\x63\xbf\x01\x01\x0f\x01\xd0\x01\xdb\x01\xbf\x01\x01\x0f\x01\xd0\x01\x12\x00";
    let mut whole = [0x33; PAGE];
    whole[1000..1000 + table.len()].copy_from_slice(table);
    assert_eq!(patch(&mut whole, &[], &[], None, Patches { xgetbv: true, ..Patches::NONE }), 0);
}

#[test]
fn code_behind_zeros_and_behind_what_is_replaced() {
    let code = b"\x53\x31\xc9\xb8\x07\0\0\0\x0f\xa2\x89\x1f\x5b\xc3";
    for at in [0, 1, 100, 101, 1000] {
        let mut page = [0; PAGE];
        page[at..at + code.len()].copy_from_slice(code);
        page[at + 40..at + 40 + code.len()].copy_from_slice(code);
        assert_eq!(patch_cpuid(&mut page, &[], &[], None), 2, "at {at}");
        // Written behind it later, and behind the end of the page.
        page[at + 60..at + 60 + code.len()].copy_from_slice(code);
        assert_eq!(patch_cpuid(&mut page, &[], &[], None), 1, "at {at}");
    }
    let mut before = page(code, PAGE - code.len());
    assert_eq!(patch_cpuid(&mut before, &[], &[], None), 1);
    assert_eq!(patch_cpuid(&mut page(code, 0), &before, &[], None), 1);
    // Numbers in a table.
    let numbers: Vec<u8> = (0..400u32).flat_map(|n| (0xa201 + n * 14).to_le_bytes()).collect();
    let mut table = [0; PAGE];
    table[800..800 + numbers.len()].copy_from_slice(&numbers);
    assert_eq!(patch_all(&mut table, &[], &[], None), 0);
}

#[test]
fn code_behind_data() {
    let code = b"\x53\x31\xc9\xb8\x07\0\0\0\x0f\xa2\x89\x1f\x5b\xc3";
    let mut number = 1u64;
    for _ in 0..50 {
        let mut page = [0; PAGE];
        for byte in &mut page[..1000] {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            *byte = (number >> 56) as u8;
        }
        page[1000..1000 + code.len()].copy_from_slice(code);
        // Where an instruction begins there is nothing to be guessed.
        patch_cpuid(&mut page, &[], &[], Some(1000));
        assert_eq!(page[1008..1010], [0xf4, 0xa2]);
        // What does not follow from it is.
        assert_eq!(patch_cpuid(&mut [0x0f; PAGE], &[], &[], Some(1000)), 0);
    }
}

#[test]
fn pairs_inside_other_instructions_are_left() {
    let cases: [&[u8]; 4] = [
        b"\xb8\x0f\xa2\0\0\xc3",             // mov eax, 0xa20f
        b"\x48\xb8\x01\x02\x0f\xa2\0\0\0\0", // mov rax, imm64
        b"\x8b\x05\x00\x0f\xa2\x00",         // mov eax, [rip + disp]
        b"\xe8\x0f\xa2\xff\xff\x85\xc0",     // call
    ];
    for code in cases {
        let mut page = page(code, 1000);
        assert_eq!(patch_cpuid(&mut page, &[], &[], None), 0, "{code:x?}");
    }
}

#[test]
fn a_pair_across_the_pages_end() {
    let code = b"\x31\xc0\x0f\xa2\x89\xd8\xc3";
    let mut whole = vec![0x90; 2 * PAGE];
    whole[PAGE - 3..PAGE - 3 + code.len()].copy_from_slice(code);
    let mut first: [u8; PAGE] = whole[..PAGE].try_into().unwrap();
    assert_eq!(patch_cpuid(&mut first, &[], &whole[PAGE..], None), 1);
    assert_eq!(first[PAGE - 1], INVALID);
    let mut second: [u8; PAGE] = whole[PAGE..].try_into().unwrap();
    assert_eq!(patch_cpuid(&mut second, &whole[..PAGE], &[], None), 0, "its second byte stays");
    // The same bytes, as the operand of an instruction that begins in the first page.
    whole[PAGE - 4] = 0xb8;
    whole[PAGE - 3..PAGE + 1].copy_from_slice(&[1, 2, 0x0f, 0xa2]);
    let mut first: [u8; PAGE] = whole[..PAGE].try_into().unwrap();
    first[PAGE - 3..].copy_from_slice(&[1, 2, 0x0f]);
    assert_eq!(patch_cpuid(&mut first, &[], &whole[PAGE..], None), 0);
}

/// Executable segments of an ELF file: (file offset, address, length).
fn executable_segments(elf: &[u8]) -> Vec<(usize, u64, usize)> {
    let word = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap());
    let count = usize::from(u16::from_le_bytes([elf[56], elf[57]]));
    let headers = (0..count).map(|n| word(32) as usize + n * 56);
    let code = headers.filter(|&h| elf[h] == 1 && elf[h + 4] & 1 == 1);
    code.map(|h| (word(h + 8) as usize, word(h + 16), word(h + 32) as usize)).collect()
}

/// Addresses that patching page by page changes in a file.
fn patched_addresses(elf: &[u8]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for (offset, address, len) in executable_segments(elf) {
        let segment = &elf[offset..offset + len];
        for start in (0..len).step_by(PAGE) {
            let end = len.min(start + PAGE);
            let mut page = [0; PAGE];
            page[..end - start].copy_from_slice(&segment[start..end]);
            patch_all(&mut page, &segment[..start], &segment[end..], None);
            let changed = segment[start..end].iter().zip(&page).enumerate().filter(|(_, (a, b))| a != b);
            found.extend(changed.map(|(n, _)| address + (start + n) as u64));
        }
    }
    found
}

fn compare_with_objdump(path: &str) -> Option<usize> {
    let elf = std::fs::read(path).ok()?;
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn", path]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(":\t")).collect();
    let mut want = BTreeSet::new();
    for (n, (address, text)) in lines.iter().enumerate() {
        // objdump disassembles tables as well, and stumbles there every few lines.
        let around = &lines[n.saturating_sub(12)..lines.len().min(n + 12)];
        if matches!(text.trim_end(), "cpuid" | "rdtsc" | "rdtscp" | "xgetbv")
            && !around.iter().any(|(_, text)| text.contains("(bad)"))
        {
            want.insert(u64::from_str_radix(address.trim(), 16).unwrap());
        }
    }
    assert_eq!(patched_addresses(&elf), want, "{path}");
    Some(want.len())
}

#[test]
fn agrees_with_objdump_on_the_machines_libraries() {
    let mut total = None;
    for path in [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
    ] {
        if let Some(found) = compare_with_objdump(path) {
            total = Some(total.unwrap_or(0) + found);
        }
    }
    // Without objdump or these files there is nothing to compare; with them there is something to find.
    assert_ne!(total, Some(0), "the dynamic linker alone has several");
}
