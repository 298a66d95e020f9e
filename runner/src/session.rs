//! A planned run on this host: boot, snapshot, then seeds from the snapshot.
//!
//! Key types: [`Session`] (plan and host files, shared by all workers), [`Worker`] (a platform on one CPU with a
//! machine), [`Outcome`] (what one seed gave).

mod carry;
mod end;
mod faults;
mod logs;
mod numbered;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bloodhound_abi::SimTime;
use bloodhound_config::config::FileChecks;
use bloodhound_config::{Project, Selection, usual_files};
use bloodhound_decisions::{Decisions, Divergence, Log};
use bloodhound_faults::Kind;
use bloodhound_images::Resolver;
use bloodhound_platform::code_points::Mark;
use bloodhound_sim::console::ConsoleLog;
use bloodhound_sim::event::Listener;
use bloodhound_sim::faults::{Effect, Planned, Single};
use bloodhound_sim::notice::LogEntry;
use bloodhound_sim::profile::Profile;
use bloodhound_sim::scenario::{FaultSpec, Scenario};
use bloodhound_sim::world::{Finding, FindingKind, Phase};
use bloodhound_sim::{Digest, Ended, Machine, MachineError, World, timeline};
use bloodhound_vfs::host::HostBase;
use bloodhound_workloads::history::History;

pub use logs::Ending;
pub use numbered::Numbered;

use crate::bundle::{self, Bundle, ProjectFiles};
use crate::coverage::{self, Measuring};
use crate::images::ImageArgs;
use crate::judge::{self, Judged, Seen};
use crate::plan::{Finder, Pin, Plan, Property};
use crate::platform::Chosen;
use crate::redact::{self, Redactor};
use crate::share::{Meter, Share};
use crate::{boots, breakpoints, exit, host, images, output, pids, run, validate};

pub(crate) use carry::is_done;

/// Errors that end a command, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// For the user.
    pub text: String,
}

impl Failure {
    /// An environment error.
    pub fn environment(text: impl Into<String>) -> Failure {
        Failure { code: exit::ENVIRONMENT, text: text.into() }
    }

    /// A usage or configuration error.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { code: exit::USAGE, text: text.into() }
    }
}

/// Plan and host files of a run.
pub struct Session {
    /// The plan.
    pub plan: Plan,
    /// Its scenario, shared.
    pub scenario: Arc<Scenario>,
    /// Host files; clones share one cache.
    pub base: HostBase,
    /// Digest of everything in the plan.
    pub plan_digest: String,
    /// The files that it was read from.
    pub files: ProjectFiles,
    /// Where its images came from, if a service has one.
    pub resolver: Option<Resolver>,
    /// Whether there was a configuration.
    pub configured: bool,
    /// What its files say.
    pub project: Project,
    /// What it says about coverage.
    pub coverage: coverage::Settings,
    /// The coverage of the campaign, if it is measured.
    pub measuring: Option<Arc<Measuring>>,
    /// What switches of tasks between instructions are drawn from, once a worker has gathered it.
    pub profile: Mutex<Option<Arc<Profile>>>,
}

impl Session {
    /// Loads and plans. Without the configuration, a stack is asked for what [`bloodhound_config::DEFAULTS`] say.
    ///
    /// # Errors
    /// Configuration errors (already printed with their places) and what the host lacks.
    pub fn load(config: &Path, compose: &Selection, images: &ImageArgs) -> Result<Session, Failure> {
        let configured = !without_config(config, compose);
        Session::load_from(config, compose, configured, Origin::Host { pins: Vec::new(), images })
    }

    /// As [`Session::load`], with the images of a finding or all from its bundle. Not `configured`: there is no configuration.
    ///
    /// # Errors
    /// As [`Session::load`], and images that are others now.
    pub fn load_from(
        config: &Path,
        compose: &Selection,
        configured: bool,
        origin: Origin<'_>,
    ) -> Result<Session, Failure> {
        let environment = validate::environment();
        let (project, diagnostics) = match configured {
            true => Project::load(config, compose, &environment),
            false => Project::without_config(config, compose, &environment, FileChecks::Strict),
        };
        if let Some(project) = &project {
            let redactor = Redactor::of(project, &environment);
            if let Some(note) = redactor.note() {
                output::eprint(&format!("bloodhound: {note}\n"));
            }
            redact::install(redactor);
        }
        validate::show(&diagnostics, validate::Format::Human);
        let Some(project) = project else {
            let name = if configured { config.display().to_string() } else { project_name(compose) };
            return Err(Failure::usage(format!("{name} cannot be used; see the errors above")));
        };
        let (base, resolver, pins) = match origin {
            Origin::Host { pins, images } => (
                HostBase::new(),
                images::resolver_for(&project.compose, images, &project.config.images)?,
                pins,
            ),
            Origin::Bundle { bundle, pins } => (bundle.base()?, Some(bundle.resolver()?), pins),
        };
        let finder = match &resolver {
            Some(resolver) => Finder::Resolver(resolver, pins),
            None => Finder::Nowhere,
        };
        let mut plan = Plan::new(&project, &base, &finder).map_err(|refused| {
            let lines: Vec<String> = refused.iter().map(ToString::to_string).collect();
            Failure::environment(lines.join("\n"))
        })?;
        if !configured {
            // Nobody has asked for it of a stack without health checks, of which it would say nothing.
            plan.properties.retain(|property| !property.judge.is_about_nothing());
        }
        let plan_digest = faults::digest_of(&plan);
        let scenario = Arc::new(plan.scenario.clone());
        let files = ProjectFiles::of(&project, compose, configured);
        let coverage = coverage::Settings {
            config: project.config.coverage.clone(),
            formats: project.config.output.coverage_format.clone(),
            directory: config.parent().unwrap_or(Path::new(".")).to_path_buf(),
            bound: plan.bound.clone(),
        };
        let measuring = None;
        Ok(Session {
            plan,
            scenario,
            base,
            plan_digest,
            files,
            resolver,
            configured,
            project,
            coverage,
            measuring,
            profile: Mutex::default(),
        })
    }

    /// The images of the run by their names.
    pub fn pins(&self) -> Vec<Pin> {
        bundle::pins(&self.base)
    }

    /// What is said of a stack that has no configuration.
    pub fn note(&self) -> Option<String> {
        (!self.configured).then(|| {
            "there is no bloodhound.yaml: no service may crash, every health check must pass again after the faults have been healed, \
             and the faults are mild; `bloodhound init` writes one"
                .to_owned()
        })
    }
}

/// Whether there is no configuration, but a compose file is named or found.
fn without_config(config: &Path, compose: &Selection) -> bool {
    let usual = config == Path::new(run::DEFAULT_CONFIG) && !config.exists();
    usual && (!compose.files.is_empty() || usual_files(Path::new("."), &validate::environment()).is_some())
}

/// The files of a selection, for messages.
fn project_name(compose: &Selection) -> String {
    let names: Vec<String> = compose.files.iter().map(|path| path.display().to_string()).collect();
    if names.is_empty() { "the compose file".into() } else { names.join(", ") }
}

/// Where host files and images come from.
pub enum Origin<'a> {
    /// This machine; these names stand for just these images.
    Host {
        /// Those of a finding, or none.
        pins: Vec<Pin>,
        /// How others are found.
        images: &'a ImageArgs,
    },
    /// A finding that has all with it.
    Bundle {
        /// It.
        bundle: &'a Bundle,
        /// The images.
        pins: Vec<Pin>,
    },
}

/// Why a run violated a property, or could not go on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Violation {
    /// The property's place in the plan; `None` for a finding of the machine that belongs to none.
    pub index: Option<usize>,
    /// The property, or the kind of the machine's finding.
    pub property: String,
    /// What it is: safety, liveness, invariant, crash, unsupported, hang, deadlock.
    pub kind: String,
    /// When.
    #[serde(with = "crate::report::ns")]
    pub at: SimTime,
    /// Why, with the minimal history if there is one.
    pub text: String,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What it is in a search; `None`: it is what its seed says.
    pub numbered: Option<Numbered>,
    /// What it ran on; `None`: on a real engine ([`crate::live`]), so that nothing about it can be repeated.
    pub platform: Option<Chosen>,
    /// Digest of the whole run, boot included.
    pub digest: String,
    /// Steps, boot included.
    pub steps: u64,
    /// Virtual time at its end.
    pub virtual_time: SimTime,
    /// The faults it drew when they began.
    pub profile: FaultSpec,
    /// Those that epochs of its log have drawn anew, and when.
    pub anew: Vec<(SimTime, FaultSpec)>,
    /// What was run; with it, the log has names.
    pub scenario: Arc<Scenario>,
    /// What was planned from that, and what became of those whose time came: the first so many.
    pub plan: Arc<Vec<Planned>>,
    pub effects: Vec<Effect>,
    /// How often each kind hit that has no entries in the plan.
    pub hits: BTreeMap<Kind, u64>,
    /// How many packets each partition stopped, by its entry; `None`: nobody counted.
    pub stopped_packets: Option<BTreeMap<usize, u64>>,
    /// How many operations were asked about, by kind.
    pub asked: BTreeMap<Kind, u64>,
    /// Operations, questions and power failures that met faults.
    pub met: Vec<Single>,
    /// The same for reports.
    pub faults: Vec<crate::report::FaultRecord>,
    /// What happened.
    pub log: Vec<LogEntry>,
    /// What went wrong.
    pub violations: Vec<Violation>,
    /// What the seed says about each property, in the plan's order.
    pub judged: Vec<Judged>,
    /// The client's history.
    pub history: History,
    /// Its seeds, and what takes the place of what they say.
    pub decisions: Arc<Log>,
    /// Where a replay is not the recorded run.
    pub divergences: Vec<Divergence>,
    /// The digest after every thousand steps.
    pub marks: Arc<Vec<Digest>>,
    /// What services asked for outside of the stack: who, what, how often.
    pub outside: Vec<(String, String, u64)>,
    /// Output of the services, of which lines are made when somebody reads them.
    pub console: Arc<ConsoleLog>,
    /// Why the loop ended before the run was over: unsupported, interrupted, undecided.
    pub stopped: Option<Stopped>,
    /// How much of the host's time health checks took.
    pub share: Share,
}

impl Outcome {
    /// Whether there were faults of a kind at any time of the run by what it drew.
    pub fn has_kind(&self, kind: Kind) -> bool {
        self.profile.is_on(kind) || self.anew.iter().any(|(_, profile)| profile.is_on(kind))
    }

    /// Judges all properties over what was seen of the run. `finished`: it came to its end.
    pub fn judge(&mut self, properties: &[Property], seen: &Seen<'_>, finished: bool) {
        let interrupted = matches!(self.stopped, Some(Stopped::Interrupted | Stopped::Undecided(_)));
        for (index, property) in properties.iter().enumerate() {
            let judged = if interrupted {
                Judged::Unfinished
            } else {
                judge::judge(property, seen, &self.scenario, &self.history, finished)
            };
            if let Judged::Violated(at, text) = &judged {
                self.violations.push(Violation {
                    index: Some(index),
                    property: property.name.clone(),
                    kind: property.kind.into(),
                    at: *at,
                    text: text.clone(),
                });
            }
            self.judged.push(judged);
        }
    }
}

/// Why a run is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Something unsupported was needed.
    Unsupported(String),
    /// The user interrupted.
    Interrupted,
    /// A task computed for too long to say anything: which and where.
    Undecided(String),
}

/// A machine on one CPU.
pub struct Worker {
    pub(crate) machine: Machine,
    session: Arc<Session>,
    platform: Chosen,
    meter: Meter,
    /// The coverage that its runs count for, if any.
    measuring: Option<Arc<Measuring>>,
}

impl Worker {
    /// A worker with a fresh, unbooted world.
    ///
    /// # Errors
    /// What the platform or the setup says.
    pub fn new(
        session: Arc<Session>,
        chosen: &Chosen,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Worker, Failure> {
        let measuring = session.measuring.clone();
        Worker::counting_for(measuring, session, chosen, interrupt)
    }

    /// A worker whose runs count for no coverage, whatever the session measures.
    ///
    /// # Errors
    /// As [`Worker::new`].
    pub fn unmeasured(
        session: Arc<Session>,
        chosen: &Chosen,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Worker, Failure> {
        Worker::counting_for(None, session, chosen, interrupt)
    }

    fn counting_for(
        measuring: Option<Arc<Measuring>>,
        session: Arc<Session>,
        chosen: &Chosen,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Worker, Failure> {
        let platform = chosen.open()?;
        let mut base = session.base.clone();
        // A world before its boot; `boot` puts its own in its place.
        let world =
            host::world(&session.scenario, &mut base, boots::decisions(0)).map_err(Failure::environment)?;
        let mut machine = Machine::new(world, session.scenario.clone(), platform, Box::new(base));
        machine.set_interrupt(interrupt);
        machine.set_most_spaces(pids::per_worker());
        if let Some(measuring) = &measuring {
            machine.observe(measuring.observer(Arc::<Mark>::default()));
        }
        let meter = Meter::default();
        machine.set_meter(meter.look());
        Ok(Worker { machine, session, platform: *chosen, meter, measuring })
    }

    /// Sets the breakpoints that the command line asks for.
    ///
    /// # Errors
    /// Those of [`breakpoints::Breaks::set`].
    pub fn set_breakpoints(
        &mut self,
        options: &breakpoints::Breaks,
    ) -> Result<Option<breakpoints::Setting>, Failure> {
        options.set(&mut self.machine)
    }

    /// `listener` is told everything that happens from now on.
    pub fn listen(&mut self, listener: Box<dyn Listener>) {
        self.machine.listen(listener);
    }

    /// Boots the stack with these decisions ([`crate::boots`]) and returns the snapshot.
    ///
    /// # Errors
    /// Services that do not become ready; unsupported calls.
    pub fn boot(&mut self, mut decisions: Decisions) -> Result<World, Failure> {
        decisions.listen(self.machine.tells_choices());
        if let Some(mark) = self.machine.mark() {
            mark.boot();
        }
        let mut base = self.session.base.clone();
        let world =
            host::world(&self.session.scenario, &mut base, decisions).map_err(Failure::environment)?;
        self.machine.restore(world.clone());
        self.machine.set_suspicious(true);
        let ended = loop {
            match self.machine.run(|w| w.ready_at.is_some()).map_err(host_failure)? {
                Ended::Suspect(suspicion) => {
                    self.machine.try_again(world.clone(), suspicion);
                }
                ended => break ended,
            }
        };
        match ended {
            Ended::Suspect(_) => unreachable!("the loop goes on"),
            Ended::Condition => self.machine.snapshot().map_err(host_failure),
            Ended::Interrupted => Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() }),
            Ended::Undecided(why) => {
                let text = format!("the services did not become ready: {why}");
                Err(Failure { code: exit::INCONCLUSIVE, text })
            }
            Ended::Fatal(f) => Err(self.boot_failure(&f)),
            Ended::Quiet => {
                let text = format!(
                    "the services wait for each other and never become ready\n{}",
                    crate::report::waiting(&self.machine.world)
                );
                Err(Failure::environment(text))
            }
        }
    }

    fn boot_failure(&self, finding: &Finding) -> Failure {
        let code =
            if finding.kind == FindingKind::Unsupported { exit::UNSUPPORTED } else { exit::ENVIRONMENT };
        let world = &self.machine.world;
        let lines = crate::console::lines(&world.console, &world.log);
        let mut text = crate::unready::text(finding, world, &lines, &self.session.scenario);
        let hidden = crate::exec::hidden_text(
            &self.session.base,
            "`x-bloodhound: {rootfs: host, read: [PATH]}` in the compose file shows one to a service",
        );
        if !hidden.is_empty() {
            text.push('\n');
            text.push_str(hidden.trim_end());
        }
        Failure { code, text }
    }

    /// What it runs.
    pub fn scenario(&self) -> &Scenario {
        &self.session.scenario
    }

    /// The world as it is.
    pub fn world(&self) -> &World {
        &self.machine.world
    }

    /// Goes back to a snapshot of any worker.
    pub fn restore(&mut self, snapshot: &World) {
        self.machine.restore(snapshot.clone());
    }

    /// Runs one seed from a booted world. If the boot was made from the log of a run, so is what follows.
    ///
    /// # Errors
    /// Host errors.
    pub fn run(&mut self, seed: u64) -> Result<Outcome, MachineError> {
        crate::bug::doing(format!("seed {seed}"));
        self.learn_profile()?;
        // What a run that is made again begins from. Its frames are shared with the snapshot, if there is one, as they are now.
        let booted = self.machine.snapshot()?;
        let ended = self.carry_out(&booted, Some(seed), |machine| machine.run(is_done))?;
        self.ended(seed, ended)
    }

    fn outcome(&self, seed: u64, ended: Ended) -> Outcome {
        let world = &self.machine.world;
        let history = world.clients.driver.as_ref().map(|d| d.history().clone()).unwrap_or_default();
        let name = |id| timeline::name(&self.session.scenario, id);
        let mut profiles = world.faults.profiles();
        let mut outcome = Outcome {
            seed,
            numbered: None,
            platform: Some(self.platform),
            digest: world.digest.to_string(),
            steps: world.steps,
            virtual_time: world.now,
            profile: profiles.remove(0).1,
            anew: profiles,
            scenario: self.session.scenario.clone(),
            plan: world.faults.plan.clone(),
            effects: world.faults.effects.clone(),
            hits: world.faults.hits.clone(),
            stopped_packets: Some(world.faults.stopped.clone()),
            asked: world.asked(),
            faults: crate::report::fault_records(world.faults.record(), &name),
            log: world.log.clone(),
            violations: Vec::new(),
            judged: Vec::new(),
            history,
            decisions: world.decisions.log().clone(),
            divergences: world.decisions.divergences(),
            marks: world.marks.clone(),
            outside: world.outside.iter().map(|((who, what), n)| (name(*who), what.clone(), *n)).collect(),
            console: world.console.clone(),
            stopped: None,
            share: self.meter.share(self.machine.scenario().health_until_ready),
            met: world.met(),
        };
        let finished = ended == Ended::Condition && world.phase == Phase::Done;
        match ended {
            Ended::Interrupted => outcome.stopped = Some(Stopped::Interrupted),
            Ended::Undecided(why) => outcome.stopped = Some(Stopped::Undecided(why)),
            Ended::Suspect(_) => unreachable!("such a run is made again"),
            Ended::Fatal(f) if f.kind == FindingKind::Unsupported => {
                outcome.stopped = Some(Stopped::Unsupported(f.text))
            }
            Ended::Fatal(f) => outcome.violations.push(machine_violation(&f, &self.machine)),
            Ended::Quiet => outcome.violations.push(Violation {
                index: None,
                property: "deadlock".into(),
                kind: "deadlock".into(),
                at: world.now,
                text: format!(
                    "every task waits for something that cannot happen\n{}",
                    crate::report::waiting(world)
                ),
            }),
            // A task may compute without end beside all that happens.
            Ended::Condition => {
                let hang = world.findings.iter().find(|f| f.kind == FindingKind::Hang);
                outcome.violations.extend(hang.map(|f| machine_violation(f, &self.machine)));
            }
        }
        self.judge(&mut outcome, finished);
        outcome
    }

    /// Judges all properties. What was violated before a run could not go on was violated all the same; where the host ended
    /// it, nothing is said, for it would end elsewhere the next time.
    fn judge(&self, outcome: &mut Outcome, finished: bool) {
        outcome.judge(&self.session.plan.properties, &Seen::of(&self.machine.world), finished);
    }
}

fn machine_violation(f: &Finding, machine: &Machine) -> Violation {
    let (kind, text) = (f.kind.name(), crate::stack::told(f, machine));
    Violation { index: None, property: kind.into(), kind: kind.into(), at: f.at, text }
}

/// A host error as a failure of the command.
pub fn host_failure(e: MachineError) -> Failure {
    Failure::environment(e.to_string())
}
