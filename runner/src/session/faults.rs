//! A session with other faults: those of a schedule alone ([`Session::with_faults`]), as `--faults` has them.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bloodhound_config::{render, tree};
use bloodhound_sim::Digest;
use bloodhound_vfs::host::HostBase;

use super::Session;
use crate::plan::{Finder, Plan};

/// Digest of everything that is planned.
pub(super) fn digest_of(plan: &Plan) -> String {
    let mut digest = Digest::default();
    digest.bytes(format!("{:?}", plan.scenario).as_bytes());
    digest.bytes(format!("{:?}", plan.properties).as_bytes());
    digest.to_string()
}

impl Session {
    /// The same stack with the faults of a schedule, which `path` names in what is told of it. Its images are those of this session; nothing is
    /// measured of it.
    ///
    /// # Errors
    /// Why the schedule does not fit the stack.
    pub fn with_faults(&self, path: &Path, text: &str) -> Result<Session, String> {
        let source = tree::Source::new(path, text);
        let (project, diagnostics) = self.project.clone().with_schedule(&source);
        let Some(project) = project else {
            let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
            return Err(errors.map(|error| render::text(error, false)).collect::<Vec<_>>().join("\n"));
        };
        let finder = match &self.resolver {
            Some(resolver) => Finder::Resolver(resolver, self.pins()),
            None => Finder::Nowhere,
        };
        let base = HostBase::new();
        let mut plan = Plan::new(&project, &base, &finder)
            .map_err(|refused| refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        if !self.configured {
            plan.properties.retain(|property| !property.judge.is_about_nothing());
        }
        Ok(Session {
            scenario: Arc::new(plan.scenario.clone()),
            plan_digest: digest_of(&plan),
            plan,
            base,
            files: self.files.clone(),
            resolver: None,
            configured: self.configured,
            project,
            coverage: self.coverage.clone(),
            measuring: None,
            profile: Mutex::default(),
        })
    }
}
