//! A single request with an expectation: the `http` check of a property.

use bloodhound_abi::SimTime;
use bloodhound_net::Stack;

use super::config::Target;
use super::exchange::{End, Exchange};
use super::request::Request;

/// What a response must be.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Expect {
    /// Its status is in one of these ranges, both ends included; empty: any.
    pub statuses: Vec<(u16, u16)>,
    /// A text in its body.
    pub body_contains: Option<String>,
}

impl Expect {
    /// Why `end` is not as expected.
    pub fn check(&self, end: &End) -> Result<(), String> {
        let response = match end {
            End::Response(response) => response,
            End::Timeout => return Err("no response in time".to_owned()),
            End::Reset(why) | End::Refused(why) => return Err(format!("no response: {why}")),
        };
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
        stack: &mut Stack,
        target: &Target,
        request: &Request,
        expect: Expect,
        deadline: SimTime,
    ) -> Probe {
        let bytes = request.to_bytes(target, false);
        Probe { exchange: Exchange::open(stack, target.address, &request.method, bytes, deadline), expect }
    }

    /// When to call [`Probe::poll`] at the latest, if nothing arrives.
    pub fn next_wakeup(&self) -> SimTime {
        self.exchange.deadline()
    }

    /// Does what can be done at `now`. At the end, says whether the response was as expected, or why not; then the
    /// probe is over.
    pub fn poll(&mut self, stack: &mut Stack, now: SimTime) -> Option<Result<(), String>> {
        let (end, socket) = self.exchange.poll(stack, now)?;
        if socket.is_some() {
            self.exchange.cancel(stack, now);
        }
        Some(self.expect.check(&end))
    }
}
