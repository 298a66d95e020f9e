//! The section `coverage`: which code counts as the user's own, in which unit it is counted, and how much of it must be reached; and
//! `output.coverage_format`.
//!
//! Key types: [`Coverage`], [`ServiceCoverage`], [`Collect`] (which tools' coverage is collected), [`CoverageFormat`].

use std::path::PathBuf;

use bloodhound_declare::scalar::share;
use bloodhound_declare::{Key, Section, Syntax, ValueKind, words};

use crate::decode::{Ctx, Located};
use crate::diagnostic::Code;
use crate::tree::{Node, Value};

use super::read::{Chosen, Settings};

words! {
    /// What is counted.
    pub enum CoverageUnit as "CoverageUnit" {
        Lines = "lines": "lines of source code, by the tables that a compiler writes for debuggers (`-g`)",
        Functions = "functions": "functions, by the symbols of the binary",
        Blocks = "blocks": "pieces of code without a branch, found in the machine code: for binaries without any tables",
    }
}

words! {
    /// A file format of coverage reports.
    pub enum CoverageFormat as "CoverageFormat" {
        Html = "html": "annotated sources to read",
        Lcov = "lcov": "the format of lcov and genhtml",
        Cobertura = "cobertura": "XML as Cobertura writes it",
        Json = "json": "what `bloodhound coverage merge` joins",
    }
}

/// Coverage of another tool that is collected from the files of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collect {
    /// Of CPython: Bloodhound's own collector, which is put into the service.
    Python,
    /// Of Node: `NODE_V8_COVERAGE`.
    Node,
    /// Of programs that were built with `go build -cover`: `GOCOVERDIR`.
    Go,
    /// Of programs that were built with `-fprofile-instr-generate -fcoverage-mapping` or `-C instrument-coverage`: `LLVM_PROFILE_FILE`.
    Llvm,
    /// Files that the service writes, by a pattern of their paths in the service.
    File(CollectFormat, String),
}

words! {
    /// The format of a file that a service writes.
    pub enum CollectFormat as "CollectFormat" {
        Lcov = "lcov": "a tracefile of lcov",
        Cobertura = "cobertura": "Cobertura's XML",
        Jacoco = "jacoco": "JaCoCo's XML",
        CoveragePy = "coverage_py": "what `coverage json` of coverage.py writes",
        GoProfile = "go_profile": "a text profile of Go (`go tool covdata textfmt`)",
    }
}

/// The tools that are collected by their name alone.
const TOOLS: &[(&str, Collect)] =
    &[("python", Collect::Python), ("node", Collect::Node), ("go", Collect::Go), ("llvm", Collect::Llvm)];

/// What is collected: one thing or a list.
const COLLECT: ValueKind = ValueKind::Own(&Syntax {
    name: "Collect",
    written: "`python`, `node`, `go`, `llvm`, a file such as `{lcov: /path}`, or a list of them",
    plural: "",
    doc: "coverage of interpreters and compilers: what Bloodhound sets up for a tool (`python`, `node`, `go`, `llvm`), or a file that the \
          service writes: `{lcov: /path}`, `{cobertura: /path}`, `{jacoco: /path}`, `{coverage_py: /path}` or `{go_profile: /path}`, \
          where `%p` stands for any number and `*` for any characters of a name",
    schema: r##"{"anyOf": [
        {"$ref": "#/$defs/Collected"},
        {"type": "array", "items": {"$ref": "#/$defs/Collected"}}
    ]}"##,
    uses: &[&COLLECTED],
});

static COLLECTED: Syntax = Syntax {
    name: "Collected",
    written: "`python`, `node`, `go`, `llvm`, or a file such as `{lcov: /path}`",
    plural: "",
    doc: "coverage of one tool, or a file that a service writes",
    schema: r#"{"anyOf": [
        {"enum": ["python", "node", "go", "llvm"]},
        {"type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1, "properties": {
            "lcov": {"type": "string", "pattern": "^/."},
            "cobertura": {"type": "string", "pattern": "^/."},
            "jacoco": {"type": "string", "pattern": "^/."},
            "coverage_py": {"type": "string", "pattern": "^/."},
            "go_profile": {"type": "string", "pattern": "^/."}
        }}
    ]}"#,
    uses: &[],
};

/// A percentage.
pub(super) const SHARE: ValueKind = ValueKind::Own(&Syntax {
    name: "Share",
    written: "share, such as `80%`",
    plural: "shares",
    doc: "a percentage from 0% to 100%",
    schema: r#"{"anyOf": [
        {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%?$"}, {"type": "number", "minimum": 0, "maximum": 100}
    ]}"#,
    uses: &[],
});

const SOURCES: ValueKind = ValueKind::List(&ValueKind::Name("source pattern"));

/// One format or a list of them.
pub(super) const FORMATS: ValueKind = ValueKind::Own(&Syntax {
    name: "CoverageFormats",
    written: "`html`, `lcov`, `cobertura`, `json`, or a list of them",
    plural: "",
    doc: "annotated sources to read, the format of lcov and genhtml, XML as Cobertura writes it, or what `bloodhound coverage merge` \
          joins",
    schema: r##"{"anyOf": [
        {"enum": ["html", "lcov", "cobertura", "json"]},
        {"type": "array", "items": {"enum": ["html", "lcov", "cobertura", "json"]}}
    ]}"##,
    uses: &[],
});

pub(super) static COVERAGE: Section = Section::new(
    "Coverage",
    "which code of the services is to be reached; measured if this section, `output.coverage_format` or `--coverage-threshold` is given",
    &[
        Key::new("unit", ValueKind::Word(CoverageUnit::WORDS), "what is counted").default("lines"),
        Key::new(
            "source",
            ValueKind::Path,
            "the checkout: only lines of files in it count, other code is somebody else's",
        )
        .otherwise("the Git checkout that has this file, or its directory"),
        Key::new(
            "include",
            SOURCES,
            "files that count, as patterns of paths in the checkout (`src/**`) or of binaries (`/usr/bin/kv`)",
        )
        .otherwise("all"),
        Key::new(
            "exclude",
            SOURCES,
            "files that do not count, besides tests, generated code and vendored dependencies",
        )
        .otherwise("none"),
        Key::new(
            "path_map",
            ValueKind::List(&ValueKind::Name("`from=to` pair")),
            "where sources lay when they were built, and where they lie in the checkout: `/build=.`",
        )
        .otherwise("found by the longest common end of paths"),
        Key::new("threshold", SHARE, "least share that must be reached; `--coverage-threshold` overrides it")
            .otherwise("none"),
        Key::new(
            "services",
            ValueKind::List(&ValueKind::Section(&SERVICE)),
            "what is different for single services",
        )
        .otherwise("none"),
    ],
);

static SERVICE: Section = Section::new(
    "ServiceCoverage",
    "what is different for a service",
    &[
        Key::new("service", ValueKind::Name("service"), "its name").required(),
        Key::new("unit", ValueKind::Word(CoverageUnit::WORDS), "what is counted")
            .otherwise("`coverage.unit`"),
        Key::new("threshold", SHARE, "least share of this service's code that must be reached")
            .otherwise("none"),
        Key::new("exclude", ValueKind::Bool, "whether its code does not count at all").default("false"),
        Key::new(
            "collect",
            COLLECT,
            "coverage of interpreters and compilers, which is part of every run of the service",
        )
        .otherwise("none"),
    ],
);

/// The section `coverage`; what its keys mean is declared in `COVERAGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Whether the section is written.
    pub wanted: bool,
    /// `unit`.
    pub unit: CoverageUnit,
    /// `source`, resolved against the directory of bloodhound.yaml.
    pub source: Option<PathBuf>,
    /// `include`.
    pub include: Vec<String>,
    /// `exclude`.
    pub exclude: Vec<String>,
    /// `path_map`: from, to.
    pub path_map: Vec<(String, String)>,
    /// `threshold`, in thousandths.
    pub threshold: Option<u32>,
    /// `services`.
    pub services: Vec<ServiceCoverage>,
}

/// What is different for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCoverage {
    /// Its name.
    pub service: Located<String>,
    /// `unit`.
    pub unit: Option<CoverageUnit>,
    /// `threshold`, in thousandths.
    pub threshold: Option<u32>,
    /// `exclude`.
    pub exclude: bool,
    /// `collect`, sorted.
    pub collect: Vec<Collect>,
}

pub(super) fn coverage(ctx: &mut Ctx, settings: &Settings<'_>, wanted: bool) -> Coverage {
    let services = settings.sections(ctx, "services").unwrap_or_default();
    let services = services.iter().filter_map(|section| service(ctx, section)).collect();
    let maps: Vec<String> = settings.get(ctx, "path_map").unwrap_or_default();
    let path_map = maps.iter().filter_map(|text| {
        let parts = text.split_once('=').filter(|(from, _)| !from.is_empty());
        if parts.is_none() {
            let span = settings.node("path_map").map_or(settings.span, |node| node.span);
            ctx.error(Code::Malformed, span, format!("`{text}` is no pair of directories"))
                .help("write `/where/it/was/built=where/it/is`");
        }
        parts.map(|(from, to)| (from.to_owned(), to.to_owned()))
    });
    let path_map = path_map.collect();
    Coverage {
        wanted,
        unit: settings.value::<Chosen<CoverageUnit>>(ctx, "unit").0,
        source: settings.get(ctx, "source"),
        include: settings.get(ctx, "include").unwrap_or_default(),
        exclude: settings.get(ctx, "exclude").unwrap_or_default(),
        path_map,
        threshold: settings.own(ctx, "threshold", a_share),
        services,
    }
}

fn service(ctx: &mut Ctx, settings: &Settings<'_>) -> Option<ServiceCoverage> {
    let unit = settings.get::<Chosen<CoverageUnit>>(ctx, "unit").map(|unit| unit.0);
    let threshold = settings.own(ctx, "threshold", a_share);
    let exclude = settings.value(ctx, "exclude");
    let collect = settings.own(ctx, "collect", collected).unwrap_or_default();
    if exclude && !collect.is_empty() {
        let span = settings.node("collect").map_or(settings.span, |node| node.span);
        ctx.error(Code::Malformed, span, "nothing is collected of a service that does not count")
            .help("leave out `exclude` or `collect`");
    }
    Some(ServiceCoverage { service: settings.get(ctx, "service")?, unit, threshold, exclude, collect })
}

/// What is collected of a service: one thing or a list.
fn collected(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Collect>> {
    let mut all: Vec<Collect> = match &node.value {
        Value::Seq(items) => items.iter().filter_map(|item| one_collected(ctx, item, path)).collect(),
        _ => vec![one_collected(ctx, node, path)?],
    };
    all.sort();
    all.dedup();
    Some(all)
}

fn one_collected(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Collect> {
    if let Value::Map(entries) = &node.value {
        let [entry] = entries.as_slice() else {
            ctx.error(Code::Malformed, node.span, format!("`{path}`: a mapping has one format and its file"))
                .help("write a list of mappings for several files");
            return None;
        };
        let format = CollectFormat::ALL.iter().copied().find(|format| format.as_str() == entry.key);
        let Some(format) = format else {
            let known: Vec<&str> = CollectFormat::ALL.iter().map(|format| format.as_str()).collect();
            let message = format!("`{path}`: `{}` is no format of coverage that a service writes", entry.key);
            ctx.error(Code::Malformed, entry.key_span, message)
                .help(format!("known are {}", known.join(", ")));
            return None;
        };
        let file = ctx.text(&entry.value, path)?;
        let exec = format == CollectFormat::Jacoco && file.ends_with(".exec");
        let wrong = match (file.strip_prefix('/'), exec) {
            (_, true) => {
                "JaCoCo's .exec file says nothing without the classes: let the service write the XML report \
                          (`jacococli report --xml`, or the agent's report in its build tool) and name that"
            }
            (None | Some(""), _) => "it is no absolute path in the service",
            (Some(rest), _) if rest.split('/').any(|part| part == "..") => "a path may not have `..`",
            _ => return Some(Collect::File(format, file)),
        };
        ctx.error(Code::Malformed, entry.value.span, format!("`{path}.{}`: {wrong}", entry.key));
        return None;
    }
    let text = ctx.text(node, path)?;
    let tool = TOOLS.iter().find(|(name, _)| *name == text);
    if tool.is_none() {
        let help = match text.as_str() {
            "jacoco" => {
                "JaCoCo's agent must be in the image; name the XML report that the service writes: `{jacoco: /path.xml}`"
            }
            _ => "known are python, node, go, llvm, and files such as `{lcov: /path}`",
        };
        ctx.error(Code::Malformed, node.span, format!("`{path}`: nothing is known of `{text}`")).help(help);
    }
    tool.map(|(_, collect)| collect.clone())
}

/// Reads a percentage, in thousandths.
pub(super) fn a_share(ctx: &mut Ctx, node: &Node, path: &str) -> Option<u32> {
    let text = ctx.text(node, path)?;
    match share(&text) {
        Ok(value) => Some(value),
        Err(why) => {
            ctx.error(Code::Malformed, node.span, format!("`{path}`: {why}"));
            None
        }
    }
}

/// Reads `output.coverage_format`.
pub(super) fn formats(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<CoverageFormat>> {
    let one = |ctx: &mut Ctx, node: &Node| {
        ctx.word(node, path, CoverageFormat::WORDS).map(|index| CoverageFormat::ALL[index])
    };
    let mut formats: Vec<CoverageFormat> = match &node.value {
        Value::Seq(items) => items.iter().filter_map(|item| one(ctx, item)).collect(),
        _ => vec![one(ctx, node)?],
    };
    formats.sort_unstable();
    formats.dedup();
    Some(formats)
}
