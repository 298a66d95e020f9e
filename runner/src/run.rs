//! `bloodhound run` and `replay`: single runs from the snapshot of a booted stack.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bloodhound_abi::digest;
use bloodhound_config::Selection;
use bloodhound_decisions::{Decisions, Mode};
use bloodhound_sim::strace::Strace;

use crate::campaign::totals::{Found, Totals};
use crate::campaign::verdict::{Judgement, Verdict};
use crate::events::EventFile;
use crate::guidance::FeatureFile;
use crate::images::ImageArgs;
use crate::memory::Guard;
use crate::output::{self, Format};
use crate::platform::{self, Choice, Chosen};
use crate::session::{Failure, Origin, Outcome, Session, Stopped, Worker, host_failure};
use crate::{boots, breakpoints, exit, finding, inputs, report, schedule, validate};

/// Where the configuration is looked for.
pub const DEFAULT_CONFIG: &str = "bloodhound.yaml";

/// Which configuration is run.
#[derive(clap::Args, Clone, Debug)]
pub struct Source {
    /// The configuration
    #[arg(long, default_value = DEFAULT_CONFIG, value_name = "FILE")]
    pub config: PathBuf,
    #[command(flatten)]
    pub compose: ComposeArgs,
    #[command(flatten)]
    pub images: ImageArgs,
    /// A file with a schedule of faults, of which alone all faults are: rates of the configuration are off (docs/faults.md)
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
}

impl Source {
    /// For loading the project.
    ///
    /// # Errors
    /// The file of faults cannot be read.
    pub fn selection(&self) -> Result<Selection, Failure> {
        let mut selection = self.compose.selection();
        if let Some(path) = &self.faults {
            let read = bloodhound_config::tree::Source::read(path).map_err(|diagnostic| {
                validate::show(&[*diagnostic], validate::Format::Human);
                Failure::usage(format!("{} cannot be used; see the error above", path.display()))
            })?;
            selection.faults = Some((path.clone(), read.text));
        }
        Ok(selection)
    }
}

/// Which compose files are run, and what of them.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ComposeArgs {
    /// The compose file, instead of the configuration's `compose:`; several times: each is laid over those before it
    #[arg(long, short = 'f', value_name = "FILE")]
    pub compose: Vec<PathBuf>,
    /// A profile of services that are run as well
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
}

impl ComposeArgs {
    /// For loading the project.
    pub fn selection(&self) -> Selection {
        Selection { files: self.compose.clone(), profiles: self.profile.clone(), ..Selection::default() }
    }
}

/// Arguments of `run`.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    platform: Choice,
    /// The seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the faults of the run to a file, as a schedule for `--faults`
    #[arg(long, value_name = "FILE")]
    save_faults: Option<PathBuf>,
    /// Print every system call to standard error
    #[arg(long)]
    strace: bool,
    /// Write everything that happens in the run to a file, as JSON lines (docs/events.md)
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Write the features of the run, by which a search is guided, to a file, as JSON lines (docs/guidance.md)
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    #[command(flatten)]
    breaks: breakpoints::Breaks,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// A finding that is run again, and where its files are.
#[derive(clap::Args, Debug)]
pub struct Again {
    /// Directory of the finding (or its finding.json)
    pub finding: PathBuf,
    /// The configuration, if it is not where it was when the finding was made
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The compose file, if it is not where it was; several times: each is laid over those before it
    #[arg(long, short = 'f', value_name = "FILE")]
    compose: Vec<PathBuf>,
    #[command(flatten)]
    images: ImageArgs,
}

/// Arguments of `replay`.
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    #[command(flatten)]
    again: Again,
    #[command(flatten)]
    platform: Choice,
    /// Write the faults of the run to a file, as a schedule for `run --faults`
    #[arg(long, value_name = "FILE")]
    save_faults: Option<PathBuf>,
    #[command(flatten)]
    breaks: breakpoints::Breaks,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// Ends a command that failed.
pub fn fail(failure: &Failure) -> u8 {
    eprintln!("bloodhound: {}", failure.text);
    failure.code
}

/// `bloodhound run`.
pub fn run(args: &RunArgs) -> u8 {
    let run = || {
        let source = &args.source;
        let session = Session::load(&source.config, &source.selection()?, &source.images)?;
        if let Some(note) = session.note() {
            output::eprint(&format!("bloodhound: {note}\n"));
        }
        one(args, Arc::new(session), platform::choose(args.platform.wanted)?)
    };
    run().unwrap_or_else(|f| fail(&f))
}

/// `run` on a platform that is chosen.
///
/// # Errors
/// What the host says, services that do not start.
pub fn one(args: &RunArgs, session: Arc<Session>, chosen: Chosen) -> Result<u8, Failure> {
    let boot = boots::boot_of(args.seed, session.plan.boots);
    let interrupt = interrupt();
    let guard = Guard::start(args.platform.budget(), interrupt.clone())?;
    let mut worker = Worker::new(session.clone(), &chosen, interrupt)?;
    if args.strace {
        worker.listen(Box::new(Strace::new(output::eprint)));
    }
    let file = args.events.as_deref().map(|path| EventFile::create(path, &session.scenario, args.seed));
    let file = file.transpose()?;
    if let Some(file) = &file {
        worker.listen(file.listener(session.scenario.clone()));
    }
    let features = args.features.as_deref().map(|path| FeatureFile::of(&mut worker, &session.scenario, path));
    let breaks = worker.set_breakpoints(&args.breaks)?;
    worker.boot(boots::decisions(boot)).map_err(|failure| guard.explain(failure))?;
    let mut outcome = worker.run(args.seed).map_err(host_failure)?;
    breaks.map_or(Ok(()), breakpoints::Setting::finish)?;
    guard.explain_stop(&mut outcome.stopped);
    let judgement = judge(&session, &outcome);
    print(&outcome, &session, &judgement, args.format);
    schedule::save(args.save_faults.as_deref(), &outcome)?;
    file.map_or(Ok(()), |file| file.finish(worker.world()))?;
    features.map_or(Ok(()), |file| file.finish(&outcome, &session.plan.properties))?;
    Ok(judgement.code)
}

/// What a single run says: the rule of campaigns, for one seed.
fn judge(session: &Session, outcome: &Outcome) -> Judgement {
    let mut totals = Totals::new(session.plan.properties.len(), 1, 1);
    totals.add(outcome);
    let found = |v| Found::new(outcome, v, Err("a single run keeps none".into()));
    totals.findings.extend(outcome.violations.iter().map(found));
    Judgement::of(&session.plan.properties, &totals)
}

fn print(outcome: &Outcome, session: &Session, judgement: &Judgement, format: Format) {
    let inputs = inputs::digest(&session.base, &[session.plan_digest.as_bytes()]);
    match format {
        Format::Json => output::print_json(&json(outcome, judgement, &inputs.to_string())),
        Format::Human => {
            println!("platform: {}", outcome.platform.map(|chosen| chosen.line()).unwrap_or_default());
            for machine in &session.plan.machines {
                println!("machine: {machine}");
            }
            print!("{}", report::trace(outcome));
            if let Some(Stopped::Unsupported(what)) = &outcome.stopped {
                println!("unsupported: {what}");
            }
            // What was violated is in the trace.
            let open = |v: &Verdict| !matches!(v, Verdict::Passed | Verdict::Failed);
            for item in judgement.items.iter().filter(|i| !i.is_campaign() && open(&i.verdict)) {
                println!("{}: {}: {}", item.verdict.word(), item.name, item.verdict.reason());
            }
            for (who, what, count) in &outcome.outside {
                println!("outside: {who} asked for {what} ({count} times): nothing in its networks has it");
            }
            println!("operations: {}", outcome.history.operations().len());
            if let Some(share) = outcome.share.text() {
                output::eprint(&format!("bloodhound: {share}\n"));
            }
            println!(
                "inputs: {inputs}\ndigest: {}\ndigest_version: {}\nsteps: {}\nvirtual_time_ns: {}",
                outcome.digest,
                digest::VERSION,
                outcome.steps,
                outcome.virtual_time.0
            );
        }
    }
}

fn json(outcome: &Outcome, judgement: &Judgement, inputs: &str) -> serde_json::Value {
    let violations: Vec<_> = outcome
        .violations
        .iter()
        .map(|v| serde_json::json!({"property": v.property, "kind": v.kind, "virtual_time_ns": v.at.0, "text": v.text}))
        .collect();
    let items = judgement.items.iter().filter(|i| !i.is_campaign());
    let properties: Vec<_> = items
        .clone()
        .map(|i| serde_json::json!({"name": i.name, "kind": i.kind, "verdict": i.verdict.word(), "reason": i.verdict.reason()}))
        .collect();
    let undecided = items.filter(|i| matches!(i.verdict, Verdict::Undecided(_)));
    let undecided: serde_json::Map<String, serde_json::Value> =
        undecided.map(|i| (i.name.clone(), i.verdict.reason().into())).collect();
    serde_json::json!({
        "schema": "bloodhound.run/v1",
        "platform": outcome.platform.map(|chosen| chosen.json()),
        "seed": outcome.seed,
        "boot": boots::number(&outcome.decisions),
        "inputs_digest": inputs,
        "digest": outcome.digest,
        "digest_version": digest::VERSION,
        "steps": outcome.steps,
        "virtual_time_ns": outcome.virtual_time.0,
        "operations": outcome.history.operations().len(),
        "faults": report::faults(outcome),
        "fault_plan": outcome.faults,
        "operations_with_faults": outcome
            .asked
            .iter()
            .map(|(kind, asked)| {
                let met = outcome.hits.get(kind).copied().unwrap_or_default();
                (kind.name(), serde_json::json!({"asked": asked, "met": met}))
            })
            .collect::<BTreeMap<_, _>>(),
        "profile": outcome.profile.to_string(),
        "outside": outcome.outside.iter().map(|(service, what, count)| serde_json::json!({
            "service": service, "what": what, "count": count,
        })).collect::<Vec<_>>(),
        "findings": violations,
        "properties": properties,
        "undecided": undecided,
        "exit_code": judgement.code,
        "unsupported": match &outcome.stopped { Some(Stopped::Unsupported(t)) => Some(t), _ => None },
    })
}

/// `bloodhound replay`.
pub fn replay(args: &ReplayArgs) -> u8 {
    again(args).unwrap_or_else(|f| fail(&f))
}

fn again(args: &ReplayArgs) -> Result<u8, Failure> {
    let finding::Stored { record, log, marks } = finding::load(&args.again.finding)?;
    let session = Arc::new(args.again.session(&record)?);
    let chosen = platform::choose(args.platform.wanted)?;
    output::eprint(&finding::compare_platforms(&record.platform, &chosen));
    let interrupt = interrupt();
    let guard = Guard::start(args.platform.budget(), interrupt.clone())?;
    let mut worker = Worker::new(session.clone(), &chosen, interrupt)?;
    worker.trust_log();
    let breaks = worker.set_breakpoints(&args.breaks)?;
    worker.boot(Decisions::new(log, Mode::Strict)).map_err(|failure| guard.explain(failure))?;
    let mut outcome = worker.run(record.seed).map_err(host_failure)?;
    breaks.map_or(Ok(()), breakpoints::Setting::finish)?;
    guard.explain_stop(&mut outcome.stopped);
    print(&outcome, &session, &judge(&session, &outcome), args.format);
    schedule::save(args.save_faults.as_deref(), &outcome)?;
    if outcome.stopped == Some(Stopped::Interrupted) {
        return Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() });
    }
    if let Some(Stopped::Undecided(why)) = &outcome.stopped {
        return Err(Failure { code: exit::INCONCLUSIVE, text: format!("the replay was given up: {why}") });
    }
    let same =
        outcome.violations.iter().any(|v| v.property == record.property && v.at.0 == record.virtual_time_ns);
    if outcome.digest != record.digest || !same || !outcome.divergences.is_empty() {
        let mut text = format!(
            "the replay on {} differs from the finding, made on {}: digest {} instead of {}, {}",
            chosen.name,
            record.platform.name,
            outcome.digest,
            record.digest,
            if same { "the same violation" } else { "another outcome" }
        );
        for divergence in &outcome.divergences {
            text.push_str(&format!("\n  {divergence}"));
        }
        if let Some(place) = finding::first_difference(&marks, &outcome.marks) {
            text.push_str(&format!("\n  {place}"));
        }
        return Err(Failure { code: exit::NONDETERMINISM, text });
    }
    if args.format == Format::Human {
        println!("reproduced: {} at {}", record.property, bloodhound_abi::SimTime(record.virtual_time_ns));
    }
    Ok(exit::FINDINGS)
}

impl Again {
    /// The session of a finding, in which nothing has changed since it was made.
    ///
    /// # Errors
    /// What cannot be read, and what is another one now.
    pub fn session(&self, record: &finding::Record) -> Result<Session, Failure> {
        let session = self.load(record)?;
        finding::unchanged(record, &session)?;
        Ok(session)
    }

    /// The session of a finding: of its own files if it has them with it, else of the ones that it was made from.
    fn load(&self, record: &finding::Record) -> Result<Session, Failure> {
        let pins = finding::pins(record);
        let (profiles, name) = (record.profiles.clone(), Some(record.project.clone()));
        let faults =
            record.fault_schedule.clone().map(|text| (PathBuf::from("the schedule of the finding"), text));
        let named = self.config.is_some() || !self.compose.is_empty();
        let bundle = if named { None } else { finding::bundle_of(&self.finding)? };
        let Some(bundle) = bundle else {
            let config = self.config.as_ref().unwrap_or(&record.config);
            let files = if self.compose.is_empty() { &record.compose } else { &self.compose };
            let selection = Selection { files: files.clone(), profiles, elsewhere: false, name, faults };
            let configured = record.configured || self.config.is_some();
            return Session::load_from(
                config,
                &selection,
                configured,
                Origin::Host { pins, images: &self.images },
            );
        };
        let wanting = bundle.wanting();
        if !wanting.is_empty() {
            let names: Vec<String> = wanting.iter().map(|path| format!("\n  {}", path.display())).collect();
            return Err(Failure::environment(format!(
                "the bundle leaves out files with secrets; put them back before the replay:{}",
                names.concat()
            )));
        }
        let selection = Selection { files: bundle.compose(), profiles, elsewhere: true, name, faults };
        let config = bundle.config().unwrap_or_else(|| bundle.project().join(DEFAULT_CONFIG));
        Session::load_from(&config, &selection, record.configured, Origin::Bundle { bundle: &bundle, pins })
    }
}

/// Becomes true at Ctrl-C, SIGTERM or SIGHUP.
pub fn interrupt() -> Arc<AtomicBool> {
    crate::interrupt::flag()
}
