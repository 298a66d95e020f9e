//! Requests as bytes (RFC 9112).

use super::config::Target;

/// A request before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method in capitals.
    pub method: String,
    /// Path with query, without the target's prefix.
    pub path: String,
    /// Header fields; they replace those that are written by default.
    pub headers: Vec<(String, String)>,
    /// Body; `None` and an empty body differ in the Content-Length header of methods that need none.
    pub body: Option<Vec<u8>>,
}

impl Request {
    /// A request for `path` without a body.
    pub fn get(path: &str) -> Request {
        Request { method: "GET".to_owned(), path: path.to_owned(), headers: Vec::new(), body: None }
    }

    /// The bytes to send to `target`. Host, Content-Length and Connection are written unless the request has them.
    /// Control characters of header fields and path are left out, so that no field can smuggle in another.
    pub fn to_bytes(&self, target: &Target, keep_alive: bool) -> Vec<u8> {
        let clean = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).collect() };
        let path: String =
            clean(&format!("{}{}", target.prefix, self.path)).chars().filter(|c| *c != ' ').collect();
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, if path.is_empty() { "/" } else { &path });
        let mut field = |name: &str, value: String| {
            if !self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        };
        let port = target.address.port();
        field("Host", if port == 80 { target.host.clone() } else { format!("{}:{port}", target.host) });
        field("User-Agent", "bloodhound".to_owned());
        field("Accept", "*/*".to_owned());
        // RFC 9110, 8.6: a method that anticipates content has a length even if there is none.
        let needs_length = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        if self.body.is_some() || needs_length {
            field("Content-Length", self.body.as_ref().map_or(0, Vec::len).to_string());
        }
        if !keep_alive {
            field("Connection", "close".to_owned());
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{}: {}\r\n", clean(name), clean(value)));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(port: u16) -> Target {
        let address = ([10, 0, 0, 1], port).into();
        Target { host: "kv".to_owned(), address, prefix: "/v1".to_owned() }
    }

    #[test]
    fn requests_are_written_with_their_default_fields() {
        let bytes = Request::get("/a").to_bytes(&target(80), true);
        let text = "GET /v1/a HTTP/1.1\r\nHost: kv\r\nUser-Agent: bloodhound\r\nAccept: */*\r\n\r\n";
        assert_eq!(String::from_utf8(bytes).as_deref(), Ok(text));
    }

    #[test]
    fn given_fields_replace_the_default_ones_and_cannot_break_out() {
        let request = Request {
            method: "PUT".to_owned(),
            path: "/a\r\nX: y".to_owned(),
            headers: vec![("host".to_owned(), "other\r\nEvil: 1".to_owned())],
            body: Some(b"hi".to_vec()),
        };
        let text = String::from_utf8(request.to_bytes(&target(8080), false)).expect("text");
        let fields = "User-Agent: bloodhound\r\nAccept: */*\r\nContent-Length: 2\r\nConnection: close\r\n";
        assert_eq!(text, format!("PUT /v1/aX:y HTTP/1.1\r\n{fields}host: otherEvil: 1\r\n\r\nhi"));
    }
}
