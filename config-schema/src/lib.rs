//! bloodhound.yaml and the compose file: types, diagnostics with places, JSON schema.
//!
//! Text becomes a tree in which every key and value knows its place (`tree`); hand-written decoders
//! (`decode`, `config`, `compose`) turn the tree into plain values without floats and collect everything that
//! is wrong as [`Diagnostic`]s in one go; `render` prints those.

pub mod compose;
pub mod config;
mod decode;
pub mod diagnostic;
#[cfg(test)]
mod docs;
pub mod endpoint;
pub mod pattern;
mod project;
pub mod regression;
pub mod render;
mod schema;
mod suggest;
pub mod tree;

pub use bloodhound_declare::scalar;
pub use compose::Compose;
pub use config::Config;
pub use decode::{Located, RangeNs};
pub use diagnostic::{Code, Diagnostic, Place, Severity, has_errors};
pub use endpoint::Endpoint;
pub use project::{DEFAULTS, Project, Selection, check_names, usual_files};
pub use scalar::Ppb;
pub use schema::schema;
pub use tree::Spot;
