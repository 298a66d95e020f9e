//! The command as users start it: exit codes, streams and formats of what needs no simulation.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::common::scratch;
use serde_json::Value;

fn bloodhound() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn run(args: &[&str]) -> Output {
    bloodhound().args(args).stdin(Stdio::null()).output().expect("the command starts")
}

fn run_with_input(args: &[&str], input: &str) -> Output {
    let mut command = bloodhound();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may have ended before it read everything.
    let _ignored = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("no signal ended it")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

const STALE: &str = r#"{"type":"invoke","process":0,"f":"write","key":"a","value":1}
{"type":"ok","process":0,"f":"write","key":"a","value":1}
{"type":"invoke","process":1,"f":"write","key":"a","value":2}
{"type":"ok","process":1,"f":"write","key":"a","value":2}
{"type":"invoke","process":0,"f":"write","key":"b","value":7}
{"type":"ok","process":0,"f":"write","key":"b","value":7}
{"type":"invoke","process":2,"f":"read","key":"a","value":null}
{"type":"ok","process":2,"f":"read","key":"a","value":1}
"#;

#[test]
fn help_version_and_usage_errors() {
    let help = run(&["--help"]);
    assert_eq!(code(&help), 0);
    for line in
        ["Exit codes:", "    0  all properties held", "   70  a bug of Bloodhound", "  130  interrupted"]
    {
        assert!(out(&help).contains(line), "{line}: {}", out(&help));
    }
    assert_eq!(out(&run(&["--version"])), format!("bloodhound {}\n", env!("CARGO_PKG_VERSION")));
    for args in
        [&["no-such-command"][..], &["check"], &["check", "--model", "queue", "x"], &["schema", "extra"], &[]]
    {
        let output = run(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn check_accepts_a_linearizable_history() {
    let good = STALE.replace("\"read\",\"key\":\"a\",\"value\":1", "\"read\",\"key\":\"a\",\"value\":2");
    assert_ne!(good, STALE);
    let output = run_with_input(&["check", "--model", "kv", "-"], &good);
    assert_eq!((code(&output), out(&output)), (0, "linearizable: 4 operations on 2 objects\n".to_owned()));
}

#[test]
fn check_shows_the_part_that_is_wrong() {
    let output = run_with_input(&["check", "--model", "kv", "-"], STALE);
    assert_eq!(code(&output), 1);
    let text = out(&output);
    assert!(text.contains("key \"a\"") && text.contains("read: found 1"), "{text}");
    assert!(!text.contains("write 7"), "the other key has nothing to do with it: {text}");
    let output = run_with_input(&["check", "--model", "kv", "--format", "json", "-"], STALE);
    let json: Value = serde_json::from_str(&out(&output)).expect("JSON");
    assert_eq!((code(&output), &json["verdict"]), (1, &"violation".into()));
    assert_eq!(json["violation"]["key"], "a");
    assert_eq!(json["violation"]["culprit"]["value"], 1);
    let evidence = json["violation"]["evidence"].as_array().expect("a list");
    assert!((2..=3).contains(&evidence.len()), "{json}");
}

#[test]
fn check_reads_what_jepsen_writes() {
    let edn = "{:type :invoke, :f :write, :value 3, :process 0}\n{:type :ok, :f :write, :value 3, :process 0}\n\
               {:type :info, :f :start, :process :nemesis}\n\
               {:type :invoke, :f :cas, :value [3 4], :process 1}\n{:type :ok, :f :cas, :value [3 4], :process 1}\n\
               {:type :invoke, :f :read, :value nil, :process 0}\n{:type :ok, :f :read, :value 3, :process 0}\n";
    assert_eq!(code(&run_with_input(&["check", "--model", "cas-register", "-"], edn)), 1);
    let log = "INFO  jepsen.util - 0 :invoke :write 3\nINFO  jepsen.util - 0 :ok :write 3\n\
               INFO  jepsen.util - 1 :invoke :read nil\nINFO  jepsen.util - 1 :ok :read 3\n";
    assert_eq!(code(&run_with_input(&["check", "--model", "register", "-"], log)), 0);
}

#[test]
fn check_gives_up_when_its_budget_ends() {
    let mut history = String::new();
    for process in 0..40 {
        history +=
            &format!("{{\"type\":\"invoke\",\"process\":{process},\"f\":\"write\",\"value\":{process}}}\n");
    }
    for process in 0..40 {
        history +=
            &format!("{{\"type\":\"ok\",\"process\":{process},\"f\":\"write\",\"value\":{process}}}\n");
    }
    let args = ["check", "--model", "register", "--max-steps", "1", "--format", "json", "-"];
    let output = run_with_input(&args, &history);
    let json: Value = serde_json::from_str(&out(&output)).expect("JSON");
    assert_eq!((code(&output), &json["verdict"]), (4, &"unknown".into()), "{json}");
    assert_eq!(json["undecided"][0]["reason"], "steps");
}

#[test]
fn check_points_at_what_it_cannot_read() {
    for (input, place) in [
        (
            "{\"type\":\"invoke\",\"process\":0,\"f\":\"read\"}\n{\"type\":\"okay\",\"process\":0,\"f\":\"read\"}\n",
            ":2:2:",
        ),
        ("{\"type\":\"ok\",\"process\":0,\"f\":\"read\",\"value\":1}\n", ":1:1:"),
        ("{:type :invoke :f :read :process 0", ":1:"),
    ] {
        let output = run_with_input(&["check", "--model", "register", "-"], input);
        assert_eq!(code(&output), 2, "{input}");
        assert!(err(&output).contains(&format!("standard input{place}")), "{input}: {}", err(&output));
        assert!(output.stdout.is_empty());
    }
    let output = run(&["check", "--model", "register", "/nonexistent/history"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("/nonexistent/history: cannot be read"), "{}", err(&output));
    // An operation that the model does not have.
    let output = run_with_input(&["check", "--model", "register", "-"], &STALE.replace("read", "dequeue"));
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("\"dequeue\""), "{}", err(&output));
}

const COMPOSE: &str = "services:\n  kv:\n    command: [/bin/true]\n    x-bloodhound: {rootfs: host}\n";

#[test]
fn validate_tells_right_from_wrong() {
    let dir = scratch("validate");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("a file");
    write("compose.yaml", COMPOSE);
    write("bloodhound.yaml", "properties:\n  - name: up\n    kind: safety\n    check: {type: no-crash}\n");
    let validate = |args: &[&str]| {
        bloodhound().arg("validate").args(args).current_dir(&dir).output().expect("the command starts")
    };
    let output = validate(&[]);
    assert_eq!(
        (code(&output), out(&output), err(&output)),
        (0, "bloodhound.yaml: valid\n".into(), String::new())
    );

    write("wrong.yaml", "faults:\n  network:\n    drpo_rate: 0.1\n");
    let output = validate(&["--config", "wrong.yaml"]);
    assert_eq!(code(&output), 2);
    for part in ["error[BH0011]", "wrong.yaml:3:5", "did you mean `drop_rate`?", "    drpo_rate: 0.1"] {
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    }
    assert!(!err(&output).contains('\u{1b}'), "no colours where nobody sees them");
    assert_eq!(err(&validate(&["wrong.yaml"])), err(&output), "as an argument as well");
    let json: Value =
        serde_json::from_str(&out(&validate(&["wrong.yaml", "--format", "json"]))).expect("JSON");
    assert_eq!(json["valid"], false);
    let error = json["diagnostics"].as_array().expect("a list").iter().find(|d| d["severity"] == "error");
    let error = error.expect("an error");
    assert_eq!((&error["line"], &error["column"], &error["code"]), (&3.into(), &5.into(), &"BH0011".into()));
    let github = out(&validate(&["wrong.yaml", "--format", "github"]));
    assert!(github.contains("\n::error file=wrong.yaml,line=3,endLine=3,col=5,"), "{github}");

    let coloured =
        bloodhound().args(["validate", "wrong.yaml"]).env("CLICOLOR_FORCE", "1").current_dir(&dir).output();
    assert!(err(&coloured.expect("output")).contains('\u{1b}'));
    let mut plain = bloodhound();
    plain.args(["validate", "wrong.yaml"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").current_dir(&dir);
    assert!(!err(&plain.output().expect("output")).contains('\u{1b}'));

    write("broken.compose.yml", "services:\n  kv:\n    comand: [/bin/true]\n");
    let output = validate(&["broken.compose.yml"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("broken.compose.yml:3:5"), "{}", err(&output));

    let output = validate(&["--config", "missing.yaml"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("missing.yaml"), "{}", err(&output));
}

#[test]
fn validate_finds_what_a_run_refuses() {
    let dir = scratch("refused");
    let validate = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).expect("a file");
        let output = bloodhound().args(["validate", name]).current_dir(&dir).output().expect("it starts");
        (code(&output), err(&output))
    };
    // A compose file by its key, whatever it is called.
    let service = |name: &str, more: &str| {
        format!("  {name}:\n    x-bloodhound: {{rootfs: host}}\n    command: [/bin/true]\n{more}")
    };
    let stack = |more: [&str; 2]| {
        format!("services:\n{}{}volumes: {{v: {{}}}}\n", service("a", more[0]), service("b", more[1]))
    };
    let (code, text) = validate("stack.yml", &stack(["", ""]));
    assert_eq!(code, 0, "{text}");
    let shared = "    volumes: [\"v:/data\"]\n";
    let (code, text) = validate("stack.yml", &stack([shared, shared]));
    assert_eq!(code, 0, "services may share a volume: {text}");
    let nobody = "    user: nobody-here\n";
    let (code, text) = validate("stack.yml", &stack([nobody, ""]));
    assert_eq!(code, 2);
    assert!(text.contains("no user `nobody-here`"), "{text}");
    // What this machine lacks may be on another.
    let elsewhere = stack(["", ""]).replace("rootfs: host", "rootfs: ./not-here");
    let (code, text) = validate("stack.yml", &elsewhere);
    assert!(text.contains("not-here"), "{text}");
    let strict = bloodhound().args(["validate", "--strict", "stack.yml"]).current_dir(&dir).output();
    assert_eq!(strict.expect("it starts").status.code(), Some(2), "{code}: {text}");
}

#[test]
fn odd_configurations_get_messages_of_their_own() {
    let dir = scratch("odd");
    std::fs::create_dir_all(dir.join("stack")).expect("a directory");
    std::fs::write(dir.join("stack/compose.yaml"), "services: {}\n").expect("a file");
    let validate = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).expect("a file");
        let output = bloodhound().args(["validate", name]).current_dir(&dir).output().expect("it starts");
        assert_eq!(code(&output), 2, "{}", err(&output));
        err(&output)
    };
    let text = validate("bloodhound.yaml", "compose: ./stack\nproperties: []\n");
    assert!(
        text.contains("`compose` names a directory: stack") && text.contains("bloodhound.yaml:1:10"),
        "{text}"
    );
    assert!(text.contains("stack/compose.yaml"), "{text}");
    let text = validate("bloodhound.yaml", "compose: x.yml\nsimulation:\n  time_step: 1ns\nproperties: []\n");
    assert!(text.contains("the time step (1ns) is too short: at least 100us"), "{text}");
    assert!(text.contains("bloodhound.yaml:3:14"), "{text}");
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (above, name) in ["a", "b", "c", "d", "e", "f"].iter().zip(["b", "c", "d", "e", "f", "g"]) {
        bomb += &format!("{name}: &{name} [{}]\n", vec![format!("*{above}"); 10].join(", "));
    }
    let text = validate("bomb.compose.yml", &(bomb + "services: {}\n"));
    assert!(text.contains("the aliases of this file stand for more than 100000 values"), "{text}");
    let service = "services:\n  a:\n    x-bloodhound: {rootfs: host}\n    command: [/bin/true]\n";
    let quoted = validate(
        "stack.compose.yml",
        &format!("{service}    hostname: \"${{NOT_SET_ANYWHERE:?say who}}\"\n"),
    );
    assert!(quoted.contains("`NOT_SET_ANYWHERE` is required: say who"), "{quoted}");
    let bare = validate(
        "stack.compose.yml",
        &format!("{service}    environment: {{A: ${{NOT_SET_ANYWHERE:?say who}}}}\n"),
    );
    assert!(bare.contains("put quotes around a value with a variable"), "{bare}");
}

#[test]
fn validate_strict_wants_files_and_no_warnings() {
    let dir = scratch("strict");
    std::fs::write(dir.join("bloodhound.yaml"), "compose: missing.yml\nsimulation: {seeds: 3}\n")
        .expect("a file");
    let validate = |args: &[&str]| {
        let output = bloodhound().arg("validate").args(args).current_dir(&dir).output();
        code(&output.expect("the command starts"))
    };
    assert_eq!(validate(&[]), 0);
    assert_eq!(validate(&["--strict"]), 2);
}

#[test]
fn schema_is_the_checked_in_file() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../config-schema/bloodhound.schema.json");
    let output = run(&["schema"]);
    assert_eq!((code(&output), out(&output)), (0, std::fs::read_to_string(file).expect("the schema")));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(code(&output), 0, "{shell}");
        assert!(out(&output).contains("validate"), "{shell}");
    }
}

#[test]
fn doctor_answers_for_people_and_machines() {
    let human = run(&["doctor"]);
    let output = run(&["doctor", "--format", "json"]);
    let json: Value = serde_json::from_str(&out(&output)).expect("JSON");
    // The rest of the tests needs a usable machine; here both answers must agree with the exit code.
    let usable = json["usable"].as_bool().expect("a truth value");
    assert_eq!(code(&output), if usable { 0 } else { 5 });
    assert_eq!(code(&human), code(&output));
    assert_eq!(out(&human).ends_with("this machine can run simulations\n"), usable, "{}", out(&human));
    assert_eq!(json["platforms"][0]["name"], "ptrace");
    assert_eq!(json["platforms"][0]["trap_cost_ns"].is_u64(), usable);
}

#[test]
fn a_reader_that_goes_away_is_no_bug() {
    let mut child =
        bloodhound().arg("schema").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(!err(&output).contains("internal error"), "{}", err(&output));
    assert_ne!(code(&output), 70);
}
