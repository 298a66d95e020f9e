//! What the services of a compose file seem to be: who answers HTTP, where its health can be asked for, who keeps data, who ends.
//!
//! Key function: [`survey`]. Everything is a guess from names, ports and health checks, and is written as such.

use bloodhound_config::Compose;
use bloodhound_config::compose::{Condition, HealthTest, MountSource, Rootfs, Service};

/// What a service seems to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: String,
    /// Where its files come from, in words.
    pub(super) from: String,
    /// The port on which it seems to answer HTTP.
    pub(super) http: Option<u16>,
    /// The path of its health endpoint.
    pub(super) health: Option<String>,
    /// Why it seems to keep data.
    pub(super) stateful: Option<String>,
    /// It ends by itself: others wait for that.
    pub(super) one_shot: bool,
    /// The port of the host that leads to its HTTP port.
    pub(super) published: Option<u16>,
}

/// Names of images that keep data or pass messages, and speak a protocol of their own.
const STORES: &[&str] = &[
    "postgres",
    "postgis",
    "timescaledb",
    "mysql",
    "mariadb",
    "percona",
    "mongo",
    "redis",
    "valkey",
    "keydb",
    "memcached",
    "cassandra",
    "scylla",
    "cockroach",
    "etcd",
    "zookeeper",
    "kafka",
    "redpanda",
    "rabbitmq",
    "nats",
    "pulsar",
    "activemq",
    "mosquitto",
    "clickhouse",
    "mssql",
    "oracle",
    "db2",
    "couchbase",
    "neo4j",
    "rethinkdb",
    "tidb",
    "tikv",
    "vitess",
    "foundationdb",
];
/// Names of images of web servers.
const WEB: &[&str] =
    &["nginx", "httpd", "apache", "caddy", "traefik", "haproxy", "envoy", "wordpress", "ghost", "php"];
/// Ports on which HTTP is usual.
const HTTP_PORTS: &[u16] = &[80, 3000, 4000, 5000, 8000, 8008, 8080, 8081, 8088, 8888, 9000, 9090];

/// What each service seems to be, in the order of the file.
pub(super) fn survey(compose: &Compose) -> Vec<Found> {
    compose.services.iter().map(|service| found(compose, service)).collect()
}

fn found(compose: &Compose, service: &Service) -> Found {
    let image = service.image.as_ref().map(|image| image.value.clone()).unwrap_or_default();
    let word = |words: &[&str]| words.iter().any(|word| base_name(&image).contains(word));
    let volume = service.mounts.iter().find_map(|mount| match &mount.source {
        MountSource::Volume(name) if !mount.read_only => Some(name.clone()),
        _ => None,
    });
    let store = word(STORES);
    let stateful = match (&volume, store) {
        (Some(name), _) => Some(format!("it has the volume {name}")),
        (None, true) => Some("its image keeps data".to_owned()),
        (None, false) => None,
    };
    let one_shot = compose
        .services
        .iter()
        .flat_map(|s| &s.depends_on)
        .any(|d| d.service.value == service.name && d.condition == Condition::CompletedSuccessfully);
    let checked = asked(service);
    let http = match &checked {
        Some((port, _)) => Some(*port),
        None if store || one_shot => None,
        None => usual_port(service).or_else(|| word(WEB).then_some(80)),
    };
    let published = http.and_then(|http| {
        let port = service.ports.iter().find(|p| !p.udp && p.target == http)?;
        port.published.map(|(first, _)| first)
    });
    Found {
        name: service.name.clone(),
        from: match (&service.rootfs, &service.build) {
            (Rootfs::Image, None) => format!("the image {image}"),
            (Rootfs::Image, Some(_)) => "an image that is built".to_owned(),
            (Rootfs::Host, _) => "this machine's files".to_owned(),
            (Rootfs::Dir(dir), _) => format!("the directory {}", dir.display()),
        },
        http,
        health: checked.map(|(_, path)| path),
        stateful,
        one_shot,
        published,
    }
}

/// `postgres` of `docker.io/library/postgres:16`.
fn base_name(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split([':', '@']).next().unwrap_or(name)
}

/// A TCP port that is published or exposed and on which HTTP is usual.
fn usual_port(service: &Service) -> Option<u16> {
    let exposed = service.expose.iter().filter_map(|text| text.trim_end_matches("/tcp").parse().ok());
    let mut all = service.ports.iter().filter(|p| !p.udp).map(|p| p.target).chain(exposed);
    all.find(|port| HTTP_PORTS.contains(port))
}

/// Port and path that the health check asks, if it is an HTTP request to the service itself.
fn asked(service: &Service) -> Option<(u16, String)> {
    let line = match &service.own_healthcheck()?.test {
        HealthTest::Exec(words) => words.join(" "),
        HealthTest::Shell(line) => line.clone(),
    };
    let (_, rest) = line.split_once("http://")?;
    let address: String =
        rest.chars().take_while(|c| !c.is_whitespace() && !"\"'|;&)<>`".contains(*c)).collect();
    let slash = address.find('/').unwrap_or(address.len());
    let (host, path) = address.split_at(slash);
    let (host, port) = host.rsplit_once(':').unwrap_or((host, "80"));
    let own = ["localhost", "127.0.0.1", "0.0.0.0", "[::1]", service.name.as_str()].contains(&host);
    let usable = |path: &str| path.chars().all(|c| c.is_ascii_graphic() && !"\\\"'{}$#".contains(c));
    let path = if path.is_empty() { "/" } else { path };
    (own && usable(path)).then_some(())?;
    Some((port.parse().ok().filter(|port| *port > 0)?, path.to_owned()))
}
