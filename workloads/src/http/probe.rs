//! A single request with an expectation: the `http` check of a property.

use bloodhound_abi::SimTime;

use super::config::Target;
use super::exchange::{End, Exchange};
use super::request::Request;
use super::response::Response;
use super::transport::Transport;

/// What a response must be.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Expect {
    /// Its status is in one of these ranges, both ends included; empty: any.
    pub statuses: Vec<(u16, u16)>,
    /// A text in its body.
    pub body_contains: Option<String>,
}

/// What came of an attempt to ask a service, by a request or a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The right answer.
    Right,
    /// A wrong one, and what is wrong with it.
    Wrong(String),
    /// None, and why.
    Missing(String),
}

impl Expect {
    /// What `end` is, and why it is not as expected.
    pub fn check(&self, end: &End) -> Answer {
        match end {
            End::Response(response) => self.response(response).map_or_else(Answer::Wrong, |()| Answer::Right),
            End::Timeout => Answer::Missing("no response in time".to_owned()),
            End::Reset(why) | End::Refused(why) => Answer::Missing(format!("no response: {why}")),
        }
    }

    fn response(&self, response: &Response) -> Result<(), String> {
        let status = response.status;
        if !self.statuses.is_empty()
            && !self.statuses.iter().any(|(low, high)| (*low..=*high).contains(&status))
        {
            let show = |(low, high): &(u16, u16)| {
                if low == high { low.to_string() } else { format!("{low}-{high}") }
            };
            let expected: Vec<String> = self.statuses.iter().map(show).collect();
            return Err(format!("the status is {status}, expected {}", expected.join(" or ")));
        }
        let body = String::from_utf8_lossy(&response.body);
        match &self.body_contains {
            Some(text) if !body.contains(text.as_str()) => {
                let begin: String = body.chars().take(200).collect();
                Err(format!("the body does not contain {text:?}; it begins with {begin:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// A request under way, on a connection of its own.
#[derive(Clone, Debug)]
pub struct Probe {
    exchange: Exchange,
    expect: Expect,
}

impl Probe {
    /// Sends `request` to `target`; no response by `deadline` counts as a failure.
    pub fn new(
        net: &mut impl Transport,
        target: &Target,
        request: &Request,
        expect: Expect,
        deadline: SimTime,
    ) -> Probe {
        let bytes = request.to_bytes(target, false);
        Probe { exchange: Exchange::open(net, target.address, &request.method, bytes, deadline), expect }
    }

    /// When to call [`Probe::poll`] at the latest, if nothing arrives.
    pub fn next_wakeup(&self) -> SimTime {
        self.exchange.deadline()
    }

    /// Does what can be done at `now`. At the end, says whether the response was as expected, or why not; then the
    /// probe is over.
    pub fn poll(&mut self, net: &mut impl Transport, now: SimTime) -> Option<Answer> {
        let (end, socket) = self.exchange.poll(net, now)?;
        if socket.is_some() {
            self.exchange.cancel(net, now);
        }
        Some(self.expect.check(&end))
    }
}
