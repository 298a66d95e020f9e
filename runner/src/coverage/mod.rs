//! Code coverage of a campaign: which programs of the services are observed, and what of them was reached.
//!
//! Key type: [`Measuring`]. A program is analysed when a service first executes it; its points are observed until they are reached
//! once, by any worker (`bloodhound_platform::code_points`). When a seed has run, what it reached first is written down together with the
//! fault that was active.
//!
//! Modules: `files` (which files are worth a look), `collected` (what tools of the services write themselves), `verdict` (thresholds), `reports` (files for people and tools).
//! Neighbours: `bloodhound_coverage` knows programs, sums and report formats; `session` runs the seeds; `campaign` asks for the verdict.

mod collected;
mod files;
mod reports;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bloodhound_config::config::{Coverage as Config, CoverageFormat, CoverageUnit};
use bloodhound_coverage::{
    Checkout, Coverage, HostFiles, Moment, NotMeasured, Pattern, Program, Record, Rules, Unit, analyse,
};
use bloodhound_net::NodeId;
use bloodhound_platform::code_points::{FilePoints, Mark, Observed, Reached};
use bloodhound_sim::scenario::Scenario;
use bloodhound_sim::{CodeFile, Machine, Observer, timeline};
use bloodhound_vfs::FileImage;
use sha2::{Digest, Sha256};

use crate::session::{Failure, Outcome};

use collected::{Collecting, Mappings, Tools};
pub use collected::{End, lives_cut};
pub use files::read;
pub use reports::{Args, REPORT, run, write, write_json};
pub use verdict::{Judged, Line, Thresholds, Wrong, judge, summary};

/// What the configuration says about coverage.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The section.
    pub config: Config,
    /// Formats of reports; `None`: it does not say.
    pub formats: Option<Vec<CoverageFormat>>,
    /// The directory of bloodhound.yaml, from which a checkout is looked for.
    pub directory: PathBuf,
    /// Directories of this machine in services, by instance: there, and here.
    pub bound: BTreeMap<NodeId, Vec<(String, String)>>,
}

impl Settings {
    /// Whether the configuration asks for coverage.
    pub fn wanted(&self) -> bool {
        self.config.wanted || self.formats.is_some()
    }

    /// The formats that are written.
    pub fn formats(&self) -> Vec<CoverageFormat> {
        self.formats.clone().unwrap_or_else(|| vec![CoverageFormat::Html, CoverageFormat::Json])
    }

    /// The checkout: what the configuration names, else the Git checkout around its directory, else that.
    fn source(&self) -> PathBuf {
        checkout_of(self.config.source.as_deref(), &self.directory)
    }

    /// # Errors
    /// What is wrong with it.
    fn rules(&self, unit: CoverageUnit) -> Result<Rules, String> {
        let patterns = |texts: &[String]| {
            let sources = texts.iter().filter(|text| !files::is_binary(text));
            sources.map(|text| Pattern::new(text)).collect::<Result<_, _>>()
        };
        let source = self.source();
        let checkout =
            Checkout::scan(&source).map_err(|e| format!("coverage.source, {}: {e}", source.display()))?;
        Ok(Rules {
            unit: Some(unit_of(unit)),
            include: patterns(&self.config.include).map_err(|e| format!("coverage.include: {e}"))?,
            exclude: patterns(&self.config.exclude).map_err(|e| format!("coverage.exclude: {e}"))?,
            checkout: Arc::new(checkout),
            path_map: self.config.path_map.clone(),
            places: false,
        })
    }
}

/// The checkout of a configuration in this directory: what it names itself, else the Git checkout around it, else the directory.
pub fn checkout_of(source: Option<&Path>, directory: &Path) -> PathBuf {
    if let Some(source) = source {
        return source.to_path_buf();
    }
    let directory = if directory == Path::new("") { Path::new(".") } else { directory };
    let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
    let git = absolute.ancestors().find(|above| above.join(".git").exists());
    git.map_or(absolute.clone(), Path::to_path_buf)
}

fn unit_of(unit: CoverageUnit) -> Unit {
    match unit {
        CoverageUnit::Lines => Unit::Lines,
        CoverageUnit::Functions => Unit::Functions,
        CoverageUnit::Blocks => Unit::Blocks,
    }
}

/// A program of a service in one unit, and where its points are among those that are observed.
type Analysed = Result<(Arc<Program>, Arc<[u32]>), NotMeasured>;

/// A file that some service executes.
struct File {
    points: Option<Arc<FilePoints>>,
    units: BTreeMap<CoverageUnit, Analysed>,
    /// How many of the points were written down, by their place.
    told: BTreeSet<u32>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<[u8; 32], File>,
    record: Record,
    /// Programs of which nothing is counted, by service: told only of services of which nothing else is.
    unmeasured: BTreeMap<String, BTreeMap<String, NotMeasured>>,
    measured: BTreeSet<String>,
    tools: Tools,
    mappings: Mappings,
}

/// The coverage of a campaign, shared by its workers.
pub struct Measuring {
    settings: Settings,
    rules: BTreeMap<CoverageUnit, Rules>,
    scenario: Arc<Scenario>,
    observed: Arc<Observed>,
    state: Mutex<State>,
    collecting: Collecting,
    /// The campaign's first seed: what the boot of the stack reached counts as reached by it.
    first_seed: u64,
}

impl Measuring {
    /// Nothing was reached yet.
    ///
    /// # Errors
    /// Usage: what the configuration says cannot be used.
    pub fn new(
        settings: Settings,
        scenario: Arc<Scenario>,
        first_seed: u64,
    ) -> Result<Arc<Measuring>, Failure> {
        for service in &settings.config.services {
            let known = scenario.services.iter().any(|s| is_instance(&s.name, &service.service.value));
            if !known {
                let name = &service.service.value;
                return Err(Failure::usage(format!("coverage.services: there is no service `{name}`")));
            }
        }
        let of_services = settings.config.services.iter().filter_map(|service| service.unit);
        let units: BTreeSet<CoverageUnit> = of_services.chain([settings.config.unit]).collect();
        let rules = units.into_iter().map(|unit| Ok((unit, settings.rules(unit)?)));
        let rules: BTreeMap<CoverageUnit, Rules> =
            rules.collect::<Result<_, String>>().map_err(Failure::usage)?;
        let (observed, state) = (Arc::default(), Mutex::default());
        let services: Vec<(NodeId, String)> =
            scenario.services.iter().map(|s| (s.node, s.name.clone())).collect();
        // What tools tell is always lines; the checkout and the patterns are the same for every unit.
        let of_lines = rules.values().next().map(|rules| Rules { unit: Some(Unit::Lines), ..rules.clone() });
        let collecting = Collecting::new(&settings, &services, &of_lines.unwrap_or_default());
        Ok(Arc::new(Measuring { settings, rules, scenario, observed, state, collecting, first_seed }))
    }

    /// The configuration's words.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The source that reports show.
    pub fn checkout(&self) -> &Checkout {
        let rules = self.rules.get(&self.settings.config.unit).or_else(|| self.rules.values().next());
        rules.map_or_else(|| unreachable!("the unit of the configuration has rules"), |rules| &rules.checkout)
    }

    /// The frames that all workers are shown.
    pub fn observed(&self) -> Arc<Observed> {
        self.observed.clone()
    }

    /// What a worker's machine asks.
    pub fn observer(self: &Arc<Measuring>, mark: Arc<Mark>) -> Observer {
        let measuring = self.clone();
        let points = Arc::new(move |file: &CodeFile<'_>| measuring.points(file));
        Observer { points, observed: self.observed(), mark }
    }

    /// What the configuration has for a service or its instance: its unit, or `None` if it does not count.
    fn unit(&self, service: &str) -> Option<CoverageUnit> {
        let own = self.settings.config.services.iter().find(|s| is_instance(service, &s.service.value));
        match own {
            Some(own) if own.exclude => None,
            Some(own) => Some(own.unit.unwrap_or(self.settings.config.unit)),
            None => Some(self.settings.config.unit),
        }
    }

    /// The points of a file that a service executes.
    fn points(&self, file: &CodeFile<'_>) -> Option<Arc<FilePoints>> {
        let path = String::from_utf8_lossy(file.path).into_owned();
        let mut state = self.state();
        let known = state.files.entry(file.image.sha256()).or_insert_with(|| self.analyse(&path, file.image));
        let (points, of_units) = (known.points.clone(), known.units.clone());
        if self.collecting.wants_programs(file.service) {
            state.mappings.ran(file.service, file.image);
        }
        let Some(service) = self.service(file.service) else { return points };
        let Some(unit) = self.unit(&service) else { return points };
        match of_units.get(&unit) {
            Some(Ok((program, _))) => {
                state.record.ran(&service, program);
                state.measured.insert(service);
            }
            Some(Err(reason)) if !files::is_library(&path) => {
                let reasons = state.unmeasured.entry(service).or_default();
                let reason = files::interpreter(&path).unwrap_or_else(|| reason.clone());
                reasons.entry(path).or_insert(reason);
            }
            _ => {}
        }
        points
    }

    /// The name of a service; scripts of the workload have none.
    fn service(&self, id: NodeId) -> Option<String> {
        let service = self.scenario.services.iter().any(|service| service.node == id);
        service.then(|| timeline::name(&self.scenario, id))
    }

    fn analyse(&self, path: &str, image: &FileImage) -> File {
        let mut file = File { points: None, units: BTreeMap::new(), told: BTreeSet::new() };
        let mut programs = Vec::new();
        let mut bytes = None;
        for (unit, rules) in &self.rules {
            if let Err(reason) = files::worth_reading(image, path, *unit, &self.settings.config) {
                file.units.insert(*unit, Err(reason));
                continue;
            }
            let bytes: &Vec<u8> = bytes.get_or_insert_with(|| files::read(image));
            match analyse(path, bytes, &HostFiles::default(), rules) {
                Ok(mut program) => {
                    program.digest = key(image, *unit);
                    programs.push((*unit, Arc::new(program)));
                }
                Err(reason) => drop(file.units.insert(*unit, Err(reason))),
            }
        }
        let offsets =
            |(_, program): &(_, Arc<Program>)| program.points.iter().map(|point| point.offset).collect();
        let offsets: Vec<Vec<u64>> = programs.iter().map(offsets).collect();
        let points = FilePoints::new(offsets.concat());
        for ((unit, program), offsets) in programs.into_iter().zip(offsets) {
            let place = |offset: &u64| points.offsets().binary_search(offset).map_or(0, |at| at as u32);
            let places = offsets.iter().map(place).collect();
            file.units.insert(unit, Ok((program, places)));
        }
        file.points = (!points.offsets().is_empty()).then(|| Arc::new(points));
        file
    }

    /// A seed has run: writes down what it reached first.
    pub fn ran(&self, outcome: &Outcome) {
        let mut state = self.state();
        state.record.seed(outcome.seed);
        self.tell(&mut state, |reached| match reached.seed {
            // What the boot reached, the first seed that tells of it did.
            None => Some(Moment { seed: self.first_seed, ..Moment::default() }),
            Some(seed) if seed == outcome.seed => {
                let fault = reached.fault.and_then(|entry| outcome.faults.get(entry));
                let faults = fault.map(|fault| fault.text.clone()).into_iter().collect();
                Some(Moment { seed, time_ns: None, faults })
            }
            Some(_) => None,
        });
    }

    /// Whether tools of the services write something that is collected at the end of a run.
    pub fn collects(&self) -> bool {
        !self.collecting.is_empty()
    }

    /// A run is over, as `end` says: reads what tools of the services wrote.
    pub fn collect(&self, machine: &mut Machine, seed: u64, end: &End) {
        let mappings = self.state().mappings.of_services();
        let all = self.collecting.read(machine, &mappings);
        let at = Arc::new(Moment { seed, ..Moment::default() });
        let mut state = self.state();
        let State { record, tools, .. } = &mut *state;
        self.collecting.record(all, (record, tools), &machine.world, end, &at);
    }

    /// Writes down what was reached and is not yet, as far as `moment` has one for it.
    fn tell(&self, state: &mut State, moment: impl Fn(Reached) -> Option<Moment>) {
        let State { files, record, .. } = state;
        let mut moments: BTreeMap<Reached, Option<Arc<Moment>>> = BTreeMap::new();
        for file in files.values_mut() {
            let Some(points) = &file.points else { continue };
            for number in 0..points.offsets().len() as u32 {
                if file.told.contains(&number) {
                    continue;
                }
                let Some(reached) = points.reached(number as usize) else { continue };
                let moment = moments.entry(reached).or_insert_with(|| moment(reached).map(Arc::new));
                let Some(moment) = moment else { continue };
                file.told.insert(number);
                for (program, places) in file.units.values().flatten() {
                    if let Ok(point) = places.binary_search(&number) {
                        record.reach(&program.digest, point, moment);
                    }
                }
            }
        }
    }

    /// What of the source was reached.
    pub fn coverage(&self) -> Coverage {
        let mut state = self.state();
        // Seeds that did not come to an end reached something as well.
        self.tell(&mut state, |reached| {
            Some(Moment { seed: reached.seed.unwrap_or(self.first_seed), ..Moment::default() })
        });
        let unmeasured = std::mem::take(&mut state.unmeasured);
        for (service, programs) in &unmeasured {
            if !state.measured.contains(service) && !self.collecting.names(service) {
                for (program, reason) in programs {
                    state.record.not_measured(service, program, reason.clone());
                }
            }
        }
        state.unmeasured = unmeasured;
        let State { record, tools, .. } = &mut *state;
        self.collecting.conclude(tools, record);
        let mut coverage = record.coverage();
        self.collecting.name_unloaded(&mut coverage);
        coverage
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A worker that panicked in here has left a record that is whole: each change is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names a program in one unit.
fn key(image: &FileImage, unit: CoverageUnit) -> [u8; 32] {
    match unit {
        CoverageUnit::Lines => image.sha256(),
        _ => Sha256::new().chain_update(image.sha256()).chain_update(unit.as_str()).finalize().into(),
    }
}

/// Whether `instance` is the service or one of its replicas: `web`, `web-1`.
fn is_instance(instance: &str, service: &str) -> bool {
    let rest = instance.strip_prefix(service);
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    })
}
