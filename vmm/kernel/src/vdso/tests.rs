//! The image as a loader sees it, and the clock's way there and back.

use super::*;
use crate::testing::Bench;
use bloodhound_abi::SimTime;

fn number(image: &[u8], at: usize, bytes: usize) -> usize {
    image[at..at + bytes].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b))
}

fn text(image: &[u8], at: usize) -> String {
    let end = image[at..].iter().position(|b| *b == 0).expect("a string's end");
    String::from_utf8(image[at..at + end].to_vec()).expect("text")
}

/// The program header of a type: offset and size.
fn segment(image: &[u8], kind: usize) -> (usize, usize) {
    let mut all = (0..number(image, 56, 2)).map(|i| number(image, 32, 8) + 56 * i);
    let at = all.rfind(|at| number(image, *at, 4) == kind).expect("a segment of the type");
    assert_eq!(number(image, at + 8, 8), number(image, at + 16, 8), "addresses are offsets");
    (number(image, at + 8, 8), number(image, at + 32, 8))
}

fn dynamic(image: &[u8], tag: u64) -> usize {
    let (at, size) = segment(image, 2);
    let mut entries = (at..at + size).step_by(16);
    let entry = entries.find(|e| number(image, *e, 8) as u64 == tag).expect("a tag");
    number(image, entry + 8, 8)
}

/// Looks a symbol up through DT_HASH, with its version, as musl and Go do.
fn lookup(image: &[u8], name: &str) -> Option<(usize, String)> {
    let (hash, symtab, strtab) = (dynamic(image, 4), dynamic(image, 6), dynamic(image, 5));
    let buckets = number(image, hash, 4);
    let mut index = number(image, hash + 8, 4);
    while index != 0 {
        let symbol = symtab + 24 * index;
        if text(image, strtab + number(image, symbol, 4)) == name {
            let version = number(image, dynamic(image, 0x6fff_fff0) + 2 * index, 2);
            let mut verdef = dynamic(image, 0x6fff_fffc);
            while number(image, verdef + 4, 2) != version {
                verdef += number(image, verdef + 16, 4);
            }
            let aux = verdef + number(image, verdef + 12, 4);
            let named = text(image, strtab + number(image, aux, 4));
            return Some((number(image, symbol + 8, 8), named));
        }
        index = number(image, hash + 8 + 4 * buckets + 4 * index, 4);
    }
    None
}

#[test]
fn loaders_find_the_functions() {
    let image = image::build();
    assert_eq!(&image[..4], b"\x7fELF");
    assert_eq!(segment(&image, 1), (0, 4096));
    assert_eq!(text(&image, dynamic(&image, 5) + dynamic(&image, 14)), "linux-vdso.so.1");
    for name in ["clock_gettime", "gettimeofday", "time", "getcpu", "clock_getres"] {
        let (at, version) = lookup(&image, &format!("__vdso_{name}")).expect(name);
        assert_eq!(version, "LINUX_2.6");
        assert_eq!(lookup(&image, name), Some((at, version)), "the alias of {name}");
        assert!((0x800..4096).contains(&at));
    }
    assert_eq!(lookup(&image, "__vdso_sgx_enter_enclave"), None);
}

#[test]
fn gnu_hash_holds_every_symbol() {
    let image = image::build();
    let (table, symtab, strtab) = (dynamic(&image, 0x6fff_fef5), dynamic(&image, 6), dynamic(&image, 5));
    let filter = number(&image, table + 16, 8);
    for index in 1.. {
        let name = text(&image, strtab + number(&image, symtab + 24 * index, 4));
        let hash = name.bytes().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(b.into())) as usize;
        assert!(filter >> (hash % 64) & filter >> (hash / 64 % 64) & 1 == 1, "{name} passes the filter");
        let kept = number(&image, table + 28 + 4 * (index - 1), 4);
        assert_eq!(kept | 1, hash | 1, "{name}");
        if kept & 1 == 1 {
            assert_eq!(index, 10);
            break;
        }
    }
}

/// What the code in the page does.
fn read(node: &Node, times: u64) {
    let vvar = node.vvar.as_ref().expect("the page");
    vvar.write_shared(CLOCK, &(vvar.load_u64(CLOCK) + times * vvar.load_u64(COST)).to_le_bytes());
}

fn bench() -> Bench {
    let mut b = Bench::new();
    b.node.config.vdso = true;
    let mut mm = Mm::new(77, Default::default());
    let at = b.node.map_vdso(&mut mm).expect("room");
    assert_eq!(mm.find(at - 1).map(|v| v.backing.clone()), Some(Backing::Special(VVAR)));
    assert_eq!(mm.find(at).map(|v| v.backing.clone()), Some(Backing::Special(VDSO)));
    b.node.mms.insert(mm);
    b.node.clock = SimTime(1_000_000);
    b
}

#[test]
fn reads_are_charged_once() {
    let mut b = bench();
    let pid = b.node.task(b.tid).pid;
    let before = b.node.process(pid).cpu.total;
    b.node.lend_clock();
    b.node.take_clock(b.tid);
    assert_eq!(b.node.clock, SimTime(1_000_000));
    b.node.lend_clock();
    read(&b.node, 3);
    b.node.take_clock(b.tid);
    b.node.take_clock(b.tid);
    assert_eq!((b.node.clock, b.node.process(pid).cpu.total - before), (SimTime(1_000_150), 150));
    b.node.return_clock();
    read(&b.node, 1);
    b.node.take_clock(b.tid);
    assert_eq!(b.node.clock, SimTime(1_000_200));
}

#[test]
fn a_forged_clock_goes_only_so_far() {
    let mut b = bench();
    for (forged, moved) in [(u64::MAX, 65 * 50), (0, 0)] {
        let before = b.node.clock.0;
        b.node.lend_clock();
        b.node.vvar.as_ref().expect("the page").write_shared(CLOCK, &forged.to_le_bytes());
        b.node.take_clock(b.tid);
        assert_eq!(b.node.clock.0, before + moved);
    }
}

#[test]
fn a_clone_keeps_its_own_clock() {
    let mut b = bench();
    b.node.lend_clock();
    let copy = b.node.clone();
    let invalid = |n: &Node| n.mms.iter().map(|(_, m)| m.invalid.len()).sum::<usize>();
    let before = invalid(&b.node);
    b.node.clock = SimTime(5_000_000);
    b.node.lend_clock();
    assert_eq!(invalid(&b.node), before + 1, "the platform forgets the shared page");
    assert_eq!(copy.vvar.as_ref().expect("the page").load_u64(CLOCK), crate::node::UPTIME + 1_000_000);
    b.node.lend_clock();
    assert_eq!(invalid(&b.node), before + 1);
}

/// A program that only waits for a time to come gets there after some thousand looks, and hardly later than it wanted.
#[test]
fn looks_in_a_row_cost_more_and_more() {
    let mut b = bench();
    let begin = b.node.clock;
    let mut looks = 0;
    while b.node.clock.since(begin) < 1_000_000 {
        let before = b.node.clock;
        b.node.lend_clock();
        read(&b.node, 1);
        b.node.take_clock(b.tid);
        looks += 1;
        let (price, passed) = (b.node.clock.since(before), before.since(begin));
        assert!(price <= 50.max(passed / (READS / 2)), "{price} after {passed}");
    }
    assert!(looks < 1_000, "{looks}");
    assert_eq!(b.node.look_price(), 50 << DOUBLINGS);
    // Any other call begins anew.
    b.node.note_looks(b.tid, &Call::time { t: bloodhound_abi::args::Ptr(0) });
    assert_eq!(b.node.look_price(), 50 << DOUBLINGS);
    b.node.note_looks(b.tid, &Call::getpid {});
    assert_eq!(b.node.look_price(), 50);
}

/// A look is one look, however fast the machine's clock goes.
#[test]
fn looks_are_counted_in_the_time_of_the_machine() {
    for rate in [-500_000, 0, 500_000] {
        let mut b = bench();
        b.node.set_clock_rate(rate);
        b.node.lend_clock();
        read(&b.node, 63);
        b.node.take_clock(b.tid);
        assert_eq!(b.node.looks, 63, "{rate}");
    }
}
