//! Reports of a [`Coverage`] in formats that people and other tools read. Equal coverage gives equal bytes.

mod cobertura;
mod html;
mod json;
mod lcov;
mod page;
mod svg;

use std::io;
use std::path::{Path, PathBuf};

pub use cobertura::cobertura;
pub use html::html;
pub use json::{json, parse};
pub use lcov::lcov;

use crate::Checkout;
use crate::model::Coverage;

/// A format of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Annotated source, in a directory.
    Html,
    /// lcov's tracefile.
    Lcov,
    /// Cobertura's XML.
    Cobertura,
    /// All that is known, as `bloodhound coverage` reads it.
    Json,
}

impl Format {
    /// All formats, in the order of their words.
    pub const ALL: [Format; 4] = [Format::Html, Format::Lcov, Format::Cobertura, Format::Json];

    /// The word of the configuration and the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Html => "html",
            Format::Lcov => "lcov",
            Format::Cobertura => "cobertura",
            Format::Json => "json",
        }
    }

    /// The format with this word.
    pub fn named(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The name of its file or directory.
    pub fn file(self) -> &'static str {
        match self {
            Format::Html => "html",
            Format::Lcov => "lcov.info",
            Format::Cobertura => "cobertura.xml",
            Format::Json => "coverage.json",
        }
    }
}

/// Writes reports into a directory, which is made, and gives their paths: of HTML that of the first page. What was there under the same
/// names is replaced when the new one is complete.
///
/// # Errors
/// What cannot be written, with its path.
pub fn write(
    coverage: &Coverage,
    checkout: &Checkout,
    formats: &[Format],
    directory: &Path,
) -> io::Result<Vec<PathBuf>> {
    let named =
        |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| named(directory, error))?;
    let mut written = Vec::new();
    for format in formats {
        let path = directory.join(format.file());
        let new = directory.join(format!(".{}.{}", format.file(), std::process::id()));
        let made = match format {
            Format::Html => write_pages(&html(coverage, checkout), &new),
            Format::Lcov => std::fs::write(&new, lcov(coverage)),
            Format::Cobertura => std::fs::write(&new, cobertura(coverage, checkout)),
            Format::Json => std::fs::write(&new, json(coverage)),
        };
        let made = made.and_then(|()| {
            // A directory cannot be renamed over one that has files.
            if *format == Format::Html && path.is_dir() {
                std::fs::remove_dir_all(&path)?;
            }
            std::fs::rename(&new, &path)
        });
        if let Err(error) = made {
            let _gone = if *format == Format::Html {
                std::fs::remove_dir_all(&new)
            } else {
                std::fs::remove_file(&new)
            };
            return Err(named(&path, error));
        }
        written.push(if *format == Format::Html { path.join("index.html") } else { path });
    }
    Ok(written)
}

fn write_pages(pages: &[(String, String)], directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    pages.iter().try_for_each(|(name, text)| std::fs::write(directory.join(name), text))
}

/// Text for HTML and XML: characters with a meaning there, and those that XML 1.0 does not have, are replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(c),
            // XML 1.0, 2.2: Char excludes the other control characters and these two.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
