//! Services with `build:`: the image is built, or found in the cache if nothing of what goes into it has changed.
//!
//! Neighbours: `image` asks for it; `bloodhound_images` knows who builds and what counts.

use std::sync::Arc;

use bloodhound_config::compose::{self, Build, PullPolicy, Service};
use bloodhound_images::{BuildContext, BuildSpec, Image, ImageSource, PullPolicy as Policy, Resolver};

use super::image::Pin;

/// What a service builds, if its image is to be built here. As for an engine, one that has a name and is there is not built again, unless
/// `pull_policy: build` says so; and `always` and `never` mean an image that somebody else builds.
pub(super) fn wanted<'a>(service: &'a Service, resolver: &Resolver) -> Option<&'a Build> {
    let build = service.build.as_ref()?;
    let Some(name) = &service.image else { return Some(build) };
    let there = || {
        let source = ImageSource::Reference(name.value.clone());
        resolver.resolve(&source, Policy::Never).is_ok()
    };
    match service.pull_policy {
        PullPolicy::Build => Some(build),
        PullPolicy::Always | PullPolicy::Never => None,
        PullPolicy::Missing | PullPolicy::Older(_) => (!there()).then_some(build),
    }
}

/// The image that is built; that of a finding, if there is one, is taken from the cache.
pub(super) fn image(
    resolver: &Resolver,
    pins: &[Pin],
    name: &str,
    service: &Service,
    build: &Build,
) -> Result<Arc<Image>, String> {
    let pin = pins.iter().find(|pin| pin.reference == name);
    if let Some(digest) = pin.and_then(|pin| pin.config.parse().ok())
        && let Some(image) = resolver.by_digest(&digest).map_err(|e| e.to_string())?
    {
        return Ok(image);
    }
    let spec = spec(build)?;
    let source = resolver.build(&format!("service {}", service.name), &spec).map_err(|e| e.to_string())?;
    let image = resolver.resolve(&source, Policy::Never).map_err(|e| e.to_string())?;
    match pin {
        Some(pin) if pin.config != image.config_digest.to_string() => Err(format!(
            "{name} builds another image now: it was {} and is {}\nhelp: go back to the files of the finding, or load its image",
            pin.config, image.config_digest
        )),
        _ => Ok(image),
    }
}

/// What the builder is told.
fn spec(build: &Build) -> Result<BuildSpec, String> {
    if !build.secrets.is_empty() {
        return Err(
            "`build.secrets` are not there yet: build the image elsewhere, and give it a name by `image`"
                .into(),
        );
    }
    let context = match &build.context {
        compose::BuildContext::Dir(path) => BuildContext::Dir(path.clone()),
        compose::BuildContext::Remote(address) => BuildContext::Remote(address.clone()),
    };
    Ok(BuildSpec {
        context,
        dockerfile: build.dockerfile.clone(),
        dockerfile_inline: build.dockerfile_inline.clone(),
        args: build.args.clone(),
        target: build.target.clone(),
        labels: build.labels.clone(),
        additional_contexts: build.additional_contexts.clone(),
        extra_hosts: build.extra_hosts.clone(),
        network: build.network.clone(),
        shm_size: build.shm_size,
        secrets: Vec::new(),
        ssh: build.ssh.clone(),
        cache_from: build.cache_from.clone(),
        no_cache: build.no_cache,
        pull: build.pull,
    })
}
