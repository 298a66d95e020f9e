//! From the files of a project to one tree: several files, override files, `include`, `extends`, `.env`, and the project's name.
//!
//! Key types: [`Loader`], [`Project`]. Each file is parsed, its variables are substituted, its `extends` and `include` are carried out, and
//! then it is laid over the files before it (`merge`). Every file has its own stretch of offsets, so that each value knows the file in
//! which it is written: for messages, for relative paths, and for the variables that hold there.

use std::path::{Path, PathBuf};

use crate::decode::Ctx;
use crate::diagnostic::{Code, Diagnostic, Severity, quoted};
use crate::suggest::nearest;
use crate::tree::{self, Entry, Node, ScalarKind, Source, Span, Value};

use super::interpolate::{self, Variables};
use super::{dotenv, keys, merge};

/// Most files of one project.
const MAX_FILES: usize = 200;

/// Variables by the file in which they hold.
#[derive(Default)]
pub(super) struct Scopes(Vec<(usize, Variables)>);

impl Scopes {
    /// The variables of the file in which a value is written.
    pub(super) fn at(&self, span: Span) -> &Variables {
        static NONE: Variables = Variables::new();
        self.0.iter().rev().find(|(base, _)| *base <= span.start).map_or(&NONE, |(_, variables)| variables)
    }
}

/// A project's tree and what was found on the way.
pub(super) struct Project {
    pub(super) tree: Node,
    /// The project's variables: the caller's, and those of its `.env`.
    pub(super) variables: Variables,
    pub(super) scopes: Scopes,
    /// The project's name.
    pub(super) name: String,
    /// Files that were read besides the first one.
    pub(super) inputs: Vec<PathBuf>,
}

/// Reads the files of a project.
pub(super) struct Loader<'a> {
    ctx: &'a mut Ctx,
    scopes: Scopes,
    inputs: Vec<PathBuf>,
    /// Files that are being included, to find circles.
    including: Vec<PathBuf>,
    /// Services that are being extended, to find circles.
    extending: Vec<(PathBuf, String)>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(ctx: &'a mut Ctx) -> Loader<'a> {
        Loader {
            ctx,
            scopes: Scopes::default(),
            inputs: Vec::new(),
            including: Vec::new(),
            extending: Vec::new(),
        }
    }

    /// Reads a project whose first file is the context's, with `more` laid over it.
    pub(super) fn project(mut self, more: &[PathBuf], environment: &Variables) -> Option<Project> {
        let first = self.ctx.source.clone();
        let base = first.dir();
        let mut variables = self.variables(&base, &env_files(&base, environment), environment);
        self.including.push(identity(&first.path));
        // The files' trees are needed for the name, and the name for their variables.
        let mut trees = vec![self.parse(&first)?];
        for path in more {
            let source = self.open(path, None, Some(base.clone()))?;
            trees.push(self.parse(&source)?);
        }
        // "Whenever a project name is defined by top-level `name` or by some custom mechanism, it is exposed for interpolation and
        // environment variable resolution as COMPOSE_PROJECT_NAME" (compose specification, "Version and name").
        let name = self.name(&trees, &variables).unwrap_or_else(|| directory_name(&base));
        variables.insert("COMPOSE_PROJECT_NAME".to_owned(), name.clone());
        let mut whole: Option<Node> = None;
        for tree in trees {
            let tree = self.complete(tree, &variables)?;
            whole = Some(match whole {
                Some(below) => merge::over(self.ctx, below, tree, &[]),
                None => tree,
            });
        }
        let mut tree = whole?;
        merge::without_resets(self.ctx, &mut tree);
        Some(Project { tree, variables, scopes: self.scopes, name, inputs: self.inputs })
    }

    /// The variables of files like `.env`, with those of the caller over them.
    fn variables(
        &mut self,
        base: &Path,
        files: &[(PathBuf, Option<Span>)],
        environment: &Variables,
    ) -> Variables {
        let mut variables = Variables::new();
        for (file, named) in files {
            if !file.is_file() {
                if let Some(span) = named {
                    self.ctx
                        .error(Code::MissingFile, *span, format!("{} does not exist", file.display()))
                        .help(format!("paths are relative to {}", base.display()));
                }
                continue;
            }
            match Source::read(file) {
                Ok(source) => {
                    let mut known = variables.clone();
                    known.extend(environment.clone());
                    let parsed = dotenv::parse(&source, &known);
                    self.ctx.diagnostics.extend(parsed.diagnostics);
                    variables.extend(parsed.variables.into_iter().filter_map(|(k, v)| Some((k, v?))));
                    self.read(file);
                }
                Err(diagnostic) => self.ctx.diagnostics.push(*diagnostic),
            }
        }
        variables.extend(environment.iter().map(|(k, v)| (k.clone(), v.clone())));
        variables
    }

    fn read(&mut self, file: &Path) {
        if !self.inputs.iter().any(|known| known == file) {
            self.inputs.push(file.to_owned());
        }
    }

    /// Reads a further file. `named` is where it is named; relative paths in it are resolved against `directory`, or its own.
    fn open(&mut self, path: &Path, named: Option<Span>, directory: Option<PathBuf>) -> Option<Source> {
        if self.ctx.more.len() >= MAX_FILES {
            let span = named.unwrap_or_default();
            self.ctx.error(Code::Limit, span, format!("the project has more than {MAX_FILES} files"));
            return None;
        }
        match Source::read(path) {
            Ok(mut source) => {
                let last = self.ctx.more.last().unwrap_or(&self.ctx.source);
                // One more, so that the place behind the end of a file is not the first of the next.
                source.base = last.base + last.text.len() + 1;
                source.directory = directory;
                self.ctx.more.push(source.clone());
                self.read(path);
                Some(source)
            }
            Err(diagnostic) => {
                match named {
                    Some(span) => {
                        let code = if path.exists() { diagnostic.code } else { Code::MissingFile };
                        self.ctx.error(code, span, diagnostic.message).help(
                            "paths are relative to the directory of the file in which they are written",
                        );
                    }
                    None => self.ctx.diagnostics.push(*diagnostic),
                }
                None
            }
        }
    }

    /// The tree of a file. One that is empty is an error.
    fn parse(&mut self, source: &Source) -> Option<Node> {
        let (node, diagnostics) = tree::parse(source);
        self.ctx.diagnostics.extend(diagnostics);
        let node = node?;
        if node.is_null() {
            let message = format!("{} is empty", source.name);
            let d = Diagnostic::about_file(Code::NothingToDo, Severity::Error, &source.name, message);
            self.ctx.diagnostics.push(d);
            return None;
        }
        if !matches!(node.value, Value::Map(_)) {
            self.ctx.wrong_type(&node, "", "a mapping");
            return None;
        }
        Some(node)
    }

    /// COMPOSE_PROJECT_NAME, or `name` of the last file that has one.
    fn name(&mut self, trees: &[Node], variables: &Variables) -> Option<String> {
        if let Some(name) = variables.get("COMPOSE_PROJECT_NAME").filter(|name| !name.is_empty()) {
            return Some(name.clone());
        }
        let node = trees.iter().rev().find_map(|tree| entry(tree, "name")).map(|entry| &entry.value)?;
        let Value::Scalar(scalar) = &node.value else { return None };
        let name = interpolate::substitute(&scalar.text, variables).ok()?.text;
        let valid = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'));
        if !valid {
            self.ctx
                .error(Code::Malformed, node.span, format!("{} is not a project's name", quoted(&name)))
                .help("lower-case letters, digits, `-` and `_`, beginning with a letter or digit");
        }
        Some(name)
    }

    /// Carries out what a file says about other files: variables, `extends`, `include`.
    fn complete(&mut self, mut tree: Node, variables: &Variables) -> Option<Node> {
        self.scope(tree.span, variables);
        interpolate::tree(self.ctx, &mut tree, variables);
        self.extend_all(&mut tree, variables);
        self.include_all(tree, variables)
    }

    /// Remembers which variables hold in the file of a place.
    fn scope(&mut self, span: Span, variables: &Variables) {
        let base = self.ctx.file(span.start).base;
        let place = self.scopes.0.partition_point(|(other, _)| *other < base);
        if self.scopes.0.get(place).is_none_or(|(other, _)| *other != base) {
            self.scopes.0.insert(place, (base, variables.clone()));
        }
    }

    /// `extends` of all services of a file.
    fn extend_all(&mut self, tree: &mut Node, variables: &Variables) {
        let Some(services) = entry(tree, "services").map(|entry| entry.value.clone()) else { return };
        let Value::Map(entries) = &services.value else { return };
        let mut done = Vec::new();
        for service in entries {
            let mut service = service.clone();
            service.value = self.extended(&service, &services, variables);
            done.push(service);
        }
        if let Value::Map(top) = &mut tree.value
            && let Some(entry) = top.iter_mut().find(|entry| entry.key == "services")
        {
            entry.value.value = Value::Map(done);
        }
    }

    /// A service with what it extends below it. `services` are those of its file.
    fn extended(&mut self, service: &Entry, services: &Node, variables: &Variables) -> Node {
        let mut own = service.value.clone();
        let Some(extends) = entry(&own, "extends").cloned().filter(|entry| !entry.value.is_null()) else {
            return own;
        };
        if let Value::Map(entries) = &mut own.value {
            entries.retain(|entry| entry.key != "extends");
        }
        let file = identity(&self.ctx.file(service.key_span.start).path);
        let this = (file, service.key.clone());
        if self.extending.contains(&this) {
            let names: Vec<&str> = self.extending.iter().map(|(_, name)| name.as_str()).collect();
            let message =
                format!("services extend each other in a circle: {} -> {}", names.join(" -> "), service.key);
            self.ctx.error(Code::DependencyCycle, extends.value.span, message).label("the circle ends here");
            return own;
        }
        self.extending.push(this);
        let base = self.base(&extends.value, services, variables, &service.key);
        self.extending.pop();
        match base {
            Some(base) => merge::over(self.ctx, base, own, &["services", &service.key]),
            None => own,
        }
    }

    /// The service that `extends` names.
    fn base(&mut self, extends: &Node, services: &Node, variables: &Variables, of: &str) -> Option<Node> {
        let path = format!("services.{of}.extends");
        let (name, file) = match &extends.value {
            Value::Map(_) => {
                let fields = keys::open(self.ctx, extends, &path, "services.*.extends")?;
                let service = fields.require(self.ctx, "service", |c, n, p| Some((c.name(n, p)?, n.span)))?;
                (service, fields.get(self.ctx, "file", |c, n, p| Some((c.name(n, p)?, n.span))))
            }
            _ => ((self.ctx.name(extends, &path)?, extends.span), None),
        };
        let (name, at) = name;
        let other = match file {
            None => None,
            Some((text, span)) => Some(self.file_of_services(&text, span, variables)?),
        };
        let services = other.as_ref().unwrap_or(services);
        let Some(found) = entry(services, &name).cloned() else {
            let Value::Map(entries) = &services.value else { return None };
            let known: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
            self.ctx
                .error(Code::UnknownService, at, format!("no service {} to extend", quoted(&name)))
                .suggest(nearest(&name, &known));
            return None;
        };
        if found.value.is_null() {
            return None;
        }
        Some(self.extended(&found, services, variables))
    }

    /// The services of a file that `extends` names.
    fn file_of_services(&mut self, text: &str, span: Span, variables: &Variables) -> Option<Node> {
        let path = self.ctx.path(span, text);
        let source = self.open(&path, Some(span), None)?;
        let mut tree = self.parse(&source)?;
        self.scope(tree.span, variables);
        interpolate::tree(self.ctx, &mut tree, variables);
        let services = entry(&tree, "services").map(|entry| entry.value.clone());
        if services.is_none() {
            self.ctx.error(Code::MissingKey, span, format!("{} has no `services`", path.display()));
        }
        services
    }

    /// Adds what `include` names to a file's tree.
    fn include_all(&mut self, mut tree: Node, variables: &Variables) -> Option<Node> {
        let Some(include) = entry(&tree, "include").cloned().filter(|entry| !entry.value.is_null()) else {
            return Some(tree);
        };
        if let Value::Map(entries) = &mut tree.value {
            entries.retain(|entry| entry.key != "include");
        }
        let items = self.ctx.list(&include.value, "include")?.to_vec();
        for item in &items {
            if let Some(included) = self.include(item, variables) {
                self.join(&mut tree, included);
            }
        }
        Some(tree)
    }

    /// One item of `include`: a path, or paths with variables and a directory of their own.
    fn include(&mut self, item: &Node, variables: &Variables) -> Option<Node> {
        let mut paths: Vec<(String, Span)> = Vec::new();
        let mut env: Option<Vec<(String, Span)>> = None;
        let mut directory = None;
        let texts = |c: &mut Ctx, n: &Node, p: &str| -> Option<Vec<(String, Span)>> {
            let items = match &n.value {
                Value::Seq(items) => items.as_slice(),
                _ => std::slice::from_ref(n),
            };
            Some(items.iter().filter_map(|item| Some((c.name(item, p)?, item.span))).collect())
        };
        match &item.value {
            Value::Map(_) => {
                let fields = keys::open(self.ctx, item, "include", "include[]")?;
                paths = fields.require(self.ctx, "path", texts)?;
                env = fields.get(self.ctx, "env_file", texts);
                directory = fields.get(self.ctx, "project_directory", |c, n, p| {
                    let text = c.name(n, p)?;
                    Some(c.path(n.span, &text))
                });
            }
            _ => paths.push((self.ctx.name(item, "include")?, item.span)),
        }
        let (first, at) = paths.first()?.clone();
        if first.contains("://") || first.starts_with("git@") {
            self.ctx
                .error(
                    Code::ComposeNotSupported,
                    at,
                    format!("{} is not a file of this machine", quoted(&first)),
                )
                .help("fetch it first, and name the file");
            return None;
        }
        let first = self.ctx.path(at, &first);
        let own = first.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = directory.unwrap_or_else(|| own.to_owned());
        let files: Vec<(PathBuf, Option<Span>)> = match env {
            Some(files) => {
                files.iter().map(|(text, span)| (self.ctx.path(*span, text), Some(*span))).collect()
            }
            None => vec![(directory.join(".env"), None)],
        };
        // "The local project's environment has precedence over the values set by the Compose file" (specification, Include).
        let variables = self.variables(&directory, &files, variables);
        let mut whole: Option<Node> = None;
        for (text, span) in paths {
            let path = self.ctx.path(span, &text);
            let this = identity(&path);
            if self.including.contains(&this) {
                let message = format!("{} includes itself", path.display());
                self.ctx.error(Code::DependencyCycle, span, message).label("the circle ends here");
                return None;
            }
            self.including.push(this);
            let tree = self.open(&path, Some(span), Some(directory.clone())).and_then(|source| {
                let tree = self.parse(&source)?;
                self.complete(tree, &variables)
            });
            self.including.pop();
            let tree = tree?;
            whole = Some(match whole {
                Some(below) => merge::over(self.ctx, below, tree, &[]),
                None => tree,
            });
        }
        whole
    }

    /// Adds the resources of an included project; two of one name are an error unless they are the same.
    fn join(&mut self, tree: &mut Node, included: Node) {
        let (Value::Map(top), Value::Map(others)) = (&mut tree.value, included.value) else { return };
        for section in others {
            if !matches!(&*section.key, "services" | "networks" | "volumes" | "secrets" | "configs") {
                continue;
            }
            let Some(own) = top.iter_mut().find(|entry| entry.key == section.key) else {
                top.push(section);
                continue;
            };
            if own.value.is_null() {
                own.value = section.value;
                continue;
            }
            let (Value::Map(own), Value::Map(others)) = (&mut own.value.value, section.value.value) else {
                continue;
            };
            for other in others {
                let Some(same) = own.iter().find(|entry| entry.key == other.key) else {
                    own.push(other);
                    continue;
                };
                if !alike(&same.value, &other.value) {
                    let (place, name) = (self.ctx.place(same.key_span), quoted(&other.key));
                    let message =
                        format!("{name} is declared under `{}` in two files, differently", section.key);
                    self.ctx
                        .error(Code::DuplicateName, other.key_span, message)
                        .relate(place, "the other one")
                        .help("rename one of the two, or override it: `include: [{path: [this file, file with the changes]}]`");
                }
            }
        }
    }
}

/// Whether two values are the same, wherever they are written.
fn alike(a: &Node, b: &Node) -> bool {
    match (&a.value, &b.value) {
        (Value::Scalar(a), Value::Scalar(b)) => {
            a.text == b.text && (a.kind == ScalarKind::Null) == (b.kind == ScalarKind::Null)
        }
        (Value::Seq(a), Value::Seq(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.iter().all(|x| b.iter().any(|y| x.key == y.key && alike(&x.value, &y.value)))
        }
        _ => false,
    }
}

/// The entry of a mapping.
pub(super) fn entry<'n>(node: &'n Node, key: &str) -> Option<&'n Entry> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|entry| entry.key == key)
}

/// A path by which a file is known again.
fn identity(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// `.env`, or the files that COMPOSE_ENV_FILES names; COMPOSE_DISABLE_ENV_FILE leaves them out.
fn env_files(base: &Path, environment: &Variables) -> Vec<(PathBuf, Option<Span>)> {
    if environment.get("COMPOSE_DISABLE_ENV_FILE").is_some_and(|v| matches!(&**v, "1" | "true")) {
        return Vec::new();
    }
    match environment.get("COMPOSE_ENV_FILES").filter(|files| !files.is_empty()) {
        Some(files) => files
            .split(',')
            .map(|f| (crate::config::resolve(base, f.trim()), Some(Span::default())))
            .collect(),
        None => vec![(base.join(".env"), None)],
    }
}

/// The project's name where nothing says it: that of the directory. Engines take lower-case letters, digits, `-` and `_`.
fn directory_name(base: &Path) -> String {
    let directory = std::path::absolute(base).ok();
    let directory = directory.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    let allowed = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let name: String = directory.unwrap_or_default().to_ascii_lowercase().chars().filter(allowed).collect();
    match name.trim_start_matches(['-', '_']) {
        "" => "project".to_owned(),
        name => name.to_owned(),
    }
}
