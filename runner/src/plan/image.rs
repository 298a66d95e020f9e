//! Which image a service has, found once for all services that name it.
//!
//! Key type: [`Images`]. A replay pins names to the images of its finding ([`Pin`]), for a tag may mean another image by then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bloodhound_config::compose::{PullPolicy, Rootfs, Service};
use bloodhound_images::{Image, ImageConfig, ImageSource, PullPolicy as Policy, Resolver};
use bloodhound_vfs::TreeId;
use bloodhound_vfs::host::HostBase;

use super::Refusal;
use super::build;
use super::image_tree::Tree;

/// What programs can be run.
const PLATFORMS: [&str; 3] = ["linux/amd64", "linux/x86_64", "linux"];

/// Where images come from.
pub enum Finder<'a> {
    /// From here.
    Resolver(&'a Resolver, Vec<Pin>),
    /// From here, but an image that is not there is passed over: for a look at the files only.
    IfThere(&'a Resolver),
    /// From nowhere: no service has one.
    Nowhere,
}

/// An image that a name must mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The name in the compose file.
    pub reference: String,
    /// The digest of its manifest, `sha256:...`.
    pub manifest: String,
    /// The digest of its configuration, `sha256:...`.
    pub config: String,
}

impl Pin {
    /// What a finding calls the image.
    pub(super) fn name(reference: &str, image: &Image) -> String {
        format!("{reference}@{}", image.digest)
    }

    /// From what a finding has: the name of [`Pin::name`] and the digest of the configuration in hexadecimal.
    pub fn parse(name: &str, config: &str) -> Option<Pin> {
        let (reference, manifest) = name.rsplit_once('@')?;
        Some(Pin {
            reference: reference.into(),
            manifest: manifest.into(),
            config: format!("sha256:{config}"),
        })
    }
}

/// An image of the base layer.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) tree: Option<TreeId>,
    pub(super) config: ImageConfig,
}

/// The images of all services.
#[derive(Clone, Debug, Default)]
pub(super) struct Images {
    found: BTreeMap<String, Found>,
}

impl Images {
    /// Finds them and adds them to the base layer.
    pub(super) fn find(
        services: &[Service],
        base: &HostBase,
        finder: &Finder<'_>,
    ) -> Result<Images, Refusal> {
        let mut images = Images::default();
        for service in services.iter().filter(|service| service.rootfs == Rootfs::Image) {
            let name = reference(service)?;
            if images.found.contains_key(&name) {
                continue;
            }
            let refuse =
                |text: String| Refusal { text: format!("service {}: {text}", service.name), missing: true };
            platform(service).map_err(|text| Refusal { missing: false, ..refuse(text) })?;
            let found = match finder {
                Finder::Resolver(resolver, pins) => {
                    let image = match build::wanted(service, resolver) {
                        Some(build) => build::image(resolver, pins, &name, service, build),
                        None => resolve(resolver, pins, &name, service),
                    };
                    let image = image.map_err(refuse)?;
                    Found::new(base, &name, image)
                }
                Finder::IfThere(resolver) => {
                    let source = ImageSource::Reference(name.clone());
                    match resolver.resolve(&source, Policy::Never) {
                        Ok(image) => Found::new(base, &name, image),
                        Err(_) => Found::unknown(),
                    }
                }
                Finder::Nowhere => Found::unknown(),
            };
            images.found.insert(name, found);
        }
        Ok(images)
    }

    /// The image of a service that has one.
    pub(super) fn of(&self, service: &Service) -> Result<&Found, Refusal> {
        let name = reference(service)?;
        self.found.get(&name).ok_or_else(|| format!("{name}: this image was not looked for").into())
    }
}

impl Found {
    fn new(base: &HostBase, name: &str, image: Arc<Image>) -> Found {
        let config = image.config.clone();
        Found { tree: Some(base.add_image(Arc::new(Tree::new(Pin::name(name, &image), image)))), config }
    }

    /// An image of which nothing is known: it runs something.
    fn unknown() -> Found {
        let config = ImageConfig { entrypoint: Some(vec!["/unknown".into()]), ..ImageConfig::default() };
        Found { tree: None, config }
    }
}

/// The name of a service's image.
fn reference(service: &Service) -> Result<String, Refusal> {
    match (&service.image, &service.build) {
        (Some(image), _) => Ok(image.value.clone()),
        // No name of an image has a space, so this one is nobody else's.
        (None, Some(_)) => Ok(format!("{} (build)", service.name)),
        (None, None) => Err(format!("service {}: it has no image", service.name).into()),
    }
}

fn platform(service: &Service) -> Result<(), String> {
    match &service.platform {
        Some(wanted) if !PLATFORMS.contains(&wanted.value.as_str()) => {
            Err(format!("platform {}: programs for linux/amd64 can be run, no others", wanted.value))
        }
        _ => Ok(()),
    }
}

fn policy(service: &Service) -> Policy {
    match service.pull_policy {
        PullPolicy::Missing => Policy::Missing,
        PullPolicy::Always => Policy::Always,
        PullPolicy::Never => Policy::Never,
        PullPolicy::Build => Policy::Build,
        PullPolicy::Older(seconds) => Policy::Every(Duration::from_secs(seconds)),
    }
}

fn resolve(resolver: &Resolver, pins: &[Pin], name: &str, service: &Service) -> Result<Arc<Image>, String> {
    let find = |name: &str, policy| resolver.resolve(&ImageSource::Reference(name.to_owned()), policy);
    let Some(pin) = pins.iter().find(|pin| pin.reference == name) else {
        return find(name, policy(service)).map_err(|e| e.to_string());
    };
    let wanted = |image: &Arc<Image>| image.config_digest.to_string() == pin.config;
    let by_name = find(name, Policy::Missing);
    if let Ok(image) = &by_name
        && wanted(image)
    {
        return by_name.map_err(|e| e.to_string());
    }
    let plain = name.split_once('@').map_or(name, |(plain, _)| plain);
    match find(&format!("{plain}@{}", pin.manifest), Policy::Missing) {
        Ok(image) if wanted(&image) => Ok(image),
        _ => Err(match by_name {
            Ok(image) => format!(
                "{name} is another image now: it was {} and is {}\nhelp: load the image that the finding was made with",
                pin.config, image.config_digest
            ),
            Err(error) => error.to_string(),
        }),
    }
}
