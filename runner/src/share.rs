//! How much of the host's time a run spent on health checks of services, which go on for the whole run unless
//! `simulation.healthchecks` ends them. It is measured on the host, and nothing of it reaches the world.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time of runs, and how much of it health checks took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// All of it.
    pub all: Duration,
    /// That of health checks.
    pub checks: Duration,
    /// They end already when a service is healthy.
    pub until_ready: bool,
}

impl Share {
    /// Adds another one.
    pub fn add(&mut self, other: Share) {
        self.all += other.all;
        self.checks += other.checks;
        self.until_ready |= other.until_ready;
    }

    /// `health checks took 12 % of the time`; nothing if there were none.
    pub fn text(&self) -> Option<String> {
        if self.checks.is_zero() || self.all.is_zero() {
            return None;
        }
        let percent = (self.checks.as_nanos() * 100).div_ceil(self.all.as_nanos());
        let text = format!("health checks took {percent} % of the time");
        Some(match self.until_ready {
            true => text,
            false => format!("{text}; `simulation: {{healthchecks: until-ready}}` ends them"),
        })
    }
}

/// Measures a machine.
#[derive(Clone, Debug, Default)]
pub struct Meter(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    begun: Option<Instant>,
    checking: Option<Instant>,
    checks: Duration,
}

impl Meter {
    /// What a machine calls when a health check begins or ceases to run.
    pub fn look(&self) -> Box<dyn FnMut(bool)> {
        let state = self.0.clone();
        Box::new(move |checks| state.borrow_mut().change(checks))
    }

    /// A run begins.
    pub fn begin(&self) {
        let mut state = self.0.borrow_mut();
        let now = Instant::now();
        // Whatever ran last has ended its turn: what runs next is told if it differs.
        (state.begun, state.checks, state.checking) = (Some(now), Duration::ZERO, None);
    }

    /// The run that began last, so far. `until_ready`: checks of a service end when it is healthy.
    pub fn share(&self, until_ready: bool) -> Share {
        let mut state = self.0.borrow_mut();
        let checking = state.checking.is_some();
        state.change(checking);
        let all = state.begun.map(|at| at.elapsed()).unwrap_or_default();
        Share { all, checks: state.checks, until_ready }
    }
}

impl State {
    fn change(&mut self, checks: bool) {
        let now = Instant::now();
        if let Some(since) = self.checking.take() {
            self.checks += now - since;
        }
        self.checking = checks.then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_where_there_were_checks() {
        let mut all = Share { all: Duration::from_secs(9), ..Share::default() };
        assert_eq!(all.text(), None);
        all.add(Share { all: Duration::from_secs(1), checks: Duration::from_secs(2), until_ready: false });
        assert!(all.text().is_some_and(|text| {
            text.starts_with("health checks took 20 % of the time; ") && text.contains("until-ready")
        }));
        // Nobody is told to do what is done.
        all.until_ready = true;
        assert_eq!(all.text().as_deref(), Some("health checks took 20 % of the time"));
        let meter = Meter::default();
        let mut look = meter.look();
        look(true);
        meter.begin();
        look(false);
        let share = meter.share(false);
        assert!(share.checks <= share.all);
    }
}
