//! The text of a bloodhound.yaml for services that have been looked at.
//!
//! Key function: [`text`].

use std::fmt::Write as _;

use bloodhound_config::{Compose, Selection};

use super::survey::Found;

/// The whole file. `named` is the compose file if the configuration has to name it.
pub(super) fn text(
    compose: &Compose,
    services: &[Found],
    named: Option<&str>,
    selection: &Selection,
) -> String {
    let mut out = String::new();
    let files: Vec<String> = selection.files.iter().map(|path| path.display().to_string()).collect();
    // Writing into a String cannot fail.
    let _ = write!(
        out,
        "# Written by `bloodhound init` from {}. Change what you like: `bloodhound validate` says what is wrong,\n\
         # `bloodhound schema` prints the JSON schema for editors, docs/configuration.md has all keys.\n\n",
        files.join(" and ")
    );
    match named {
        Some(file) => {
            let _ = writeln!(out, "compose: {}\n", quoted(file));
        }
        None if selection.files.len() > 1 => {
            out.push_str(
                "# The usual compose files beside this one are used, or those that --compose names.\n\n",
            );
        }
        None => {}
    }
    found(&mut out, services);
    out.push_str(
        "simulation:\n  seeds: 50               # how many runs; each seed is another order of events and other faults\n  \
         max_time: 3m            # longest run, in simulated time, from when all services are ready\n  \
         start_timeout: 5m       # longest start, in simulated time\n\n",
    );
    workload(&mut out, services);
    properties(&mut out, services);
    out.push_str(
        "# What goes wrong in each run. These are mild; raise them when all is well.\nfaults:\n  duration: 30s\n  network:\n    \
         drop_rate: 0.001      # packets that are lost\n    delay_rate: 0.01\n    delay_ms: 50\n",
    );
    out.push_str("  # process:\n  #   crash_probability: 0.001\n  #   crash_restart_ms: [500, 5000]\n");
    let stores: Vec<&str> =
        services.iter().filter(|s| s.stateful.is_some()).map(|s| s.name.as_str()).collect();
    if !stores.is_empty() {
        let _ = writeln!(
            out,
            "  #   # Crashes show whether what was acknowledged is still there: {} {} data.",
            stores.join(", "),
            if stores.len() == 1 { "keeps" } else { "keep" }
        );
    }
    secrets(&mut out, compose);
    out
}

/// What was found, as comments.
fn found(out: &mut String, services: &[Found]) {
    out.push_str("# What was found:\n");
    for service in services {
        let mut said = vec![service.from.clone()];
        if let Some(port) = service.http {
            let published =
                service.published.map_or_else(String::new, |port| format!(", published as localhost:{port}"));
            said.push(format!("HTTP at {}:{port}{published}", service.name));
        }
        said.extend(service.health.as_ref().map(|path| format!("health at {path}")));
        said.extend(service.stateful.clone());
        if service.one_shot {
            said.push("ends by itself, and others wait for it".to_owned());
        }
        let line: String = said.join("; ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(out, "#   {}: {line}", service.name);
    }
    out.push('\n');
}

fn workload(out: &mut String, services: &[Found]) {
    let Some((service, port)) = entrance(services) else {
        out.push_str(
            "# No HTTP port was found, so there is no workload: docs/configuration.md, `workload`.\n\n",
        );
        return;
    };
    let path = service.health.as_deref().unwrap_or("/");
    let _ = write!(
        out,
        "# Clients ask all the time, so that faults meet requests. Put requests of your own in the place of this one.\nworkload:\n  \
         driver: http\n  config:\n    target: {}\n    qps: 5\n    duration: 30s\n    operations:\n      \
         - {{name: ask, type: custom, request: {{method: GET, path: {}}}, response: {{ok: [2xx, 3xx, 4xx], fail: [5xx, refused, timeout, reset]}}}}\n\n",
        quoted(&format!("http://{}:{port}", service.name)),
        quoted(path),
    );
}

/// The service that is asked: the published one first.
fn entrance(services: &[Found]) -> Option<(&Found, u16)> {
    let all = || services.iter().filter_map(|service| Some((service, service.http?)));
    all().find(|(service, _)| service.published.is_some()).or_else(|| all().next())
}

fn properties(out: &mut String, services: &[Found]) {
    out.push_str(
        "properties:\n  - name: no crash\n    kind: safety\n    description: \"No process ends by a signal or with an error\"\n    \
         check: {type: no-crash}\n",
    );
    for service in services {
        let Some(port) = service.http else { continue };
        let (path, statuses, what) = match &service.health {
            Some(path) => (path.as_str(), "[2xx]", "is healthy"),
            // A page that is not there, or asks for a password, is an answer as well.
            None => ("/", "[2xx, 3xx, 4xx]", "answers"),
        };
        let _ = write!(
            out,
            "  - name: {}\n    kind: liveness          # once the faults are over, it must hold again within the timeout\n    \
             timeout: 60s\n    check:\n      type: http\n      endpoint: {}\n      expect: {{status: {statuses}}}\n",
            quoted(&format!("{} {what} again", service.name)),
            quoted(&format!("http://{}:{port}{path}", service.name)),
        );
    }
    out.push('\n');
}

fn secrets(out: &mut String, compose: &Compose) {
    let secret = |name: &str| {
        let upper = name.to_ascii_uppercase();
        ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "PRIVATE_KEY", "API_KEY"]
            .iter()
            .any(|word| upper.contains(word))
            && !upper.ends_with("_FILE")
    };
    let mut names: Vec<&String> = compose
        .services
        .iter()
        .flat_map(|s| &s.environment)
        .map(|(name, _)| name)
        .filter(|name| secret(name))
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return;
    }
    let list: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let _ = write!(
        out,
        "\n# Values of these variables are left out of everything that is printed and written, like those of `secrets` and `env_file`.\n\
         output:\n  redact: [{}]\n",
        list.join(", ")
    );
}

/// A text in double quotes, as YAML and JSON have it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
