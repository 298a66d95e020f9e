//! A stack: what its files ask for that is not done, which images are missing, and each service's program in its container.

use std::path::{Path, PathBuf};

use bloodhound_config::{Diagnostic, Severity};
use bloodhound_vfs::host::HostBase;

use super::container;
use super::finding::{Report, Weight};
use super::program;
use crate::images::{self, ImageArgs};
use crate::plan::{Finder, Plan};
use crate::session::Failure;
use crate::validate;

/// Looks at a stack.
///
/// # Errors
/// There is none, or what the host lacks.
pub fn look(path: &Path, args: &ImageArgs) -> Result<Report, Failure> {
    let file = file_of(path)?;
    let (project, diagnostics) = validate::read(&file);
    let mut report = Report::default();
    report.count("files of the stack", 1);
    for diagnostic in &diagnostics {
        told(&mut report, diagnostic);
    }
    let Some(project) = project else { return Ok(report) };
    for idle in &project.compose.idle {
        let place = format!("{}:{}:{}", idle.place.file, idle.place.line, idle.place.column);
        report.add(
            Weight::Known,
            format!("`{}`", idle.key),
            format!("has no effect here: {}", idle.why),
            place,
        );
    }
    report.count("services", project.compose.services.len() as u64);
    let resolver = images::resolver_for(&project.compose, args, &project.config.images)?;
    let finder = resolver.as_ref().map_or(Finder::Nowhere, |resolver| Finder::Resolver(resolver, Vec::new()));
    let base = HostBase::new();
    let plan = match Plan::new(&project, &base, &finder) {
        Ok(plan) => plan,
        Err(refused) => {
            for refusal in refused {
                let weight = if refusal.missing { Weight::Missing } else { Weight::Stops };
                let place = refusal.place.as_ref().map(|p| format!("{}:{}:{}", p.file, p.line, p.column));
                report.add(weight, "the stack", refusal.text, place.unwrap_or_default());
            }
            return Ok(report);
        }
    };
    for (name, mut container) in container::all(&plan.scenario, &base)? {
        let mut of = Report::default();
        let program = container.program.clone();
        program::check(&mut of, &mut container, &program);
        report.take(of, &name);
    }
    Ok(report)
}

/// The file that says what the stack is.
fn file_of(path: &Path) -> Result<PathBuf, Failure> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let names = [
        validate::DEFAULT_CONFIG,
        "compose.yaml",
        "compose.yml",
        "docker-compose.yaml",
        "docker-compose.yml",
    ];
    let found = names.iter().map(|name| path.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        Failure::usage(format!(
            "{}: there is no {} and no compose file",
            path.display(),
            validate::DEFAULT_CONFIG
        ))
    })
}

fn told(report: &mut Report, diagnostic: &Diagnostic) {
    let weight = match diagnostic.severity {
        Severity::Error => Weight::Invalid,
        Severity::Warning => Weight::Differs,
    };
    let place =
        diagnostic.place.as_ref().map(|place| format!("{}:{}:{}", place.file, place.line, place.column));
    let place = place.unwrap_or_else(|| diagnostic.file.clone());
    report.add(weight, "the files", diagnostic.message.clone(), place);
}
