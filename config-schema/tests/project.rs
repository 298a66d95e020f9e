//! A configuration and its compose file together: names, missing files, and the choice of the compose file.

use std::path::{Path, PathBuf};

use bloodhound_config::compose::Variables;
use bloodhound_config::config::FileChecks;
use bloodhound_config::tree::Source;
use bloodhound_config::{
    Code, Compose, Config, Diagnostic, Project, Selection, check_names, has_errors, render,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn stack() -> Compose {
    let variables = Variables::from([("FROM_CALLER".to_owned(), "x".to_owned())]);
    Compose::load(&data("stack/docker-compose.yml"), &variables).0.expect("the stack is fine")
}

fn names(text: &str) -> Vec<Diagnostic> {
    let (config, diagnostics) = Config::decode(Source::new(Path::new("f.yaml"), text), FileChecks::Lenient);
    check_names(&config.unwrap_or_else(|| panic!("{diagnostics:#?}")), &stack())
}

fn errors(diagnostics: &[Diagnostic]) -> Vec<(Code, u32)> {
    let line = |d: &Diagnostic| d.place.as_ref().map_or(0, |p| p.line);
    diagnostics.iter().filter(|d| d.is_error()).map(|d| (d.code, line(d))).collect()
}

#[test]
fn hosts_and_services_must_exist() {
    let said = names(
        "workload:\n  config:\n    targets: [http://lbb:80/x, http://edge, http://kv-3, http://10.5.0.9, http://kv]\n    \
         operations: [{type: get}]\nproperties:\n  - {name: a, kind: liveness, check: {type: http, endpoint: \
         'http://nope'}}\n  - {name: b, kind: safety, check: {type: no-crash, services: [kv, init, kvv]}}\n  \
         - {name: c, kind: invariant, check: {type: custom, script: /x, service: lb-1}}\nfaults:\n  process: \
         {services: [edge]}\n",
    );
    let lines: Vec<_> = errors(&said);
    let code = Code::UnknownService;
    assert_eq!(lines, [(code, 3), (code, 6), (code, 7), (code, 8), (code, 10)]);
    assert_eq!(said[0].suggestion.as_deref(), Some("http://lb:80/x"));
    assert_eq!(said[2].suggestion.as_deref(), Some("kv"));
}

#[test]
fn an_unknown_host_reads_well() {
    let said =
        names("properties: []\nworkload: {config: {target: 'http://kvv:80', operations: [{type: get}]}}\n");
    let text: String = said.iter().map(|d| render::text(d, false)).collect();
    let file = data("stack/docker-compose.yml").display().to_string();
    assert_eq!(
        text,
        format!(
            "error[BH0020]: no service `kvv` in {file}\n --> f.yaml:2:29\n  |\n2 | workload: {{config: {{target: \
             'http://kvv:80', operations: [{{type: get}}]}}}}\n  |                             ^^^^^^^^^^^^^^^\n  |\n  \
             = help: did you mean `http://kv:80/`?\n  = help: services: `lb`, `kv` and `init`\n"
        )
    );
}

#[test]
fn everything_is_there() {
    let environment = Variables::from([("FROM_CALLER".to_owned(), "x".to_owned())]);
    let (project, diagnostics) = Project::load(&data("every-key.yaml"), &Selection::default(), &environment);
    // The script of a check is the only thing that is not in the repository's test data.
    assert_eq!(errors(&diagnostics), [(Code::MissingFile, 87)]);
    assert!(project.is_none());
    let said = Project::validate(&data("every-key.yaml"), &Selection::default(), &environment);
    assert!(!has_errors(&said), "{said:#?}");
    assert!(said.iter().any(|d| d.code == Code::MissingFile));
}

#[test]
fn a_missing_compose_file_is_an_error_for_a_run_only() {
    let reference = data("reference.yaml");
    let (project, diagnostics) = Project::load(&reference, &Selection::default(), &Variables::new());
    assert!(project.is_none());
    // The two scripts; the compose file is not looked for when the configuration itself cannot be used.
    assert_eq!(errors(&diagnostics), [(Code::MissingFile, 45), (Code::MissingFile, 50)]);
    let said = Project::validate(&reference, &Selection::default(), &Variables::new());
    assert!(!has_errors(&said), "{said:#?}");
    assert!(said.iter().any(|d| d.message.contains("docker-compose.yml does not exist")));
}

#[test]
fn the_compose_file_can_be_given_or_found() {
    let dir = std::env::temp_dir().join(format!("bloodhound-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let service = "services: {a: {command: x, x-bloodhound: {rootfs: host}}}\n";
    let config = dir.join("bloodhound.yaml");
    std::fs::write(&config, "properties: [{name: p, kind: safety, check: {type: no-crash}}]\n")
        .expect("written");
    let (project, diagnostics) = Project::load(&config, &Selection::default(), &Variables::new());
    assert!(project.is_none());
    assert_eq!(errors(&diagnostics), [(Code::MissingKey, 0)]);
    std::fs::write(dir.join("compose.yml"), service).expect("written");
    let (project, diagnostics) = Project::load(&config, &Selection::default(), &Variables::new());
    let project = project.unwrap_or_else(|| panic!("{diagnostics:#?}"));
    assert_eq!(project.compose.source.path, dir.join("compose.yml"));
    std::fs::write(dir.join("other.yml"), service.replace("a:", "b:")).expect("written");
    let (project, _) = Project::load(&config, &Selection::file(dir.join("other.yml")), &Variables::new());
    assert_eq!(project.expect("a project").compose.services[0].name, "b");
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn unreadable_files_are_reported() {
    for path in ["/nonexistent/bloodhound.yaml", "/"] {
        let (config, diagnostics) = Config::load(Path::new(path), FileChecks::Strict);
        assert!(config.is_none());
        assert_eq!(errors(&diagnostics), [(Code::Unreadable, 0)]);
        let (compose, diagnostics) = Compose::load(Path::new(path), &Variables::new());
        assert!(compose.is_none());
        assert_eq!(errors(&diagnostics), [(Code::Unreadable, 0)]);
    }
}

const UPGRADES: &str = "\
services:
  kv: {image: \"kv:1\", deploy: {replicas: 2}}
  web: {image: \"web:1\"}
  host: {command: x, x-bloodhound: {rootfs: host}}
  next: {extends: web, image: \"web:2\", profiles: [next]}
  broken: {image: 5, volumes: [none:/x], profiles: [next]}
  spare: {image: \"web:3\", scale: 0}
";

fn upgrades(faults: &str) -> Vec<Diagnostic> {
    let (compose, diagnostics) =
        Compose::decode(Source::new(Path::new("c.yaml"), UPGRADES), &Variables::new());
    let compose = compose.unwrap_or_else(|| panic!("{diagnostics:#?}"));
    let text = format!("properties: []\nfaults:\n{faults}");
    let (config, diagnostics) = Config::decode(Source::new(Path::new("f.yaml"), &text), FileChecks::Lenient);
    check_names(&config.unwrap_or_else(|| panic!("{diagnostics:#?}")), &compose)
}

#[test]
fn upgrades_name_what_is_there() {
    let said =
        upgrades("  upgrades: {kv: {image: \"kv:2\"}, web: {service: next}, host: {service: spare}}\n");
    assert_eq!(said, []);
    let of = |faults: &str| -> Vec<String> {
        upgrades(faults)
            .iter()
            .map(|d| format!("{}: {}", d.place.as_ref().map_or(0, |p| p.column), d.message))
            .collect()
    };
    assert_eq!(of("  upgrades: {kw: {image: \"kv:2\"}}\n"), ["14: no service `kw` in c.yaml"]);
    assert_eq!(of("  upgrades: {kv: {service: nxt}}\n"), ["28: no service `nxt` in c.yaml"]);
    assert_eq!(of("  upgrades: {kv: {service: kv}}\n"), ["28: `kv` is what it is already"]);
    assert_eq!(
        of("  upgrades: {host: {image: \"kv:2\"}}\n"),
        ["14: `host` has no image, so it cannot get another one"]
    );
    let schedule = |service: &str| {
        of(&format!(
            "  upgrades: {{kv: {{image: \"kv:2\"}}}}\n  groups: {{rack: [web, kv], other: [web]}}\n  schedule:\n    - \
             {{at: 1s, fault: upgrade, service: {service}}}\n"
        ))
    };
    for service in ["kv", "kv-2", "rack"] {
        assert_eq!(schedule(service), [""; 0], "{service}");
    }
    assert_eq!(schedule("web"), ["41: `web` cannot be upgraded: `faults.upgrades` has nothing for it"]);
    assert_eq!(
        schedule("other"),
        ["41: `other` cannot be upgraded: `faults.upgrades` has none of its services"]
    );
    assert_eq!(
        of("  schedule: [{at: 1s, fault: downgrade, service: kv}]\n"),
        ["50: `kv` cannot be upgraded: `faults.upgrades` has nothing for it"]
    );
    let drawn = "  upgrades: {kv: {image: \"kv:2\"}}\n  groups: {other: [web]}\n  process: {upgrade_probability: 0.1}\n";
    let said = upgrades(drawn);
    assert!(!has_errors(&said) && said[0].message.contains("so no seed upgrades it"), "{said:?}");
}

#[test]
fn what_is_wrong_with_a_service_that_does_not_run_matters_where_it_is_taken() {
    let dir = std::env::temp_dir().join(format!("bloodhound-upgrades-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("compose.yaml"), UPGRADES).expect("written");
    let load = |faults: &str| {
        let config = dir.join("bloodhound.yaml");
        std::fs::write(&config, format!("properties: []\n{faults}")).expect("written");
        Project::load(&config, &Selection::default(), &Variables::new())
    };
    let left_out = |diagnostics: &[Diagnostic]| -> Vec<String> {
        let told = diagnostics.iter().filter(|d| d.message.contains("is left out"));
        told.map(|d| d.message.clone()).collect()
    };
    let (project, diagnostics) = load("");
    assert_eq!(left_out(&diagnostics).len(), 2, "{diagnostics:#?}");
    assert!(project.expect("a project").compose.definitions.is_empty());
    let (project, diagnostics) = load("faults: {upgrades: {kv: {service: next}}}\n");
    let compose = project.unwrap_or_else(|| panic!("{diagnostics:#?}")).compose;
    assert_eq!(left_out(&diagnostics), ["the service `broken` is left out: its profile is not active"]);
    let next = compose.definition("next").expect("it is taken");
    assert_eq!(next.image.as_ref().map(|image| image.value.as_str()), Some("web:2"));
    assert!(compose.service("next").is_none());
    let (project, diagnostics) = load("faults: {upgrades: {kv: {service: broken}}}\n");
    assert!(project.is_none());
    assert!(
        diagnostics.iter().any(|d| d.is_error() && d.message.contains("services.broken")),
        "{diagnostics:#?}"
    );
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn volumes_of_faults_are_there_and_mounted() {
    let compose = "services:\n  kv: {image: \"kv:1\", volumes: ['data:/data', 'memory:/memory', 'disk:/disk']}\n\
        volumes:\n  data:\n  idle:\n  memory: {driver_opts: {type: tmpfs, device: tmpfs}}\n  \
        disk: {driver_opts: {type: none, o: bind, device: /var}}\n";
    let (compose, diagnostics) =
        Compose::decode(Source::new(Path::new("c.yaml"), compose), &Variables::new());
    let compose = compose.unwrap_or_else(|| panic!("{diagnostics:#?}"));
    let of = |faults: &str| -> Vec<String> {
        let text = format!("properties: []\nfaults:\n{faults}");
        let (config, diagnostics) =
            Config::decode(Source::new(Path::new("f.yaml"), &text), FileChecks::Lenient);
        let said = check_names(&config.unwrap_or_else(|| panic!("{diagnostics:#?}")), &compose);
        said.iter().map(|d| format!("{}: {}", d.place.as_ref().map_or(0, |p| p.column), d.message)).collect()
    };
    let target = |volume: &str| of(&format!("  targets: {{fsync-fail: [kv, {{volume: {volume}}}]}}\n"));
    assert_eq!(target("data"), [""; 0]);
    assert_eq!(target("disk"), [""; 0]);
    assert_eq!(target("dota"), ["39: no volume `dota` in c.yaml"]);
    assert_eq!(target("idle"), ["39: no service mounts the volume `idle`"]);
    assert_eq!(target("memory"), ["39: the volume `memory` lies in memory, and on no disk"]);
    assert_eq!(
        of("  schedule: [{at: 1s, fault: disk-slow, volume: date}]\n"),
        ["49: no volume `date` in c.yaml"]
    );
    let both = |kind: &str| {
        of(&format!(
            "  targets: {{{kind}: [{{volume: disk}}]}}\n  schedule: [{{nth: 2, fault: fsync-fail, volume: data}}]\n"
        ))
    };
    assert_eq!(both("write-fail"), [""; 0]);
    assert_eq!(both("fsync-fail"), ["50: `faults.targets.fsync-fail` names other volumes than `data`"]);
}
