//! Coverage that tools of the services write themselves: read from the simulated file systems when a seed has run.
//!
//! Key type: [`Collecting`]. What is put into the services for it is part of the plan ([`crate::plan`]); what they wrote in earlier lives
//! is in the world ([`bloodhound_sim::kept`]). All that is counted is a sum or a smallest moment over seeds, so the result does not depend
//! on which worker ran which seed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_config::config::{Collect, CollectFormat, Coverage as Config};
use bloodhound_coverage::read::llvm::{Mapping, Profile};
use bloodhound_coverage::read::{Format, Report, format_of, read, read_go};
use bloodhound_coverage::{Coverage, Moment, NotMeasured, Record, Rules};
use bloodhound_net::NodeId;
use bloodhound_sim::kept::Kept;
use bloodhound_sim::services::State;
use bloodhound_sim::{Machine, World};
use bloodhound_vfs::{FileImage, path_is_like};

use super::{Settings, is_instance};
use crate::plan::COVERAGE_DIRECTORY;

/// Names that a note has.
const NAMED: usize = 5;

/// A service of which something is collected.
struct Source {
    name: String,
    collect: Vec<Collect>,
    rules: Arc<Rules>,
}

/// What is collected in a campaign.
pub(super) struct Collecting {
    sources: BTreeMap<NodeId, Source>,
}

/// What LLVM has put into the programs that services execute, for those of which profiles are collected.
#[derive(Default)]
pub(super) struct Mappings {
    /// By the digest of the program; `None`: nothing.
    programs: BTreeMap<[u8; 32], Option<Arc<Mapping>>>,
    services: BTreeMap<NodeId, BTreeMap<[u8; 32], Arc<Mapping>>>,
}

impl Mappings {
    /// A service executes a program.
    pub(super) fn ran(&mut self, id: NodeId, image: &FileImage) {
        let digest = image.sha256();
        let read = || Mapping::read(&super::files::read(image)).ok().map(Arc::new);
        if let Some(mapping) = self.programs.entry(digest).or_insert_with(read) {
            self.services.entry(id).or_default().insert(digest, mapping.clone());
        }
    }

    /// Those of all services as they are now.
    pub(super) fn of_services(&self) -> BTreeMap<NodeId, Vec<Arc<Mapping>>> {
        self.services.iter().map(|(id, of)| (*id, of.values().cloned().collect())).collect()
    }
}

/// What became of one tool of a service, over all seeds.
#[derive(Default)]
struct Told {
    /// Files that were read.
    files: u64,
    /// Lives that a signal ended before they could write what they write at their end.
    cut: u64,
    /// Seeds in which the service was not given time to end, or used up what it was given.
    unended: u64,
}

/// What the seeds told of tools, by service and tool.
#[derive(Default)]
pub(super) struct Tools(BTreeMap<(String, String), Told>);

/// How a run was brought to its end.
pub struct End {
    /// How many lives of each service signals had ended before.
    pub cut: BTreeMap<NodeId, u32>,
    /// Whether the services were asked to end.
    pub asked: bool,
}

/// How many lives of services signals have ended.
pub fn lives_cut(world: &World) -> BTreeMap<NodeId, u32> {
    world.services.iter().map(|(id, service)| (*id, service.cut_short)).collect()
}

impl Collecting {
    /// Of these services, which have these names. `rules` are those of lines.
    pub(super) fn new(settings: &Settings, services: &[(NodeId, String)], rules: &Rules) -> Collecting {
        let mut sources = BTreeMap::new();
        for (id, name) in services {
            let collect = collected(&settings.config, name);
            if collect.is_empty() {
                continue;
            }
            let mut rules = rules.clone();
            // The configuration's words come first; what is mounted is where it is for certain.
            rules.path_map.extend(settings.bound.get(id).cloned().unwrap_or_default());
            let (name, rules) = (name.clone(), Arc::new(rules));
            sources.insert(*id, Source { name, collect: collect.to_vec(), rules });
        }
        Collecting { sources }
    }

    /// Whether something is collected of a service. Then nobody misses the machine code of its interpreter.
    pub(super) fn names(&self, service: &str) -> bool {
        self.sources.values().any(|source| source.name == service)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether profiles of LLVM are collected of a service.
    pub(super) fn wants_programs(&self, id: NodeId) -> bool {
        self.sources.get(&id).is_some_and(|source| source.collect.contains(&Collect::Llvm))
    }

    /// Reads what the services have written: the reports by service and tool, and what is to be said of files that cannot be read.
    pub(super) fn read(
        &self,
        machine: &mut Machine,
        mappings: &BTreeMap<NodeId, Vec<Arc<Mapping>>>,
    ) -> Vec<Read> {
        let mut all = Vec::new();
        for (id, source) in &self.sources {
            let kept = machine.world.kept.clone();
            let mut files: Vec<Kept> = kept.iter().filter(|kept| kept.service == *id).cloned().collect();
            files.extend(machine.files_to_keep(*id));
            let texts: RefCell<BTreeMap<String, Option<String>>> = RefCell::default();
            let machine = RefCell::new(&mut *machine);
            let text = |path: &str| -> Option<String> {
                // The text of a file that cannot be one of the checkout is not needed.
                let wanted = source.rules.checkout.has_name(path);
                let read = || {
                    let bytes = wanted.then(|| machine.borrow_mut().file_of(*id, path.as_bytes()))??;
                    Some(String::from_utf8_lossy(&bytes).into_owned())
                };
                texts.borrow_mut().entry(path.to_owned()).or_insert_with(read).clone()
            };
            for collect in &source.collect {
                let mut read = Read {
                    service: source.name.clone(),
                    id: *id,
                    tool: collect.clone(),
                    rules: source.rules.clone(),
                    report: Report::default(),
                    files: 0,
                    notes: Vec::new(),
                };
                let own: Vec<&Kept> = files.iter().filter(|file| is_of(collect, &file.path)).collect();
                match collect {
                    Collect::Go => read.add_go(&own),
                    Collect::Llvm => {
                        let mappings = mappings.get(id).map(Vec::as_slice).unwrap_or_default();
                        own.iter().for_each(|file| read.add_profile(file, mappings));
                    }
                    _ => own.iter().for_each(|file| read.add(file, &text)),
                }
                all.push(read);
            }
        }
        all
    }

    /// Writes down what a seed has told.
    pub(super) fn record(
        &self,
        all: Vec<Read>,
        (record, tools): (&mut Record, &mut Tools),
        world: &World,
        end: &End,
        at: &Arc<Moment>,
    ) {
        for read in all {
            let tool = tool_name(&read.tool);
            record.report(&read.service, &tool, &read.report, &read.rules, at);
            for note in read.notes {
                record.note(&read.service, &tool, note);
            }
            let told = tools.0.entry((read.service, tool)).or_default();
            told.files += read.files;
            let service = &world.services[&read.id];
            let before = end.cut.get(&read.id).copied().unwrap_or_default();
            told.cut += u64::from(match read.tool {
                // Each line is written at once, and counters are the pages of a file.
                Collect::Python | Collect::Llvm => 0,
                // The collector writes when it is asked to end.
                Collect::Node => before,
                Collect::Go | Collect::File(..) => service.cut_short,
            });
            let runs = matches!(service.state, State::Running(_) | State::Stopping(_));
            let loses = !matches!(read.tool, Collect::Python | Collect::Llvm);
            told.unended += u64::from(loses && (runs || !end.asked));
        }
    }

    /// Says what is known of the tools, and which files none of them has seen.
    pub(super) fn conclude(&self, tools: &Tools, record: &mut Record) {
        for ((service, tool), told) in &tools.0 {
            if told.files == 0 {
                record.not_measured(service, tool, nothing(tool));
            }
            if told.cut > 0 {
                let times = match told.cut {
                    1 => "once".to_owned(),
                    2 => "twice".to_owned(),
                    many => format!("{many} times"),
                };
                let lost = match tool.as_str() {
                    "node" => "what it ran since its last report, at most 16 s before, is not counted",
                    _ => "what it would have written at its end is not counted",
                };
                record.note(service, tool, format!("a signal ended {service} {times}: {lost}"));
            }
            if told.unended > 0 {
                let seeds = told.unended;
                let note = format!(
                    "{service} did not come to its end in {seeds} seeds: what it would have written then is not counted"
                );
                record.note(service, tool, note);
            }
        }
    }

    /// Names files in the languages of the tools that no service has loaded.
    pub(super) fn name_unloaded(&self, coverage: &mut Coverage) {
        for (tool, endings) in [("python", &[".py"][..]), ("node", &[".js", ".mjs", ".cjs"])] {
            let Some(source) = self.sources.values().find(|s| s.collect.iter().any(|c| tool_name(c) == tool))
            else {
                continue;
            };
            let rules = &source.rules;
            let parts = coverage.parts.values().filter(|part| part.name == tool);
            let loaded: BTreeSet<&String> = parts.flat_map(|part| part.files.keys()).collect();
            let unloaded = rules.checkout.files().iter().filter(|file| {
                endings.iter().any(|ending| file.ends_with(ending))
                    && rules.counts(file)
                    && !loaded.contains(file)
            });
            let unloaded: Vec<&str> = unloaded.map(String::as_str).collect();
            if unloaded.is_empty() || loaded.is_empty() {
                continue;
            }
            let more = unloaded.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let names = unloaded[..unloaded.len().min(NAMED)].join(", ");
            let note = format!("no service loaded {names}{more}: they are not counted");
            for part in coverage.parts.values_mut().filter(|part| part.name == tool) {
                part.notes.insert(note.clone());
            }
        }
    }
}

/// What one tool of a service wrote in a seed.
pub(super) struct Read {
    service: String,
    id: NodeId,
    tool: Collect,
    rules: Arc<Rules>,
    report: Report,
    files: u64,
    notes: Vec<String>,
}

impl Read {
    fn add(&mut self, file: &Kept, text: &dyn Fn(&str) -> Option<String>) {
        let Some(bytes) = &file.bytes else {
            self.notes.push(format!("{} is too large to be read", place(&self.tool)));
            return;
        };
        // What was being written when its process was killed.
        if bytes.is_empty() {
            return;
        }
        let wanted = format_wanted(&self.tool);
        let result = match format_of(bytes) {
            Some(format) if wanted.is_some_and(|wanted| wanted != format) => Err(format!("it is {format:?}")),
            _ => read(bytes, text),
        };
        self.take(result);
    }

    /// Of Go's files, those of a program are understood together.
    fn add_go(&mut self, files: &[&Kept]) {
        let bytes: Vec<&[u8]> = files.iter().filter_map(|file| file.bytes.as_deref()).collect();
        if bytes.is_empty() {
            return;
        }
        match read_go(&bytes) {
            Err(_) => {
                // One that was cut does not take the others along.
                let (metas, counters): (Vec<&[u8]>, Vec<&[u8]>) =
                    bytes.iter().copied().partition(|bytes| read_go(&[*bytes]).is_ok());
                self.take(read_go(&metas));
                for one in counters {
                    self.take(read_go(&[&metas[..], &[one]].concat()));
                }
            }
            all => self.take(all),
        }
    }

    /// A profile of LLVM says nothing without the program that wrote it.
    fn add_profile(&mut self, file: &Kept, mappings: &[Arc<Mapping>]) {
        let Some(bytes) = file.bytes.as_deref().filter(|bytes| !bytes.is_empty()) else { return };
        let profile = match Profile::read(bytes) {
            Ok(profile) => profile,
            Err(error) => return self.take(Err(error)),
        };
        let rules = self.rules.clone();
        for mapping in mappings.iter().filter(|mapping| mapping.is_of(&profile)) {
            self.take(mapping.report(&profile, &|name| rules.checkout.has_name(name)));
        }
    }

    fn take(&mut self, result: Result<Report, String>) {
        match result {
            Ok(report) => {
                self.files += 1;
                self.report.join(report);
            }
            Err(error) => {
                let mut error = error.lines().next().unwrap_or_default().to_owned();
                error.truncate(error.floor_char_boundary(200));
                self.notes.push(format!("a file of {} cannot be read: {error}", place(&self.tool)));
            }
        }
    }
}

/// What the configuration collects of a service or its instance.
fn collected<'c>(config: &'c Config, name: &str) -> &'c [Collect] {
    let own = config.services.iter().find(|own| is_instance(name, &own.service.value));
    own.map_or(&[], |own| &own.collect)
}

/// Whether a tool wrote the file of this path.
fn is_of(tool: &Collect, path: &[u8]) -> bool {
    let own = path.strip_prefix(COVERAGE_DIRECTORY.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    let like = |pattern: &str| own.is_some_and(|name| path_is_like(pattern.as_bytes(), name));
    match tool {
        Collect::Python => like("python-*.txt"),
        Collect::Node => like("coverage-*.json"),
        Collect::Go => like("covmeta.*") || like("covcounters.*"),
        Collect::Llvm => like("*.profraw"),
        Collect::File(_, pattern) => path_is_like(pattern.as_bytes(), path),
    }
}

/// The tool's name in reports.
fn tool_name(tool: &Collect) -> String {
    match tool {
        Collect::Python => "python".to_owned(),
        Collect::Node => "node".to_owned(),
        Collect::Go => "go".to_owned(),
        Collect::Llvm => "llvm".to_owned(),
        Collect::File(format, pattern) => format!("{} {pattern}", format.as_str()),
    }
}

/// Where a tool writes.
fn place(tool: &Collect) -> &str {
    match tool {
        Collect::File(_, pattern) => pattern,
        _ => COVERAGE_DIRECTORY,
    }
}

/// The format that a tool's files have; `None` where their content says it.
fn format_wanted(tool: &Collect) -> Option<Format> {
    Some(match tool {
        Collect::Python => Format::Python,
        Collect::Node => Format::V8,
        Collect::Go | Collect::Llvm => return None,
        Collect::File(CollectFormat::Lcov, _) => Format::Lcov,
        Collect::File(CollectFormat::Cobertura, _) => Format::Cobertura,
        Collect::File(CollectFormat::Jacoco, _) => Format::Jacoco,
        Collect::File(CollectFormat::CoveragePy, _) => Format::CoveragePy,
        Collect::File(CollectFormat::GoProfile, _) => Format::GoProfile,
    })
}

/// Why a tool has told nothing.
fn nothing(tool: &str) -> NotMeasured {
    let hint = match tool {
        "python" => {
            "no Python ran that takes PYTHONPATH: one that is started with -I, -E or -S does not, nor does one whose environment is replaced"
        }
        "node" => {
            "no Node ran with the variables NODE_V8_COVERAGE and NODE_OPTIONS, or none came to a report: is its environment replaced?"
        }
        "go" => {
            "no program ran that was built with `go build -cover`, or none came to its end: it writes when main returns or os.Exit is called"
        }
        "llvm" => {
            "no program ran that was built with -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation (clang) \
             or -C instrument-coverage -C llvm-args=-runtime-counter-relocation (rustc)"
        }
        _ => "the service wrote no such file, or had not when it ended",
    };
    NotMeasured { reason: "its coverage was not found in the service".to_owned(), hint: hint.to_owned() }
}
