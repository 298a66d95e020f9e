//! Services that run from container images: what an engine makes of an image's configuration and layers together with a
//! compose file.

use crate::common::image::{Layer, Stack};
use serde_json::json;

fn busybox() -> Layer {
    Layer::new().busybox(&[
        "sh", "cat", "ls", "id", "env", "pwd", "sleep", "stat", "mount", "hostname", "touch", "httpd",
        "wget", "grep", "sort",
    ])
}

const TELL: &str = "#!/bin/sh\nfor word in \"$@\"; do echo \"[$word]\"; done\nexec sleep 100\n";

#[test]
fn entrypoint_and_command_are_put_together_as_an_engine_does() {
    let stack = Stack::new("entrypoint");
    let config = json!({"Entrypoint": ["/tell", "one"], "Cmd": ["two", "three"], "Env": ["PATH=/bin"]});
    stack.image("tell:1", config, vec![busybox(), Layer::new().file("tell", 0o755, TELL)]);
    stack.file(
        "docker-compose.yml",
        "services:\n  plain: {image: \"tell:1\"}\n  command: {image: \"tell:1\", command: own 'of two'}\n  entrypoint: {image: \"tell:1\", entrypoint: [/tell, other]}\n  \
         both: {image: \"tell:1\", entrypoint: /tell, command: [x]}\n  empty: {image: \"tell:1\", entrypoint: [], command: [/tell, y]}\n",
    );
    assert_eq!(stack.output("plain"), ["[one]", "[two]", "[three]"]);
    assert_eq!(stack.output("command"), ["[one]", "[own]", "[of two]"]);
    assert_eq!(stack.output("entrypoint"), ["[other]"], "the image's command goes with its entrypoint");
    assert_eq!(stack.output("both"), ["[x]"]);
    assert_eq!(stack.output("empty"), ["[y]"]);
}

#[test]
fn user_directory_and_variables_come_from_image_and_compose_file() {
    let stack = Stack::new("user");
    let show = "#!/bin/sh\nid\npwd\nenv | sort | grep -v -E '^(SHLVL|_)='\nexec sleep 100\n";
    let config = json!({
        "Cmd": ["/show"], "User": "app", "WorkingDir": "/srv/made/by/engine",
        "Env": ["PATH=/bin", "COLOUR=blue", "SIZE=1"],
    });
    stack.image("show:1", config, vec![busybox(), Layer::new().file("show", 0o755, show)]);
    stack.file(
        "docker-compose.yml",
        "services:\n  plain: {image: \"show:1\"}\n  other: {image: \"show:1\", user: \"77:app\", working_dir: /tmp, environment: [SIZE=2, NEW=yes], group_add: [logs]}\n",
    );
    let plain = stack.output("plain");
    assert_eq!(plain[1], "/srv/made/by/engine");
    assert!(plain[0].contains("uid=1000(app)") && plain[0].contains("4(logs)"), "{}", plain[0]);
    assert_eq!(
        plain[2..],
        ["COLOUR=blue", "HOME=/home/app", "HOSTNAME=plain", "PATH=/bin", "PWD=/srv/made/by/engine", "SIZE=1"]
    );
    let other = stack.output("other");
    assert!(other[0].starts_with("uid=77 gid=1000(app)") && other[0].contains("4(logs)"), "{}", other[0]);
    assert_eq!(other[1], "/tmp");
    assert_eq!(
        other[2..],
        ["COLOUR=blue", "HOME=/", "HOSTNAME=other", "NEW=yes", "PATH=/bin", "PWD=/tmp", "SIZE=2"]
    );
}

#[test]
fn layers_lie_upon_each_other() {
    let stack = Stack::new("layers");
    let look = "#!/bin/sh\nls -A /data /opaque; cat /data/changed; stat -c '%n %a %u:%g %h' /data/link /data/first /owned /suid\nexec sleep 100\n";
    let lower = busybox()
        .dir("data", 0o755)
        .file("data/gone", 0o644, "x")
        .file("data/changed", 0o644, "old\n")
        .file("data/first", 0o640, "linked")
        .hard_link("data/link", "data/first")
        .dir("opaque", 0o755)
        .file("opaque/hidden", 0o644, "x");
    let upper = Layer::new()
        .file("look", 0o755, look)
        .file("data/.wh.gone", 0o644, "")
        .file("data/changed", 0o644, "new\n")
        .file("opaque/.wh..wh..opq", 0o644, "")
        .file("opaque/seen", 0o644, "x")
        .owned("owned", 0o600, (1000, 4), "x")
        .file("suid", 0o4755, "x");
    stack.image("look:1", json!({"Cmd": ["/look"], "Env": ["PATH=/bin"]}), vec![lower, upper]);
    stack.file("docker-compose.yml", "services:\n  look: {image: \"look:1\"}\n");
    let expected = [
        "/data:",
        "changed",
        "first",
        "link",
        "",
        "/opaque:",
        "seen",
        "new",
        "/data/link 640 0:0 2",
        "/data/first 640 0:0 2",
        "/owned 600 1000:4 1",
        "/suid 4755 0:0 1",
    ];
    assert_eq!(stack.output("look"), expected);
}

#[test]
fn the_health_check_of_an_image_is_used_and_can_be_changed() {
    let stack = Stack::new("health");
    let config = json!({
        "Cmd": ["sh", "-c", "sleep 3; touch /tmp/ready; exec sleep 100"], "Env": ["PATH=/bin"],
        "Healthcheck": {"Test": ["CMD-SHELL", "ls /tmp/ready"], "Interval": 1_000_000_000u64},
    });
    stack.image("slow:1", config, vec![busybox()]);
    stack.file(
        "docker-compose.yml",
        "services:\n  slow: {image: \"slow:1\", healthcheck: {retries: 10}}\n  never: {image: \"slow:1\", healthcheck: {disable: true}}\n  \
         after:\n    image: \"slow:1\"\n    command: [sh, -c, \"echo begun; exec sleep 100\"]\n    healthcheck: {test: [NONE]}\n    depends_on: {slow: {condition: service_healthy}}\n",
    );
    let run = stack.command(&["run", "--seed", "3"]);
    let at = |what: &str| {
        let line = run.stdout.lines().find(|line| line.ends_with(what));
        let line = line.unwrap_or_else(|| panic!("no {what}\n{}\n{}", run.stdout, run.stderr));
        line.split('.').next().and_then(|seconds| seconds.parse::<u32>().ok()).expect("seconds")
    };
    assert!(at("slow is healthy") >= 3, "{}", run.stdout);
    assert!(at("after started") >= 3, "{}", run.stdout);
    assert_eq!(at("never started"), 0);
}

#[test]
fn what_an_engine_leaves_is_there_and_a_read_only_root_refuses_changes() {
    let stack = Stack::new("engine");
    let look = "#!/bin/sh\nls /.dockerenv; cat /etc/hostname; touch /new 2>&1; touch /tmp/new && ls /tmp; grep -c . /etc/mtab > /tmp/n && echo mounts; cat /data/seed; touch /data/more && ls /data\nexec sleep 100\n";
    let config = json!({"Cmd": ["/look"], "Env": ["PATH=/bin"], "Volumes": {"/data": {}}});
    let layer =
        Layer::new().file("look", 0o755, look).dir("data", 0o755).file("data/seed", 0o644, "of the image\n");
    stack.image("look:1", config, vec![busybox(), layer]);
    stack.file(
        "docker-compose.yml",
        "services:\n  look: {image: \"look:1\", read_only: true, tmpfs: /tmp, hostname: own}\n",
    );
    let expected = [
        "/.dockerenv",
        "own",
        "touch: /new: Read-only file system",
        "new",
        "mounts",
        "of the image",
        "more",
        "seed",
    ];
    assert_eq!(stack.output("look"), expected);
}

#[test]
fn a_stack_without_configuration_and_health_checks_can_pass() {
    let stack = Stack::new("plain");
    std::fs::remove_file(stack.0.join("bloodhound.yaml")).expect("removed");
    stack.image("idle:1", json!({"Cmd": ["sleep", "1000"], "Env": ["PATH=/bin"]}), vec![busybox()]);
    stack.file("docker-compose.yml", "services:\n  idle: {image: \"idle:1\"}\n");
    let test = stack.command(&["test", "--compose", "docker-compose.yml", "--seeds", "2"]);
    assert_eq!(test.code, Some(0), "{}{}", test.stdout, test.stderr);
    assert!(test.stderr.contains("there is no bloodhound.yaml"), "{}", test.stderr);
    assert!(test.stdout.contains("no-crash") && !test.stdout.contains("healthy-again"), "{}", test.stdout);
}

#[test]
fn an_image_that_cannot_be_had_is_named_with_what_to_do() {
    let stack = Stack::new("missing");
    stack.file(
        "docker-compose.yml",
        "services:\n  web: {image: \"127.0.0.1:1/none:3\", pull_policy: never}\n",
    );
    let run = stack.command(&["run", "--seed", "1"]);
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    assert!(
        run.stderr.contains("service web") && run.stderr.contains("127.0.0.1:1/none:3"),
        "{}",
        run.stderr
    );
    stack.file("docker-compose.yml", "services:\n  web: {image: \"web:1\", platform: linux/arm64}\n");
    let run = stack.command(&["run", "--seed", "1"]);
    assert!(run.stderr.contains("linux/arm64") && run.stderr.contains("linux/amd64"), "{}", run.stderr);
    let validated = stack.command(&["validate"]);
    assert!(
        validated.code == Some(2)
            && validated.stdout.contains("linux/arm64") | validated.stderr.contains("linux/arm64"),
        "{}{}",
        validated.stdout,
        validated.stderr
    );
}

#[test]
fn a_finding_is_replayed_with_its_images_and_no_others() {
    let stack = Stack::new("replay");
    let config =
        |code: u32| json!({"Cmd": ["sh", "-c", format!("sleep 2; exit {code}")], "Env": ["PATH=/bin"]});
    stack.image("bad:1", config(3), vec![busybox()]);
    stack.file("bloodhound.yaml", "simulation: {max_time: 20s}\nproperties:\n  - {name: no-crash, kind: safety, check: {type: no-crash}}\nfaults: {duration: 10s, network: {drop_rate: 0.01}}\n");
    stack.file("docker-compose.yml", "services:\n  bad: {image: \"bad:1\", healthcheck: {disable: true}}\n  ok: {image: \"bad:1\", command: [sleep, \"100\"]}\n");
    let test = stack.command(&["test", "--seeds", "1", "--out", "out"]);
    assert_eq!(test.code, Some(1), "{}{}", test.stdout, test.stderr);
    let finding = std::fs::read_dir(stack.0.join("out/findings")).expect("findings").flatten().next();
    let finding = finding.expect("a finding").path().to_string_lossy().into_owned();
    let replay = stack.command(&["replay", &finding]);
    assert_eq!(replay.code, Some(1), "{}{}", replay.stdout, replay.stderr);
    assert!(replay.stdout.contains("reproduced"), "{}", replay.stdout);

    // The name means another image now, and the cache has the old one no more.
    std::fs::remove_dir_all(stack.0.join("cache")).expect("removed");
    stack.image("bad:1", config(4), vec![busybox()]);
    let replay = stack.command(&["replay", &finding]);
    assert!(
        replay.code == Some(5) && replay.stderr.contains("bad:1 is another image now"),
        "{}{}",
        replay.stdout,
        replay.stderr
    );
}

#[test]
fn a_bundled_finding_is_replayed_without_its_project_and_images() {
    let stack = Stack::new("bundle");
    stack.image(
        "bad:1",
        json!({"Cmd": ["sh", "-c", "cat /conf/text; sleep 2; exit 3"], "Env": ["PATH=/bin"]}),
        vec![busybox()],
    );
    stack.file("conf/text", "the text of the configuration\n");
    stack.file("checks/true.sh", "#!/bin/sh\nexit 0\n");
    let script = stack.0.join("checks/true.sh");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("an executable script");
    stack.file(
        "bloodhound.yaml",
        "simulation: {max_time: 20s}\nproperties:\n  - {name: no-crash, kind: safety, check: {type: no-crash}}\n  \
         - {name: script, kind: liveness, timeout: 5s, check: {type: custom, script: checks/true.sh}}\nfaults: {duration: 5s, network: {drop_rate: 0.01}}\n",
    );
    stack.file(
        "docker-compose.yml",
        "services:\n  bad:\n    image: \"bad:1\"\n    healthcheck: {disable: true}\n    volumes: [\"./conf:/conf:ro\"]\n",
    );
    let test = stack.command(&["test", "--seeds", "1", "--out", "out", "--bundle"]);
    assert_eq!(test.code, Some(1), "{}{}", test.stdout, test.stderr);
    let elsewhere = Stack::new("bundle-elsewhere");
    std::fs::remove_file(elsewhere.0.join("bloodhound.yaml")).expect("removed");
    let finding = elsewhere.0.join("finding");
    std::fs::rename(stack.0.join("out/findings/seed-0-no-crash"), &finding).expect("moved");
    std::fs::remove_dir_all(&stack.0).expect("removed");
    let replay = elsewhere.command(&["replay", "finding"]);
    assert_eq!(replay.code, Some(1), "{}{}", replay.stdout, replay.stderr);
    assert!(replay.stdout.contains("reproduced"), "{}", replay.stdout);
    assert!(replay.stdout.contains("the text of the configuration"), "{}", replay.stdout);

    // Other bytes under a name of the bundle are refused.
    let contents = finding.join("bundle/files");
    for file in std::fs::read_dir(contents).expect("contents").flatten() {
        std::fs::write(file.path(), "other bytes").expect("written");
    }
    let replay = elsewhere.command(&["replay", "finding"]);
    assert_ne!(replay.code, Some(1), "{}{}", replay.stdout, replay.stderr);
}

/// Two images of an application that counts in a volume of its image, and says of which version it is.
fn versions(stack: &Stack) {
    for (version, user) in [("1", "root"), ("2", "app")] {
        let app = format!(
            "#!/bin/sh\ntrap 'echo {version} ends; exit 0' TERM\nn=$(cat /data/n 2>/dev/null || echo 0)\n\
             mark=$(ls /own/mark 2>/dev/null)\necho \"{version} begins at $n as $(id -u), ${{mark:-anew}}\"\ntouch /own/mark\n\
             while :; do n=$((n+1)); echo $n > /data/n; sleep 0.1; done\n"
        );
        let dirs = busybox().owned("data/", 0o777, (0, 0), "").owned("own/", 0o777, (0, 0), "");
        let count = Layer::new().file("data/n", 0o666, "0\n").file("app", 0o755, app);
        let config = json!({"Cmd": ["/app"], "Env": ["PATH=/bin"], "User": user, "Volumes": {"/data": {}}});
        stack.image(&format!("app:{version}"), config, vec![dirs, count]);
    }
    stack.file("docker-compose.yml", "services:\n  app: {image: \"app:1\"}\n");
}

const UPGRADE: &str = "simulation: {max_time: 20s}\nfaults:\n  duration: 8s\n  swarm: false\n  upgrades: {app: {image: \"app:2\"}}\n  \
    schedule:\n    - {at: 1s, fault: upgrade, service: app, duration: 2s}\n    \
    - {at: 4s, fault: downgrade, service: app, duration: 2s}\n";

#[test]
fn a_service_is_upgraded_to_another_image_and_back() {
    let stack = Stack::new("upgrade");
    versions(&stack);
    let property = "properties:\n  - {name: no-crash, kind: safety, check: {type: no-crash}}\n";
    stack.file("bloodhound.yaml", &format!("{UPGRADE}{property}"));
    let lines = stack.output("app");
    let begins = |version: &str, user: &str| -> Vec<u64> {
        let of = lines.iter().filter_map(|line| line.strip_prefix(&format!("{version} begins at ")));
        let anew = of.filter_map(|rest| rest.strip_suffix(&format!(" as {user}, anew")));
        anew.filter_map(|n| n.parse().ok()).collect()
    };
    // The volume of the image stays although it has no name, and nothing else does.
    let (first, second) = (begins("1", "0"), begins("2", "1000"));
    assert!(first.len() == 2 && second.len() == 1, "{lines:?}");
    assert!(first[0] == 0 && second[0] > 0 && first[1] > second[0], "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with(" ends")).count(), 2, "{lines:?}");
    // An image that nobody has is told where it is named.
    stack.file("bloodhound.yaml", &format!("{}{property}", UPGRADE.replace("app:2", "app:9")));
    let ran = stack.command(&["run", "--offline"]);
    assert!(ran.code != Some(0) && ran.stderr.contains("bloodhound.yaml:5:27"), "{}", ran.shown());
}

#[test]
fn a_finding_of_an_upgrade_is_replayed_with_both_images() {
    let stack = Stack::new("upgrade-replay");
    versions(&stack);
    let never = "properties:\n  - {name: never, kind: liveness, timeout: 1s, check: {type: http, endpoint: 'http://app:9/'}}\n";
    stack.file("bloodhound.yaml", &format!("{UPGRADE}{never}"));
    let test = stack.command(&["test", "--seeds", "1", "--out", "out", "--bundle", "--no-shrink"]);
    assert_eq!(test.code, Some(1), "{}", test.shown());
    let finding = stack.0.join("out/findings/seed-0-never");
    let record = std::fs::read_to_string(finding.join("finding.json")).expect("a record");
    assert!(record.contains("app:1@sha256:") && record.contains("app:2@sha256:"), "{record}");
    let elsewhere = Stack::new("upgrade-elsewhere");
    std::fs::remove_file(elsewhere.0.join("bloodhound.yaml")).expect("removed");
    std::fs::rename(&finding, elsewhere.0.join("finding")).expect("moved");
    std::fs::remove_dir_all(&stack.0).expect("removed");
    let replay = elsewhere.command(&["replay", "finding"]);
    assert_eq!(replay.code, Some(1), "{}", replay.shown());
    let said = |text: &str| replay.stdout.contains(text);
    assert!(said("reproduced") && said("app is made of app:2") && said("2 begins at "), "{}", replay.stdout);
}
