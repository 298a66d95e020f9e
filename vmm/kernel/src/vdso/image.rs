//! The vDSO's image: an ELF shared object of one page around the functions in `code.s`, with all that the loaders of
//! glibc, musl and Go look at (both hash tables, symbol versions) and unwind tables for the C++ and Rust runtimes.

use bloodhound_frames::FRAME_SIZE;

/// The assembled `code.s`: a table of where the functions are, then the functions.
const CODE_BYTES: &[u8] = include_bytes!("code.bin");
/// Where that lies in the page; `code.s` knows it too.
const CODE: usize = 0x800;
/// What the functions are called, in the order of their table.
const FUNCTIONS: [&str; 5] = ["clock_gettime", "gettimeofday", "time", "getcpu", "clock_getres"];
/// How Linux calls its own (vdso(7), "x86-64 functions").
const SONAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";

// Numbers of the ELF specification (System V ABI, chapters 4 and 5; the GNU ones from the LSB).
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PF_R: u32 = 4;
const EHDR: usize = 64;
const PHDR: usize = 56;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
const GLOBAL_FUNC: u8 = 0x12;
const WEAK_FUNC: u8 = 0x22;

/// A page under construction. Addresses in the image are offsets from its start.
struct Page(Vec<u8>);

impl Page {
    fn align(&mut self, to: usize) -> usize {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self.0.len()
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn half(&mut self, values: &[u16]) {
        values.iter().for_each(|v| self.bytes(&v.to_le_bytes()));
    }

    fn word(&mut self, values: &[u32]) {
        values.iter().for_each(|v| self.bytes(&v.to_le_bytes()));
    }

    fn long(&mut self, values: &[u64]) {
        values.iter().for_each(|v| self.bytes(&v.to_le_bytes()));
    }
}

/// The string table, and where the strings are.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        at
    }
}

/// "A hashing function" of the System V ABI.
fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |h, b| {
        let h = (h << 4).wrapping_add(u32::from(b));
        let high = h & 0xf000_0000;
        (h ^ (high >> 24)) & !high
    })
}

fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(b)))
}

/// Name, binding, address and size of each symbol: the functions as `__vdso_name`, and weak ones without the prefix.
fn symbols() -> Vec<(String, u8, u64, u64)> {
    let entry = |i: usize| u64::from(u16::from_le_bytes([CODE_BYTES[2 * i], CODE_BYTES[2 * i + 1]]));
    let all = FUNCTIONS.iter().enumerate().flat_map(|(i, name)| {
        let (at, size) = (CODE as u64 + entry(i), entry(i + 1) - entry(i));
        [(format!("__vdso_{name}"), GLOBAL_FUNC, at, size), ((*name).to_string(), WEAK_FUNC, at, size)]
    });
    all.collect()
}

/// The whole image.
pub(super) fn build() -> [u8; FRAME_SIZE] {
    let symbols = symbols();
    let mut strings = Strings(vec![0]);
    let (soname, version) = (strings.add(SONAME), strings.add(VERSION));
    let names: Vec<u32> = symbols.iter().map(|s| strings.add(&s.0)).collect();

    let mut page = Page(vec![0; EHDR + 3 * PHDR]);
    let hash = hash_table(&mut page, symbols.len());
    let gnu_hash = gnu_hash_table(&mut page, &symbols);
    let symtab = page.align(8);
    page.long(&[0, 0, 0]);
    for (name, (_, info, at, size)) in names.iter().zip(&symbols) {
        page.word(&[*name]);
        // st_info, st_other, st_shndx: any section but SHN_UNDEF; there are no section headers.
        page.bytes(&[*info, 0, 1, 0]);
        page.long(&[*at, *size]);
    }
    let versym = page.align(2);
    page.half(&[0]);
    symbols.iter().for_each(|_| page.half(&[2]));
    let verdef = page.align(8);
    // VER_FLG_BASE names the object itself.
    for (flags, index, text, name, next) in [(1, 1, SONAME, soname, 28), (0, 2, VERSION, version, 0)] {
        page.half(&[1, flags, index, 1]);
        page.word(&[sysv_hash(text), 20, next, name, 0]);
    }
    let (frame_header, frame_header_end) = unwind_tables(&mut page);
    let dynamic = page.align(8);
    let strtab = dynamic + 11 * 16;
    for (tag, value) in [
        (DT_SONAME, soname as usize),
        (DT_HASH, hash),
        (DT_GNU_HASH, gnu_hash),
        (DT_STRTAB, strtab),
        (DT_SYMTAB, symtab),
        (DT_STRSZ, strings.0.len()),
        (DT_SYMENT, 24),
        (DT_VERSYM, versym),
        (DT_VERDEF, verdef),
        (DT_VERDEFNUM, 2),
        (0, 0),
    ] {
        page.long(&[tag, value as u64]);
    }
    page.bytes(&strings.0);
    assert!(
        page.0.len() <= CODE && CODE + CODE_BYTES.len() <= FRAME_SIZE,
        "the vDSO is larger than its page"
    );
    page.0.resize(CODE, 0);
    page.bytes(CODE_BYTES);
    page.0.resize(FRAME_SIZE, 0);
    let mut image = [0; FRAME_SIZE];
    image.copy_from_slice(&page.0);
    let headers = headers(&[
        (PT_LOAD, PF_R | PF_X, 0, FRAME_SIZE, 4096),
        (PT_DYNAMIC, PF_R, dynamic, 11 * 16, 8),
        (PT_GNU_EH_FRAME, PF_R, frame_header, frame_header_end - frame_header, 4),
    ]);
    image[..headers.len()].copy_from_slice(&headers);
    image
}

/// ELF header and program headers (type, flags, offset, size, alignment).
fn headers(segments: &[(u32, u32, usize, usize, u64)]) -> Vec<u8> {
    let mut out = Page(b"\x7fELF\x02\x01\x01".to_vec());
    out.align(16);
    // ET_DYN, EM_X86_64
    out.half(&[3, 62]);
    out.word(&[1]);
    out.long(&[0, EHDR as u64, 0]);
    out.word(&[0]);
    out.half(&[EHDR as u16, PHDR as u16, segments.len() as u16, 0, 0, 0]);
    for &(kind, flags, at, size, align) in segments {
        out.word(&[kind, flags]);
        let (at, size) = (at as u64, size as u64);
        out.long(&[at, at, at, size, size, align]);
    }
    out.0
}

/// DT_HASH with one bucket: a chain through all symbols.
fn hash_table(page: &mut Page, symbols: usize) -> usize {
    let at = page.align(8);
    let count = symbols as u32 + 1;
    page.word(&[1, count, 1, 0]);
    page.word(&(2..count).collect::<Vec<_>>());
    page.word(&[0]);
    at
}

/// DT_GNU_HASH with one bucket: number of buckets, first symbol, words and shift of the filter, the filter, the bucket,
/// and the hashes, of which the last one in a bucket is odd.
fn gnu_hash_table(page: &mut Page, symbols: &[(String, u8, u64, u64)]) -> usize {
    const SHIFT: u32 = 6;
    let at = page.align(8);
    let hashes: Vec<u32> = symbols.iter().map(|s| gnu_hash(&s.0)).collect();
    let filter = hashes.iter().fold(0u64, |f, h| f | 1 << (h % 64) | 1 << ((h >> SHIFT) % 64));
    page.word(&[1, 1, 1, SHIFT]);
    page.long(&[filter]);
    page.word(&[1]);
    let (last, others) = hashes.split_last().expect("there are symbols");
    page.word(&others.iter().map(|h| h & !1).collect::<Vec<_>>());
    page.word(&[last | 1]);
    at
}

/// .eh_frame_hdr and .eh_frame (DWARF 4, section 6.4, and the LSB): in all the functions the return address is at the
/// stack pointer. Start and end of the header.
fn unwind_tables(page: &mut Page) -> (usize, usize) {
    let header = page.align(4);
    let (end, frame) = (header + 20, header + 20);
    let fde = frame + 24;
    let relative = |to: usize, from: usize| (to as u32).wrapping_sub(from as u32);
    // Version; pointers relative to themselves, a plain count, a table relative to the header.
    page.bytes(&[1, 0x1b, 0x03, 0x3b]);
    page.word(&[relative(frame, header + 4), 1, relative(CODE, header), relative(fde, header)]);
    // Length, id of a CIE; version 1, "zR", code and data alignment, return address column, encoding.
    page.word(&[20, 0]);
    page.bytes(&[1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b]);
    // DW_CFA_def_cfa rsp + 8; DW_CFA_offset: return address at cfa - 8; DW_CFA_nop.
    page.bytes(&[0x0c, 7, 8, 0x90, 1, 0, 0]);
    // Length, distance to the CIE, begin and size of the code, no augmentation, DW_CFA_nop.
    page.word(&[16, 28, relative(CODE, fde + 8), CODE_BYTES.len() as u32]);
    page.bytes(&[0, 0, 0, 0]);
    // The end of .eh_frame.
    page.word(&[0]);
    (header, end)
}
