//! Readers and writers of histories: the formats agree, malformed input is refused at its place, nothing panics.

use bloodhound_decisions::Dice;
use bloodhound_workloads::generate::{Shape, generate};
use bloodhound_workloads::history::{Call, History, Operation, Outcome, ParseError, Value, parse_any};
use bloodhound_workloads::linearizability::{Budget, Verdict, check};
use bloodhound_workloads::model::Model;

fn parse(text: &str) -> History {
    parse_any(text.as_bytes()).unwrap_or_else(|e| panic!("{e} in {text}"))
}

fn error(text: &str) -> ParseError {
    parse_any(text.as_bytes()).expect_err(text)
}

/// Operations without their times.
fn essence(history: &History) -> Vec<(u64, Option<String>, Call, Outcome)> {
    let essence = |o: &Operation| (o.process, o.key.clone(), o.call.clone(), o.outcome.clone());
    history.operations().iter().map(essence).collect()
}

const EDN: &str = r#"; a comment
{:process 0, :type :invoke, :f :write, :value 3, :time 10, :index 0}
{:process :nemesis, :type :info, :f :start, :value "cut"}
{:process 1, :type :invoke, :f :cas, :value [3 4]}
#jepsen.history.Op{:process 0 :type :ok :f :write :value 3}
{:process 1, :type :info, :f :cas, :value [3 4], :error :timeout}
{:process 2, :type :invoke, :f :read, :value nil}
{:process 2, :type :ok, :f :read, :value 4}
"#;

const LOG: &str = "INFO  jepsen.core - Worker 0 starting
INFO  jepsen.util - 0\t:invoke\t:write\t3
INFO  jepsen.util - :nemesis\t:info\t:start\t\"Cut off {:n1 #{:n2}}\"
INFO  jepsen.util - 1\t:invoke\t:cas\t[3 4]
INFO  jepsen.util - 0\t:ok\t:write\t3
INFO  jepsen.util - 1\t:info\t:cas\t:timed-out
INFO  jepsen.util - 2\t:invoke\t:read\tnil
INFO  jepsen.util - 2\t:ok\t:read\t4
Not linearizable. Linearizable prefix was:
9\t:invoke\t:read\tnil
\tat clojure.core$apply.invoke (core.clj:624)
";

const JSON: &str = r#"{"type":"invoke","f":"write","process":0,"value":3}
{"process":"nemesis","type":"info","f":"start"}
{"type":"invoke","f":"cas","process":1,"value":[3,4]}

{"type":"ok","f":"write","process":0,"value":3}
{"type":"info","f":"cas","process":1,"value":[3,4]}
{"type":"invoke","f":"get","process":2}
{"type":"ok","f":"get","process":2,"value":4}
"#;

#[test]
fn all_formats_give_the_same_history() {
    let cas = Call::Cas { expected: Value::Int(3), new: Value::Int(4) };
    let expected = vec![
        (0, None, Call::Write(Value::Int(3)), Outcome::Ok(Value::Nil)),
        (1, None, cas, Outcome::Unknown),
        (2, None, Call::Read, Outcome::Ok(Value::Int(4))),
    ];
    assert_eq!(essence(&parse(EDN)), expected);
    assert_eq!(essence(&parse(&format!("[{EDN}]"))), expected);
    assert_eq!(essence(&parse(LOG)), expected);
    assert_eq!(essence(&parse(JSON)), expected);
    let plain: String = LOG
        .lines()
        .filter_map(|l| l.strip_prefix("INFO  jepsen.util - "))
        .fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(essence(&parse(&plain)), expected);
    assert_eq!(parse(EDN).operations()[0].invoke.0, 10);
}

#[test]
fn written_histories_read_back_equal() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let shape = Shape {
            keys: seed % 3,
            delete_percent: 20,
            mismatches: seed % 2 == 0,
            ..Shape::register(40, 4, 5)
        };
        let history = generate(shape, &mut dice);
        let text = history.to_json_lines();
        assert!(parse(&text) == history, "{text}");
    }
}

#[test]
fn keys_stand_in_the_value_or_beside_it() {
    let edn = "{:process 0 :type :invoke :f :cas :value [7 [1 2]]} {:process 0 :type :ok :f :cas :value [7 [1 2]]}
               {:process 1 :type :invoke :f :read :value [7 nil]} {:process 1 :type :ok :f :read :value [7 2]}";
    let json = r#"{"process":0,"type":"invoke","f":"cas","key":7,"value":[1,2]}
                  {"process":0,"type":"ok","f":"cas","key":7,"value":[1,2]}
                  {"process":1,"type":"invoke","f":"read","value":["7",null]}
                  {"process":1,"type":"ok","f":"read","value":["7",2]}"#;
    assert_eq!(essence(&parse(edn)), essence(&parse(json)));
    assert_eq!(parse(edn).operations()[0].key.as_deref(), Some("7"));
}

#[test]
fn a_failed_cas_is_a_mismatch_only_where_the_file_says_so() {
    let outcome = |text: &str| parse(text).operations()[0].outcome.clone();
    let edn = |more: &str| {
        let fail = format!("{{:process 0 :type :fail :f :cas :value [1 2] {more}}}");
        outcome(&format!("{{:process 0 :type :invoke :f :cas :value [1 2]}} {fail}"))
    };
    assert_eq!(edn(""), Outcome::Fail);
    assert_eq!(edn(":error :mismatch"), Outcome::Mismatch);
    let log = |end: &str| {
        outcome(&format!("INFO jepsen.util - 0 :invoke :cas [1 2]\nINFO jepsen.util - 0 :fail :cas {end}"))
    };
    assert_eq!(log("[1 2]"), Outcome::Mismatch);
    assert_eq!(log(":timed-out"), Outcome::Fail);
    assert_eq!(log("[1 2] :timed-out"), Outcome::Fail);
}

#[test]
fn malformed_histories_are_refused_at_their_place() {
    let invoke = r#"{"process":0,"type":"invoke","f":"read"}"#;
    let ok = r#"{"process":0,"type":"ok","f":"read","value":1}"#;
    let cases: &[(&str, usize, usize, &str)] = &[
        (ok, 1, 1, "none under way"),
        (&format!("{invoke}\n{ok}\n{ok}"), 3, 1, "none under way"),
        (&format!("{invoke}\n{invoke}"), 2, 1, "invokes again before its operation of line 1"),
        (
            &format!("{invoke}\n{{\"process\":0,\"type\":\"ok\",\"f\":\"write\"}}"),
            2,
            1,
            "but invoked \"read\"",
        ),
        (&format!("{invoke}\n{{\"process\":0,\"type\":"), 2, 20, "EOF"),
        (&format!("{invoke}\n[1]"), 2, 1, "expected an object"),
        (r#"{"type":"invoke","f":"read"}"#, 1, 1, "without \"process\""),
        (r#"{"process":-1,"type":"invoke","f":"read"}"#, 1, 2, "process is -1"),
        (r#"{"process":0,"type":"call","f":"read"}"#, 1, 14, "expected \"invoke\""),
        (r#"{"process":0,"type":"invoke","f":"cas","value":3}"#, 1, 1, "expected a pair"),
        (r#"{"process":0,"type":"invoke","f":"read","time":-4}"#, 1, 41, "expected nanoseconds"),
        ("{:process 0 :type :invoke :f :read", 1, 35, "expected '}'"),
        ("{:process 0 :type :invoke :f}", 1, 1, "no value"),
        ("{:process 0 :type :invoke}", 1, 1, "without :f"),
        ("{:process 0 :type :call :f :read}", 1, 1, ":type is :call"),
        (
            "[{:process 0 :type :invoke :f :read}\n {:process 0 :type :invoke :f :read}]",
            2,
            2,
            "invokes again",
        ),
        ("{:process 0 :process 1}", 1, 1, "two values for :process"),
        ("{:value \"abc", 1, 13, "inside the string"),
        ("[{:process 0 :type :ok :f :read}]", 1, 2, "none under way"),
        ("INFO  jepsen.util - 0 :invoke", 1, 30, "expected the function"),
        ("INFO  jepsen.util - 0 :ok :read 1", 1, 33, "none under way"),
        ("INFO  jepsen.util - 0 :invoke :cas 1", 1, 36, "expected a pair"),
        ("what is this", 1, 1, "what is no process"),
    ];
    for (text, line, column, message) in cases {
        let found = error(text);
        assert!(found.message.contains(message), "{found} for {text}");
        assert_eq!((found.line, found.column), (*line, *column), "{found} for {text}");
    }
    let deep = "[".repeat(100_000);
    assert!(error(&deep).message.contains("nested"));
    assert!(parse_any(b"{\"process\": \xff}").is_err());
    assert!(parse(" \n").is_empty());
}

#[test]
fn random_changes_never_panic() {
    let mut dice = Dice::new(5);
    let mut draw = |bound: usize| dice.below(bound as u64) as usize;
    let mut accepted = 0;
    for round in 0..20_000 {
        let mut bytes = [EDN, LOG, JSON][round % 3].as_bytes().to_vec();
        for _ in 0..1 + draw(4) {
            let at = draw(bytes.len());
            match draw(4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = b"{}[]()\"\\:;#,_ \n0-"[draw(17)],
                2 => bytes.insert(at, draw(256) as u8),
                _ => {
                    bytes.remove(at);
                    bytes.push(b'\n');
                }
            }
        }
        if let Ok(history) = parse_any(&bytes) {
            accepted += 1;
            for (_, model) in Model::NAMES {
                let _ = check(&history, model, Budget::default()).map(|verdict| verdict.to_string());
            }
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn operations_foreign_to_a_model_are_errors() {
    let verdict = |text: &str, model| check(&parse(text), model, Budget::default());
    let cas = "{:process 0 :type :invoke :f :cas :value [1 2]}";
    assert!(verdict(cas, Model::Register).is_err_and(|e| e.to_string().contains("does not have")));
    assert!(verdict(cas, Model::Kv).is_err_and(|e| e.to_string().contains("without a key")));
    let append = "{:process 0 :type :invoke :f :append :value 1}";
    assert!(verdict(append, Model::CasRegister).is_err_and(|e| e.to_string().contains("\"append\"")));
}

#[test]
fn a_violation_is_reported_with_its_smallest_part() {
    let mut text = String::new();
    for (i, value) in [1, 2, 1].into_iter().enumerate() {
        let f = if i < 2 { "write" } else { "read" };
        let time = |half: usize| 1000 * i + 1000 + 500 * half;
        text += &format!(
            "{{\"process\":0,\"type\":\"invoke\",\"f\":\"{f}\",\"key\":\"a\",\"value\":{value},\"time\":{}}}\n",
            time(0)
        );
        text += &format!(
            "{{\"process\":0,\"type\":\"ok\",\"f\":\"{f}\",\"key\":\"a\",\"value\":{value},\"time\":{}}}\n",
            time(1)
        );
    }
    let verdict = check(&parse(&text), Model::Kv, Budget::default()).expect("known operations");
    let expected = "not linearizable: key \"a\" as a kv
  no order of the operations explains process 0's \"read: found 1\"
  2 of 3 operations on it are wrong by themselves, whatever the object held before:
    process  operation      invoked       completed
    0        write 2: ok    0.000002000s  0.000002500s
    0        read: found 1  0.000003000s  0.000003500s
  up to there it is linearizable (2 operations), for example: process 0 write 1: ok; process 0 write 2: ok";
    assert_eq!(verdict.to_string(), expected);
}

#[test]
fn an_exhausted_budget_is_no_verdict() {
    let history = generate(Shape::register(2_000, 10, 0), &mut Dice::new(1));
    for budget in [Budget { steps: 50, ..Budget::default() }, Budget { memory: 1000, ..Budget::default() }] {
        let verdict = check(&history, Model::CasRegister, budget);
        assert!(matches!(verdict, Ok(Verdict::Unknown { .. })), "{verdict:?}");
    }
}

#[test]
fn many_clients_at_once_are_judged_too() {
    for clients in [70, 300, 900] {
        let history = generate(Shape::register(3_000, clients, 0), &mut Dice::new(1));
        let verdict = check(&history, Model::CasRegister, Budget::default());
        assert!(matches!(verdict, Ok(Verdict::Linearizable { .. } | Verdict::Unknown { .. })), "{verdict:?}");
    }
}
