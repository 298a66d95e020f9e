//! Observing points (of blocks and of lines, as code coverage has them) in programs that are not as programs should be: hostile code, damaged
//! files, huge ones. Bloodhound neither fails, nor is anything of the run different.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::common::{Ran, exec_on, finish, have, in_parallel, platform, say, scratch};

const UNITS: [&str; 2] = ["blocks", "lines"];

fn compile(dir: &Path, arguments: &str) {
    let mut gcc = Command::new("gcc");
    gcc.current_dir(dir).args(["-g", "-O1"]).args(arguments.split_whitespace());
    let ran = finish(&mut gcc, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

/// A directory with the sources of the test.
fn sources(name: &str) -> PathBuf {
    let dir = scratch(&format!("coverage-hostile-{name}"));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hostile_coverage");
    for entry in std::fs::read_dir(data).expect("the sources") {
        let from = entry.expect("an entry").path();
        std::fs::copy(&from, dir.join(from.file_name().expect("a name"))).expect("a copy");
    }
    dir
}

fn run(platform: Option<&str>, dir: &Path, program: &str, observe: Option<&str>) -> Ran {
    let mut options = vec!["--summary"];
    options.extend(observe.map(|_| "--observe").into_iter().chain(observe));
    finish(exec_on(platform, &options, &[program.into()]).current_dir(dir), b"")
}

/// How many points were reached, and how many there were.
fn observed(ran: &Ran) -> (u64, u64) {
    let line = ran.summary("observed: ").unwrap_or_else(|| panic!("{}", ran.stderr));
    let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
    let mut number = || numbers.next().expect("a number");
    (number(), number())
}

/// The platforms of this machine, or the one that is asked for.
fn platforms() -> Vec<Option<String>> {
    if platform().is_some() {
        return vec![platform()];
    }
    // Whether rdtsc leaks makes no difference: no program here reads it in code that is not known for such.
    let there = ["ptrace", "kvm"].into_iter().filter(|name| {
        let ran = finish(&mut exec_on(Some(name), &["--summary"], &["true".into()]), b"");
        ran.code == Some(0)
    });
    there.map(|name| Some(name.to_owned())).collect()
}

/// Runs a program without and with points, on all platforms; what it printed. `least`: so many points are reached at least.
fn same_on_all(dir: &Path, program: &str, least: u64) -> Ran {
    let mut first: Option<Ran> = None;
    for platform in platforms() {
        let platform = platform.as_deref();
        let plain = run(platform, dir, program, None);
        let first = first.get_or_insert_with(|| plain.clone());
        assert_eq!(plain.determined(), first.determined(), "{platform:?}: {}", plain.stderr);
        for unit in UNITS {
            let with = run(platform, dir, program, Some(unit));
            assert_eq!(with.determined(), plain.determined(), "{unit}, {platform:?}: {}", with.stderr);
            let (reached, all) = observed(&with);
            assert!(reached >= least && all >= reached, "{unit}: {reached} of {all}");
        }
    }
    first.unwrap_or_else(|| panic!("there is no platform"))
}

#[test]
fn hostile_code_runs_as_without_points() {
    if !have(&["gcc"], "points in hostile code") {
        return;
    }
    let dir = sources("code");
    compile(&dir, "-fno-toplevel-reorder code.c -o code -ldl");
    compile(&dir, "-shared -fPIC -DNUMBER=10 library.c -o one.so");
    compile(&dir, "-shared -fPIC -DNUMBER=20 library.c -o two.so");
    compile(&dir, "-shared -fPIC -DNUMBER=30 -DRELOCATED -Wl,-z,notext library.c -o relocated.so");
    compile(&dir, "other.c -o other");
    let simulated = same_on_all(&dir, "./code", 50);
    // It replaces files of its directory, so it runs natively at the end.
    let native = finish(Command::new("./code").current_dir(&dir), b"");
    assert_eq!((native.code, &native.stdout), (Some(0), &simulated.stdout), "{}", simulated.stderr);
    assert!(native.stdout.contains("another program: second\n"), "{}", native.stdout);
}

/// The sections of an ELF file with their names: place in the file, length, and where the header stands.
fn sections(bytes: &[u8]) -> Vec<(String, usize, usize)> {
    let number = |at: usize, length: usize| {
        bytes[at..at + length].iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    let names = number(table + names * 64 + 24, 8);
    let section = |index: usize| {
        let header = table + index * 64;
        let name: Vec<u8> =
            bytes[names + number(header, 4)..].iter().copied().take_while(|byte| *byte != 0).collect();
        (String::from_utf8(name).expect("a name"), number(header + 24, 8), number(header + 32, 8))
    };
    (1..count).map(section).collect()
}

/// Numbers from a fixed seed: a linear congruence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

/// A program damaged in all ways that do not keep a system from running it, each with its description.
fn damaged(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut numbers = Numbers(0x5eed);
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let of_a_debugger = |name: &str| name.starts_with(".debug_") || name.starts_with(".eh_frame");
    let tables = [".symtab", ".strtab", ".shstrtab"];
    for (name, at, length) in sections(bytes) {
        if length == 0 || !of_a_debugger(&name) && !tables.contains(&name.as_str()) {
            continue;
        }
        for fill in [0x00, 0xff] {
            let mut one = bytes.to_vec();
            one[at..at + length].fill(fill);
            all.push((format!("{name} filled with {fill:#x}"), one));
        }
        let mut one = bytes.to_vec();
        one[at + length / 2..at + length].fill(0);
        all.push((format!("half of {name}"), one));
        for round in 0..4 {
            let mut one = bytes.to_vec();
            for _ in 0..=length / 16 {
                let place = at + numbers.below(length);
                one[place] = match numbers.below(3) {
                    0 => one[place] ^ (1 << numbers.below(8)),
                    1 => one[place].wrapping_add(4),
                    _ => u8::try_from(numbers.below(256)).expect("a byte"),
                };
            }
            all.push((format!("{name} changed at random, {round}"), one));
        }
    }
    // e_shoff, e_shentsize, e_shnum and e_shstrndx (System V ABI, chapter 4), and the headers of the sections themselves.
    let table =
        usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes"))).expect("in memory");
    for place in [40, 42, 47, 58, 60, 61, 62] {
        let mut one = bytes.to_vec();
        one[place] ^= 0x55;
        all.push((format!("the header changed at {place}"), one));
    }
    for round in 0..12 {
        let mut one = bytes.to_vec();
        for _ in 0..10 {
            one[table + numbers.below(bytes.len() - table)] =
                u8::try_from(numbers.below(256)).expect("a byte");
        }
        all.push((format!("headers of sections changed at random, {round}"), one));
    }
    all.push(("cut off".to_owned(), bytes[..table + 100].to_vec()));
    all
}

const PLAIN: &str = "#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
\treturn strcmp(*(char *const *)a, *(char *const *)b);
}

static inline unsigned mixed(unsigned n)
{
\tswitch (n % 5) {
\tcase 0: return n * 3;
\tcase 1: return n ^ 0x77;
\tcase 2: return n + 9;
\tcase 3: return n - 4;
\tdefault: return n;
\t}
}

int main(int argc, char **argv)
{
\tchar *words[] = {\"one\", \"two\", \"three\", \"four\", \"five\"};
\tunsigned sum = (unsigned)argc;

\t(void)argv;
\tqsort(words, 5, sizeof words[0], compare);
\tfor (int i = 0; i < 5; i++) {
\t\tfor (char *at = words[i]; *at; at++)
\t\t\tsum = mixed(sum * 31 + (unsigned char)*at);
\t\tprintf(\"%s %u\\n\", words[i], sum);
\t}
\treturn sum % 7 == 9;
}
";

#[test]
fn damaged_programs_run_as_without_points() {
    if !have(&["gcc"], "points in damaged programs") {
        return;
    }
    let dir = scratch("coverage-hostile-damaged");
    std::fs::write(dir.join("plain.c"), PLAIN).expect("a source");
    let mut all = Vec::new();
    for (form, flags) in [("dynamic", "-gdwarf-5"), ("static", "-gdwarf-4 -static")] {
        compile(&dir, &format!("{flags} plain.c -o {form}"));
        // Something of the whole program is observed.
        let whole = same_on_all(&dir, &format!("./{form}"), 20);
        let bytes = std::fs::read(dir.join(form)).expect("a program");
        // The static one has the same debug information: what it has more of is code.
        let some =
            |name: &str| form == "dynamic" || name.starts_with(".eh_frame") || name.contains(".symtab");
        for (what, bytes) in damaged(&bytes).into_iter().filter(|(what, _)| some(what)) {
            let own = dir.join(format!("{form}-{}", all.len()));
            std::fs::create_dir(&own).expect("a directory");
            std::fs::write(own.join("plain.c"), PLAIN).expect("a source");
            std::fs::write(own.join("program"), bytes).expect("a program");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(own.join("program"), mode).expect("a mode");
            all.push((format!("{form}, {what}"), own, whole.stdout.clone()));
        }
    }
    let (wrong, platforms) = (Mutex::new(Vec::new()), platforms());
    in_parallel(&all, |(what, own, stdout)| {
        let plain = run(platforms[0].as_deref(), own, "./program", None);
        if (plain.code, &plain.stdout) != (Some(0), stdout) {
            wrong.lock().expect("no panic").push(format!("{what}, without points: {plain:#?}"));
        }
        for (platform, unit) in platforms.iter().flat_map(|platform| UNITS.map(|unit| (platform, unit))) {
            let with = run(platform.as_deref(), own, "./program", Some(unit));
            if with.determined() != plain.determined() {
                let text = format!("{what}, {unit}, {platform:?}: {with:#?}\nnot {plain:#?}");
                wrong.lock().expect("no panic").push(text);
            }
        }
    });
    say(&format!("hostile_coverage: {} damaged programs", all.len()));
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n\n"));
    assert!(all.len() > 100);
    std::fs::remove_dir_all(dir).expect("removed");
}

/// A program of 200 MB: `functions` functions with code of 1 KiB each and a symbol, then as much data as is missing.
fn huge(functions: usize) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const CODE: usize = 0x1000;
    // xor eax, eax; 50 times: test edi, 1; je over: inc eax; shr edi, 1; ret; nops
    let mut function = vec![0x31, 0xc0];
    for _ in 0..50 {
        function.extend([0xf7, 0xc7, 1, 0, 0, 0, 0x74, 2, 0xff, 0xc0, 0xd1, 0xef]);
    }
    function.push(0xc3);
    function.resize(1024, 0x90);
    let mut code: Vec<u8> = Vec::with_capacity(functions << 10);
    let mut begin: Vec<u8> = vec![0x31, 0xdb];
    // For every 997th function: mov edi, 0x12345; call it; add ebx, eax. Then exit(ebx & 127).
    for number in (1..functions).step_by(functions / 20) {
        begin.extend([0xbf, 0x45, 0x23, 1, 0, 0xe8]);
        let to = (number << 10) as i32 - (begin.len() as i32 + 4);
        begin.extend(to.to_le_bytes());
        begin.extend([0x01, 0xc3]);
    }
    begin.extend([0x83, 0xe3, 0x7f, 0x89, 0xdf, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]);
    begin.resize(1024, 0x90);
    code.extend(&begin);
    (1..functions).for_each(|_| code.extend(&function));
    let (mut symbols, mut names) = (vec![0_u8; 24], vec![0_u8]);
    for number in 0..functions {
        // st_name, st_info (a global function), st_other, st_shndx, st_value, st_size.
        symbols.extend(u32::try_from(names.len()).expect("small").to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((BASE + (CODE + (number << 10)) as u64).to_le_bytes());
        symbols.extend(1024_u64.to_le_bytes());
        names.extend(format!("function_{number}\0").bytes());
    }
    let headers = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let (symbols_at, names_at) = (CODE + code.len(), CODE + code.len() + symbols.len());
    let headers_at = names_at + names.len();
    let table = (headers_at + headers.len()).next_multiple_of(16).max((200 << 20) - 5 * 64);
    let mut file: Vec<u8> = Vec::with_capacity(table + 5 * 64);
    let word = |file: &mut Vec<u8>, number: u64| file.extend(number.to_le_bytes());
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0");
    [BASE + CODE as u64, 64, table as u64].into_iter().for_each(|number| word(&mut file, number));
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 5, 0, 4, 0]);
    // One segment, readable and executable.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let length = (CODE + code.len()) as u64;
    [0, BASE, BASE, length, length, 0x1000].into_iter().for_each(|number| word(&mut file, number));
    file.resize(CODE, 0);
    [code, symbols, names, headers.to_vec()].into_iter().for_each(|part| file.extend(part));
    file.resize(table + 64, 0);
    let mut section =
        |name: u32, kind: u32, flags: u64, address: u64, at: usize, length: usize, link: u32, entry: u64| {
            file.extend(name.to_le_bytes());
            file.extend(kind.to_le_bytes());
            [flags, address, at as u64, length as u64].into_iter().for_each(|n| file.extend(n.to_le_bytes()));
            file.extend(link.to_le_bytes());
            file.extend(1_u32.to_le_bytes());
            [1, entry].into_iter().for_each(|n: u64| file.extend(n.to_le_bytes()));
        };
    section(1, 1, 6, BASE + CODE as u64, CODE, functions << 10, 0, 0);
    section(7, 2, 0, 0, symbols_at, names_at - symbols_at, 3, 24);
    section(15, 3, 0, 0, names_at, headers_at - names_at, 0, 0);
    section(23, 3, 0, 0, headers_at, headers.len(), 0, 0);
    file
}

/// Memory that a run of the huge program takes with points, in MB: the file itself, what is known of each of its two million blocks, and the frames that
/// are shown.
const MOST_MEMORY: u64 = 900;

/// Runs a command, and writes the largest resident size that it and its children had, in KiB (getrusage(2), ru_maxrss), to `peak`.
const WEIGH: &str = "import resource, subprocess, sys\n\
    code = subprocess.call(sys.argv[1:])\n\
    open('peak', 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))\n\
    sys.exit(code)";

/// Runs the program with points; and the most memory that Bloodhound had meanwhile, in MB.
fn run_and_weigh(platform: Option<&str>, dir: &Path, unit: &str) -> (Ran, u64) {
    let command = exec_on(platform, &["--summary", "--observe", unit], &["./program".into()]);
    let mut weighed = Command::new("python3");
    weighed.args(["-c", WEIGH]).arg(command.get_program()).args(command.get_args()).current_dir(dir);
    let ran = finish(&mut weighed, b"");
    let peak = std::fs::read_to_string(dir.join("peak")).expect("a size");
    (ran, peak.parse::<u64>().expect("a number") * 1024 / 1_000_000)
}

#[test]
fn a_huge_program_runs_as_without_points() {
    if !have(&["python3"], "points in a huge program") {
        return;
    }
    let dir = scratch("coverage-hostile-huge");
    let functions = 20_000;
    let bytes = huge(functions);
    assert!(bytes.len() >= 200 << 20);
    std::fs::write(dir.join("program"), bytes).expect("a program");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.join("program"), mode).expect("a mode");
    let platforms = platforms();
    let plain = run(platforms[0].as_deref(), &dir, "./program", None);
    // Each of the functions that are called counts the bits of 0x12345.
    let called = (1..functions).step_by(functions / 20).count();
    assert_eq!(plain.code, Some(i32::try_from(called * 7 % 128).expect("small")), "{}", plain.stderr);
    for (platform, unit) in platforms.iter().flat_map(|platform| UNITS.map(|unit| (platform, unit))) {
        let (with, peak) = run_and_weigh(platform.as_deref(), &dir, unit);
        assert_eq!(with.determined(), plain.determined(), "{unit}, {platform:?}: {}", with.stderr);
        let (reached, all) = observed(&with);
        match unit {
            "blocks" => {
                assert!(reached > 1000 && all > functions as u64 * 100, "{reached} of {all}");
                say(&format!(
                    "hostile_coverage: {all} blocks of a program of 200 MB, {peak} MB, {platform:?}"
                ));
            }
            _ => assert_eq!(all, 0, "it has no lines"),
        }
        assert!(peak > 200, "the file alone is larger than {peak} MB");
        assert!(peak <= MOST_MEMORY, "{unit}, {platform:?}: {peak} MB");
    }
    std::fs::remove_dir_all(dir).expect("removed");
}
