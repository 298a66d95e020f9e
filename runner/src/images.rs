//! Where container images come from, for the commands that run services.

use bloodhound_config::compose::{Compose, Rootfs};
use bloodhound_images::{Options, Resolver, Store};

use crate::session::Failure;

/// A resolver if a service of the stack has an image.
///
/// # Errors
/// The cache cannot be used.
pub fn resolver_for(compose: &Compose) -> Result<Option<Resolver>, Failure> {
    compose.services.iter().any(|service| service.rootfs == Rootfs::Image).then(resolver).transpose()
}

/// The resolver of this process, with the cache at its usual place.
///
/// # Errors
/// The cache cannot be used.
pub fn resolver() -> Result<Resolver, Failure> {
    let dir = Store::default_dir().map_err(|e| Failure::environment(e.to_string()))?;
    let store = Store::open(dir).map_err(|e| Failure::environment(e.to_string()))?;
    Ok(Resolver::new(store, Options::default()))
}
