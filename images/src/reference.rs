//! Names of images as users write them: `redis:7`, `ghcr.io/owner/app@sha256:...`, `localhost:5000/app`.

use std::fmt;

use crate::digest::Digest;
use crate::error::{Error, ErrorKind, shown};

/// Where names without a registry come from.
pub(crate) const HUB: &str = "docker.io";

/// A name of an image, complete: with registry, and tag or digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Host and port of the registry: `docker.io`.
    pub registry: String,
    /// The path in the registry: `library/redis`.
    pub repository: String,
    /// The tag; `latest` where neither tag nor digest is written.
    pub tag: Option<String>,
    /// The digest of the manifest or index; where there is one the tag means nothing.
    pub digest: Option<Digest>,
    /// Whether the registry was not written.
    pub(crate) short: bool,
}

impl Reference {
    /// Reads a name as engines do.
    ///
    /// # Errors
    /// It is not one, with what is wrong.
    pub fn parse(text: &str) -> Result<Reference, Error> {
        let wrong = |what: &str| {
            let text = format!("{} is no name of an image: {what}", shown(text.as_bytes()));
            Error::new(ErrorKind::Usage, text)
        };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(|e: Error| wrong(&e.to_string()))?)),
            None => (text, None),
        };
        // A colon after the last slash begins the tag; one before belongs to the registry's port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        if let Some(tag) = tag {
            let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            if tag.is_empty() || tag.len() > 128 || !tag.chars().all(word) || tag.starts_with(['.', '-']) {
                return Err(wrong("its tag may have letters, digits, \"_\", \".\" and \"-\""));
            }
        }
        // The first part is a registry if it could not be a user's name: it has a dot or a port, or is localhost.
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => (Some(first), path),
            _ => (None, name),
        };
        let host = |host: &str| {
            let word = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
            host.chars().all(word) && !host.starts_with(['.', '-', ':'])
        };
        if registry.is_some_and(|registry| !host(registry)) {
            return Err(wrong("its registry is no host name"));
        }
        let short = registry.is_none();
        // index.docker.io and docker.io are one.
        let registry = match registry {
            None | Some("index.docker.io" | "registry-1.docker.io") => HUB,
            Some(other) => other,
        };
        if path.is_empty() || path.len() > 255 {
            return Err(wrong("the path of its repository is empty or too long"));
        }
        for part in path.split('/') {
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.' | '-');
            let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            if !part.chars().all(word) || !part.starts_with(ends) || !part.ends_with(ends) {
                return Err(wrong(
                    "a repository has lower-case letters, digits, and \"_\", \".\", \"-\" between them",
                ));
            }
        }
        let library = registry == HUB && !path.contains('/');
        Ok(Reference {
            registry: registry.to_owned(),
            repository: if library { format!("library/{path}") } else { path.to_owned() },
            tag: tag.map(str::to_owned).or_else(|| digest.is_none().then(|| "latest".to_owned())),
            digest,
            short,
        })
    }

    /// What stands after the repository in requests to a registry.
    pub fn tag_or_digest(&self) -> String {
        match &self.digest {
            Some(digest) => digest.to_string(),
            None => self.tag.clone().unwrap_or_else(|| "latest".to_owned()),
        }
    }

    /// Other names under which an engine that is not Docker may hold what was meant: podman and buildah put
    /// `localhost/` before the name of what they build.
    pub fn alternatives(&self) -> Option<Reference> {
        let repository = self.repository.strip_prefix("library/").unwrap_or(&self.repository).to_owned();
        self.short.then(|| Reference {
            registry: "localhost".to_owned(),
            repository,
            tag: self.tag.clone(),
            digest: self.digest,
            short: false,
        })
    }

    /// The name as users write it: without what is understood.
    pub fn familiar(&self) -> String {
        let whole = self.to_string();
        match whole.strip_prefix("docker.io/") {
            Some(rest) => rest.strip_prefix("library/").unwrap_or(rest).to_owned(),
            None => whole,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(out, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(out, "@{digest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        let digest = Digest::of(b"");
        for (text, whole, familiar) in [
            ("redis", "docker.io/library/redis:latest".to_owned(), "redis:latest".to_owned()),
            ("redis:7-alpine", "docker.io/library/redis:7-alpine".to_owned(), "redis:7-alpine".to_owned()),
            ("bitnami/kafka", "docker.io/bitnami/kafka:latest".to_owned(), "bitnami/kafka:latest".to_owned()),
            ("localhost:5000/a/b:1", "localhost:5000/a/b:1".to_owned(), "localhost:5000/a/b:1".to_owned()),
            ("localhost/app", "localhost/app:latest".to_owned(), "localhost/app:latest".to_owned()),
            ("ghcr.io/x/y", "ghcr.io/x/y:latest".to_owned(), "ghcr.io/x/y:latest".to_owned()),
            (
                "index.docker.io/library/redis",
                "docker.io/library/redis:latest".to_owned(),
                "redis:latest".to_owned(),
            ),
            (
                &format!("redis:7@{digest}"),
                format!("docker.io/library/redis:7@{digest}"),
                format!("redis:7@{digest}"),
            ),
        ] {
            let reference = Reference::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((reference.to_string(), reference.familiar()), (whole, familiar));
        }
        let localhost = Reference::parse("app:1").expect("a name").alternatives().expect("another name");
        assert_eq!(localhost.to_string(), "localhost/app:1");
        assert_eq!(Reference::parse("ghcr.io/a:1").expect("a name").alternatives(), None);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in [
            "",
            "Redis",
            "a:",
            "a:b:c",
            "a@sha256:1",
            "../etc",
            "a//b",
            "a/../b",
            "a b",
            "-a",
            "http://a/b",
            "a.b/",
            "é",
        ] {
            assert!(Reference::parse(wrong).is_err(), "{wrong}");
        }
    }
}
