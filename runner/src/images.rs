//! Where container images come from: the options that tell it, for the commands that run services and for `bloodhound image`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bloodhound_config::compose::{Compose, Rootfs};
use bloodhound_config::config::Images;
use bloodhound_images::{EngineChoice, Options, Resolver, Settings, Store};

use crate::image::{Bars, failure};
use crate::session::Failure;

/// How images are found. docs/images.md explains it.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Images")]
pub struct ImageArgs {
    /// Ask no registry: images must be in the cache or in an engine of this machine
    #[arg(long)]
    offline: bool,
    /// A file with credentials for registries, in the form of Docker's config.json; it is looked into first
    #[arg(long, value_name = "FILE")]
    registry_config: Option<PathBuf>,
    /// A file with certificates (PEM) of authorities that registries may have; may be repeated
    #[arg(long, value_name = "FILE")]
    registry_ca: Vec<PathBuf>,
    /// A registry (host or host:port) that may speak plain HTTP or have any certificate; may be repeated
    #[arg(long, value_name = "HOST")]
    insecure_registry: Vec<String>,
    /// A server that is asked before a registry, for example docker.io=https://mirror.example; may be repeated
    #[arg(long, value_name = "REGISTRY=URL", value_parser = mirror)]
    registry_mirror: Vec<(String, String)>,
    /// The directory of the image cache [default: $BLOODHOUND_CACHE, $XDG_CACHE_HOME/bloodhound or ~/.cache/bloodhound]
    #[arg(long, value_name = "DIR")]
    image_cache: Option<PathBuf>,
}

/// `REGISTRY=URL`.
fn mirror(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((registry, url)) if !registry.is_empty() && !url.is_empty() => {
            Ok((registry.to_owned(), url.to_owned()))
        }
        _ => Err("a registry and an address are needed, such as docker.io=https://mirror.example".to_owned()),
    }
}

impl ImageArgs {
    /// What these say, and what a configuration says.
    fn options(&self, config: &Images) -> Options {
        let mut mirrors: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (registry, url) in self.registry_mirror.iter().chain(&config.mirrors) {
            mirrors.entry(registry.clone()).or_default().push(url.clone());
        }
        let registries = Settings {
            mirrors,
            ca: [&self.registry_ca[..], &config.registry_ca].concat(),
            insecure: [&self.insecure_registry[..], &config.insecure_registries].concat(),
            config: self.registry_config.clone().or_else(|| config.registry_config.clone()),
            ..Settings::default()
        };
        let progress = Arc::new(Bars::new());
        Options { offline: self.offline || config.offline, registries, progress, ..Options::default() }
    }
}

/// A resolver if a service of the stack has an image.
///
/// # Errors
/// The cache cannot be used.
pub fn resolver_for(
    compose: &Compose,
    args: &ImageArgs,
    config: &Images,
) -> Result<Option<Resolver>, Failure> {
    has_images(compose).then(|| resolver_with(args, config)).transpose()
}

/// A resolver for a look at the files only, which asks nobody else.
pub fn cache_for(compose: &Compose) -> Option<Resolver> {
    let mut resolver = has_images(compose).then(|| resolver(&ImageArgs::default()).ok()).flatten()?;
    (resolver.options.offline, resolver.options.engine) = (true, EngineChoice::Off);
    Some(resolver)
}

fn has_images(compose: &Compose) -> bool {
    let mut all = compose.services.iter().chain(&compose.definitions);
    all.any(|service| service.rootfs == Rootfs::Image)
}

/// A resolver with these options.
///
/// # Errors
/// The cache cannot be used.
pub fn resolver(args: &ImageArgs) -> Result<Resolver, Failure> {
    resolver_with(args, &Images::default())
}

fn resolver_with(args: &ImageArgs, config: &Images) -> Result<Resolver, Failure> {
    let dir = args.image_cache.clone().map_or_else(Store::default_dir, Ok).map_err(|e| failure(&e))?;
    let store = Store::open(dir).map_err(|e| failure(&e))?;
    Ok(Resolver::new(store, args.options(config)))
}
