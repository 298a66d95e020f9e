//! What all pages of the HTML report have: the frame, the style, the words for moments.

use super::escaped;
use crate::model::Moment;
use crate::totals::Count;

/// The style of all pages, in a file of its own. Colours also tell by lightness, and follow the reader's choice of light or dark.
pub(super) const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c2128; --soft: #59636e; --paper: #ffffff; --line: #d8dee4; --yes: #dafbe1; --no: #ffd8d3;
  --yes-ink: #1a7f37; --no-ink: #cf222e; --bar: #2da44e; --mark: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --paper: #0d1117; --line: #30363d; --yes: #12261e;
  --no: #3c1618; --yes-ink: #3fb950; --no-ink: #f85149; --bar: #3fb950; --mark: #161b22; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto; padding: 1.5rem; max-width: 80rem; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
a { color: inherit; text-decoration-color: var(--soft); } p { margin: .3rem 0; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: inline-block; width: 8rem; height: .6rem; background: var(--no); border-radius: 2px; overflow: hidden; }
.bar i { display: block; height: 100%; background: var(--bar); }
.no { color: var(--no-ink); } .yes { color: var(--yes-ink); }
svg.growth { width: 100%; max-width: 44rem; } svg.growth line { stroke: var(--line); } svg.growth .all { stroke-dasharray: 4 4; }
svg.growth polyline { fill: none; stroke: var(--bar); stroke-width: 2; } svg.growth text { font-size: 11px; fill: var(--soft); }
table.source { font: 13px/1.45 ui-monospace, monospace; table-layout: fixed; }
table.source td { border: 0; padding: 0 .6rem; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
table.source td:first-child { width: 4rem; text-align: right; color: var(--soft); user-select: none; }
table.source td:first-child a { text-decoration: none; } table.source td:last-child { width: 7rem; color: var(--soft); }
tr.yes td { background: var(--yes); color: var(--ink); } tr.no td { background: var(--no); color: var(--ink); }
tr:target td { outline: 2px solid var(--soft); }
";

/// A whole page.
pub(super) fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"style.css\">\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// A bar that shows a share.
pub(super) fn bar(count: Count) -> String {
    let points = count.basis_points();
    format!("<span class=\"bar\"><i style=\"width:{}.{:02}%\"></i></span>", points / 100, points % 100)
}

/// A moment, in words.
pub(super) fn words(moment: &Moment) -> String {
    let mut text = format!("first reached by seed {}", moment.seed);
    if let Some(time) = moment.time_ns {
        let (seconds, thousandths) = (time / 1_000_000_000, time / 1_000_000 % 1000);
        text.push_str(&format!(" at {seconds}.{thousandths:03} s"));
    }
    if !moment.faults.is_empty() {
        text.push_str(&format!(", during {}", moment.faults.join(", ")));
    }
    text
}
