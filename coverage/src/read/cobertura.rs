//! Cobertura's XML, which coverage.py, JaCoCo's converters, .NET's and many other tools write.

use std::collections::BTreeMap;

use super::{Report, xml};

/// Reads a report.
pub(super) fn read(bytes: &[u8]) -> Result<Report, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut report = Report::default();
    let (mut file, mut method): (Option<String>, Option<String>) = (None, None);
    // Lines of methods stand among those of their class once more, and may be others: declarations, which have no code. Only a class
    // without lines of its own has those of its methods.
    let (mut of_methods, mut in_method): (BTreeMap<u64, bool>, bool) = (BTreeMap::new(), false);
    for tag in xml::tags(&text)? {
        let value = |name: &str| tag.attributes.get(name).map(String::as_str);
        match tag.name.as_str() {
            "class" => {
                let name = value("filename").ok_or("a <class> has no filename")?.replace('\\', "/");
                report.file(&name);
                file = Some(name);
                of_methods.clear();
            }
            "/class" => {
                if let Some(name) = file.take()
                    && report.file(&name).lines.is_empty()
                {
                    of_methods.iter().for_each(|(line, covered)| report.file(&name).line(*line, *covered));
                }
            }
            "method" => (method, in_method) = (value("name").map(str::to_owned), true),
            "/method" => in_method = false,
            "line" => {
                let Some(name) = &file else { continue };
                let number = value("number").and_then(|number| number.parse().ok());
                let number = number.ok_or_else(|| format!("{name}: a <line> has no number"))?;
                let covered = value("hits").is_some_and(|hits| !hits.trim_start_matches('0').is_empty());
                if in_method {
                    *of_methods.entry(number).or_default() |= covered;
                } else {
                    report.file(name).line(number, covered);
                }
                // The first line of a method is where it begins.
                if let Some(method) = method.take() {
                    report.file(name).function(number, &method, covered);
                }
            }
            _ => {}
        }
    }
    Ok(report)
}
