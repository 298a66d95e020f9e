//! The HTML report: an overview, and a page of annotated source for each file. No scripts, nothing from elsewhere.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::escaped;
use super::page::{STYLE, bar, page, words};
use super::svg::growth as curve;
use crate::Checkout;
use crate::model::Coverage;
use crate::totals::{
    Count, Totals, count, functions, growth, lines, services_of, source_lines, totals, uncovered_functions,
};

type Lines = BTreeMap<u32, Option<u32>>;
type Functions<'c> = BTreeMap<(u32, &'c str), Option<u32>>;

/// Functions in the list of those that nothing reached, at most; each file's page has all of its own.
const MOST_FUNCTIONS: usize = 500;

/// A file of the report.
struct Entry<'c> {
    path: &'c str,
    page: String,
    lines: Option<&'c Lines>,
    functions: Option<&'c Functions<'c>>,
}

/// The pages: names of files and their texts.
pub fn html(coverage: &Coverage, checkout: &Checkout) -> Vec<(String, String)> {
    let (lines, functions) = (lines(coverage), functions(coverage));
    let mut paths: Vec<&str> = lines.keys().chain(functions.keys()).copied().collect();
    paths.sort_unstable();
    paths.dedup();
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let mut entries = Vec::new();
    for path in paths {
        let page = page_name(path, &mut names);
        entries.push(Entry { path, page, lines: lines.get(path), functions: functions.get(path) });
    }
    let mut index = String::new();
    // Writing to a string cannot fail.
    let _ = overview(&mut index, coverage, &entries, checkout);
    let mut pages =
        vec![("index.html".to_owned(), page("Coverage", &index)), ("style.css".to_owned(), STYLE.to_owned())];
    for entry in &entries {
        let mut body = String::new();
        let _ = file(&mut body, coverage, entry, checkout);
        let title = if entry.path.is_empty() { "Functions without source" } else { entry.path };
        pages.push((entry.page.clone(), page(&format!("{title} - coverage"), &body)));
    }
    pages
}

/// The name of a file's page: two paths never have the same, also where upper and lower case are one.
fn page_name(path: &str, names: &mut BTreeMap<String, u32>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '.' };
    let mut name: String = path.chars().map(plain).collect();
    // File systems have names of up to 255 bytes.
    name = name.chars().rev().take(180).collect::<Vec<char>>().into_iter().rev().collect();
    let number = names.entry(name.to_lowercase()).or_default();
    *number += 1;
    if *number > 1 { format!("file.{name}.{number}.html") } else { format!("file.{name}.html") }
}

fn overview(
    out: &mut String,
    coverage: &Coverage,
    entries: &[Entry<'_>],
    checkout: &Checkout,
) -> fmt::Result {
    let totals = totals(coverage);
    writeln!(out, "<h1>Coverage</h1>\n<p class=\"soft\">{} seeds</p>", coverage.seed_count())?;
    for (unit, count) in &totals.all.units {
        writeln!(
            out,
            "<p>{} <b>{}</b> of {unit}: {} of {}</p>",
            bar(*count),
            count.percent(),
            count.covered,
            count.total
        )?;
    }
    let left = source_lines(coverage, checkout);
    if left.total > 0 {
        let (left, all) = (left.covered, left.total);
        writeln!(out, "<p class=\"soft\">{left} of {all} lines of source have code in the programs.</p>")?;
    }
    let seeds =
        (coverage.seeds.first().map_or(0, |range| range.0), coverage.seeds.last().map_or(0, |range| range.1));
    for (unit, steps) in growth(coverage) {
        let total = totals.all.units.get(&unit).map_or(0, |count| count.total);
        writeln!(out, "<h2>Covered {unit} after each seed</h2>\n{}", curve(&steps, seeds, total))?;
    }
    services(out, coverage, &totals)?;
    files(out, entries)?;
    let uncovered = uncovered_functions(coverage);
    if !uncovered.is_empty() {
        writeln!(out, "<h2>Functions that no seed reached: {}</h2>\n<table>", uncovered.len())?;
        for function in uncovered.iter().take(MOST_FUNCTIONS) {
            let page =
                entries.iter().find(|entry| entry.path == function.path).map_or("", |entry| &entry.page);
            let (name, path) = (escaped(&function.name), escaped(&function.path));
            let place = if function.line > 0 { format!("{path}:{}", function.line) } else { path };
            writeln!(
                out,
                "<tr><td>{name}</td><td><a href=\"{page}#L{}\">{place}</a></td></tr>",
                function.line
            )?;
        }
        writeln!(out, "</table>")?;
        if uncovered.len() > MOST_FUNCTIONS {
            writeln!(out, "<p class=\"soft\">and {} more</p>", uncovered.len() - MOST_FUNCTIONS)?;
        }
    }
    notes(out, coverage)
}

fn services(out: &mut String, coverage: &Coverage, totals: &Totals) -> fmt::Result {
    writeln!(
        out,
        "<h2>Services</h2>\n<table>\n<tr><th>service</th><th>covered</th><th></th><th>measured</th></tr>"
    )?;
    for (name, sums) in &totals.services {
        let parts = coverage.services.get(name).map(|service| &service.parts).into_iter().flatten();
        let parts = parts.filter_map(|part| coverage.parts.get(part)).map(|part| escaped(&part.name));
        let parts: Vec<String> = parts.collect();
        let (name, parts) = (escaped(name), parts.join(", "));
        for (unit, count) in &sums.units {
            writeln!(
                out,
                "<tr><td>{name}</td><td>{} of {unit}</td><td>{}</td><td>{parts}</td></tr>",
                count,
                bar(*count)
            )?;
        }
        for (program, reason) in &sums.not_measured {
            let (program, why) = (escaped(program), escaped(&reason.to_string()));
            writeln!(
                out,
                "<tr><td>{name}</td><td class=\"no\">not measured</td><td></td><td>{program}: {why}</td></tr>"
            )?;
        }
    }
    writeln!(out, "</table>")
}

fn files(out: &mut String, entries: &[Entry<'_>]) -> fmt::Result {
    writeln!(out, "<h2>Files</h2>\n<table>")?;
    writeln!(
        out,
        "<tr><th>file</th><th class=\"number\">lines</th><th></th><th class=\"number\">functions</th></tr>"
    )?;
    for entry in entries {
        let lines = entry.lines.map(|lines| count(lines.values()));
        let functions = entry.functions.map(|functions| count(functions.values()));
        let shown = lines.or(functions).unwrap_or_default();
        let cell = |count: Option<Count>| {
            count.map_or(String::new(), |c| {
                format!("{} <span class=\"soft\">{}/{}</span>", c.percent(), c.covered, c.total)
            })
        };
        let name =
            if entry.path.is_empty() { "functions without source".to_owned() } else { escaped(entry.path) };
        writeln!(
            out,
            "<tr><td><a href=\"{}\">{name}</a></td><td class=\"number\">{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            entry.page,
            cell(lines),
            bar(shown),
            cell(functions)
        )?;
    }
    writeln!(out, "</table>")
}

fn notes(out: &mut String, coverage: &Coverage) -> fmt::Result {
    let noted = coverage.parts.values().filter(|part| !part.notes.is_empty());
    let noted: Vec<_> = noted.collect();
    if noted.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Notes</h2>")?;
    for part in noted {
        for note in &part.notes {
            writeln!(out, "<p>{}: {}</p>", escaped(&part.name), escaped(note))?;
        }
    }
    Ok(())
}

fn file(out: &mut String, coverage: &Coverage, entry: &Entry<'_>, checkout: &Checkout) -> fmt::Result {
    let title =
        if entry.path.is_empty() { "Functions without source".to_owned() } else { escaped(entry.path) };
    writeln!(out, "<p><a href=\"index.html\">Coverage</a></p>\n<h1>{title}</h1>")?;
    let services: Vec<String> = services_of(coverage, entry.path).into_iter().map(escaped).collect();
    writeln!(out, "<p class=\"soft\">in {}</p>", services.join(", "))?;
    if let Some(lines) = entry.lines {
        let count = count(lines.values());
        writeln!(
            out,
            "<p>{} <b>{}</b> of lines: {} of {}</p>",
            bar(count),
            count.percent(),
            count.covered,
            count.total
        )?;
    }
    if let Some(functions) = entry.functions {
        function_table(out, coverage, functions)?;
    }
    let text = if entry.path.is_empty() { None } else { checkout.text(entry.path) };
    match (text, entry.lines) {
        (Some(text), lines) => source(out, coverage, &text, lines),
        (None, Some(lines)) => {
            writeln!(
                out,
                "<p class=\"no\">The source is not at hand: it is not in {}.</p>",
                escaped(&checkout.root().to_string_lossy())
            )?;
            let last = lines.keys().next_back().copied().unwrap_or(0);
            let shown: String = (0..last.min(1_000_000)).map(|_| "\n").collect();
            source(out, coverage, &shown, Some(lines))
        }
        (None, None) => Ok(()),
    }
}

fn function_table(out: &mut String, coverage: &Coverage, functions: &Functions<'_>) -> fmt::Result {
    let sum = count(functions.values());
    writeln!(
        out,
        "<details{}><summary>Functions: {sum}</summary>\n<table>",
        if sum.total <= 20 { " open" } else { "" }
    )?;
    for ((line, name), reached) in functions {
        let how =
            coverage.moment(*reached).map_or("not reached".to_owned(), |moment| escaped(&words(moment)));
        let class = if reached.is_some() { "yes" } else { "no" };
        let name = escaped(name);
        writeln!(out, "<tr><td><a href=\"#L{line}\">{name}</a></td><td class=\"{class}\">{how}</td></tr>")?;
    }
    writeln!(out, "</table></details>")
}

fn source(out: &mut String, coverage: &Coverage, text: &str, lines: Option<&Lines>) -> fmt::Result {
    writeln!(out, "<table class=\"source\">")?;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let state = lines.and_then(|lines| lines.get(&number));
        let class = match state {
            Some(Some(_)) => " class=\"yes\"",
            Some(None) => " class=\"no\"",
            None => "",
        };
        let moment = state.and_then(|reached| coverage.moment(*reached));
        let (title, seed) = moment.map_or((String::new(), String::new()), |moment| {
            let faults = if moment.faults.is_empty() { "" } else { " !" };
            (format!(" title=\"{}\"", escaped(&words(moment))), format!("seed {}{faults}", moment.seed))
        });
        writeln!(
            out,
            "<tr id=\"L{number}\"{class}{title}><td><a href=\"#L{number}\">{number}</a></td><td>{}</td><td>{seed}</td></tr>",
            escaped(line)
        )?;
    }
    writeln!(out, "</table>")
}
