//! Answers of registries that misbehave: name, answers, words of the error.

use std::time::Duration;

use bloodhound_images::Digest;
use serde_json::{Value, json};

use super::archives::layer;
use super::common::{config, gzip};
use super::server::{Asked, Reply};

pub type Special = Box<dyn Fn(&Asked) -> Option<Reply> + Send + Sync>;

/// A registry that answers everything so.
fn always(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Special {
    Box::new(move |_| Some(reply()))
}

/// One that answers so where the path has this in it.
fn at(part: &'static str, reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Special {
    Box::new(move |asked| asked.path.contains(part).then(|| reply(asked)))
}

fn raw(text: &'static str) -> Special {
    always(move || Reply::Raw(text.as_bytes().to_vec()))
}

/// One that wants a token, whose server answers so.
fn token(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Special {
    Box::new(move |asked| {
        if asked.path.starts_with("/token") {
            return Some(reply());
        }
        let host = asked.header("host").unwrap_or_default();
        Some(Reply::with(
            401,
            "WWW-Authenticate",
            &format!("Bearer realm=\"http://{host}/token\",service=\"s\""),
        ))
    })
}

/// The path of the configuration's blob.
static CONFIG: std::sync::LazyLock<String> =
    std::sync::LazyLock::new(|| Digest::of(&config(&[layer()])).to_string());

fn layer_answers(reply: impl Fn(&[u8]) -> Reply + Send + Sync + 'static) -> Special {
    let blob = gzip(&layer());
    let name = Digest::of(&blob).to_string();
    Box::new(move |asked| asked.path.ends_with(&name).then(|| reply(&blob)))
}

fn layer_drips() -> Special {
    layer_answers(|blob| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", blob.len());
        Reply::Drip([head.as_bytes(), blob].concat(), Duration::from_millis(20))
    })
}

/// All of them.
pub fn cases() -> Vec<(&'static str, Special, &'static str)> {
    let mut all = credentials_and_redirects();
    all.extend(answers());
    all
}

#[rustfmt::skip] // a case in a line
fn credentials_and_redirects() -> Vec<(&'static str, Special, &'static str)> {
    let json_body = |value: Value| move || Reply::body(value.to_string().as_bytes());
    let location = |to: &'static str| at("/blobs/", move |_| Reply::with(307, "Location", to));
    vec![
        ("401 for ever", always(|| Reply::with(401, "WWW-Authenticate", "Basic realm=\"x\"")), "status 401"),
        ("401 without a challenge", always(|| Reply::status(401)), "it names none"),
        ("401 with an unknown challenge", always(|| Reply::with(401, "WWW-Authenticate", "Negotiate abc")), "Negotiate abc"),
        ("401 with half a challenge", always(|| Reply::with(401, "WWW-Authenticate", "Bearer realm=\"")), "address"),
        ("401 without a realm", always(|| Reply::with(401, "WWW-Authenticate", "Bearer service=\"x\"")), "not named by the registry"),
        ("401 with a token server that is a file", always(|| Reply::with(401, "WWW-Authenticate", "Bearer realm=\"file:///etc/passwd\"")), "only http and https"),
        ("401 after a token", token(json_body(json!({"token": "abc"}))), "status 401"),
        ("401 of the token server", token(|| Reply::status(401)), "gives none: status 401"),
        ("a token server that redirects", token(|| Reply::with(302, "Location", "file:///etc/passwd")), "gives none: status 302"),
        ("an empty token", token(json_body(json!({"token": ""}))), "answers with no token"),
        ("a token with a line break", token(json_body(json!({"token": "a\r\nX-Evil: 1"}))), "answers with no token"),
        ("a token that is none", token(json_body(json!([1]))), "answers with no token"),
        ("a token server that speaks no JSON", token(|| Reply::body(b"<html>")), "answers with no token"),
        ("an endless token", token(move || Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())), "token server"),
        ("403", always(|| Reply::status(403)), "status 403"),
        ("404", always(|| Reply::status(404)), "has no manifests 1"),
        ("404 of a layer", at("/blobs/", |_| Reply::status(404)), "has no blobs sha256:"),
        ("429 for ever", always(|| Reply::with(429, "Retry-After", "999999")), "allows no more requests"),
        ("500 for ever", always(|| Reply::status(500)), "status 500"),
        ("503 of a layer for ever", at("/blobs/", |_| Reply::status(503)), "status 503"),
        ("204", always(|| Reply::status(204)), "no manifest"),
        ("101", always(|| Reply::status(101)), "status 101"),
        ("a redirect to a file", location("file:///etc/passwd"), "only http and https are followed"),
        ("a redirect to ftp", location("ftp://127.0.0.1/x"), "only http and https are followed"),
        ("a redirect to a script", location("javascript:alert(1)"), "address"),
        ("a redirect to nowhere", at("/blobs/", |_| Reply::status(307)), "a redirect to nowhere"),
        ("a redirect to itself", at("/blobs/", |asked| Reply::with(307, "Location", &asked.path)), "more than 8 redirects"),
        ("redirects that do not end", at("/blobs/", |asked| Reply::with(307, "Location", &format!("{}x", asked.path))), "more than 8 redirects"),
        ("a redirect to nobody", location("http://127.0.0.1:1/x"), "127.0.0.1:1"),
        ("a redirect with a line break", location("http://127.0.0.1:1/x\u{b}y"), "no address has"),
    ]
}

#[rustfmt::skip] // a case in a line
fn answers() -> Vec<(&'static str, Special, &'static str)> {
    let endless = || Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    vec![
        ("no answer", always(|| Reply::Raw(Vec::new())), "the connection ended in its headers"),
        ("another protocol", raw("SSH-2.0-OpenSSH_9.2\r\n"), "it does not speak HTTP"),
        ("a status that is none", raw("HTTP/1.1 999999 X\r\n\r\n"), "it does not speak HTTP"),
        ("a header that is none", raw("HTTP/1.1 200 OK\r\nno header\r\n\r\n"), "is no header"),
        ("headers that do not end", always(|| Reply::Endless(b"HTTP/1.1 200 OK\r\nX: ".to_vec())), "more than 64 KiB"),
        ("a thousand headers", always(|| { Reply::Raw(["HTTP/1.1 200 OK\r\n", &"X: y\r\n".repeat(1000), "\r\n"].concat().into_bytes()) }), "more than 200 headers"),
        ("a hundred early answers", always(|| Reply::Raw("HTTP/1.1 103 X\r\n\r\n".repeat(100).into_bytes())), "status 103"),
        ("two lengths", raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), "two lengths"),
        ("a negative length", raw("HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"), "is no length"),
        ("an encoding nobody asked for", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}"), "is encoded as"),
        ("a chunk of no size", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), "is no size of a chunk"),
        ("a chunk of 2^68 bytes", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), "is no size of a chunk"),
        ("a cut chunk", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{}"), "ended in the middle"),
        ("silence", always(|| Reply::Stall(Vec::new())), "no answer came in time"),
        ("silence in a header", always(|| Reply::Stall(b"HTTP/1.1 200".to_vec())), "no answer came in time"),
        ("silence in a manifest", at("/manifests/", |_| Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec())), "no answer came in time"),
        ("silence in a layer", at("/blobs/", |_| Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec())), "no answer came in time"),
        ("a header byte by byte", always(|| { Reply::Drip([b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".repeat(150)].concat(), Duration::from_millis(20)) }), "takes too long"),
        ("a layer byte by byte", layer_drips(), "too "),
        ("a manifest without end", at("/manifests/", move |_| endless()), "more than 65536 bytes"),
        ("a layer without end", layer_answers(|_| Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())), "that it should have"),
        ("a layer that always ends early", layer_answers(|blob| Reply::Broken(blob.to_vec(), 1)), "ended in the middle of the answer"),
        ("a layer that is another", layer_answers(|blob| Reply::body(&vec![7; blob.len()])), "came with digest"),
        ("a layer that is shorter", layer_answers(|blob| Reply::body(&blob[1..])), "ended early"),
        ("a range that lies", layer_answers(|blob| { Reply::Plain(206, vec![("Content-Range".to_owned(), "bytes 5-9/10".to_owned())], vec![1; blob.len()]) }), "came with digest"),
        ("a configuration that is another", at(&CONFIG, |_| Reply::body(b"{}")), "came with digest"),
        ("a configuration without end", at(&CONFIG, move |_| Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())), "the answer has more than"),
        ("a page of a hotel", at("/manifests/", |_| Reply::body(b"<html>Please log in to use this network</html>")), "it is no manifest"),
        ("an index without amd64", at("/manifests/", |_| { Reply::body(br#"{"manifests":[{"digest":"sha256:0","size":1,"platform":{"os":"linux","architecture":"riscv64"}}]}"#) }), "there is: linux/riscv64"),
        ("an index to a file", at("/manifests/", |_| { Reply::body(br#"{"manifests":[{"digest":"file:///etc/passwd","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}"#) }), "not supported as a digest"),
        ("an index to itself", at("/manifests/", |_| { Reply::body(format!(r#"{{"manifests":[{{"digest":"{}","size":1,"platform":{{"os":"linux","architecture":"amd64"}}}}]}}"#, Digest::of(b"x")).as_bytes()) }), "came with digest"),
        ("a configuration of 8 EiB", at("/manifests/", |_| { let config = json!({"digest": Digest::of(b""), "size": i64::MAX}); Reply::body(json!({"config": config, "layers": []}).to_string().as_bytes()) }), "BLOODHOUND_IMAGE_MAX_MANIFEST"),
        ("an error with a long text", always(|| { Reply::Plain(400, Vec::new(), json!({"errors": [{"code": "X", "message": "\u{1b}[31m".repeat(9000)}]}).to_string().into_bytes()) }), "status 400"),
    ]
}
