//! What `compat` finds: [`Finding`], and all of it with what was looked at: [`Report`].

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::exit;
use crate::report::printable;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The files themselves are wrong.
    Invalid,
    /// A run that comes by it stops with exit code 7.
    Stops,
    /// Something is not there that was wanted: a file, a library, an image.
    Missing,
    /// Another answer than Linux gave, or would give.
    Differs,
    /// Code that is there asks for something that would stop a run; nobody knows whether it is ever called.
    Maybe,
    /// An error on purpose, with which programs are known to cope.
    Known,
}

impl Weight {
    /// In reports.
    pub fn name(self) -> &'static str {
        match self {
            Weight::Invalid => "invalid",
            Weight::Stops => "stops",
            Weight::Missing => "missing",
            Weight::Differs => "differs",
            Weight::Maybe => "maybe",
            Weight::Known => "known",
        }
    }

    /// The exit code of something that weighs so much.
    fn code(self, strict: bool) -> u8 {
        match self {
            Weight::Invalid => exit::USAGE,
            Weight::Stops => exit::UNSUPPORTED,
            Weight::Missing => exit::ENVIRONMENT,
            Weight::Differs | Weight::Maybe if strict => exit::UNSUPPORTED,
            Weight::Differs | Weight::Maybe | Weight::Known => exit::PASS,
        }
    }
}

/// One thing that would be other than the program expects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub weight: Weight,
    /// The service it is about; none for a program or a log.
    pub service: Option<String>,
    /// What is asked for.
    pub what: String,
    /// What comes of it, and what to do.
    pub says: String,
    /// Where it was seen.
    pub place: String,
}

/// What was found, and in what.
#[derive(Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// What was looked at, and how many of it: `system calls`, `files`, `libraries`, ...
    pub looked_at: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Adds to what was looked at.
    pub fn count(&mut self, what: &'static str, more: u64) {
        *self.looked_at.entry(what).or_default() += more;
    }

    /// Adds a finding.
    pub fn add(
        &mut self,
        weight: Weight,
        what: impl Into<String>,
        says: impl Into<String>,
        place: impl Into<String>,
    ) {
        let (what, says, place) = (what.into(), says.into(), place.into());
        self.findings.push(Finding { weight, service: None, what, says, place });
    }

    /// Adds what was found of a service.
    pub fn take(&mut self, of: Report, service: &str) {
        let named = |finding| Finding { service: Some(service.to_owned()), ..finding };
        self.findings.extend(of.findings.into_iter().map(named));
        for (what, more) in of.looked_at {
            self.count(what, more);
        }
    }

    /// In order of weight; what was found twice is there once.
    pub fn sort(&mut self) {
        self.findings.sort();
        self.findings.dedup_by(|a, b| {
            (a.weight, &a.service, &a.what, &a.says) == (b.weight, &b.service, &b.what, &b.says)
        });
    }

    /// The exit code.
    pub fn code(&self, strict: bool) -> u8 {
        let codes: Vec<u8> = self.findings.iter().map(|finding| finding.weight.code(strict)).collect();
        exit::first(&codes)
    }

    fn number(&self, weight: Weight) -> usize {
        self.findings.iter().filter(|finding| finding.weight == weight).count()
    }

    /// The report as text.
    pub fn text(&self, subject: &str) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let service =
                finding.service.as_ref().map(|name| format!("service {name}: ")).unwrap_or_default();
            let place =
                if finding.place.is_empty() { String::new() } else { format!(" ({})", finding.place) };
            let Finding { weight, what, says, .. } = finding;
            let line = format!("{service}{what}: {says}{place}");
            out.push_str(&format!("{:<8} {}\n", weight.name(), printable(&line)));
        }
        let looked_at: Vec<String> = self.looked_at.iter().map(|(what, n)| format!("{what}: {n}")).collect();
        let weights =
            [Weight::Invalid, Weight::Stops, Weight::Missing, Weight::Differs, Weight::Maybe, Weight::Known];
        let counts: Vec<String> = weights
            .iter()
            .filter(|weight| self.number(**weight) > 0)
            .map(|weight| format!("{} {}", self.number(*weight), weight.name()))
            .collect();
        let counts = if counts.is_empty() { "nothing is missing".to_owned() } else { counts.join(", ") };
        out.push_str(&format!("{subject}: {counts}; looked at: {}\n", looked_at.join(", ")));
        out
    }

    /// The report as JSON.
    pub fn json(&self, subject: &str, strict: bool) -> Json {
        let finding = |f: &Finding| {
            json!({
                "weight": f.weight.name(), "service": f.service, "what": f.what, "says": f.says, "place": f.place,
            })
        };
        json!({
            "schema": "bloodhound.compat/v1",
            "subject": subject,
            "exit_code": self.code(strict),
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "looked_at": self.looked_at,
        })
    }
}
