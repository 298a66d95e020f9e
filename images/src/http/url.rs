//! Addresses of servers, as far as registries use them.

use crate::error::{Error, ErrorKind, shown};

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn text(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// Name or address; an IPv6 address without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// With the query, and a slash at the beginning.
    pub(crate) path: String,
    /// Name and password before the host.
    pub(crate) user: Option<String>,
}

impl Url {
    /// Reads an address with its scheme. Schemes other than HTTP's are refused by name.
    pub(crate) fn parse(text: &str) -> Result<Url, Error> {
        let wrong = |what: &str| {
            Error::new(ErrorKind::Refused, format!("the address {} {what}", shown(text.as_bytes())))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("has no scheme such as https://"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(wrong("is refused: only http and https are followed")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user.to_owned()), authority),
            None => (None, authority),
        };
        let (host, port) = split(authority).ok_or_else(|| wrong("has no host"))?;
        let port = match port {
            Some(port) => port.parse().map_err(|_| wrong("has a port that is none"))?,
            None => scheme.port(),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong("has a host that is none"));
        }
        let path = path.split('#').next().unwrap_or_default();
        if !path.chars().all(|c| c.is_ascii_graphic()) {
            return Err(wrong("has characters that no address has"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Url { scheme, host: host.to_owned(), port, path, user })
    }

    /// What a Location header of an answer from here means.
    pub(crate) fn join(&self, location: &str) -> Result<Url, Error> {
        if location.contains("://")
            || location.split(['/', '?']).next().is_some_and(|part| part.contains(':'))
        {
            return Url::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Url::parse(&format!("{}://{rest}", self.scheme.text()));
        }
        if location.starts_with('/') {
            return Url::parse(&format!("{}{location}", self.origin()));
        }
        let dir =
            self.path.split('?').next().and_then(|path| path.rsplit_once('/')).map_or("", |(dir, _)| dir);
        Url::parse(&format!("{}{dir}/{location}", self.origin()))
    }

    /// Host, and port if it is not the usual one.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme.text(), self.authority())
    }

    /// The address without query and password, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}{}", self.origin(), self.path.split('?').next().unwrap_or_default())
    }

    /// Whether credentials for one may be shown to the other.
    pub(crate) fn same_server(&self, other: &Url) -> bool {
        (self.scheme, &self.host, self.port) == (other.scheme, &other.host, other.port)
    }
}

/// Host and port of `host:port`, `[::1]:port` and the like.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest {
            "" => Some((host, None)),
            _ => rest.strip_prefix(':').map(|port| (host, Some(port))),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

/// A value in a query.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/,".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let url = Url::parse("https://user:pass@registry.example:5000/v2/?n=1#x").expect("an address");
        assert_eq!((url.origin().as_str(), url.path.as_str()), ("https://registry.example:5000", "/v2/?n=1"));
        assert_eq!(Url::parse("http://[::1]:80").expect("an address").origin(), "http://[::1]");
        for wrong in [
            "file:///etc/passwd",
            "ftp://a/",
            "https://",
            "https://a b/",
            "https://a:x/",
            "a",
            "http://a/\r\nX: y",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
        let to = |location: &str| url.join(location).map(|url| url.place()).map_err(|e| e.to_string());
        assert_eq!(to("/a").as_deref(), Ok("https://registry.example:5000/a"));
        assert_eq!(to("b?c").as_deref(), Ok("https://registry.example:5000/v2/b"));
        assert_eq!(to("//other/a").as_deref(), Ok("https://other/a"));
        assert_eq!(
            to("file:///etc/passwd"),
            Err("the address \"file:///etc/passwd\" is refused: only http and https are followed".to_owned())
        );
        assert!(to("javascript:alert(1)").is_err());
        assert!(to("data:text/plain,x").is_err());
    }
}
