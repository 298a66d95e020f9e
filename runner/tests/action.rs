//! The GitHub action: its steps run as a runner would run them, with a fake of `bloodhound test` and with the real one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod cancel;
mod kvm;
mod outcomes;
mod release;

use crate::common::put_script;
use bloodhound_config::tree::{self, Node, Source, Value};

const REAL: &str = env!("CARGO_BIN_EXE_bloodhound");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// A mapping as pairs; an absent one is empty.
fn map(node: Option<&Node>) -> Vec<(String, Node)> {
    match node.map(|n| &n.value) {
        Some(Value::Map(entries)) => entries.iter().map(|e| (e.key.clone(), e.value.clone())).collect(),
        Some(other) => panic!("no mapping: {other:?}"),
        None => Vec::new(),
    }
}

fn get<'a>(pairs: &'a [(String, Node)], key: &str) -> Option<&'a Node> {
    pairs.iter().find(|(k, _)| k == key).map(|(_, node)| node)
}

fn text(node: Option<&Node>) -> Option<String> {
    match node.map(|n| &n.value) {
        Some(Value::Scalar(scalar)) => Some(scalar.text.clone()),
        Some(other) => panic!("no text: {other:?}"),
        None => None,
    }
}

struct Action {
    inputs: Vec<(String, Node)>,
    outputs: Vec<(String, Node)>,
    steps: Vec<Vec<(String, Node)>>,
}

fn action() -> Action {
    let path = root().join("action.yml");
    let source = Source::new(&path, &fs::read_to_string(&path).expect("action.yml"));
    let (node, problems) = tree::parse(&source);
    assert!(problems.is_empty(), "{problems:?}");
    let top = map(node.as_ref());
    let runs = map(get(&top, "runs"));
    assert_eq!(text(get(&runs, "using")).as_deref(), Some("composite"));
    let Some(Value::Seq(steps)) = get(&runs, "steps").map(|n| n.value.clone()) else { panic!("no steps") };
    Action {
        inputs: map(get(&top, "inputs")),
        outputs: map(get(&top, "outputs")),
        steps: steps.iter().map(|step| map(Some(step))).collect(),
    }
}

/// A checkout with the things that a runner provides.
struct Fake {
    dir: PathBuf,
    inputs: BTreeMap<String, String>,
    /// The `github` context.
    github: BTreeMap<String, String>,
    /// Sent to the script that runs `test` as soon as the fake binary has begun.
    cancel: Option<i32>,
    /// The PATH of the steps; a directory for a `bloodhound` comes first.
    path: String,
}

/// What a job sees of the action.
struct Job {
    code: i32,
    outputs: BTreeMap<String, String>,
    log: String,
    summary: String,
    /// `with` of the steps that use other actions and were reached.
    used: Vec<BTreeMap<String, String>>,
}

impl Fake {
    fn new(name: &str) -> Fake {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("action-{name}"));
        let _ignored = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("work")).expect("a directory");
        fs::create_dir_all(dir.join("bin")).expect("a directory");
        fs::create_dir_all(dir.join("temp")).expect("a directory");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", dir.join("bin").display());
        let fake = Fake { dir, inputs: BTreeMap::new(), github: BTreeMap::new(), cancel: None, path };
        // No test may change the machine that it runs on.
        fake.program("id", "echo 1001");
        fake.sudo("exit 1");
        // Nor ask another one.
        fake.program("curl", "echo 'no network' >&2; exit 22");
        fake.write(
            "bloodhound.yaml",
            "compose: compose.yaml\nproperties:\n  - name: stays up\n    kind: safety\n    check: {type: no-crash}\nsimulation: {max_time: 5s}\nfaults: {network: {drop_rate: 0.01}}\n",
        );
        fake.write(
            "compose.yaml",
            "services:\n  nap:\n    command: [/bin/sleep, '1000']\n    x-bloodhound: {rootfs: host}\n",
        );
        fake
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join("work").join(name), text).expect("a file");
    }

    fn input(&mut self, name: &str, value: &str) {
        self.inputs.insert(name.to_owned(), value.to_owned());
    }

    /// A `bloodhound` in PATH whose `test` prints `result`, writes a report and exits with `code`. It keeps its
    /// arguments, one per line. Everything else is done by the real one.
    fn fake_binary(&self, code: i32, result: &str) {
        fs::write(self.dir.join("result"), result).expect("a file");
        let script = format!(
            "#!/usr/bin/env bash\nset -eu\n[ \"$1\" = test ] || exec {REAL} \"$@\"\nshift\nprintf '%s\\0' \"$@\" > {args}\n\
             for a; do case $a in --out=*) mkdir -p \"${{a#--out=}}\"; echo '<testsuites/>' > \"${{a#--out=}}/junit.xml\" ;; \
             esac; done\necho '::warning::progress' >&2\ncat {result}\nexit {code}\n",
            args = self.dir.join("args").display(),
            result = self.dir.join("result").display(),
        );
        self.binary(&script);
    }

    fn binary(&self, script: &str) {
        put_script(&self.dir.join("bin/bloodhound"), script);
    }

    /// A program in the PATH of the steps.
    fn program(&self, name: &str, script: &str) {
        let path = self.dir.join("bin").join(name);
        put_script(&path, &format!("#!/usr/bin/env bash\nset -eu\n{script}\n"));
    }

    /// A `sudo` that keeps what it was asked for, a line for each call, and then does `script` with $1 as the program.
    fn sudo(&self, script: &str) {
        let log = self.dir.join("sudo");
        let keep = format!("[ \"$1\" = -n ] && shift\necho \"$@\" >> '{}'\n", log.display());
        self.program("sudo", &(keep + script));
    }

    /// What `sudo` was asked for.
    fn sudone(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.join("sudo")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Stands for /dev/kvm.
    fn device(&self) -> PathBuf {
        self.dir.join("kvm")
    }

    /// A device that cannot be opened, not even by root: a directory. Shell code that makes it one that can.
    fn closed_device(&self) -> String {
        fs::create_dir_all(self.device()).expect("a directory");
        format!("[ ! -d '{0}' ] || rmdir '{0}'; : > '{0}'", self.device().display())
    }

    fn arguments(&self) -> Vec<String> {
        let bytes = fs::read(self.dir.join("args")).expect("the fake was run");
        let words = bytes.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
        words.filter(|w| !w.is_empty()).collect()
    }

    /// Evaluates `${{ inputs.x }}` and `${{ steps.x.outputs.y }}`: all that action.yml uses outside of `if`.
    fn evaluate(
        &self,
        template: &str,
        action: &Action,
        steps: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> String {
        let Some(expression) = template.strip_prefix("${{").and_then(|t| t.strip_suffix("}}")) else {
            assert!(!template.contains("${{"), "a template within a text: {template}");
            return template.to_owned();
        };
        // `a || 'b'`: what is empty is false.
        let (expression, otherwise) = match expression.split_once(" || ") {
            Some((first, second)) => (first, second.trim().trim_matches('\'')),
            None => (expression, ""),
        };
        let parts: Vec<&str> = expression.trim().split('.').collect();
        let value = match parts[..] {
            ["inputs", name] => {
                let declared = get(&action.inputs, name).unwrap_or_else(|| panic!("no input {name}"));
                let default = text(get(&map(Some(declared)), "default"));
                self.inputs.get(name).cloned().or(default).unwrap_or_default()
            }
            ["github", name] => self.github.get(name).cloned().unwrap_or_default(),
            ["steps", step, "outputs", name] => {
                steps.get(step).and_then(|outputs| outputs.get(name)).cloned().unwrap_or_default()
            }
            _ => panic!("unknown expression {expression}"),
        };
        if value.is_empty() { otherwise.to_owned() } else { value }
    }

    fn run(&self) -> Job {
        let action = action();
        for name in self.inputs.keys() {
            assert!(get(&action.inputs, name).is_some(), "no input {name}");
        }
        let mut steps: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let summary = self.dir.join("summary");
        fs::write(&summary, "").expect("a file");
        let mut job = Job {
            code: 0,
            outputs: BTreeMap::new(),
            log: String::new(),
            summary: String::new(),
            used: Vec::new(),
        };
        for (number, step) in action.steps.iter().enumerate() {
            let condition = text(get(step, "if")).unwrap_or_default();
            if job.code != 0 && !condition.contains("always()") {
                continue;
            }
            if get(step, "uses").is_some() {
                let values = map(get(step, "with")).into_iter().map(|(key, node)| {
                    let template = text(Some(&node)).unwrap_or_default();
                    (key, self.evaluate(&template, &action, &steps))
                });
                job.used.push(values.collect());
                continue;
            }
            let file = self.dir.join(format!("output-{number}"));
            fs::write(&file, "").expect("a file");
            let script = text(get(step, "run")).expect("a script");
            assert_eq!(text(get(step, "shell")).as_deref(), Some("bash"));
            // As the runner does with `shell: bash`.
            let mut command = Command::new("bash");
            command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &script]).env_clear();
            command.current_dir(self.dir.join("work")).env("PATH", &self.path).env("HOME", &self.dir);
            command.env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", self.dir.join("work"));
            command.env("GITHUB_ACTION_PATH", root()).env("RUNNER_TEMP", self.dir.join("temp"));
            command.env("BLOODHOUND_KVM_DEVICE", self.device());
            if let Some(base) = self.github.get("base_ref") {
                command.env("GITHUB_BASE_REF", base);
            }
            command.env("GITHUB_OUTPUT", &file).env("GITHUB_STEP_SUMMARY", &summary);
            for (name, node) in map(get(step, "env")) {
                command.env(name, self.evaluate(&text(Some(&node)).unwrap_or_default(), &action, &steps));
            }
            let is_test = text(get(step, "id")).as_deref() == Some("test");
            let output = match self.cancel.filter(|_| is_test) {
                Some(signal) => cancel::cancelled(&mut command, &self.dir.join("begun"), signal),
                None => command.output().expect("bash starts"),
            };
            // A runner tells a killed script from others no better.
            job.code = output.status.code().unwrap_or(137);
            job.log += &String::from_utf8_lossy(&output.stdout);
            job.log += &String::from_utf8_lossy(&output.stderr);
            let outputs = fs::read_to_string(&file).expect("outputs");
            let pairs = outputs.lines().map(|line| {
                let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("an output is {line:?}"));
                (name.to_owned(), value.to_owned())
            });
            let id = text(get(step, "id")).unwrap_or_default();
            steps.insert(id, pairs.collect());
        }
        for (name, node) in &action.outputs {
            let template = text(get(&map(Some(node)), "value")).expect("a value");
            job.outputs.insert(name.clone(), self.evaluate(&template, &action, &steps));
        }
        job.summary = fs::read_to_string(&summary).expect("the summary");
        let kept = ["bloodhound-release", "bloodhound-target"];
        let left = fs::read_dir(self.dir.join("temp")).expect("a directory").flatten();
        // A script that is killed cannot clean up.
        let killed = self.cancel == Some(libc::SIGKILL);
        let left: Vec<_> =
            left.filter(|e| !killed && !kept.contains(&&*e.file_name().to_string_lossy())).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        job
    }
}

const PASSED: &str = r#"{"schema":"bloodhound.test/v1","seeds_run":20,"seeds_judged":20,"seeds_wanted":20,"findings":[],"properties":[{"name":"stays up","kind":"safety","verdict":"passed","reason":""}]}"#;

fn failed(text: &str) -> String {
    serde_json::json!({
        "seeds_run": 7,
        "seeds_wanted": 200,
        "findings": [{
            "property": "stays up", "kind": "safety", "seed": 6, "virtual_time_ns": 1_500_000_000u64,
            "replay": "out/findings/seed-6", "digest": "00", "text": text,
        }],
        "properties": [{"name": "stays up", "kind": "safety", "verdict": "failed", "reason": ""}],
    })
    .to_string()
}

#[test]
fn nothing_is_pasted_into_a_script() {
    let action = action();
    let mut used = String::new();
    for step in &action.steps {
        if let Some(uses) = text(get(step, "uses")) {
            let (_, version) = uses.split_once('@').expect("a version");
            assert!(
                version.len() == 40 && version.bytes().all(|b| b.is_ascii_hexdigit()),
                "{uses} is not pinned"
            );
            used += &format!("{:?}", get(step, "with"));
        } else {
            let script = text(get(step, "run")).expect("a script");
            assert!(!script.contains("${{"), "{script}");
            for (name, node) in map(get(step, "env")) {
                let value = text(Some(&node)).unwrap_or_default();
                let expected = name.strip_prefix("INPUT_").map(|n| n.to_lowercase().replace('_', "-"));
                if let Some(input) = expected {
                    assert_eq!(value, format!("${{{{ inputs.{input} }}}}"));
                }
                used += &value;
            }
        }
        used += &text(get(step, "if")).unwrap_or_default();
    }
    for (name, node) in &action.inputs {
        assert!(used.contains(&format!("inputs.{name} ")), "the input {name} has no effect");
        let fields = map(Some(node));
        assert!(text(get(&fields, "description")).is_some_and(|d| !d.is_empty()), "{name}");
        assert!(get(&fields, "default").is_some(), "{name} has no default");
    }
}

#[test]
fn a_passing_campaign() {
    let mut fake = Fake::new("pass");
    fake.fake_binary(0, PASSED);
    fake.input("seeds", "20");
    fake.input("timeout", "5m");
    fake.input("fault-coverage-threshold", "80%");
    fake.input("coverage-threshold", "75%");
    fake.input("args", "--jobs=2\n\n--first-seed\n7\n");
    let job = fake.run();
    assert_eq!(job.code, 0, "{}", job.log);
    let out = fake.dir.join("work/bloodhound-output").display().to_string();
    let expected = [
        ("changed-lines", String::new()),
        ("coverage", String::new()),
        ("exit-code", "0".to_owned()),
        ("findings", "0".to_owned()),
        ("junit", format!("{out}/junit.xml")),
        ("replay", String::new()),
        ("report-dir", out.clone()),
        ("result", "passed".to_owned()),
        ("seeds-run", "20".to_owned()),
    ];
    assert_eq!(job.outputs, expected.map(|(k, v)| (k.to_owned(), v)).into());
    assert_eq!(
        fake.arguments(),
        [
            "--config=bloodhound.yaml",
            &format!("--out={out}"),
            "--format=json",
            "--seeds=20",
            "--timeout=5m",
            "--fault-coverage-threshold=80%",
            "--coverage-threshold=75%",
            "--jobs=2",
            "--first-seed",
            "7"
        ]
    );
    assert!(job.summary.contains("| stays up | safety | ✅ held |"), "{}", job.summary);
    assert_eq!(job.used.len(), 1);
    assert_eq!(job.used[0]["path"], out);
}

#[test]
fn a_finding_fails_the_step_and_is_shown_at_its_line() {
    let mut fake = Fake::new("finding");
    fake.fake_binary(1, &format!("noise\n{}", failed("a reason\n::error::forged\nlast")));
    fake.input("compose", "compose.yaml");
    fake.input("output-dir", "reports here");
    let job = fake.run();
    assert_eq!(job.code, 1, "{}", job.log);
    assert_eq!(job.outputs["result"], "failed");
    assert_eq!((&*job.outputs["findings"], &*job.outputs["seeds-run"]), ("1", "7"));
    assert_eq!(job.outputs["replay"], "bloodhound replay out/findings/seed-6");
    assert!(job.log.contains(
        "\n::error file=bloodhound.yaml,line=3,title=stays up violated::seed 6 at 1.500 s%0Aa reason%0A::error::forged%0Alast"
    ), "{}", job.log);
    assert!(job.summary.contains("a reason\n::error::forged\nlast"), "{}", job.summary);
    assert_eq!(job.used.len(), 1, "reports are uploaded all the same");
    assert!(fake.arguments().contains(&"--compose=compose.yaml".to_owned()));
}

#[test]
fn output_of_services_is_no_command() {
    let fake = Fake::new("commands");
    fake.fake_binary(1, &format!("::add-mask::secret\n##[error]forged\n{}", failed("x")));
    let job = fake.run();
    let marker = "::stop-commands::";
    let from = job.log.find(marker).expect("a marker") + marker.len();
    let token = job.log[from..].lines().next().expect("a token");
    assert_eq!(token.len(), 32, "{token}");
    let end = job.log.find(&format!("\n::{token}::\n")).expect("the end of the stretch");
    for forged in ["::add-mask::secret", "##[error]forged"] {
        let at = job.log.find(forged).expect("it is shown");
        assert!((from..end).contains(&at), "{forged} is outside of the stretch");
    }
    assert_ne!(token, {
        let again = fake.run().log;
        let at = again.find(marker).expect("a marker") + marker.len();
        again[at..].lines().next().expect("a token").to_owned()
    });
}

#[test]
fn exit_codes_go_through_unless_forgiven() {
    let mut fake = Fake::new("codes");
    for (code, result) in
        [(2, "error"), (3, "failed"), (4, "inconclusive"), (5, "error"), (7, "error"), (70, "error")]
    {
        let text = if matches!(code, 3 | 4) { PASSED } else { "" };
        fake.fake_binary(code, text);
        let mut codes = Vec::new();
        for fail_on in ["any", "findings", "never"] {
            fake.input("fail-on", fail_on);
            let job = fake.run();
            assert_eq!((&*job.outputs["result"], &*job.outputs["exit-code"]), (result, &*code.to_string()));
            assert!(job.log.contains("::error title=Bloodhound::"), "{}", job.log);
            codes.push(job.code);
        }
        let forgiven = if matches!(code, 3 | 4) { 0 } else { code };
        assert_eq!(codes, [code, forgiven, forgiven]);
    }
    fake.fake_binary(1, &failed("x"));
    for (fail_on, code) in [("any", 1), ("findings", 1), ("never", 0), ("sometimes", 2)] {
        fake.input("fail-on", fail_on);
        assert_eq!(fake.run().code, code, "{fail_on}");
    }
}

#[test]
fn inputs_are_words_and_never_code() {
    let mut fake = Fake::new("injection");
    let evil = "$(touch pwned) `touch pwned`; touch pwned #\"'\\";
    fake.fake_binary(1, &failed(evil));
    fake.input("config", &format!("-x {evil}.yaml"));
    fake.input("compose", evil);
    fake.input("seeds", evil);
    fake.input("timeout", evil);
    fake.input("fault-coverage-threshold", evil);
    fake.input("output-dir", evil);
    fake.input("args", &format!("--name={evil}"));
    let job = fake.run();
    assert_eq!(job.code, 1, "{}", job.log);
    let arguments = fake.arguments();
    for expected in [
        format!("--config=-x {evil}.yaml"),
        format!("--compose={evil}"),
        format!("--seeds={evil}"),
        format!("--timeout={evil}"),
        format!("--fault-coverage-threshold={evil}"),
        format!("--out={}/{evil}", fake.dir.join("work").display()),
        format!("--name={evil}"),
    ] {
        assert!(arguments.contains(&expected), "{expected} is not among {arguments:?}");
    }
    for name in ["working-directory", "platform", "enable-kvm", "fail-on", "build", "bloodhound-path"] {
        let mut fake = Fake::new(&format!("injection-{name}"));
        fake.fake_binary(0, PASSED);
        fake.input(name, &format!("{evil}\n::set-env name=A::b"));
        let job = fake.run();
        assert_eq!(job.code, 2, "{name}: {}", job.log);
        assert!(!job.log.contains("\n::set-env"), "{name}: {}", job.log);
        assert_no_file(&fake.dir, "pwned");
    }
    assert_no_file(&fake.dir, "pwned");
}

fn assert_no_file(dir: &Path, name: &str) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        assert_ne!(path.file_name().expect("a name"), name, "{}", path.display());
        if path.is_dir() {
            assert_no_file(&path, name);
        }
    }
}

#[test]
fn the_binary_comes_from_where_it_is_said() {
    // The input before PATH; relative to the working directory.
    let mut fake = Fake::new("binary");
    fake.binary("#!/bin/sh\necho wrong binary\nexit 99\n");
    fs::create_dir_all(fake.dir.join("work/sub/tools")).expect("a directory");
    fs::copy(REAL, fake.dir.join("work/sub/tools/bloodhound")).expect("a copy");
    fake.input("working-directory", "sub");
    fake.input("bloodhound-path", "tools/bloodhound");
    let job = fake.run();
    assert!(job.log.contains("sub/tools/bloodhound: bloodhound "), "{}", job.log);
    assert!(!job.log.contains("wrong binary"), "{}", job.log);
    // There is no bloodhound.yaml in `sub`.
    assert_eq!((job.code, &*job.outputs["result"]), (2, "error"), "{}", job.log);

    let mut fake = Fake::new("no-binary");
    fake.input("build", "never");
    let job = fake.run();
    assert_eq!(job.code, 2);
    assert!(
        job.log.contains(
            "::error title=Bloodhound::there is no bloodhound in PATH and no release of this version"
        ),
        "{}",
        job.log
    );
    fake.binary("#!/bin/sh\nexit 3\n");
    let job = fake.run();
    assert!(job.log.contains("does not run"), "{}", job.log);
}

#[test]
fn the_real_thing_reports_mistakes_at_their_lines() {
    let mut fake = Fake::new("mistake");
    fake.input("bloodhound-path", REAL);
    fake.write("bloodhound.yaml", "compose: compose.yaml\nfaults:\n  network: {drpo_rate: 1%}\n");
    let job = fake.run();
    assert_eq!((job.code, &*job.outputs["result"]), (2, "error"), "{}", job.log);
    assert!(job.log.contains("::error file=bloodhound.yaml,line=3,"), "{}", job.log);
    assert!(job.summary.contains("wrong usage or configuration"), "{}", job.summary);
    let junit = fs::read_to_string(&job.outputs["junit"])
        .expect("a report, so that no older one speaks for this run");
    assert!(junit.contains("<error"), "{junit}");
}

#[test]
fn places_are_relative_to_the_workspace() {
    let mut fake = Fake::new("places");
    let sub = fake.dir.join("work/services/kv");
    fs::create_dir_all(&sub).expect("a directory");
    for name in ["bloodhound.yaml", "compose.yaml"] {
        fs::copy(fake.dir.join("work").join(name), sub.join(name)).expect("a copy");
    }
    fake.input("working-directory", "services/kv");
    fake.fake_binary(1, &failed("a reason"));
    let job = fake.run();
    assert!(
        job.log.contains("::error file=services/kv/bloodhound.yaml,line=3,title=stays up"),
        "{}",
        job.log
    );
    // Mistakes as well, in either file; and from below, and from elsewhere.
    fs::write(sub.join("compose.yaml"), "services:\n  nap: {comand: x}\n").expect("a file");
    let job = fake.run();
    assert!(job.log.contains(" file=services/kv/compose.yaml,line=2,"), "{}", job.log);
    fs::create_dir_all(sub.join("deep")).expect("a directory");
    fake.input("working-directory", "services/kv/deep");
    fake.input("config", "../bloodhound.yaml");
    let job = fake.run();
    assert!(
        job.log.contains("::error file=services/kv/bloodhound.yaml,line=3,title=stays up"),
        "{}",
        job.log
    );
}
