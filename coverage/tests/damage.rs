//! Damaged and hostile programs: an analysis ends, in bounded time, without a panic, and its points are still proven.

mod common;

use bloodhound_coverage::{NoFiles, Rules, Unit, analyse};
use common::{Scratch, have, look, shell, sound};

/// Numbers from a fixed seed: xorshift64*.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).expect("31 bits") % end
    }
}

/// Name, place and length of the sections of an ELF file, by its own headers.
fn sections(bytes: &[u8]) -> Vec<(usize, usize)> {
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (table, count) = (u64_at(40), u16_at(60));
    let header = |number: usize| table + 64 * number;
    let places = (1..count).map(|number| (u64_at(header(number) + 24), u64_at(header(number) + 32)));
    places.filter(|(at, length)| *length > 0 && at + length <= bytes.len()).collect()
}

fn try_all(bytes: &[u8], rules: &Rules) {
    for unit in [Unit::Lines, Unit::Functions, Unit::Blocks] {
        let rules = Rules { unit: Some(unit), ..rules.clone() };
        if let Ok(program) = analyse("/damaged", bytes, &NoFiles, &rules) {
            sound(&program);
            for point in &program.points {
                let _any = program.place(point.offset);
                assert!(point.offset < bytes.len() as u64);
            }
        }
    }
}

fn damage(form: &str, rounds: usize) {
    if !have(&["gcc"], "damaged programs") {
        return;
    }
    let scratch = Scratch::with_sources("damage");
    shell(&scratch.path("src"), &format!("gcc {form} kv.c -o ../kv"));
    let mut rules = scratch.rules("src");
    rules.places = true;
    sound(&look(&scratch.path("kv"), &rules).expect("a program"));
    let bytes = std::fs::read(scratch.path("kv")).expect("a program");
    let mut numbers = Numbers(0x5eed_0000_0000_0001);
    // Cut at every part of the file.
    for cut in 0..64 {
        try_all(&bytes[..bytes.len() * cut / 64], &rules);
    }
    for (at, length) in sections(&bytes) {
        // All of a section overwritten, then single bytes and bits.
        for fill in [0x00, 0xff, 0x7f] {
            let mut damaged = bytes.clone();
            damaged[at..at + length].fill(fill);
            try_all(&damaged, &rules);
        }
        for _ in 0..rounds {
            let mut damaged = bytes.clone();
            for _ in 0..=numbers.below(6) {
                let place = at + numbers.below(length);
                damaged[place] = match numbers.below(3) {
                    0 => damaged[place] ^ (1 << numbers.below(8)),
                    1 => 0xff,
                    _ => u8::try_from(numbers.below(256)).expect("a byte"),
                };
            }
            try_all(&damaged, &rules);
        }
    }
    // The headers of the file and of its sections.
    let table =
        usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes"))).expect("in memory");
    for _ in 0..rounds * 20 {
        let mut damaged = bytes.clone();
        let place = if numbers.below(2) == 0 {
            numbers.below(0x400)
        } else {
            table + numbers.below(bytes.len() - table)
        };
        damaged[place] = u8::try_from(numbers.below(256)).expect("a byte");
        try_all(&damaged, &rules);
    }
}

#[test]
fn dwarf_5_may_be_damaged() {
    damage("-O2 -g", 20);
}

#[test]
fn dwarf_4_may_be_damaged() {
    damage("-O1 -gdwarf-4 -ffunction-sections", 10);
}

#[test]
fn compressed_sections_may_be_damaged() {
    damage("-O0 -g -gz=zlib", 10);
}

#[test]
fn dwarf_2_may_be_damaged() {
    damage("-O0 -gdwarf-2", 6);
}
