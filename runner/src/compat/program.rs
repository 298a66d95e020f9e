//! A program as its container has it: is it there, for this processor, with its interpreter, its loader and its libraries in the versions
//! that it needs; and which system calls its code may make that would be answered otherwise.

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_compat::elf::{Elf, calls};
use bloodhound_kernel::exec::Program;

use super::asked::{Answer, ask};
use super::container::Container;
use super::finding::{Report, Weight};
use super::{Args, exec_container, tell};
use crate::session::Failure;

/// Scripts whose interpreter is a script, at most (BINPRM of Linux allows five).
const DEEPEST: usize = 5;
/// Where a loader of glibc looks in the end, and where one of musl does if nobody says otherwise.
const GLIBC: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const MUSL: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/lib"];
/// C libraries and their loaders: they have a function for each system call.
const C_LIBRARIES: [&str; 9] = [
    "libc.so",
    "libc.musl",
    "ld-linux",
    "ld-musl",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libm.so",
    "libresolv.so",
];

/// Looks at the program of a command line, as `exec` would run it.
///
/// # Errors
/// The container cannot be made.
pub fn look(args: &Args) -> Result<Report, Failure> {
    let mut container = exec_container(args, &args.command)?;
    let mut report = Report::default();
    let program = container.program.clone();
    check(&mut report, &mut container, &program);
    Ok(report)
}

/// Looks at a program in its container.
pub fn check(report: &mut Report, container: &mut Container, program: &Program) {
    report.count("programs", 1);
    let mut argv = program.argv.clone();
    let mut path = program.path.clone();
    for _ in 0..DEEPEST {
        let Some(found) = find(container, program, &path) else {
            report.add(
                Weight::Missing,
                text(&path),
                "no such program is in the container that may be executed",
                "",
            );
            return;
        };
        // What a loader calls $ORIGIN is where the file is, whatever link leads to it.
        let found = container.real_path(&found).unwrap_or(found);
        let bytes = match container.read(&found) {
            Ok(bytes) => bytes,
            Err(errno) => {
                report.add(Weight::Missing, text(&found), format!("cannot be read: {}", errno.name()), "");
                return;
            }
        };
        match interpreter(&bytes) {
            None => return Binaries::new(container, program).check(report, &found, &bytes),
            Some((next, words)) => {
                report.count("scripts", 1);
                argv = [vec![next.clone()], words, vec![found], argv.split_off(1.min(argv.len()))].concat();
                path = next;
                // `#!/usr/bin/env python3`: the program is env's argument.
                if path.ends_with(b"/env") {
                    let is_name = |word: &&Vec<u8>| !word.starts_with(b"-") && !word.contains(&b'=');
                    if let Some(name) = argv[1..].iter().find(is_name) {
                        path = name.clone();
                    }
                }
            }
        }
    }
    report.add(Weight::Missing, text(&program.path), "scripts whose interpreters are scripts, too many", "");
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// The value of a variable of the program.
fn variable(program: &Program, name: &str) -> Option<String> {
    let value = |entry: &Vec<u8>| text(entry).strip_prefix(&format!("{name}=")).map(str::to_owned);
    program.envp.iter().find_map(value)
}

/// The file of a program: the path itself, or a name in a directory of PATH.
fn find(container: &mut Container, program: &Program, path: &[u8]) -> Option<Vec<u8>> {
    if path.contains(&b'/') {
        return container.is_executable(path).then(|| path.to_vec());
    }
    let directories = variable(program, "PATH").unwrap_or_default();
    let candidates = directories.split(':').map(|dir| [dir.as_bytes(), b"/", path].concat());
    candidates.into_iter().find(|candidate| container.is_executable(candidate))
}

/// The interpreter of a script and the words after it, of which Linux makes one.
fn interpreter(bytes: &[u8]) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let line = bytes.strip_prefix(b"#!")?;
    let line = text(&line[..line.iter().position(|b| *b == b'\n').unwrap_or(line.len().min(255))]);
    let mut words = line.split_whitespace().map(|word| word.as_bytes().to_vec());
    Some((words.next()?, words.collect()))
}

/// A program's binaries: itself, its loader, its libraries.
struct Binaries<'a> {
    container: &'a mut Container,
    program: &'a Program,
    /// Where the loader looks in the end.
    usual: Vec<String>,
    /// Files by the name under which they are needed.
    loaded: BTreeMap<String, (String, Elf)>,
    /// What may be asked for, and where.
    requests: BTreeMap<bloodhound_compat::Request, String>,
}

impl<'a> Binaries<'a> {
    fn new(container: &'a mut Container, program: &'a Program) -> Binaries<'a> {
        Binaries { container, program, usual: Vec::new(), loaded: BTreeMap::new(), requests: BTreeMap::new() }
    }

    fn check(mut self, report: &mut Report, path: &[u8], bytes: &[u8]) {
        let name = text(path);
        let elf = match Elf::read(bytes) {
            Ok(elf) => elf,
            Err(unfit) => return report.add(Weight::Stops, name, unfit.to_string(), ""),
        };
        if elf.is_empty {
            return report.add(Weight::Stops, name, "has nothing that could be loaded", "");
        }
        if let Some(loader) = elf.interpreter.clone() {
            if self.container.look_up(loader.as_bytes()).is_err() {
                let says = if loader.contains("musl") {
                    "its loader is not in the container: the program was built for musl, as Alpine has it"
                } else {
                    "its loader is not in the container: the program was built for glibc, or for another system"
                };
                report.add(Weight::Missing, loader, says, format!("needed by {name}"));
                return;
            }
            self.usual = if loader.contains("musl") { self.musl() } else { self.glibc() };
        }
        self.scan(report, &name, bytes);
        self.libraries(report, &name, &elf);
        for (request, place) in std::mem::take(&mut self.requests) {
            report.count("kinds of requests in code", 1);
            let place = format!("in {place}");
            match ask(self.container, &request) {
                Answer::Stops(why) => {
                    report.add(Weight::Maybe, request.text(), format!("would stop the run: {why}"), place);
                }
                // An error that depends on arguments or on an object that nobody knows is a guess.
                Answer::Error(_, "") if request.options.contains('?') || request.object.is_some() => {}
                answer => tell(report, &request, &answer, place),
            }
        }
    }

    /// Notes what a file's code may ask for.
    fn scan(&mut self, report: &mut Report, path: &str, bytes: &[u8]) {
        let name = path.rsplit('/').next().unwrap_or(path);
        if C_LIBRARIES.iter().any(|library| name.starts_with(library)) {
            return;
        }
        report.count("binaries whose code was read", 1);
        if let Ok(requests) = calls::requests(bytes) {
            for (request, function) in requests {
                self.requests.entry(request).or_insert_with(|| format!("{function} of {path}"));
            }
        }
    }

    /// Finds all that the loader would load, and what of it is not there.
    fn libraries(&mut self, report: &mut Report, path: &str, elf: &Elf) {
        let mut todo = vec![(path.to_owned(), elf.clone(), Vec::new())];
        let mut missing = BTreeSet::new();
        let mut all: Vec<(String, Elf)> = Vec::new();
        while let Some((path, elf, inherited)) = todo.pop() {
            let directories = self.directories(&path, &elf, &inherited);
            // DT_RPATH counts for what a library needs in its turn as well, unless that has a DT_RUNPATH.
            let passed_on = if elf.runpath.is_empty() {
                [&inherited[..], &expanded(&path, &elf.rpath)].concat()
            } else {
                Vec::new()
            };
            for needed in &elf.needed {
                if self.loaded.contains_key(needed) || missing.contains(needed) {
                    continue;
                }
                let Some((found, bytes)) = self.library(needed, &directories) else {
                    missing.insert(needed.clone());
                    let says = "no such library is where the loader looks";
                    report.add(Weight::Missing, needed.clone(), says, format!("needed by {path}"));
                    continue;
                };
                report.count("libraries", 1);
                self.scan(report, &found, &bytes);
                let library = Elf::read(&bytes).unwrap_or_default();
                self.loaded.insert(needed.clone(), (found.clone(), library.clone()));
                todo.push((found, library, passed_on.clone()));
            }
            all.push((path, elf));
        }
        for (path, elf) in &all {
            for (library, version) in &elf.versions {
                let Some((found, has)) = self.loaded.get(library) else { continue };
                if !has.defines.is_empty() && !has.defines.contains(version) {
                    let says = format!(
                        "{found} does not have this version: it is older than the one that {path} was built with"
                    );
                    report.add(
                        Weight::Missing,
                        format!("{version} of {library}"),
                        says,
                        format!("needed by {path}"),
                    );
                }
            }
        }
    }

    /// A library for this processor, as the loader finds it: others of its name are passed over.
    fn library(&mut self, name: &str, directories: &[String]) -> Option<(String, Vec<u8>)> {
        let candidates: Vec<String> = match name.contains('/') {
            true => vec![name.to_owned()],
            false => directories.iter().map(|dir| format!("{dir}/{name}")).collect(),
        };
        candidates.into_iter().find_map(|path| {
            let bytes = self.container.read(path.as_bytes()).ok()?;
            Elf::read(&bytes).is_ok().then_some((path, bytes))
        })
    }

    /// Where a library of `elf` is looked for, in order (ld.so(8)).
    fn directories(&self, path: &str, elf: &Elf, inherited: &[String]) -> Vec<String> {
        let mut out = Vec::new();
        if elf.runpath.is_empty() {
            out.extend(expanded(path, &elf.rpath));
            out.extend(inherited.iter().cloned());
        }
        if let Some(list) = variable(self.program, "LD_LIBRARY_PATH") {
            out.extend(list.split([':', ';']).filter(|dir| !dir.is_empty()).map(str::to_owned));
        }
        out.extend(expanded(path, &elf.runpath));
        out.extend(self.usual.iter().cloned());
        out
    }

    fn glibc(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        self.configured("/etc/ld.so.conf", &mut out, 0);
        out.extend(GLIBC.map(str::to_owned));
        out
    }

    /// The directories of a file of ldconfig(8), and of those that it includes.
    fn configured(&mut self, path: &str, out: &mut Vec<String>, depth: usize) {
        let Ok(bytes) = self.container.read(path.as_bytes()) else { return };
        for line in text(&bytes).lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.strip_prefix("include") {
                Some(pattern) if depth < 4 => {
                    for included in self.matching(pattern.trim()) {
                        self.configured(&included, out, depth + 1);
                    }
                }
                None if line.starts_with('/') => out.push(line.to_owned()),
                _ => {}
            }
        }
    }

    /// Paths of the form `/etc/ld.so.conf.d/*.conf`.
    fn matching(&mut self, pattern: &str) -> Vec<String> {
        let Some((dir, last)) = pattern.rsplit_once('/') else { return Vec::new() };
        let Some((before, after)) = last.split_once('*') else { return vec![pattern.to_owned()] };
        let names = self.container.names(dir.as_bytes()).unwrap_or_default();
        let names = names.iter().map(|name| text(name));
        names
            .filter(|name| name.starts_with(before) && name.ends_with(after))
            .map(|name| format!("{dir}/{name}"))
            .collect()
    }

    fn musl(&mut self) -> Vec<String> {
        match self.container.read(b"/etc/ld-musl-x86_64.path") {
            Ok(bytes) => {
                text(&bytes).split([':', '\n']).filter(|d| !d.is_empty()).map(str::to_owned).collect()
            }
            Err(_) => MUSL.map(str::to_owned).to_vec(),
        }
    }
}

/// Directories of DT_RPATH or DT_RUNPATH: $ORIGIN is that of the file that has them.
fn expanded(path: &str, list: &[String]) -> Vec<String> {
    let origin = path.rsplit_once('/').map_or(".", |(dir, _)| dir);
    let expand = |dir: &String| dir.replace("${ORIGIN}", origin).replace("$ORIGIN", origin);
    list.iter().filter(|dir| !dir.is_empty()).map(expand).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreter() {
        let of = |script: &str| {
            interpreter(script.as_bytes())
                .map(|(path, words)| (text(&path), words.iter().map(|w| text(w)).collect()))
        };
        assert_eq!(
            of("#! /usr/bin/env -S python3 -u\nx"),
            Some(("/usr/bin/env".into(), vec!["-S".into(), "python3".into(), "-u".into()]))
        );
        assert_eq!(of("#!/bin/sh"), Some(("/bin/sh".into(), vec![])));
        assert_eq!(of("\x7fELF"), None::<(String, Vec<String>)>);
    }

    #[test]
    fn origin_is_the_directory_of_the_file() {
        assert_eq!(
            expanded("/opt/x/bin/prog", &["$ORIGIN/../lib".into(), "/a".into()]),
            ["/opt/x/bin/../lib", "/a"]
        );
    }
}
