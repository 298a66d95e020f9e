//! Projects of several files: override files, `include`, `extends`, tags, variables and profiles.

use std::path::PathBuf;

use bloodhound_config::compose::{MountSource, Variables};
use bloodhound_config::{Code, Compose, Diagnostic};

/// Files in a directory of their own, gone when the test is over.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, files: &[(&str, &str)]) -> Files {
        let dir = std::env::temp_dir().join(format!("bloodhound-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let dir = dir.canonicalize().expect("a path");
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("written");
        }
        Files(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn load(&self, names: &[&str], pairs: &[(&str, &str)]) -> (Option<Compose>, Vec<Diagnostic>) {
        let files: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        let variables: Variables = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Compose::load_files(&files, &variables)
    }

    fn good(&self, names: &[&str], pairs: &[(&str, &str)]) -> Compose {
        let (compose, diagnostics) = self.load(names, pairs);
        assert_eq!(diagnostics, []);
        compose.expect("a project")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pairs(list: &[(String, String)]) -> Vec<(&str, &str)> {
    list.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

/// (code, file's name, line) of each.
fn places(diagnostics: &[Diagnostic]) -> Vec<(Code, String, u32)> {
    let place = |d: &Diagnostic| {
        let file = d.file.rsplit('/').next().unwrap_or("").to_owned();
        (d.code, file, d.place.as_ref().map_or(0, |p| p.line))
    };
    diagnostics.iter().map(place).collect()
}

const BASE: &str = "\
services:
  web:
    image: web:1
    command: [a, b]
    entrypoint: /run.sh
    environment: [A=1, B=1]
    labels: {x: '1'}
    ports: ['80:80', '443:443']
    volumes: ['./data:/data', 'v:/v']
    dns: 1.1.1.1
    depends_on: [db]
    networks: [front]
    healthcheck: {test: [CMD, one], interval: 5s}
    build: ./web
    ulimits: {nofile: 10}
    cap_add: [CHOWN]
    extra_hosts: {a: 10.0.0.1}
    tmpfs: /run
  db: {image: 'db:1'}
networks: {front: , back: }
volumes: {v: }
";

#[test]
fn files_are_laid_over_each_other_key_by_key() {
    let over = "\
services:
  web:
    image: web:2
    command: c
    environment: {B: 2, C: 3}
    labels: [y=2]
    ports: ['8080:8080', '80:80']
    volumes: ['./other:/data', {type: tmpfs, target: /t}]
    dns: [8.8.8.8]
    depends_on: {cache: {condition: service_started}}
    networks: {back: {aliases: [w]}}
    healthcheck: {test: two, retries: 9}
    build: {args: {V: 1}}
    ulimits: {nofile: {soft: 1, hard: 2}}
    cap_add: [CHOWN, KILL]
    extra_hosts: ['b=10.0.0.2']
    tmpfs: [/run, /tmp]
  cache: {image: 'cache:1'}
";
    let files =
        Files::new("merge", &[("compose.yaml", BASE), ("over.yaml", over), ("data/x", ""), ("other/x", "")]);
    let compose = files.good(&["compose.yaml", "over.yaml"], &[]);
    let web = compose.service("web").expect("web");
    assert_eq!(web.image.as_ref().map(|i| i.value.as_str()), Some("web:2"));
    assert_eq!(web.argv(), ["/run.sh", "c"]);
    assert_eq!(pairs(&web.environment), [("A", "1"), ("B", "2"), ("C", "3")]);
    assert_eq!(pairs(&web.labels), [("x", "1"), ("y", "2")]);
    assert_eq!(web.ports.iter().map(|p| p.target).collect::<Vec<_>>(), [80, 443, 8080]);
    let mounts: Vec<_> = web.mounts.iter().map(|m| (&m.source, m.target.as_str())).collect();
    let tmpfs = MountSource::Tmpfs { size: None, mode: None, owner: (0, 0) };
    assert_eq!(
        mounts,
        [
            (&MountSource::Bind(files.path("other")), "/data"),
            (&MountSource::Volume("v".to_owned()), "/v"),
            (&tmpfs, "/t"),
            (&tmpfs, "/run"),
            (&tmpfs, "/tmp"),
        ]
    );
    assert_eq!(web.dns.len(), 2);
    let waits: Vec<_> = web.depends_on.iter().map(|d| d.service.value.as_str()).collect();
    assert_eq!(waits, ["db", "cache"]);
    let networks: Vec<_> = web.networks.iter().map(|n| (n.network.as_str(), n.aliases.len())).collect();
    assert_eq!(networks, [("front", 0), ("back", 1)]);
    let check = web.own_healthcheck().expect("a check");
    assert_eq!((check.test.argv(None).len(), check.interval_ns, check.retries), (3, 5_000_000_000, 9));
    let build = web.build.as_ref().expect("a build");
    assert_eq!(build.context, bloodhound_config::compose::BuildContext::Dir(files.path("web")));
    assert_eq!(pairs(&build.args), [("V", "1")]);
    assert_eq!((web.ulimits[0].soft, web.ulimits[0].hard), (Some(1), Some(2)));
    assert_eq!(web.cap_add, ["CHOWN", "KILL"]);
    assert_eq!(web.extra_hosts.len(), 2);
    assert_eq!(compose.services.len(), 3);
    assert_eq!(compose.inputs, [files.path("over.yaml")]);
}

#[test]
fn tags_reset_and_override() {
    let over = "\
services:
  web:
    entrypoint: !reset null
    environment: !override {Z: 9}
    ports: !override
      - 81:81
    volumes: !reset []
    depends_on: !reset # nothing to wait for
    build: !reset
  db: !reset {}
";
    let files = Files::new("tags", &[("compose.yaml", BASE), ("over.yaml", over)]);
    let compose = files.good(&["compose.yaml", "over.yaml"], &[]);
    let web = compose.service("web").expect("web");
    assert_eq!(web.argv(), ["a", "b"]);
    assert_eq!(pairs(&web.environment), [("Z", "9")]);
    assert_eq!(web.ports.iter().map(|p| p.target).collect::<Vec<_>>(), [81]);
    assert_eq!((web.mounts.len(), web.depends_on.len(), web.build.is_none()), (1, 0, true));
    assert_eq!(compose.services.len(), 1);
}

#[test]
fn places_stay_right_across_files() {
    let over = "services:\n  web:\n    restart: sometimes\n    volumes: ['nowhere:/n']\n    prots: [1]\n    labels: 5\n";
    let files = Files::new("places", &[("compose.yaml", BASE), ("over.yaml", over), ("data/x", "")]);
    let (compose, said) = files.load(&["compose.yaml", "over.yaml"], &[]);
    assert!(compose.is_none());
    let over = || "over.yaml".to_owned();
    assert_eq!(
        places(&said),
        [
            (Code::UnknownValue, over(), 3),
            (Code::UnknownResource, over(), 4),
            (Code::UnknownKey, over(), 5),
            (Code::WrongType, over(), 6),
        ]
    );
    let related = said[3].related.as_ref().map(|(place, _)| place.line);
    assert_eq!(related, Some(7));
}

#[test]
fn services_extend_services() {
    let files = Files::new(
        "extends",
        &[
            (
                "compose.yaml",
                "services:\n  a:\n    extends: {file: lib/base.yaml, service: leaf}\n    environment: {B: own}\n  \
                 b: {extends: a, command: z}\n",
            ),
            (
                "lib/base.yaml",
                "services:\n  root: {image: x, environment: [A=root, B=root], volumes: ['./d:/d']}\n  \
                 leaf: {extends: {service: root}, environment: {A: '${LEAF:-leaf}'}, env_file: e.env}\n",
            ),
            ("lib/e.env", "E=file\n"),
            ("lib/d/x", ""),
        ],
    );
    let compose = files.good(&["compose.yaml"], &[("LEAF", "set")]);
    let b = compose.service("b").expect("b");
    assert_eq!(pairs(&b.environment), [("A", "set"), ("B", "own"), ("E", "file")]);
    assert_eq!(b.mounts[0].source, MountSource::Bind(files.path("lib/d")));
    assert_eq!(b.argv(), ["z"]);
}

#[test]
fn mistakes_in_extends_are_named() {
    let files = Files::new(
        "extends-wrong",
        &[
            (
                "compose.yaml",
                "services:\n  a: {image: x, extends: b}\n  b: {image: x, extends: a}\n  c: {image: x, extends: nobody}\n  \
                 d: {image: x, extends: {file: none.yaml, service: s}}\n  e: {image: x, extends: {file: o.yaml, service: s}}\n",
            ),
            ("o.yaml", "services:\n  s:\n    restart: sometimes\n"),
        ],
    );
    let (_, said) = files.load(&["compose.yaml"], &[]);
    let compose = || "compose.yaml".to_owned();
    let found = places(&said);
    assert!(found.contains(&(Code::DependencyCycle, compose(), 3)), "{found:?}");
    assert!(found.contains(&(Code::UnknownService, compose(), 4)), "{found:?}");
    assert!(found.contains(&(Code::MissingFile, compose(), 5)), "{found:?}");
    assert!(found.contains(&(Code::UnknownValue, "o.yaml".to_owned(), 3)), "{found:?}");
}

#[test]
fn projects_include_projects() {
    let files = Files::new(
        "include",
        &[
            (
                "compose.yaml",
                "include:\n  - sub/compose.yaml\n  - {path: [more/a.yaml, more/b.yaml], project_directory: ., env_file: more.env}\n\
                 services:\n  web: {image: 'web:${TAG}', depends_on: [db]}\n",
            ),
            (".env", "TAG=top\n"),
            ("more.env", "MORE=m\n"),
            (
                "sub/compose.yaml",
                "services:\n  db: {image: 'db:${TAG}${SUB}', volumes: ['./d:/d'], environment: [SUB]}\nvolumes: {v: }\n",
            ),
            ("sub/.env", "TAG=sub\nSUB=s\n"),
            ("sub/d/x", ""),
            ("more/a.yaml", "services: {c: {image: 'c:${MORE}', volumes: ['./here:/h']}}\n"),
            ("more/b.yaml", "services: {c: {command: over}}\n"),
            ("here/x", ""),
        ],
    );
    let compose = files.good(&["compose.yaml"], &[]);
    let image = |name: &str| compose.service(name).and_then(|s| s.image.as_ref()).map(|i| i.value.clone());
    // The project's variables come before those of what it includes.
    assert_eq!(image("db").as_deref(), Some("db:tops"));
    assert_eq!(image("c").as_deref(), Some("c:m"));
    let mount = |name: &str| compose.service(name).map(|s| s.mounts[0].source.clone());
    assert_eq!(mount("db"), Some(MountSource::Bind(files.path("sub/d"))));
    assert_eq!(mount("c"), Some(MountSource::Bind(files.path("here"))));
    assert_eq!(compose.service("c").map(|s| s.argv()), Some(vec!["over".to_owned()]));
    assert_eq!(compose.service("db").map(|s| pairs(&s.environment).len()), Some(1));
    assert_eq!(compose.volumes.len(), 1);
}

#[test]
fn mistakes_in_include_are_named() {
    let files = Files::new(
        "include-wrong",
        &[
            ("compose.yaml", "include: [a.yaml, none.yaml]\nservices: {x: {image: '1'}}\n"),
            ("a.yaml", "include:\n  - compose.yaml\nservices:\n  x: {image: '2'}\n"),
        ],
    );
    let (_, said) = files.load(&["compose.yaml"], &[]);
    assert_eq!(
        places(&said),
        [
            (Code::DependencyCycle, "a.yaml".to_owned(), 2),
            (Code::DuplicateName, "a.yaml".to_owned(), 4),
            (Code::MissingFile, "compose.yaml".to_owned(), 1),
        ]
    );
}

#[test]
fn the_project_has_a_name() {
    let text = "name: '${P:-mine}'\nservices: {a: {image: 'a:${COMPOSE_PROJECT_NAME}'}}\n";
    let files = Files::new("Name_1", &[("compose.yaml", text), ("two.yaml", "services: {b: {image: b}}\n")]);
    let compose = files.good(&["compose.yaml"], &[]);
    assert_eq!(compose.name, "mine");
    let a = compose.service("a").expect("a");
    assert_eq!(a.image.as_ref().map(|i| i.value.as_str()), Some("a:mine"));
    assert_eq!(compose.container_name(a, 1), "mine-a-1");
    assert_eq!(files.good(&["compose.yaml"], &[("COMPOSE_PROJECT_NAME", "given")]).name, "given");
    assert!(files.good(&["two.yaml"], &[]).name.starts_with("bloodhound-config-name_1-"));
    let (_, said) = files.load(&["compose.yaml"], &[("P", "Not A Name")]);
    assert_eq!(places(&said), [(Code::Malformed, "compose.yaml".to_owned(), 1)]);
}

#[test]
fn the_usual_files_are_found() {
    let files = Files::new(
        "usual",
        &[
            ("docker-compose.yml", ""),
            ("docker-compose.override.yml", ""),
            ("x/a.yaml", ""),
            ("x/b.yaml", ""),
        ],
    );
    let found = |pairs: &[(&str, &str)]| {
        let variables = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        bloodhound_config::usual_files(&files.0, &variables)
    };
    let both = vec![files.path("docker-compose.yml"), files.path("docker-compose.override.yml")];
    assert_eq!(found(&[]), Some(both));
    let named = vec![files.path("x/a.yaml"), files.path("x/b.yaml")];
    assert_eq!(found(&[("COMPOSE_FILE", "x/a.yaml:x/b.yaml")]), Some(named.clone()));
    assert_eq!(found(&[("COMPOSE_FILE", "x/a.yaml,x/b.yaml"), ("COMPOSE_PATH_SEPARATOR", ",")]), Some(named));
    assert_eq!(bloodhound_config::usual_files(&files.path("x"), &Variables::new()), None);
}

#[test]
fn merge_keys_and_anchors_reach_across_services() {
    let text = "x-env: &env {A: 1}\nx-base: &base\n  image: x\n  environment: {<<: *env, B: 2}\nservices:\n  \
                a: {<<: *base, command: [c]}\n  b:\n    <<: [*base]\n    environment: {<<: *env, C: 3}\n";
    let files = Files::new("anchors", &[("compose.yaml", text)]);
    let compose = files.good(&["compose.yaml"], &[]);
    assert_eq!(pairs(&compose.services[0].environment), [("A", "1"), ("B", "2")]);
    assert_eq!(pairs(&compose.services[1].environment), [("A", "1"), ("C", "3")]);
}
