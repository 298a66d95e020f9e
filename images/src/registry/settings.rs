//! Which servers are asked for a registry, and how they are believed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, shown};
use crate::http::socket::Proxies;
use crate::http::tls::Certificates;
use crate::http::url::Url;
use crate::http::{Client, Timeouts};
use crate::reference::{HUB, Reference};

/// How registries are reached.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Servers that are asked before a registry, by the registry's name (`docker.io`): `https://mirror.example`, with a path
    /// or without.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Files with certificates (PEM) of further authorities.
    pub ca: Vec<PathBuf>,
    /// Registries, as `host` or `host:port`, that may speak plain HTTP or have any certificate.
    pub insecure: Vec<String>,
    /// A file with credentials in the form of Docker's config.json, which is looked into first.
    pub config: Option<PathBuf>,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// A server that is asked.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Scheme, host, port, and a path before `/v2/` if there is one.
    pub(crate) base: String,
    /// The name under which credentials are kept.
    pub(crate) registry: String,
    pub(crate) repository: String,
    /// Any certificate is believed.
    pub(crate) insecure: bool,
    /// It is the one before without TLS: asked only if that one does not speak TLS.
    pub(crate) without_tls: bool,
}

impl Settings {
    pub(super) fn client(&self) -> Result<Client, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        Ok(Client {
            timeouts: self.timeouts,
            tls: Arc::new(Certificates::new(&self.ca, &variable)?),
            proxies: Arc::new(Proxies::from_environment(&variable)?),
        })
    }

    /// The servers for an image, in the order in which they are asked.
    pub(super) fn endpoints(&self, reference: &Reference) -> Result<Vec<Endpoint>, Error> {
        let mut endpoints = Vec::new();
        for mirror in self.mirrors.get(&reference.registry).into_iter().flatten() {
            let whole = if mirror.contains("://") { mirror.clone() } else { format!("https://{mirror}") };
            let url = Url::parse(whole.trim_end_matches('/')).map_err(|e| e.at("a mirror"))?;
            let registry = url.authority();
            let insecure = self.is_insecure(&registry);
            if whole.starts_with("http://") && !insecure {
                let text = format!(
                    "the mirror {} speaks plain http: name {registry} as insecure as well",
                    shown(mirror.as_bytes())
                );
                return Err(Error::new(ErrorKind::Usage, text));
            }
            let path = url.path.trim_end_matches('/');
            endpoints.push(Endpoint {
                base: format!("{}{path}", url.origin()),
                registry,
                repository: reference.repository.clone(),
                insecure,
                without_tls: false,
            });
        }
        let registry = reference.registry.clone();
        let host = if registry == HUB { "registry-1.docker.io" } else { &registry };
        let insecure = self.is_insecure(&registry);
        let mut own = Endpoint {
            base: format!("https://{host}"),
            registry: registry.clone(),
            repository: reference.repository.clone(),
            insecure,
            without_tls: false,
        };
        Url::parse(&own.base)?;
        endpoints.push(own.clone());
        if insecure {
            // As engines do: whoever speaks no TLS is asked without.
            (own.base, own.without_tls) = (format!("http://{host}"), true);
            endpoints.push(own);
        }
        Ok(endpoints)
    }

    fn is_insecure(&self, registry: &str) -> bool {
        self.insecure.iter().any(|name| name.trim_end_matches('/') == registry)
    }
}
