//! Container images for the simulation, on the host's side only.
//!
//! A [`Resolver`] finds what a user names, in a file, the cache, an engine or a registry, brings it into the cache
//! ([`Store`]), and gives an [`Image`]: an [`ImageConfig`], and a [`RootFs`] that never changes. Nothing is ever unpacked: a layer stays an
//! archive, beside which the cache keeps an index of its tree; the bytes of a file are read from the archive when they are used.
//!
//! What an image says is never trusted: every blob is compared with its digest before it gets its place in the cache, names
//! and links stay within the image, and [`Limits`] bound what it can make this process do. This crate depends on nothing of Bloodhound.
//!
//! Modules: `reference` names, `digest`, `manifest` and `config` the documents, `tar` and `decompress` archives, `layer` the
//! tree of one, `rootfs` that of all, `store` the cache, `archive` files with images,
//! `registry` and `http` registries, `engine` engines of this machine, `resolver` where to look.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the host side: its times, threads and environment enter no world

mod archive;
mod build;
mod child;
mod config;
mod decompress;
mod digest;
mod engine;
mod error;
mod http;
mod image;
mod layer;
mod limits;
mod manifest;
mod parallel;
mod progress;
mod reference;
mod registry;
mod resolver;
mod rootfs;
mod store;
mod tar;

pub use build::{BuildContext, BuildSpec};
pub use config::{HealthConfig, ImageConfig};
pub use digest::Digest;
pub use engine::{About, Control, EngineChoice, EngineError, ExecCommand, Executed, Life, Listed, Rubbish};
pub use error::{Error, ErrorKind};
pub use http::Timeouts;
pub use image::Image;
pub use limits::Limits;
pub use progress::{Credential, Event, Progress, Silent};
pub use reference::Reference;
pub use registry::settings::Settings;
pub use resolver::{ImageSource, Options, PullPolicy, Resolver};
pub use rootfs::{ContentKey, Entry, EntryKind, FileId, RootFs};
pub use store::{Origin, Record, Removed, Store};
