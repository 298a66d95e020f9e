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
