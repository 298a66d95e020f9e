//! `ports` of a service.
//!
//! Key function: [`ports`]. Short syntax `[[HOST:]PUBLISHED:]TARGET[/PROTOCOL]` with ranges, and long syntax.

use std::net::IpAddr;

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::tree::{Node, Span, Value};

use super::keys;
use super::types::Port;

/// First and last port of a range.
type Range = (u16, u16);

pub(super) fn ports(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Port>> {
    let mut out = Vec::new();
    for item in ctx.list(node, path)? {
        match &item.value {
            Value::Map(_) => out.extend(long(ctx, item, path).into_iter().flatten()),
            _ => {
                let Some(text) = ctx.text(item, path) else { continue };
                match short(&text, item.span) {
                    Some(ports) => out.extend(ports),
                    None => {
                        ctx.error(Code::Malformed, item.span, format!("`{path}` cannot have {}", quoted(&text)))
                            .help("write [[host:]published:]target[/udp], such as \"8080:80\" or \"127.0.0.1:5000-5010:5000-5010\"");
                    }
                }
            }
        }
    }
    Some(out)
}

/// The short form. A port of the host may be missing: `80`, `127.0.0.1::80`.
fn short(text: &str, at: Span) -> Option<Vec<Port>> {
    let (text, protocol) = text.rsplit_once('/').unwrap_or((text, "tcp"));
    let udp = match protocol {
        "tcp" => false,
        "udp" => true,
        _ => return None,
    };
    let (rest, target) = text.rsplit_once(':').map_or((None, text), |(rest, target)| (Some(rest), target));
    let target = range(target)?;
    let (host, published) = match rest {
        None => (None, ""),
        Some(rest) => match rest.rsplit_once(':') {
            None => (None, rest),
            Some((host, published)) => {
                (Some(host.trim_matches(['[', ']']).parse::<IpAddr>().ok()?), published)
            }
        },
    };
    let published = match published {
        "" => None,
        text => Some(range(text)?),
    };
    expand(host, published, target, udp, at)
}

/// A port, or two with `-` between them.
fn range(text: &str) -> Option<Range> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?);
    (first <= last && first > 0).then_some((first, last))
}

/// One port for each of a range. With one port of the service, a range of the host is one to choose from.
fn expand(
    host: Option<IpAddr>,
    published: Option<Range>,
    target: Range,
    udp: bool,
    at: Span,
) -> Option<Vec<Port>> {
    let count = target.1 - target.0;
    let published = |n: u16| match published {
        None => Some(None),
        Some(range) if count == 0 => Some(Some(range)),
        Some(range) if range.1 - range.0 == count => Some(Some((range.0 + n, range.0 + n))),
        Some(_) => None,
    };
    (0..=count)
        .map(|n| Some(Port { host, published: published(n)?, target: target.0 + n, udp, at }))
        .collect()
}

fn long(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Port>> {
    let fields = keys::open(ctx, node, path, "services.*.ports[]")?;
    let one = |c: &mut Ctx, n: &Node, p: &str| {
        let text = c.text(n, p)?;
        let parsed = range(&text);
        if parsed.is_none() {
            c.error(Code::Malformed, n.span, format!("`{p}` cannot be {}", quoted(&text)))
                .help("write a port from 1 to 65535, or a range such as 8000-8010");
        }
        parsed
    };
    let target = fields.require(ctx, "target", one)?;
    let published = match fields.node("published") {
        Some(node) if !matches!(&node.value, Value::Scalar(s) if s.text.is_empty()) => {
            Some(fields.get(ctx, "published", one)?)
        }
        _ => None,
    };
    let host = match fields.node("host_ip").filter(|n| !n.is_null()) {
        Some(_) => Some(fields.get(ctx, "host_ip", super::network::any_address)?),
        None => None,
    };
    let words = [("tcp", false), ("udp", true)];
    let udp = fields.get(ctx, "protocol", |c, n, p| c.choice(n, p, &words)).unwrap_or(false);
    let ports = expand(host, published, target, udp, node.span);
    if ports.is_none() {
        ctx.error(Code::Malformed, node.span, format!("the ranges of `{path}` have different lengths"))
            .help("publish as many ports as there are targets");
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address, published ports, target and whether it is UDP.
    type Form = (Option<String>, Option<Range>, u16, bool);

    fn forms(text: &str) -> Option<Vec<Form>> {
        let ports = short(text, Span::default())?;
        Some(
            ports
                .into_iter()
                .map(|p| (p.host.map(|h| h.to_string()), p.published, p.target, p.udp))
                .collect(),
        )
    }

    #[test]
    fn every_short_form() {
        let one = |host: Option<&str>, published, target, udp| {
            Some(vec![(host.map(str::to_owned), published, target, udp)])
        };
        assert_eq!(forms("80"), one(None, None, 80, false));
        assert_eq!(forms("8080:80"), one(None, Some((8080, 8080)), 80, false));
        assert_eq!(forms("6060:6060/udp"), one(None, Some((6060, 6060)), 6060, true));
        assert_eq!(forms("127.0.0.1:8001:80"), one(Some("127.0.0.1"), Some((8001, 8001)), 80, false));
        assert_eq!(forms("127.0.0.1::80"), one(Some("127.0.0.1"), None, 80, false));
        assert_eq!(forms("[::1]:8001:80"), one(Some("::1"), Some((8001, 8001)), 80, false));
        assert_eq!(forms("8000-8010:80"), one(None, Some((8000, 8010)), 80, false));
        let two = forms("9090-9091:8080-8081").expect("a range");
        assert_eq!(two[1], (None, Some((9091, 9091)), 8081, false));
        assert_eq!(forms("3000-3002").expect("a range").len(), 3);
        for wrong in ["", "x", "80:", "70000", "0", "1-2:3-5", "5-3", "a:80:80", "80/sctp", "1:2:3:4"] {
            assert_eq!(forms(wrong), None, "{wrong}");
        }
    }
}
