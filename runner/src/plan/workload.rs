//! The workload: what clients ask of the services, from the configuration's terms to the driver's.

use bloodhound_config::config;
use bloodhound_workloads::driver::DriverConfig;
use bloodhound_workloads::http as driver;

use super::{Planner, Refusal};

impl Planner<'_> {
    pub(super) fn workload(&self, w: &config::Workload, refused: &mut Vec<Refusal>) -> Option<DriverConfig> {
        let mut targets = Vec::new();
        for t in &w.targets {
            let e = &t.value;
            let address = match self.target(e) {
                Ok(address) => address,
                Err(refusal) => {
                    refused.push(refusal.at(t.place(&self.project.config.source)));
                    continue;
                }
            };
            let prefix = e.path.trim_end_matches('/').to_string();
            targets.push(driver::Target { host: host_header(e), address, prefix });
        }
        let workers = w.concurrency.max(w.clients).max(1);
        Some(DriverConfig::Http(driver::HttpConfig {
            targets,
            arrivals: match w.qps_milli {
                Some(milli) => driver::Arrivals::Open { per_kilosecond: milli },
                None => driver::Arrivals::Closed,
            },
            workers,
            clients: w.clients.clamp(1, workers),
            duration_ns: w.duration_ns,
            max_operations: w.max_operations,
            timeout_ns: w.timeout_ns,
            keep_alive: w.keep_alive,
            operations: w.operations.iter().map(operation).collect(),
        }))
    }
}

pub(super) fn host_header(e: &bloodhound_config::Endpoint) -> String {
    if e.port == 80 { e.host.clone() } else { format!("{}:{}", e.host, e.port) }
}

fn pattern(p: &bloodhound_config::pattern::Pattern) -> driver::Pattern {
    use bloodhound_config::pattern::Part as From;
    let part = |part: &From| match part {
        From::Literal(text) => driver::Part::Literal(text.clone()),
        From::Random { min, max } => driver::Part::Random { min: *min, max: *max },
        From::Seq => driver::Part::Seq,
        From::Uuid => driver::Part::Uuid,
        From::Client => driver::Part::Client,
        From::Key => driver::Part::Key,
        From::Value => driver::Part::Value,
        From::Old => driver::Part::Old,
        From::New => driver::Part::New,
    };
    driver::Pattern(p.parts.iter().map(part).collect())
}

fn operation(o: &config::Operation) -> driver::Operation {
    let matches = |list: &[config::Outcome]| -> Vec<driver::Match> {
        let one = |m: &config::Outcome| match m {
            config::Outcome::Status { first, last } => driver::Match::Status { first: *first, last: *last },
            config::Outcome::Timeout => driver::Match::Timeout,
            config::Outcome::Reset => driver::Match::Reset,
            config::Outcome::Refused => driver::Match::Refused,
        };
        list.iter().map(one).collect()
    };
    let r = &o.request;
    driver::Operation {
        name: o.name.clone(),
        kind: match o.kind {
            config::OperationKind::Put => driver::Kind::Put,
            config::OperationKind::Get => driver::Kind::Get,
            config::OperationKind::Delete => driver::Kind::Delete,
            config::OperationKind::Cas => driver::Kind::Cas,
            config::OperationKind::Custom => driver::Kind::Custom,
        },
        weight: o.weight,
        key: pattern(&o.key),
        value: pattern(&o.value),
        request: driver::config::RequestTemplate {
            method: r.method.clone(),
            path: r.path.as_ref().map(pattern),
            headers: r.headers.iter().map(|(k, v)| (k.clone(), pattern(v))).collect(),
            body: r.body.as_ref().map(pattern),
        },
        rules: driver::Rules {
            ok: matches(&o.response.ok),
            fail: matches(&o.response.fail),
            unknown: matches(&o.response.unknown),
            not_found: matches(&o.response.not_found),
            mismatch: matches(&o.response.mismatch),
            value: match &o.response.value {
                Some(config::ValueSource::JsonPointer(p)) => driver::ValueSource::JsonPointer(p.clone()),
                _ => driver::ValueSource::Body,
            },
        },
    }
}
