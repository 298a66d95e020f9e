//! The user's source, and which of its files a path of a program means.
//!
//! A program names the files that it was built of by their paths in its build, often in a container where the checkout lay
//! elsewhere. [`Checkout::map`] finds them by what is common at the ends of paths, by DWARF 5's digests of files, and by the
//! configuration's `path_map`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

/// Files of a checkout, at most. More than this is a home directory or a disk.
const MOST_FILES: usize = 400_000;
/// Directories below which nothing is source that a service is built of: they may have very many files.
const SKIPPED: &[&str] =
    &[".git", ".hg", ".svn", "node_modules", "target", ".venv", "__pycache__", ".bloodhound"];

/// The source files below a directory.
#[derive(Clone, Debug, Default)]
pub struct Checkout {
    root: PathBuf,
    /// Paths below the root with `/`, sorted.
    files: Vec<String>,
    /// Last part of a path, and its files.
    by_name: BTreeMap<String, Vec<u32>>,
}

/// A source file as a program names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    /// Its path in the build, absolute if the program knows it, without `.` and `..`.
    pub path: String,
    /// MD5 of its bytes, where the program has that.
    pub md5: Option<[u8; 16]>,
}

/// What a source file of a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    /// This file of the checkout, by its path there.
    File(String),
    /// This file of the checkout, whose text is not that of the build.
    Changed(String),
    /// Several files of the checkout fit equally well.
    Ambiguous(String, String),
    /// None of them.
    Outside,
}

/// A way in which paths of the build become paths of the checkout: what stands before the common end in both.
type Root = (String, String);

impl Checkout {
    /// Lists the files below `root`.
    ///
    /// # Errors
    /// If `root` is no directory that can be read, or has too many files.
    pub fn scan(root: &Path) -> io::Result<Checkout> {
        let root = root.canonicalize()?;
        let (mut files, mut todo) = (Vec::new(), vec![(root.clone(), String::new())]);
        while let Some((directory, below)) = todo.pop() {
            let entries = match std::fs::read_dir(&directory) {
                Ok(entries) => entries,
                // A directory below that cannot be read has no source that anybody could show.
                Err(_) if !below.is_empty() => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let kind = entry.file_type()?;
                if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                    todo.push((entry.path(), format!("{below}{name}/")));
                } else if kind.is_file() {
                    files.push(format!("{below}{name}"));
                }
            }
            if files.len() > MOST_FILES {
                let what = format!("{} has more than {MOST_FILES} files", root.display());
                return Err(io::Error::other(what));
            }
        }
        Ok(Checkout::of(root, files))
    }

    /// A checkout with these files, by their paths below `root`.
    pub fn of(root: PathBuf, mut files: Vec<String>) -> Checkout {
        files.sort_unstable();
        files.dedup();
        let mut by_name: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (index, file) in (0..).zip(&files) {
            let name = file.rsplit('/').next().unwrap_or(file);
            by_name.entry(name.to_owned()).or_default().push(index);
        }
        Checkout { root, files, by_name }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Paths of all files below the root.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Whether there is a file with this path.
    pub fn has(&self, path: &str) -> bool {
        self.files.binary_search_by(|file| file.as_str().cmp(path)).is_ok()
    }

    /// The text of a file, with what is not UTF-8 replaced. `None` if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = self.has(path).then(|| std::fs::read(self.root.join(path)).ok())??;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether some file has the last part of this path as its name: no other path can mean one of them.
    pub fn has_name(&self, path: &str) -> bool {
        self.by_name.contains_key(path.rsplit('/').next().unwrap_or(path))
    }

    /// Which file of the checkout a name that some tool wrote means: its own path, or the longest common end. `None` if none or
    /// several fit.
    pub fn find(&self, name: &str, path_map: &[(String, String)]) -> Option<String> {
        let named = Named { path: normal("", name), md5: None };
        match self.map(&[named], path_map).pop() {
            Some(Meant::File(path)) => Some(path),
            _ => None,
        }
    }

    /// What the files of one program are.
    pub(crate) fn map(&self, names: &[Named], path_map: &[(String, String)]) -> Vec<Meant> {
        let guesses: Vec<Guess> = names.iter().map(|named| self.guess(named, path_map)).collect();
        let trust = Trust::new(&guesses);
        guesses.into_iter().map(|guess| trust.judge(guess)).collect()
    }

    /// What one file may be, without regard to the others.
    fn guess(&self, named: &Named, path_map: &[(String, String)]) -> Guess {
        let mapped = path_map.iter().find_map(|(from, to)| {
            let from = from.trim_end_matches('/');
            // A file may be mapped as well, as one that is mounted by itself.
            let to = match below(&named.path, from) {
                Some(rest) => format!("{}/{rest}", to.trim_end_matches('/')),
                None if named.path == from => to.clone(),
                None => return None,
            };
            Some(normal(&self.root.to_string_lossy(), &to))
        });
        let path = mapped.as_ref().unwrap_or(&named.path);
        if let Some(file) = below(path, &self.root.to_string_lossy()).filter(|file| self.has(file)) {
            return match self.same(file, named.md5) {
                Some(false) => Guess::Changed(file.to_owned(), None),
                _ if mapped.is_some() => Guess::Certain(file.to_owned()),
                _ => Guess::Here(file.to_owned()),
            };
        }
        if mapped.is_some() || named.path.is_empty() || foreign(&named.path) {
            return Guess::Foreign;
        }
        self.by_end(named)
    }

    /// The file with the longest common end.
    fn by_end(&self, named: &Named) -> Guess {
        let name = named.path.rsplit('/').next().unwrap_or_default();
        let candidates = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut best: (usize, Vec<&str>) = (0, Vec::new());
        for file in candidates.iter().map(|index| self.files[*index as usize].as_str()) {
            let parts = common_end(file, &named.path);
            if parts > best.0 {
                best = (parts, Vec::new());
            }
            if parts == best.0 {
                best.1.push(file);
            }
        }
        let (parts, mut files) = best;
        if files.is_empty() {
            return Guess::None;
        }
        if named.md5.is_some() {
            let same: Vec<&str> =
                files.iter().copied().filter(|f| self.same(f, named.md5) == Some(true)).collect();
            match (same.first(), files.len()) {
                (Some(file), _) => return Guess::Certain((*file).to_owned()),
                (None, 1) => {
                    return Guess::Changed(files[0].to_owned(), Some(root_of(files[0], &named.path, parts)));
                }
                (None, _) => return Guess::None,
            }
        }
        // A file all of whose path is in the name is a better fit than one that has more before it.
        if files.len() > 1 {
            let whole: Vec<&str> =
                files.iter().copied().filter(|file| file.split('/').count() == parts).collect();
            match whole[..] {
                [file] => files = vec![file],
                _ => {
                    let (one, other) = (files[0].to_owned(), files[1].to_owned());
                    return Guess::Ambiguous { one, other, parts };
                }
            }
        }
        let (file, root) = (files[0].to_owned(), root_of(files[0], &named.path, parts));
        // The part of the path that is not in the checkout tells of a dependency.
        if root.0.split('/').any(|part| DEPENDENCIES.contains(&part)) {
            return Guess::None;
        }
        Guess::Likely { file, root, parts }
    }

    /// Whether a file of the checkout has these bytes. `None` if that is not known.
    fn same(&self, file: &str, md5: Option<[u8; 16]>) -> Option<bool> {
        let md5 = md5?;
        let mut source = std::fs::File::open(self.root.join(file)).ok()?;
        let (mut hash, mut buffer) = (Md5::new(), vec![0; 1 << 16]);
        loop {
            match source.read(&mut buffer).ok()? {
                0 => break,
                count => hash.update(&buffer[..count]),
            }
        }
        Some(hash.finalize()[..] == md5[..])
    }
}

/// What the guesses for all files of a program say about each.
struct Trust {
    /// How many files each pair of beginnings explains with at least a directory in common. A build has few such pairs; a file of a
    /// library that happens to have a common name stands alone.
    roots: BTreeMap<Root, usize>,
    /// Of two paths of the build that claim one file of the checkout, that of the more common root is right: the most that claim it.
    claims: BTreeMap<String, usize>,
    certain: BTreeSet<String>,
    /// Whether the build was made in the checkout itself: then its files have their own paths.
    here: bool,
    /// Whether names without any directory in common may be believed, as those of a program of few files must be.
    weak: bool,
}

impl Trust {
    fn new(guesses: &[Guess]) -> Trust {
        let mut roots: BTreeMap<Root, usize> = BTreeMap::new();
        let (mut certain, mut here, mut weak, mut unknown) = (BTreeSet::new(), false, 0, 0);
        for guess in guesses {
            match guess {
                Guess::Likely { root, parts: 2.., .. } => *roots.entry(root.clone()).or_default() += 1,
                Guess::Likely { .. } => weak += 1,
                Guess::Certain(file) => drop(certain.insert(file.clone())),
                Guess::Here(file) => {
                    here = true;
                    certain.insert(file.clone());
                }
                Guess::None => unknown += 1,
                Guess::Foreign | Guess::Changed(..) | Guess::Ambiguous { .. } => {}
            }
        }
        let mut claims: BTreeMap<String, usize> = BTreeMap::new();
        for guess in guesses {
            if let Guess::Likely { file, root, .. } = guess {
                let most = claims.entry(file.clone()).or_default();
                *most = roots.get(root).copied().unwrap_or(0).max(*most);
            }
        }
        let weak = roots.is_empty() && weak >= unknown;
        Trust { roots, claims, certain, here, weak }
    }

    fn judge(&self, guess: Guess) -> Meant {
        match guess {
            Guess::Certain(file) | Guess::Here(file) => Meant::File(file),
            Guess::Changed(file, None) => Meant::Changed(file),
            Guess::Changed(file, Some(root)) if self.roots.contains_key(&root) && !self.here => {
                Meant::Changed(file)
            }
            Guess::Ambiguous { one, other, parts } if !self.here && (parts > 1 || self.weak) => {
                Meant::Ambiguous(one, other)
            }
            Guess::Likely { file, root, .. } if !self.here && !self.certain.contains(&file) => {
                let weight = self.roots.get(&root).copied().unwrap_or(0);
                let trusted = (weight > 0 || self.weak) && Some(&weight) == self.claims.get(&file);
                if trusted { Meant::File(file) } else { Meant::Outside }
            }
            _ => Meant::Outside,
        }
    }
}

enum Guess {
    /// By its own path, below the checkout.
    Here(String),
    /// By its digest, or by the configuration.
    Certain(String),
    Likely {
        file: String,
        root: Root,
        /// How many parts are common at the end.
        parts: usize,
    },
    /// The file, and the root by which it was found; `None`: by its own path.
    Changed(String, Option<Root>),
    Ambiguous {
        one: String,
        other: String,
        /// How many parts are common at the end.
        parts: usize,
    },
    /// Of a compiler, a system or a package.
    Foreign,
    None,
}

/// Directories that hold what others wrote.
const DEPENDENCIES: &[&str] = &[
    "vendor",
    "node_modules",
    "third_party",
    "third-party",
    "_deps",
    "site-packages",
    "dist-packages",
    "registry",
];

/// Whether a path of a build belongs to a compiler, a system's library or a package manager's cache.
pub(crate) fn foreign(path: &str) -> bool {
    const BEGINNINGS: &[&str] = &[
        "/rustc/",
        "/rust/deps/",
        "/usr/include/",
        "/usr/lib/",
        "/usr/local/include/",
        "/usr/local/go/",
        "/usr/share/",
    ];
    const PARTS: &[&str] = &[
        "/.cargo/registry/",
        "/.cargo/git/",
        "/cargo/registry/",
        "/.rustup/",
        "/rustlib/src/",
        "/pkg/mod/",
        "/sysdeps/",
    ];
    BEGINNINGS.iter().any(|start| path.starts_with(start)) || PARTS.iter().any(|part| path.contains(part))
}

/// How many parts two paths have in common at their ends.
fn common_end(one: &str, other: &str) -> usize {
    one.rsplit('/').zip(other.rsplit('/')).take_while(|(a, b)| a == b).count()
}

/// What stands before the common end in both paths.
fn root_of(file: &str, path: &str, parts: usize) -> Root {
    let before = |path: &str| {
        let all: Vec<&str> = path.split('/').collect();
        all[..all.len().saturating_sub(parts)].join("/")
    };
    (before(path), before(file))
}

/// The rest of a path below a directory.
fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    if directory.is_empty() {
        return None;
    }
    path.strip_prefix(directory)?.strip_prefix('/')
}

/// `path`, below `directory` if it is relative, without `.`, `..` and double slashes.
pub(crate) fn normal(directory: &str, path: &str) -> String {
    let whole = if path.starts_with('/') || directory.is_empty() {
        path.to_owned()
    } else {
        format!("{directory}/{path}")
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if whole.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let start = if whole.starts_with('/') { "/" } else { "" };
    format!("{start}{}", parts.join("/"))
}

#[cfg(test)]
#[path = "checkout/tests.rs"]
mod tests;
