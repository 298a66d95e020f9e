//! A plot of an experiment: which share of the campaigns of each arm had found the bug after so much processor time, as SVG.

use std::fmt::Write;

use super::Cell;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const MARGIN: f64 = 48.0;
/// Colours that are told apart by people who see colours otherwise too (Okabe and Ito).
const COLOURS: [&str; 7] = ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// The arms of one bug.
pub fn svg(cells: &[Cell], budget: f64) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let (left, bottom) = (MARGIN, HEIGHT - MARGIN);
    let x = |seconds: f64| left + (WIDTH - 2.0 * MARGIN) * seconds / budget;
    let y = |share: f64| bottom - (HEIGHT - 2.0 * MARGIN) * share;
    let title = cells.first().map_or("", |cell| cell.bug.as_str());
    let mut add = |text: std::fmt::Arguments<'_>| {
        // Writing to a String does not fail.
        let _ok = out.write_fmt(text);
    };
    add(format_args!(
        "<text x=\"{left}\" y=\"24\">{}: campaigns that have found it</text>\n",
        escaped(title)
    ));
    for share in [0.0, 0.5, 1.0] {
        add(format_args!(
            "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#cccccc\"/><text x=\"8\" y=\"{:.1}\">{:.0} %</text>\n",
            x(budget),
            y(share),
            y(share),
            y(share) + 4.0,
            share * 100.0
        ));
    }
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let seconds = budget * part;
        add(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{seconds:.0} s</text>\n",
            x(seconds) - 8.0,
            bottom + 20.0
        ));
    }
    for (nth, cell) in cells.iter().enumerate() {
        let colour = COLOURS[nth % COLOURS.len()];
        let mut times: Vec<f64> = cell
            .campaigns
            .iter()
            .filter(|campaign| campaign.found)
            .map(|campaign| campaign.seconds)
            .collect();
        times.sort_by(f64::total_cmp);
        let all = cell.campaigns.len().max(1) as f64;
        let mut path = format!("M {:.1} {:.1}", x(0.0), y(0.0));
        for (found, seconds) in times.iter().enumerate() {
            let _ok = write!(path, " H {:.1} V {:.1}", x(*seconds), y((found + 1) as f64 / all));
        }
        let _ok = write!(path, " H {:.1}", x(budget));
        add(format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n"));
        let place = y(1.0) + 16.0 * (nth + 1) as f64;
        add(format_args!(
            "<text x=\"{:.1}\" y=\"{place:.1}\" fill=\"{colour}\">{}</text>\n",
            left + 8.0,
            escaped(&cell.arm)
        ));
    }
    out.push_str("</svg>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::campaign::Campaign;
    use super::*;

    #[test]
    fn each_arm_has_a_line_and_its_name() {
        let found = |seconds| Campaign { found: true, seconds, runs: 1, features: None };
        let cell =
            |arm: &str| Cell { bug: "a<b".into(), arm: arm.into(), campaigns: vec![found(5.0), found(1.0)] };
        let plot = svg(&[cell("random"), cell("swarm")], 10.0);
        assert_eq!(plot.matches("<path").count(), 2);
        assert!(plot.contains("a&lt;b") && plot.contains(">swarm<") && plot.ends_with("</svg>\n"));
    }
}
