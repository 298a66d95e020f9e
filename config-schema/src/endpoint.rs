//! `http://host:port/path` as the configuration writes it.
//!
//! Key type: [`Endpoint`]. Only plain HTTP: TLS would hide the traffic's meaning from the simulation and is
//! terminated in front of most services.

use std::fmt;

use crate::suggest::nearest;

/// An HTTP address inside the simulated network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A service's name, an alias or an IPv4 address.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
    /// Path with query, starting with `/`.
    pub path: String,
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointError {
    /// In words.
    pub message: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl Endpoint {
    /// Parses `http://host[:port][/path][?query]`; the port defaults to 80.
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let fail = |message: &str, suggestion: Option<String>| {
            Err(EndpointError { message: message.to_owned(), suggestion })
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            let meant = (!text.is_empty() && !text.contains(char::is_whitespace))
                .then(|| format!("http://{}", text.trim_start_matches('/')));
            return fail("expected an address such as http://lb:80/path", meant);
        };
        if scheme == "https" {
            return fail(
                "https is not available: the simulation speaks plain http",
                Some(format!("http://{rest}")),
            );
        }
        if scheme != "http" {
            let meant = nearest(scheme, &["http"]).map(|known| format!("{known}://{rest}"));
            return fail("expected an address that begins with http://", meant);
        }
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
            return fail("an address has no blanks and no `#`", None);
        }
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        let port = match port {
            None => 80,
            Some(port) => match port.parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => return fail("the port must be a number from 1 to 65535", None),
            },
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if host.is_empty() || !host.chars().all(allowed) {
            return fail("the host must be the name of a service or an IPv4 address", None);
        }
        let path = match path {
            "" => "/".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        Ok(Endpoint { host: host.to_owned(), port, path })
    }
}

impl Endpoint {
    /// Whether it is a port of the machine that runs the containers.
    pub fn is_local(&self) -> bool {
        matches!(self.host.as_str(), "localhost" | "127.0.0.1" | "0.0.0.0")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let e =
            |host: &str, port, path: &str| Endpoint { host: host.to_owned(), port, path: path.to_owned() };
        assert_eq!(Endpoint::parse("http://lb:80"), Ok(e("lb", 80, "/")));
        assert_eq!(Endpoint::parse("http://lb/health?x=1"), Ok(e("lb", 80, "/health?x=1")));
        assert_eq!(Endpoint::parse("http://10.0.0.1:8080?x"), Ok(e("10.0.0.1", 8080, "/?x")));
    }

    #[test]
    fn wrong_addresses_are_refused() {
        for text in
            ["", "lb:80", "ftp://x", "http://", "http://:80", "http://a:0", "http://a:99999", "http://a b"]
        {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        let meant = |text| Endpoint::parse(text).unwrap_err().suggestion;
        assert_eq!(meant("lb:80").as_deref(), Some("http://lb:80"));
        assert_eq!(meant("https://lb").as_deref(), Some("http://lb"));
        assert_eq!(meant("htp://lb").as_deref(), Some("http://lb"));
    }
}
