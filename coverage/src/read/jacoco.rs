//! JaCoCo's XML report: packages with classes, whose methods have counters, and source files with lines.

use super::{Report, xml};

/// Reads a report.
pub(super) fn read(bytes: &[u8]) -> Result<Report, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut report = Report::default();
    let (mut package, mut source, mut class) = (String::new(), None, None);
    let mut method: Option<(u64, String)> = None;
    for tag in xml::tags(&text)? {
        let value = |name: &str| tag.attributes.get(name).map(String::as_str);
        let number = |name: &str| value(name).and_then(|number| number.parse::<u64>().ok());
        // A file is named by its package and its own name: "com/example" and "Shop.java".
        let path = |package: &str, name: &str| match package {
            "" => name.to_owned(),
            package => format!("{package}/{name}"),
        };
        match tag.name.as_str() {
            "package" => package = value("name").unwrap_or_default().to_owned(),
            "class" => class = value("sourcefilename").map(|name| path(&package, name)),
            "/class" => class = None,
            "sourcefile" => {
                let name = value("name").ok_or("a <sourcefile> has no name")?;
                report.file(&path(&package, name));
                source = Some(path(&package, name));
            }
            "/sourcefile" => source = None,
            "method" => {
                let name = value("name").unwrap_or_default().to_owned();
                method = number("line").map(|line| (line, name));
            }
            "counter" if value("type") == Some("METHOD") => {
                if let (Some(class), Some((line, name))) = (&class, method.take()) {
                    report.file(class).function(line, &name, number("covered").unwrap_or(0) > 0);
                }
            }
            "line" => {
                let Some(source) = &source else { continue };
                let line = number("nr").ok_or_else(|| format!("{source}: a <line> has no number"))?;
                // mi and ci: instructions that did not run, and that did.
                report.file(source).line(line, number("ci").unwrap_or(0) > 0);
            }
            _ => {}
        }
    }
    Ok(report)
}
