//! Services that do not run, because their profiles are not active or they have no replicas: a configuration may take what is said of one for
//! another service (`faults.upgrades`).
//!
//! Key type: [`Spare`]. What is wrong with one matters only where it is taken.

use std::path::PathBuf;

use crate::decode::Ctx;
use crate::diagnostic::Diagnostic;
use crate::tree::Entry;

use super::service::{self, Around, Inputs};
use super::types::{Compose, Service};

/// A service that does not run.
#[derive(Clone, Debug)]
pub(crate) struct Spare {
    pub(crate) name: String,
    /// `None` if it cannot be read.
    service: Option<Service>,
    /// That it is left out, if that was told.
    left_out: Option<Diagnostic>,
    /// What is wrong with it.
    diagnostics: Vec<Diagnostic>,
    /// What was read for it besides the compose files: files, and values of variables.
    inputs: Vec<PathBuf>,
    env_file_values: Vec<(String, String)>,
}

impl Spare {
    /// A service whose profile is not active.
    pub(super) fn inactive(ctx: &mut Ctx, entry: &Entry, around: Around<'_>, left_out: Diagnostic) -> Spare {
        let mut inputs = Inputs::default();
        let (told, idle) = (ctx.diagnostics.len(), ctx.idle.len());
        let service = service::service(ctx, entry, around, &mut inputs);
        ctx.idle.truncate(idle);
        Spare {
            name: entry.key.clone(),
            service,
            left_out: Some(left_out),
            diagnostics: ctx.diagnostics.split_off(told),
            inputs: inputs.files,
            env_file_values: inputs.values,
        }
    }

    /// A service without replicas.
    pub(super) fn without_replicas(service: Service) -> Spare {
        Spare {
            name: service.name.clone(),
            service: Some(service),
            left_out: None,
            diagnostics: Vec::new(),
            inputs: Vec::new(),
            env_file_values: Vec::new(),
        }
    }

    pub(super) fn service_mut(&mut self) -> Option<&mut Service> {
        self.service.as_mut()
    }

    /// Checks that the resources that it mounts are declared.
    pub(super) fn resolve(&mut self, ctx: &mut Ctx, secrets: &[String], configs: &[String]) {
        let told = ctx.diagnostics.len();
        if let Some(service) = &self.service {
            super::resolve::resources_of(ctx, service, secrets, configs);
        }
        self.diagnostics.extend(ctx.diagnostics.split_off(told));
    }
}

impl Compose {
    /// A service that runs, or one whose definition is taken for another one.
    pub fn definition(&self, name: &str) -> Option<&Service> {
        self.service(name).or_else(|| self.definitions.iter().find(|service| service.name == name))
    }

    /// The names of the services that do not run.
    pub(crate) fn spare_names(&self) -> Vec<String> {
        let taken = self.definitions.iter().map(|service| service.name.clone());
        self.spare.iter().map(|spare| spare.name.clone()).chain(taken).collect()
    }

    /// What is said of these services that do not run is taken for others: what is wrong with them counts then, and it is no surprise that they do
    /// not run.
    pub(crate) fn define(&mut self, names: &[&str], diagnostics: &mut Vec<Diagnostic>) {
        let all = std::mem::take(&mut self.spare);
        let (taken, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|spare| names.contains(&spare.name.as_str()));
        self.spare = rest;
        for spare in taken {
            diagnostics.retain(|told| spare.left_out.as_ref() != Some(told));
            diagnostics.extend(spare.diagnostics);
            for file in spare.inputs {
                if !self.inputs.contains(&file) {
                    self.inputs.push(file);
                }
            }
            self.env_file_values.extend(spare.env_file_values);
            self.definitions.extend(spare.service);
        }
    }
}
