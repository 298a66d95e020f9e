//! Programs of this machine's compilers, in all forms that they have: their lines, functions and blocks.

mod common;

use std::collections::BTreeSet;

use common::{Scratch, functions, have, lines, look, shell, sound};

/// Lines of kv.c with code, without optimisation.
const KV: &[u32] = &[
    7, 8, 9, 10, 12, 13, 17, 18, 19, 20, 24, 25, 27, 29, 31, 33, 35, 37, 39, 41, 44, 45, 46, 47, 48, 49, 50,
];

fn set(lines: &[u32]) -> BTreeSet<u32> {
    lines.iter().copied().collect()
}

#[test]
fn c_in_all_its_forms_has_the_same_lines() {
    if !have(&["gcc", "objcopy", "strip"], "lines of C programs") {
        return;
    }
    let scratch = Scratch::with_sources("forms");
    let forms = [
        "-g",
        "-g1",
        "-gdwarf-2 -gstrict-dwarf",
        "-gdwarf-3 -gstrict-dwarf",
        "-gdwarf-4",
        "-gdwarf-5",
        "-g -gz=zlib",
        "-g -no-pie",
        "-g -static",
        "-g -static-pie",
        "-g -gsplit-dwarf",
        "-gdwarf-4 -gsplit-dwarf",
        "-g -ffunction-sections -Wl,--gc-sections",
        "-g -fcf-protection=none",
        "-g -Wl,--compress-debug-sections=zlib-gnu",
    ];
    let mut rules = scratch.rules("src");
    rules.places = true;
    for form in forms {
        shell(&scratch.path("src"), &format!("gcc -O0 {form} kv.c -o ../kv"));
        let program = look(&scratch.path("kv"), &rules).unwrap_or_else(|e| panic!("{form}: {e}"));
        sound(&program);
        assert_eq!(program.notes, Vec::<String>::new(), "{form}");
        let lines = lines(&program);
        assert_eq!(lines["kv.c"], set(KV), "{form}");
        assert_eq!(lines["table.h"], set(&[7, 8, 9, 10, 11]), "{form}");
        let functions = functions(&program);
        let names: Vec<&str> = functions.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["dispatch", "main", "table_get", "twice", "unused_branch"], "{form}");
    }
}
