//! A corpus in a bucket, which campaigns on several machines share (`--corpus s3://bucket/prefix`).
//!
//! Key type: [`Shared`]. The campaign works on a directory, as always. What the bucket has is brought there before ([`Shared::bring`]), and what is new is put into
//! the bucket at the end ([`Shared::hand_on`]); what the campaign took out is taken out there too, by one process at a time.
//!
//! In the bucket there are `corpus.json` and `entries/<hash>.json` with the bytes that the directory has, and `trim` while a process takes entries out.
//!
//! Neighbours: `bloodhound_store` (the bucket), `bloodhound_corpus::EntryFiles` (the directory), `campaign::begin`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bloodhound_corpus::{EntryFiles, about, is_entry, is_of_this_version};
use bloodhound_store::{Place, Store, token};

use super::failure;
use crate::output;
use crate::session::Failure;

/// What says that it is a corpus.
const ABOUT: &str = "corpus.json";
/// Where the entries are.
const ENTRIES: &str = "entries/";
/// The token of the process that takes entries out.
const TRIM: &str = "trim";
/// Who takes entries out for longer than so many seconds was killed.
const LONGEST_TRIM: u64 = 900;
/// The file of the directory that names the bucket and the entries that it has had.
const KNOWN: &str = "bucket";

/// See the module's text.
#[derive(Debug)]
pub struct Shared {
    store: Store,
    dir: PathBuf,
    files: EntryFiles,
    /// What the bucket has had, as far as this directory knows: what is not there any more was taken out.
    before: BTreeSet<String>,
}

/// What became of the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedOn {
    /// Entries that were put into it.
    pub added: u64,
    /// Entries that were taken out of it.
    pub removed: u64,
    /// Why others stay in it.
    pub trouble: Option<String>,
}

/// What an earlier campaign with this directory knew of the bucket.
fn handed_on_before(dir: &Path, place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(KNOWN)).unwrap_or_default();
    let mut lines = text.lines().map(str::to_owned);
    match lines.next() {
        Some(of) if of == place.to_string() => lines.filter(|name| is_entry(name)).collect(),
        _ => Vec::new(),
    }
}

fn broken(error: bloodhound_store::Error) -> Failure {
    Failure::environment(format!("the corpus cannot be shared: {error}"))
}

impl Shared {
    /// Brings what the bucket has into a directory, whose own entries stay.
    ///
    /// # Errors
    /// What the store says; a bucket whose corpus is of another version.
    pub fn bring(place: &Place, dir: &Path) -> Result<Shared, Failure> {
        let store = Store::open(place).map_err(broken)?;
        let there = match store.get(ABOUT).map_err(broken)? {
            None if store.create(ABOUT, about().as_bytes()).map_err(broken)? => None,
            // Another process has made it just now.
            None => store.get(ABOUT).map_err(broken)?,
            there => there,
        };
        if let Some(there) = there {
            is_of_this_version(&format!("{place}/{ABOUT}"), &there).map_err(failure)?;
        }
        let files = EntryFiles::of(dir).map_err(failure)?;
        let own: BTreeSet<String> = files.names().map_err(failure)?.into_iter().collect();
        let mut before = BTreeSet::new();
        for name in names(&store)? {
            if !own.contains(&name) {
                // Another process may just have taken it out.
                let Some(bytes) = store.get(&format!("{ENTRIES}{name}")).map_err(broken)? else { continue };
                files.add(&name, &bytes).map_err(failure)?;
            }
            before.insert(name);
        }
        // An earlier campaign with this directory may have put there what another machine has taken out.
        before.extend(handed_on_before(dir, place));
        Ok(Shared { store, dir: dir.to_path_buf(), files, before })
    }

    /// Puts what is new into the bucket, and takes out what the campaign has taken out of its directory.
    ///
    /// # Errors
    /// What the store says, and where everything still is.
    pub fn hand_on(&self) -> Result<HandedOn, Failure> {
        self.hand_on_all().map_err(|failure| {
            let (dir, place) = (self.dir.display(), self.store.place());
            let text = format!(
                "{}\nall entries are in {dir}: the next campaign with `--corpus {place}` and this directory of reports puts them into the bucket",
                failure.text
            );
            Failure { text, ..failure }
        })
    }

    fn hand_on_all(&self) -> Result<HandedOn, Failure> {
        let own: BTreeSet<String> = self.files.names().map_err(failure)?.into_iter().collect();
        let there = names(&self.store)?;
        let mut added = 0;
        // What was there and is not any more, another process has taken out: others show the same.
        for name in own.iter().filter(|name| !there.contains(*name) && !self.before.contains(*name)) {
            let Some(bytes) = self.files.read(name).map_err(failure)? else { continue };
            self.store.put(&format!("{ENTRIES}{name}"), &bytes).map_err(broken)?;
            added += 1;
        }
        let known: Vec<&String> = own.union(&self.before).collect();
        let text = std::iter::once(self.store.place().to_string()).chain(known.into_iter().cloned());
        let text = text.collect::<Vec<_>>().join("\n");
        output::write_file(&self.dir.join(KNOWN), text).map_err(|e| Failure::environment(e.to_string()))?;
        let out: Vec<&String> =
            self.before.iter().filter(|name| !own.contains(*name) && there.contains(*name)).collect();
        let removed = if out.is_empty() { Ok(0) } else { self.take_out(&own, &out) };
        // Nothing is lost by that: the next campaign takes them out.
        let (removed, trouble) =
            removed.map_or_else(|failure| (0, Some(failure.text)), |count| (count, None));
        Ok(HandedOn { added, removed, trouble })
    }

    /// Takes entries out, if nobody else does so now, and everything is there by which they were found to be superfluous: two processes that each keep
    /// another one of two entries must not take out both.
    fn take_out(&self, own: &BTreeSet<String>, out: &[&String]) -> Result<u64, Failure> {
        let random = token().map_err(|e| Failure::environment(format!("no random numbers: {e}")))?;
        let token = format!("{random} {}", seconds());
        if !self.store.create(TRIM, token.as_bytes()).map_err(broken)? {
            // One that was killed is in nobody's way for long: the next campaign may take entries out.
            if let Some(by) = self.store.get(TRIM).map_err(broken)?
                && is_of_a_killed_one(&by, seconds())
            {
                self.store.remove(TRIM).map_err(broken)?;
            }
            return Ok(0);
        }
        let removed = self.take_out_as(&token, own, out);
        if self.has_token(&token)? {
            self.store.remove(TRIM).map_err(broken)?;
        }
        removed
    }

    fn take_out_as(&self, token: &str, own: &BTreeSet<String>, out: &[&String]) -> Result<u64, Failure> {
        let mut removed = 0;
        if own.is_subset(&names(&self.store)?) {
            for name in out {
                if !self.has_token(token)? {
                    break;
                }
                self.store.remove(&format!("{ENTRIES}{name}")).map_err(broken)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn has_token(&self, token: &str) -> Result<bool, Failure> {
        Ok(self.store.get(TRIM).map_err(broken)?.is_some_and(|by| by == token.as_bytes()))
    }
}

/// Seconds of the host's clock.
fn seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Whether who has this token has been at it for so long that it must have been killed.
fn is_of_a_killed_one(token: &[u8], now: u64) -> bool {
    let text = String::from_utf8_lossy(token);
    let begun = text.split(' ').nth(1).and_then(|seconds| seconds.parse::<u64>().ok());
    begun.is_none_or(|begun| now.saturating_sub(begun) > LONGEST_TRIM)
}

/// The entries of a bucket. What is called otherwise is none.
fn names(store: &Store) -> Result<BTreeSet<String>, Failure> {
    let keys = store.list(ENTRIES).map_err(broken)?;
    Ok(keys
        .iter()
        .filter_map(|key| key.strip_prefix(ENTRIES))
        .filter(|name| is_entry(name))
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is in them: nothing here looks into an entry.
    fn entry(number: u8) -> String {
        format!("{number:032x}.json")
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("bloodhound-shared-{}-{name}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&dir);
        dir
    }

    fn put(shared: &Shared, number: u8) {
        shared.files.add(&entry(number), &[number]).expect("added");
    }

    fn take(shared: &Shared, number: u8) {
        std::fs::remove_file(shared.dir.join(ENTRIES).join(entry(number))).expect("there");
    }

    fn there(shared: &Shared) -> Vec<String> {
        names(&shared.store).expect("listed").into_iter().collect()
    }

    /// A store with two entries, and who put them there.
    fn with_two(dir: &Path) -> (Place, Shared) {
        let place = Place::Directory(dir.join("store"));
        let first = Shared::bring(&place, &dir.join("first")).expect("brought");
        put(&first, 1);
        put(&first, 2);
        assert_eq!(first.hand_on().expect("handed on"), HandedOn { added: 2, ..HandedOn::default() });
        (place, first)
    }

    #[test]
    fn what_one_has_found_the_next_one_has() {
        let dir = scratch("next");
        let (place, first) = with_two(&dir);
        let second = Shared::bring(&place, &dir.join("second")).expect("brought");
        assert_eq!(second.files.names().expect("names"), [entry(1), entry(2)]);
        put(&second, 3);
        take(&second, 1);
        assert_eq!(second.hand_on().expect("handed on"), HandedOn { added: 1, removed: 1, trouble: None });
        assert_eq!(there(&first), [entry(2), entry(3)]);
        // A directory that is used again does not bring back what others have taken out.
        let again = Shared::bring(&place, &dir.join("first")).expect("brought");
        assert_eq!(again.hand_on().expect("handed on"), HandedOn::default());
        assert_eq!(there(&first), [entry(2), entry(3)]);
        assert_eq!(first.store.get(TRIM).expect("read"), None);
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn two_that_keep_one_each_do_not_lose_both_and_bring_none_back() {
        let dir = scratch("both");
        let (place, first) = with_two(&dir);
        let [a, b] = ["a", "b"].map(|name| Shared::bring(&place, &dir.join(name)).expect("brought"));
        take(&a, 1);
        take(&b, 2);
        assert_eq!(a.hand_on().expect("handed on").removed, 1);
        assert_eq!(b.hand_on().expect("handed on").removed, 0);
        assert_eq!(there(&first), [entry(2)]);
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn who_was_killed_while_it_took_out_holds_nobody_up_for_long() {
        let dir = scratch("killed");
        let (place, first) = with_two(&dir);
        let token = |since: u64| format!("0123 {}", seconds() - since);
        first.store.put(TRIM, token(60).as_bytes()).expect("written");
        let next = |name: &str| {
            let next = Shared::bring(&place, &dir.join(name)).expect("brought");
            take(&next, 1);
            next.hand_on().expect("handed on").removed
        };
        assert_eq!((next("a"), next("b")), (0, 0), "another one is at it");
        first.store.put(TRIM, token(LONGEST_TRIM + 60).as_bytes()).expect("written");
        assert_eq!((next("c"), next("d")), (0, 1), "it was killed");
        assert_eq!(first.store.get(TRIM).expect("read"), None);
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn a_corpus_of_a_newer_version_is_refused() {
        let dir = scratch("newer");
        let place = Place::Directory(dir.join("store"));
        let store = Store::open(&place).expect("a store");
        store.put(ABOUT, br#"{"bloodhound":"corpus","format":99}"#).expect("written");
        let refused = Shared::bring(&place, &dir.join("first")).expect_err("newer");
        assert!(refused.text.contains("store/corpus.json was made by a newer version"), "{}", refused.text);
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
