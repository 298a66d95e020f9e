//! Where a store is, as the user writes it: a path, `file:///path`, or `s3://bucket/prefix`; and which keys objects can have.
//!
//! Key type: [`Place`]. What is neither is refused with what there is, instead of being taken for a path.

use std::path::{Path, PathBuf};

use crate::Error;

/// The most letters between two slashes of a key: directories and files of every host can be called so.
pub const LONGEST: usize = 200;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// Objects of a bucket whose keys begin with a prefix, which is empty or ends with `/`.
    Bucket {
        /// Its name.
        bucket: String,
        /// The prefix.
        prefix: String,
    },
}

impl Place {
    /// # Errors
    /// What is wrong, and what is expected.
    pub fn parse(text: &str) -> Result<Place, String> {
        let forms = "a store is a path, file:///path, or s3://bucket/prefix";
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(fits) {
                return Err(format!(
                    "`{bucket}` is no name of a bucket (3 to 63 of a-z, 0-9, `-`, `.`); {forms}"
                ));
            }
            let prefix = prefix.trim_end_matches('/');
            if let Some(part) = prefix.split('/').find(|part| !prefix.is_empty() && !is_part(part)) {
                return Err(format!(
                    "`{part}` cannot be a part of a key (letters, digits, `-`, `_`, `.`); {forms}"
                ));
            }
            let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
            return Ok(Place::Bucket { bucket: bucket.to_owned(), prefix });
        }
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') {
                true => Ok(Place::Directory(Path::new(path).to_path_buf())),
                false => Err(format!("`{text}` names a host; {forms}")),
            };
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(format!("`{scheme}://` is not supported; {forms}"));
        }
        match text {
            "" => Err(format!("nothing is named; {forms}")),
            path => Ok(Place::Directory(Path::new(path).to_path_buf())),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Directory(path) => write!(f, "{}", path.display()),
            Place::Bucket { bucket, prefix } => {
                write!(f, "s3://{bucket}/{}", prefix.trim_end_matches('/'))
            }
        }
    }
}

/// An object with its store, for messages.
pub fn object(place: &str, key: &str) -> String {
    format!("{}/{key}", place.trim_end_matches('/'))
}

/// Whether this can stand between two slashes of a key.
fn is_part(part: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty() && !part.starts_with('.') && part.len() <= LONGEST && part.chars().all(fits)
}

/// Refuses keys that would lie elsewhere, or hidden.
pub fn check(place: &Place, operation: &'static str, key: &str) -> Result<(), Error> {
    match key.split('/').find(|part| !is_part(part)) {
        None => Ok(()),
        Some(part) => Err(Error {
            operation,
            object: object(&place.to_string(), key),
            why: format!("`{part}` cannot be a part of a key"),
            help: "keys are made of letters, digits, `-`, `_` and `.`".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_others_refused() {
        let bucket =
            |bucket: &str, prefix: &str| Place::Bucket { bucket: bucket.into(), prefix: prefix.into() };
        for (text, place) in [
            ("s3://runs/nightly/42", bucket("runs", "nightly/42/")),
            ("s3://runs", bucket("runs", "")),
            ("s3://runs/a/", bucket("runs", "a/")),
            ("file:///srv/store", Place::Directory("/srv/store".into())),
            ("store", Place::Directory("store".into())),
            ("./a b", Place::Directory("./a b".into())),
        ] {
            assert_eq!(Place::parse(text), Ok(place), "{text}");
        }
        for (text, why) in [
            ("", "nothing is named"),
            ("s3://", "is no name of a bucket"),
            ("s3://UPPER/x", "is no name of a bucket"),
            ("s3://runs//x", "cannot be a part"),
            ("s3://runs/../x", "cannot be a part"),
            ("gs://runs/x", "`gs://` is not supported"),
            ("file://host/x", "names a host"),
        ] {
            let wrong = Place::parse(text).expect_err(text);
            assert!(wrong.contains(why) && wrong.contains("s3://bucket/prefix"), "{text}: {wrong}");
        }
    }

    #[test]
    fn keys_stay_in_their_store() {
        let place = Place::Directory("/srv".into());
        for key in ["../etc/passwd", "/etc/passwd", "a//b", "a/.hidden", "", "a b", "a/\u{e4}"] {
            let refused = check(&place, "read", key).expect_err(key);
            assert!(refused.to_string().starts_with("cannot read /srv/"), "{refused}");
        }
        assert_eq!(check(&place, "read", "results/shard-1/findings/seed-4-x/trace.txt"), Ok(()));
    }
}
