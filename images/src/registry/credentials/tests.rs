//! Files of credentials, as Docker and podman write them.

use super::*;

fn endpoint(registry: &str, repository: &str) -> Endpoint {
    Endpoint {
        base: format!("https://{registry}"),
        registry: registry.to_owned(),
        repository: repository.to_owned(),
        insecure: false,
        without_tls: false,
    }
}

/// What a file with this text has for an image: the header, or why there is none.
fn found(text: &str, registry: &str, repository: &str) -> Result<Option<String>, String> {
    let path = std::env::temp_dir().join(format!(
        "bloodhound-credentials-{}-{:x}",
        std::process::id(),
        text.as_ptr() as usize
    ));
    std::fs::write(&path, text).expect("a file");
    let found = in_file(&path, &endpoint(registry, repository));
    std::fs::remove_file(&path).expect("removed");
    found.map(|found| found.and_then(|found| found.basic())).map_err(|e| e.to_string())
}

fn header(pair: &str) -> Result<Option<String>, String> {
    Ok(Some(format!("Basic {}", base64::encode(pair.as_bytes()))))
}

#[test]
fn files_have_credentials_under_several_names() {
    let auth = base64::encode(b"me:secret");
    for key in ["registry.example:5000", "https://registry.example:5000", "https://registry.example:5000/v1/"]
    {
        let text = format!(r#"{{"auths":{{"{key}":{{"auth":"{auth}"}}}}}}"#);
        assert_eq!(found(&text, "registry.example:5000", "a/b"), header("me:secret"), "{key}");
        assert_eq!(found(&text, "registry.example", "a/b"), Ok(None), "{key}");
    }
    let text = format!(r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{auth}"}}}}}}"#);
    assert_eq!(found(&text, "docker.io", "library/redis"), header("me:secret"));
    let text = r#"{"auths":{"quay.io":{"username":"all","password":"1"},"quay.io/team":{"username":"team","password":"2"}}}"#;
    assert_eq!(found(text, "quay.io", "team/app"), header("team:2"));
    assert_eq!(found(text, "quay.io", "other/app"), header("all:1"));
}

#[test]
fn passwords_are_in_no_message() {
    for text in [
        r#"{"auths":{"a.b":{"auth":"c2VjcmV0"}}}"#,
        r#"{"auths":{"a.b":{"auth":["secret"]}}}"#,
        r#"{"auths":{"a.b":{"password":"secret"},}"#,
        r#"{"credHelpers":{"a.b":"../../secret"}}"#,
    ] {
        let error = found(text, "a.b", "c").expect_err("no credentials");
        assert!(!error.contains("c2VjcmV0") && !error.starts_with("secret"), "{error}");
    }
}
