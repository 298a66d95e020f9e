//! Cobertura's XML, valid by its DTD (`coverage-04.dtd`): packages are directories, classes are files.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::escaped;
use crate::Checkout;
use crate::model::Coverage;
use crate::totals::{Count, count, functions, lines};

type Lines = BTreeMap<u32, Option<u32>>;
type Functions<'c> = BTreeMap<(u32, &'c str), Option<u32>>;

/// Lines with their functions. There are no branches, and the time is 0: equal coverage gives equal files.
pub fn cobertura(coverage: &Coverage, checkout: &Checkout) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = document(&mut out, coverage, checkout);
    out
}

/// A share as the format has it, from 0 to 1.
fn rate(count: Count) -> String {
    let points = count.basis_points();
    format!("{}.{:04}", points / 10_000, points % 10_000)
}

fn document(out: &mut String, coverage: &Coverage, checkout: &Checkout) -> fmt::Result {
    let (lines, functions) = (lines(coverage), functions(coverage));
    let all = count(lines.values().flat_map(BTreeMap::values));
    let mut packages: BTreeMap<&str, Vec<(&str, &Lines)>> = BTreeMap::new();
    for (path, lines) in &lines {
        let package = path.rsplit_once('/').map_or("", |(package, _)| package);
        packages.entry(package).or_default().push((path, lines));
    }
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    let dtd = "http://cobertura.sourceforge.net/xml/coverage-04.dtd";
    writeln!(out, "<!DOCTYPE coverage SYSTEM \"{dtd}\">")?;
    writeln!(
        out,
        "<coverage line-rate=\"{}\" branch-rate=\"0\" lines-covered=\"{}\" lines-valid=\"{}\" branches-covered=\"0\" \
         branches-valid=\"0\" complexity=\"0\" version=\"1\" timestamp=\"0\">",
        rate(all),
        all.covered,
        all.total
    )?;
    let root = escaped(&checkout.root().to_string_lossy());
    writeln!(out, "<sources>\n<source>{root}</source>\n</sources>\n<packages>")?;
    for (package, files) in packages {
        let sum = count(files.iter().flat_map(|(_, lines)| lines.values()));
        let name = escaped(&package.replace('/', "."));
        writeln!(
            out,
            "<package name=\"{name}\" line-rate=\"{}\" branch-rate=\"0\" complexity=\"0\">",
            rate(sum)
        )?;
        writeln!(out, "<classes>")?;
        for (path, lines) in files {
            class(out, path, lines, functions.get(path))?;
        }
        writeln!(out, "</classes>\n</package>")?;
    }
    writeln!(out, "</packages>\n</coverage>")
}

fn class(out: &mut String, path: &str, lines: &Lines, functions: Option<&Functions<'_>>) -> fmt::Result {
    let name = escaped(path.rsplit('/').next().unwrap_or(path));
    let (path, share) = (escaped(path), rate(count(lines.values())));
    let rates = |share: &str| format!("line-rate=\"{share}\" branch-rate=\"0\" complexity=\"0\"");
    writeln!(out, "<class name=\"{name}\" filename=\"{path}\" {}>\n<methods>", rates(&share))?;
    for ((line, name), reached) in functions.into_iter().flatten() {
        let share = rate(count([reached]));
        writeln!(out, "<method name=\"{}\" signature=\"\" {}>\n<lines>", escaped(name), rates(&share))?;
        one(out, *line, reached.is_some())?;
        writeln!(out, "</lines>\n</method>")?;
    }
    writeln!(out, "</methods>\n<lines>")?;
    for (line, reached) in lines {
        one(out, *line, reached.is_some())?;
    }
    writeln!(out, "</lines>\n</class>")
}

fn one(out: &mut String, line: u32, reached: bool) -> fmt::Result {
    writeln!(out, "<line number=\"{line}\" hits=\"{}\" branch=\"false\"/>", u8::from(reached))
}
