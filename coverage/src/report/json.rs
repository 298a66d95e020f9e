//! The JSON form, which shards are joined by.

use crate::model::Coverage;

/// The coverage as JSON.
pub fn json(coverage: &Coverage) -> String {
    // Nothing in a coverage can fail to be written: its keys are text and numbers.
    let mut text = serde_json::to_string(coverage).unwrap_or_default();
    text.push('\n');
    text
}

/// Reads the JSON form.
///
/// # Errors
/// What is wrong with it, with the place.
pub fn parse(text: &str) -> Result<Coverage, String> {
    // The version first: another one may have other keys.
    #[derive(serde::Deserialize)]
    struct Version {
        version: Option<u32>,
    }
    let version: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match version.version {
        Some(crate::model::VERSION) => {}
        Some(version) => {
            let own = crate::model::VERSION;
            return Err(format!("it has version {version}; this bloodhound reads version {own}"));
        }
        None => return Err("it has no \"version\": it is not coverage.json of bloodhound".to_owned()),
    }
    let mut coverage: Coverage = serde_json::from_str(text).map_err(|error| error.to_string())?;
    coverage.check()?;
    coverage.tidy();
    Ok(coverage)
}
