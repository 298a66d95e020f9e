//! Which image a service has, found once for all services that name it.
//!
//! Key type: [`Images`]. A replay pins names to the images of its finding ([`Pin`]), for a tag may mean another image by then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bloodhound_config::compose::{Compose, MountSource, PullPolicy, Rootfs, Service};
use bloodhound_images::{Image, ImageConfig, ImageSource, PullPolicy as Policy, Resolver};
use bloodhound_vfs::TreeId;
use bloodhound_vfs::host::HostBase;

use super::build;
use super::image_tree::Tree;
use super::upgrades::Next;
use super::{Pieces, Refusal};

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
    /// The image itself.
    pub(super) image: Option<Arc<Image>>,
}

/// The images of all services.
#[derive(Clone, Debug, Default)]
pub(super) struct Images {
    found: BTreeMap<String, Found>,
}

impl Images {
    /// Finds them and adds them to the base layer, with those of upgrades. Of one that cannot be had nothing is known.
    pub(super) fn find(
        (compose, next): (&Compose, &BTreeMap<String, Next>),
        base: &HostBase,
        finder: &Finder<'_>,
        refused: &mut Vec<Refusal>,
    ) -> Images {
        let mut images = Images::default();
        let running = compose.services.iter().map(|service| (service, None));
        let upgraded = next.values().map(|next| (&next.service, Some(&next.place)));
        let services = || running.clone().chain(upgraded.clone());
        for (service, place) in services().filter(|(service, _)| service.rootfs == Rootfs::Image) {
            let mut pieces = Pieces::new(compose, service, refused);
            pieces.keep("platform", platform(service));
            let name = reference(service);
            if images.found.contains_key(&name) {
                continue;
            }
            let key = if service.image.is_some() { "image" } else { "build" };
            let place = place.cloned().unwrap_or_else(|| compose.key_place(service, key));
            let image = find(finder, service, &name).unwrap_or_else(|text| {
                pieces.refuse(place, Refusal { missing: true, ..text.into() });
                None
            });
            let found = image.map_or_else(Found::unknown, |image| Found::new(base, &name, image));
            images.found.insert(name, found);
        }
        for (service, _) in services() {
            for mount in &service.mounts {
                let MountSource::Image(source) = &mount.source else { continue };
                if images.found.contains_key(&source.value) {
                    continue;
                }
                let image = match finder {
                    Finder::Resolver(resolver, pins) => {
                        resolve(resolver, pins, &source.value, Policy::Missing).map(Some)
                    }
                    Finder::IfThere(_) | Finder::Nowhere => Ok(None),
                };
                let image = image.unwrap_or_else(|text| {
                    let refusal = Refusal { missing: true, ..text.into() };
                    Pieces::new(compose, service, refused).refuse(compose.place(mount.at), refusal);
                    None
                });
                let found = image.map_or_else(Found::unknown, |image| Found::new(base, &source.value, image));
                images.found.insert(source.value.clone(), found);
            }
        }
        images
    }

    /// The files of an image that is mounted.
    pub(super) fn tree(&self, name: &str) -> Option<TreeId> {
        self.found.get(name)?.tree
    }

    /// The image of a service that has one.
    pub(super) fn of(&self, service: &Service) -> Option<&Found> {
        self.found.get(&reference(service))
    }
}

impl Found {
    fn new(base: &HostBase, name: &str, image: Arc<Image>) -> Found {
        let config = image.config.clone();
        let tree = Tree::new(Pin::name(name, &image), image.clone());
        Found { tree: Some(base.add_image(Arc::new(tree))), config, image: Some(image) }
    }

    /// An image of which nothing is known: it runs something.
    fn unknown() -> Found {
        let config = ImageConfig { cmd: Some(vec!["/unknown".into()]), ..ImageConfig::default() };
        Found { tree: None, config, image: None }
    }
}

/// The image, if it is there or can be had.
fn find(finder: &Finder<'_>, service: &Service, name: &str) -> Result<Option<Arc<Image>>, String> {
    match finder {
        Finder::Resolver(resolver, pins) => match build::wanted(service, resolver) {
            Some(build) => build::image(resolver, pins, name, service, build).map(Some),
            None => resolve(resolver, pins, name, policy(service)).map(Some),
        },
        Finder::IfThere(resolver) => {
            Ok(resolver.resolve(&ImageSource::Reference(name.to_owned()), Policy::Never).ok())
        }
        Finder::Nowhere => Ok(None),
    }
}

/// The name of a service's image.
fn reference(service: &Service) -> String {
    match &service.image {
        Some(image) => image.value.clone(),
        // No name of an image has a space, so this one is nobody else's.
        None => format!("{} (build)", service.name),
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

fn resolve(resolver: &Resolver, pins: &[Pin], name: &str, policy: Policy) -> Result<Arc<Image>, String> {
    let find = |name: &str, policy| resolver.resolve(&ImageSource::Reference(name.to_owned()), policy);
    let Some(pin) = pins.iter().find(|pin| pin.reference == name) else {
        return find(name, policy).map_err(|e| e.to_string());
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
