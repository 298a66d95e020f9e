//! Where the shards and workers of a campaign put what they found, and take what others found: a directory, or a bucket that speaks
//! S3.
//!
//! Key types: [`Store`], opened from what the user names ([`Place`]: a path, `file:///path`, `s3://bucket/prefix`), and [`Error`], which
//! says what was done, to which object, what the store answered and what can be done. An object appears whole or not at all;
//! [`Store::create`] is the one operation that decides between several writers. Nothing here knows what is stored.
//!
//! Modules: `place` (what the user writes), `directory`, `bucket` (feature `s3`). Neighbours: the command's `shard`, `merge` and `corpus`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the host side: nothing of it enters a world

#[cfg(feature = "s3")]
mod bucket;
mod directory;
mod place;

use std::io::Read;
use std::time::Duration;

pub use place::{LONGEST, Place};

/// The largest object that is read. What claims to be larger is refused before it is read.
pub const LARGEST: u64 = 512 << 20;
/// How often a request to a bucket is made again after an answer that says that this may help, or none.
pub const RETRIES: usize = 4;
/// How long it is tried altogether.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long one request may take.
pub const REQUEST: Duration = Duration::from_secs(30);
/// How long it may take until a connection is there.
pub const CONNECT: Duration = Duration::from_secs(5);

/// What went wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was done: `read`, `write`, `create`, `remove`, `list`, `open`.
    pub operation: &'static str,
    /// The object, with its store.
    pub object: String,
    /// What the store or the host said.
    pub why: String,
    /// What can be done.
    pub help: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {} {}: {}\nhelp: {}", self.operation, self.object, self.why, self.help)
    }
}

impl std::error::Error for Error {}

/// A store that was opened.
#[derive(Debug)]
pub struct Store {
    place: Place,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Directory(directory::Directory),
    #[cfg(feature = "s3")]
    Bucket(bucket::Bucket),
}

impl Store {
    /// Opens a store. A directory is made if it is not there; a bucket is not asked before the first operation.
    ///
    /// # Errors
    /// A directory that cannot be made; settings of the environment that cannot be used; a bucket, where this program was built
    /// without the feature.
    pub fn open(place: &Place) -> Result<Store, Error> {
        let inner = match place {
            Place::Directory(path) => Inner::Directory(directory::Directory::open(path)?),
            #[cfg(feature = "s3")]
            Place::Bucket { bucket, prefix } => Inner::Bucket(bucket::Bucket::open(bucket, prefix)?),
            #[cfg(not(feature = "s3"))]
            Place::Bucket { .. } => {
                return Err(Error {
                    operation: "open",
                    object: place.to_string(),
                    why: "this program was built without support for buckets".to_owned(),
                    help: "build it with the feature `s3`, or name a directory that all can reach".to_owned(),
                });
            }
        };
        Ok(Store { place: place.clone(), inner })
    }

    /// As the user named it.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// An object; `None` if there is none.
    ///
    /// # Errors
    /// What the store says; an object of more than [`LARGEST`] bytes.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        place::check(&self.place, "read", key)?;
        match &self.inner {
            Inner::Directory(directory) => directory.get(key),
            #[cfg(feature = "s3")]
            Inner::Bucket(bucket) => bucket.get(key),
        }
    }

    /// Writes an object, over what is there.
    ///
    /// # Errors
    /// What the store says; then there is the old object or none.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), Error> {
        place::check(&self.place, "write", key)?;
        match &self.inner {
            Inner::Directory(directory) => directory.put(key, bytes),
            #[cfg(feature = "s3")]
            Inner::Bucket(bucket) => bucket.put(key, bytes),
        }
    }

    /// Writes an object if there is none: of several writers with different bytes exactly one is told that it was the one. A
    /// writer whose own bytes are there already is told so too, since an answer can get lost.
    ///
    /// # Errors
    /// What the store says.
    pub fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, Error> {
        place::check(&self.place, "create", key)?;
        let created = match &self.inner {
            Inner::Directory(directory) => directory.create(key, bytes)?,
            #[cfg(feature = "s3")]
            Inner::Bucket(bucket) => bucket.create(key, bytes)?,
        };
        Ok(created || self.get(key)?.is_some_and(|there| there == bytes))
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// What the store says.
    pub fn remove(&self, key: &str) -> Result<(), Error> {
        place::check(&self.place, "remove", key)?;
        match &self.inner {
            Inner::Directory(directory) => directory.remove(key),
            #[cfg(feature = "s3")]
            Inner::Bucket(bucket) => bucket.remove(key),
        }
    }

    /// The keys of all objects below a prefix, which ends with `/` or is empty, sorted.
    ///
    /// # Errors
    /// What the store says.
    pub fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut keys = match &self.inner {
            Inner::Directory(directory) => directory.list(prefix)?,
            #[cfg(feature = "s3")]
            Inner::Bucket(bucket) => bucket.list(prefix)?,
        };
        keys.sort();
        Ok(keys)
    }
}

/// Sixteen hexadecimal digits that no other process has: for what is to be told from the same of others.
///
/// # Errors
/// The host's, if it has no random numbers.
pub fn token() -> std::io::Result<String> {
    let mut bytes = [0u8; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("bloodhound-store-{}-{name}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn objects_are_whole_and_listed() {
        let dir = scratch("whole");
        let store = Store::open(&Place::Directory(dir.clone())).expect("a store");
        assert_eq!(store.get("a/b"), Ok(None));
        assert_eq!(store.list("a/"), Ok(vec![]));
        store.put("a/b", b"one").expect("written");
        store.put("a/b", b"two").expect("written");
        store.put("a/c/d", b"").expect("written");
        std::fs::write(dir.join("a/.left-behind"), "half").expect("a file");
        assert_eq!(store.get("a/b"), Ok(Some(b"two".to_vec())));
        assert_eq!(store.list(""), Ok(vec!["a/b".to_owned(), "a/c/d".to_owned()]));
        assert_eq!(store.list("a/c/"), Ok(vec!["a/c/d".to_owned()]));
        store.put("a/e", b"gone").expect("written");
        assert_eq!((store.remove("a/e"), store.remove("a/e"), store.get("a/e")), (Ok(()), Ok(()), Ok(None)));
        assert_eq!(store.remove("a").expect_err("a directory").operation, "remove");
        let refused = store.get("a").expect_err("a directory");
        assert!(refused.operation == "read" && refused.object.ends_with("/a"), "{refused}");
        let deep = vec!["d"; 100].join("/");
        store.put(&deep, b"three").expect("written");
        assert_eq!(store.list("d/"), Ok(vec![deep]));
        let refused = store.put("a/b/c", b"x").expect_err("a file lies there");
        assert_eq!(refused.operation, "write");
        assert!(refused.to_string().contains("a/b/c") && refused.to_string().contains("help: "), "{refused}");
        assert!(store.put("../x", b"x").is_err() && store.get("/etc/passwd").is_err());
        std::fs::remove_dir_all(dir).expect("no directory");
    }

    #[test]
    fn of_many_writers_one_creates() {
        let dir = scratch("create");
        let place = Place::Directory(dir.clone());
        let won: Vec<u64> = std::thread::scope(|scope| {
            let writer = |number: u64| {
                let place = place.clone();
                scope.spawn(move || {
                    let store = Store::open(&place).expect("a store");
                    let created =
                        |claim: u64| store.create(&format!("claims/{claim}"), &number.to_le_bytes());
                    (0..50).filter(|claim| created(*claim).expect("an answer")).count() as u64
                })
            };
            let writers: Vec<_> = (0..4).map(writer).collect();
            writers.into_iter().map(|writer| writer.join().expect("it ended")).collect()
        });
        assert_eq!(won.iter().sum::<u64>(), 50, "{won:?}");
        // Who created it is told so again, if the answer was lost.
        let store = Store::open(&place).expect("a store");
        let there = store.get("claims/0").expect("read").expect("created");
        assert_eq!(store.create("claims/0", &there), Ok(true));
        assert_eq!(store.create("claims/0", b"another"), Ok(false));
        std::fs::remove_dir_all(dir).expect("no directory");
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_told() {
        let dir = scratch("refused");
        std::fs::write(&dir, "a file").expect("a file");
        let refused = Store::open(&Place::Directory(dir.clone())).expect_err("a file");
        assert!(refused.to_string().starts_with(&format!("cannot open {}", dir.display())), "{refused}");
        std::fs::remove_file(dir).expect("no file");
    }
}
