//! Why a run cannot be planned: all of it, each at its place, as with mistakes in the files themselves.
//!
//! Key types: [`Refusal`], [`Pieces`] (collects those of a service). Neighbours: the planner's other modules make them, `validate` and
//! `session` show them.

use bloodhound_config::compose::{Compose, Service};
use bloodhound_config::{Code, Diagnostic, Place, Severity};

/// Why a run cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For the user.
    pub text: String,
    /// It is this machine that lacks a file; on another one the same files may do.
    pub missing: bool,
    /// What is refused, in the file in which it is written.
    pub place: Option<Box<Place>>,
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal { text, missing: false, place: None }
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        text.to_owned().into()
    }
}

impl Refusal {
    /// The host has no `what`.
    pub(super) fn host(what: impl std::fmt::Display, error: &std::io::Error) -> Refusal {
        Refusal { missing: true, ..format!("{what}: {error}").into() }
    }

    /// The same about this place, unless it is about another one.
    pub(super) fn at(mut self, place: Place) -> Refusal {
        self.place.get_or_insert_with(|| Box::new(place));
        self
    }

    /// In the order of files and lines. What is true of each replica of a service is told once.
    pub(super) fn in_order(mut refused: Vec<Refusal>) -> Vec<Refusal> {
        let key = |r: &Refusal| r.place.as_ref().map(|p| (p.file.clone(), p.line, p.column));
        refused.sort_by_key(key);
        refused.dedup();
        refused
    }

    /// As a diagnostic; without a place it is about `file`.
    pub fn diagnostic(self, file: &str, strict: bool) -> Diagnostic {
        let (code, severity) = match self.missing {
            true if strict => (Code::MissingFile, Severity::Error),
            true => (Code::MissingFile, Severity::Warning),
            false => (Code::ComposeNotSupported, Severity::Error),
        };
        match self.place {
            Some(place) => Diagnostic::at(code, severity, *place, self.text),
            None => Diagnostic::about_file(code, severity, file, self.text),
        }
    }
}

impl std::fmt::Display for Refusal {
    /// `compose.yaml:7:5: service web: ...`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{}:{}:{}: ", place.file, place.line, place.column)?;
        }
        f.write_str(&self.text)
    }
}

/// The pieces of which a container is made: what is refused of one hides nothing of the others.
pub(super) struct Pieces<'a> {
    compose: &'a Compose,
    service: &'a Service,
    refused: &'a mut Vec<Refusal>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(
        compose: &'a Compose,
        service: &'a Service,
        refused: &'a mut Vec<Refusal>,
    ) -> Pieces<'a> {
        Pieces { compose, service, refused }
    }

    /// The piece, or a note about it at this key of the service.
    pub(super) fn keep<T>(&mut self, key: &str, piece: Result<T, impl Into<Refusal>>) -> Option<T> {
        let place = |pieces: &Self| pieces.compose.key_place(pieces.service, key);
        piece.map_err(|refusal| self.refuse(place(self), refusal.into())).ok()
    }

    /// Notes that something is refused.
    pub(super) fn refuse(&mut self, place: Place, refusal: Refusal) {
        let text = format!("service {}: {}", self.service.name, refusal.text);
        self.refused.push(Refusal { text, ..refusal }.at(place));
    }

    /// A place of the compose files.
    pub(super) fn compose(&self) -> &'a Compose {
        self.compose
    }
}
