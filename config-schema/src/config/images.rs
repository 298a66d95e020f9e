//! The section `images`: which servers give container images, and how they are believed. The command line says the same for one run.
//!
//! Key type: [`Images`].

use std::path::PathBuf;

use bloodhound_declare::{Key, Section, ValueKind};

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, quoted};

use super::read::Settings;

pub(super) static IMAGES: Section = Section::new(
    "Images",
    "where container images come from",
    &[
        Key::new(
            "mirrors",
            ValueKind::List(&ValueKind::Name("mirror")),
            "servers that are asked before a registry, such as `docker.io=https://mirror.example`",
        )
        .otherwise("none"),
        Key::new(
            "registry_ca",
            ValueKind::List(&ValueKind::Path),
            "files with certificates (PEM) of further authorities",
        )
        .otherwise("those of the system"),
        Key::new(
            "insecure_registries",
            ValueKind::List(&ValueKind::Name("host")),
            "registries (host or host:port) that may speak plain HTTP or have any certificate",
        )
        .otherwise("none"),
        Key::new(
            "registry_config",
            ValueKind::Path,
            "a file with credentials in the form of Docker's config.json, which is looked into first",
        )
        .otherwise("the files of Docker and Podman"),
        Key::new(
            "offline",
            ValueKind::Bool,
            "ask no registry: images must be in the cache or in an engine of this machine",
        )
        .default("false"),
    ],
);

/// The section `images`; what its keys mean is declared in `IMAGES`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// `mirrors`: registries, each with an address.
    pub mirrors: Vec<(String, String)>,
    /// `registry_ca`, resolved against the directory of bloodhound.yaml.
    pub registry_ca: Vec<PathBuf>,
    /// `insecure_registries`.
    pub insecure_registries: Vec<String>,
    /// `registry_config`, resolved against the directory of bloodhound.yaml.
    pub registry_config: Option<PathBuf>,
    /// `offline`.
    pub offline: bool,
}

pub(super) fn images(ctx: &mut Ctx, settings: &Settings<'_>) -> Images {
    let written: Vec<Located<String>> = settings.get(ctx, "mirrors").unwrap_or_default();
    let mut mirrors = Vec::new();
    for mirror in written {
        match mirror.value.split_once('=') {
            Some((registry, url)) if !registry.is_empty() && !url.is_empty() => {
                mirrors.push((registry.to_owned(), url.to_owned()));
            }
            _ => {
                let message = format!("{} is no mirror", quoted(&mirror.value));
                ctx.error(Code::Malformed, mirror.span, message)
                    .help("write a registry and an address, such as docker.io=https://mirror.example");
            }
        }
    }
    Images {
        mirrors,
        registry_ca: settings.get(ctx, "registry_ca").unwrap_or_default(),
        insecure_registries: settings.get(ctx, "insecure_registries").unwrap_or_default(),
        registry_config: settings.get(ctx, "registry_config"),
        offline: settings.value(ctx, "offline"),
    }
}
