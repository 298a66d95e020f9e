//! Answering the challenges of registries: basic authentication, and tokens from the server that a challenge names (Docker's token
//! authentication; the OAuth2 form for identity tokens).

use crate::error::{Error, ErrorKind, shown};
use crate::http::url::{Scheme, Url, quoted};
use crate::http::{Client, Request};

use super::credentials::Credentials;
use super::settings::Endpoint;

/// Bytes of the answer of a token server, at most.
const TOKEN: u64 = 1 << 20;

/// What is shown to a server.
pub(crate) struct Session {
    credentials: Option<Credentials>,
    header: Option<String>,
}

impl Session {
    pub(super) fn new(credentials: Option<Credentials>) -> Session {
        let header = match &credentials {
            Some(Credentials { registry_token: Some(token), .. }) => Some(format!("Bearer {token}")),
            _ => None,
        };
        Session { credentials, header }
    }

    /// The value of the header `Authorization`, once a challenge was answered.
    pub(super) fn header(&self) -> Option<String> {
        self.header.clone()
    }

    /// For messages: with whose credentials a server was asked.
    pub(super) fn who(&self) -> String {
        match &self.credentials {
            Some(credentials) => format!("with the credentials of {}", credentials.source),
            None => "without credentials, as there are none for it".to_owned(),
        }
    }

    /// Answers a challenge, so that the next request has what it asks for.
    pub(super) fn answer(
        &mut self,
        challenges: &[String],
        client: &Client,
        endpoint: &Endpoint,
        repository: &str,
    ) -> Result<(), Error> {
        let parsed: Vec<Challenge> = challenges.iter().filter_map(|text| Challenge::parse(text)).collect();
        if let Some(bearer) = parsed.iter().find(|challenge| challenge.scheme == "bearer") {
            let token = self.token(bearer, client, endpoint, repository)?;
            self.header = Some(format!("Bearer {token}"));
            return Ok(());
        }
        if parsed.iter().any(|challenge| challenge.scheme == "basic") {
            self.header = self.credentials.as_ref().and_then(Credentials::basic);
            return Ok(());
        }
        let shown_challenges: Vec<String> = challenges.iter().map(|text| shown(text.as_bytes())).collect();
        Err(Error::new(
            ErrorKind::Denied,
            format!(
                "{} wants to know who asks, by none of the ways that are supported, Basic and Bearer: {}",
                endpoint.base,
                if shown_challenges.is_empty() {
                    "it names none".to_owned()
                } else {
                    shown_challenges.join(", ")
                }
            ),
        ))
    }

    fn token(
        &self,
        challenge: &Challenge,
        client: &Client,
        endpoint: &Endpoint,
        repository: &str,
    ) -> Result<String, Error> {
        let wrong = |what: String| {
            Error::new(ErrorKind::Denied, format!("{}: the token server {what}", endpoint.base))
        };
        let realm = challenge.get("realm").ok_or_else(|| wrong("is not named by the registry".to_owned()))?;
        let realm = Url::parse(realm).map_err(|e| e.at(format!("{}: its token server", endpoint.base)))?;
        // Who asks by https must not be made to show a password to anybody on the way.
        if realm.scheme == Scheme::Http && endpoint.base.starts_with("https:") {
            return Err(wrong(format!("{} is not reached by https", realm.place())));
        }
        let scope =
            challenge.get("scope").map_or_else(|| format!("repository:{repository}:pull"), str::to_owned);
        let service = challenge.get("service").unwrap_or_default();
        let identity =
            self.credentials.as_ref().and_then(|credentials| credentials.identity_token.as_deref());
        let mut headers = vec![("Accept", "application/json".to_owned())];
        let (method, url, body) = if let Some(identity) = identity {
            headers.push(("Content-Type", "application/x-www-form-urlencoded".to_owned()));
            let body = format!(
                "grant_type=refresh_token&client_id=bloodhound&service={}&scope={}&refresh_token={}",
                quoted(service),
                quoted(&scope),
                quoted(identity)
            );
            ("POST", realm, body.into_bytes())
        } else {
            headers.extend(
                self.credentials.as_ref().and_then(Credentials::basic).map(|value| ("Authorization", value)),
            );
            let mark = if realm.path.contains('?') { '&' } else { '?' };
            let path = format!("{}{mark}service={}&scope={}", realm.path, quoted(service), quoted(&scope));
            ("GET", Url { path, ..realm }, Vec::new())
        };
        let request = Request { method, url: &url, headers, body, document: true };
        // One try: the request that wanted the token is tried again as a whole.
        let response = client.send(&request, !endpoint.insecure).map_err(|e| e.error)?;
        let status = response.status;
        if !(200..300).contains(&status) {
            let text = format!("{} gives none: status {status}, {}", url.place(), self.who());
            return Err(wrong(text));
        }
        let bytes = response.bytes(TOKEN).map_err(|e| wrong(format!("{}: {e}", url.place())))?;
        let value: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|e| wrong(format!("{} answers with no token: {e}", url.place())))?;
        let token = ["token", "access_token"].iter().find_map(|key| value.get(key)?.as_str());
        let token =
            token.filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
        token.map(str::to_owned).ok_or_else(|| wrong(format!("{} answers with no token", url.place())))
    }
}

/// A challenge: `Bearer realm="https://...",service="..."`.
#[derive(Debug, PartialEq, Eq)]
struct Challenge {
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Option<Challenge> {
        let text = text.trim();
        let (scheme, mut rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut parameters = Vec::new();
        while parameters.len() < 16 {
            rest = rest.trim_start_matches([' ', ',']);
            let Some((key, after)) = rest.split_once('=') else { break };
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => {
                    let (mut value, mut end, mut escaped) = (String::new(), quoted.len(), false);
                    for (at, c) in quoted.char_indices() {
                        match c {
                            '\\' if !escaped => escaped = true,
                            '"' if !escaped => {
                                end = at + 1;
                                break;
                            }
                            c => {
                                value.push(c);
                                escaped = false;
                            }
                        }
                    }
                    (value, &quoted[end..])
                }
                None => {
                    let end = after.find(',').unwrap_or(after.len());
                    (after[..end].trim().to_owned(), &after[end..])
                }
            };
            parameters.push((key.trim().to_ascii_lowercase(), value));
            rest = after;
        }
        (!scheme.is_empty()).then(|| Challenge { scheme: scheme.to_ascii_lowercase(), parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let text = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push",x=y"#;
        let challenge = Challenge::parse(text).expect("a challenge");
        assert_eq!(challenge.scheme, "bearer");
        assert_eq!(challenge.get("realm"), Some("https://auth.docker.io/token"));
        assert_eq!(challenge.get("scope"), Some("repository:a/b:pull,push"));
        assert_eq!(challenge.get("x"), Some("y"));
        assert_eq!(Challenge::parse("Basic").map(|challenge| challenge.parameters), Some(Vec::new()));
        assert_eq!(Challenge::parse(""), None);
        Challenge::parse("Bearer realm=\"never ends").expect("a challenge");
    }
}
