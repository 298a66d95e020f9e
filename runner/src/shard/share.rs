//! What a process puts into the store of its campaign, where others and `bloodhound merge` find it.
//!
//! Key types: [`Campaign`] (campaign.json, made by who comes first; the others must be of the same campaign), [`Share`] (what this process adds),
//! [`Heart`] (a thread that tells that it lives, and looks whether all are to stop).
//!
//! In a store there are: `campaign.json`; `results/<part>/<token>/` with the files of a shard, or with the lines of a range of seeds and their
//! findings; `claims/`, `done/`, `beats/` ([`super::claims`]); and `stop`, once a finding has ended a campaign with `--fail-fast`. The token names
//! a process, so nobody writes over what another one wrote.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bloodhound_store::{LONGEST, Place, Store, token};
use serde::{Deserialize, Serialize};

use super::claims::Claims;
use super::{FORMAT, Identity, MANIFEST, Manifest, Part, RESULTS, results};
use crate::campaign::record::SeedRecord;
use crate::session::Failure;
use crate::{coverage, exit, finding, output, redact};

/// The campaign of a store.
pub const CAMPAIGN: &str = "campaign.json";
/// Where results are.
pub const PARTS: &str = "results/";
/// Written when a finding that is not known ends the campaign.
pub const STOP: &str = "stop";
/// What a worker's last beat says.
pub const LAST_BEAT: &[u8] = b"ended";
/// The most seeds that a worker takes at once.
const LARGEST_BLOCK: u64 = 100;
/// About how many ranges a campaign has.
const BLOCKS: u64 = 64;
/// How often a heart looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// It beats at least so often.
const SLOWEST_BEAT: Duration = Duration::from_secs(5);

/// campaign.json.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// Version of the format.
    pub format: u32,
    #[serde(flatten)]
    pub identity: Identity,
    /// Its seeds: the first, and how many.
    pub first_seed: u64,
    pub seeds: u64,
    /// How many a worker takes at once.
    pub block: u64,
    /// After so many ms without a beat a worker is taken for dead.
    pub stale_ms: u64,
}

impl Campaign {
    /// That of a manifest.
    pub fn of(manifest: &Manifest, stale: Duration) -> Campaign {
        Campaign {
            format: FORMAT,
            identity: manifest.identity.clone(),
            first_seed: manifest.first_seed,
            seeds: manifest.seeds,
            block: (manifest.seeds / BLOCKS).clamp(1, LARGEST_BLOCK),
            stale_ms: u64::try_from(stale.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it; `at` is where it comes from.
    pub fn parse(at: &str, bytes: &[u8]) -> Result<Campaign, String> {
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| format!("{at}: {e}"))?;
        if value["format"] != FORMAT {
            return Err(format!(
                "{at}: it has format {}, this version of Bloodhound reads format {FORMAT}",
                value["format"]
            ));
        }
        let campaign: Campaign = serde_json::from_value(value).map_err(|e| format!("{at}: {e}"))?;
        let last = campaign.seeds.checked_sub(1).and_then(|last| campaign.first_seed.checked_add(last));
        match last.is_some() && campaign.block > 0 {
            true => Ok(campaign),
            false => Err(format!("{at}: it names seeds that there cannot be")),
        }
    }

    /// How many ranges it has.
    pub fn blocks(&self) -> u64 {
        self.seeds.div_ceil(self.block)
    }

    /// The seeds of a range: the first, and how many.
    pub fn range(&self, block: u64) -> (u64, u64) {
        let before = block * self.block;
        (self.first_seed + before, self.block.min(self.seeds - before))
    }

    /// The range of a seed.
    pub fn block_of(&self, seed: u64) -> Option<u64> {
        let place = seed.checked_sub(self.first_seed).filter(|place| *place < self.seeds)?;
        Some(place / self.block)
    }
}

/// The range as a part of keys.
pub fn block_name(block: u64) -> String {
    format!("block-{block:08}")
}

/// What this process adds to a store.
#[derive(Debug)]
pub struct Share {
    store: Arc<Store>,
    token: String,
    part: Part,
    /// What it takes seeds by, if they are not its own from the beginning.
    pub claims: Option<Arc<Claims>>,
    fail_fast: bool,
    heart: Heart,
    /// Seeds of its ranges that have come to an end and are not in the store.
    waiting: std::collections::BTreeMap<u64, Vec<SeedRecord>>,
}

impl Share {
    /// Opens the store and enters the campaign, or begins it.
    ///
    /// # Errors
    /// What the store says; another campaign in it.
    pub fn begin(
        place: &Place,
        manifest: &Manifest,
        stale: Duration,
        fail_fast: bool,
    ) -> Result<Share, Failure> {
        let environment = |e: bloodhound_store::Error| Failure::environment(e.to_string());
        let store = Arc::new(Store::open(place).map_err(environment)?);
        let own = Campaign::of(manifest, stale);
        let text = serde_json::to_string_pretty(&own).unwrap_or_default() + "\n";
        let campaign = match store.create(CAMPAIGN, redact::json(&text).as_bytes()).map_err(environment)? {
            true => own,
            false => {
                let there = entered(&store, &own)?;
                if matches!(manifest.part, Part::Worker(_)) && there.stale_ms != own.stale_ms {
                    output::eprint(&format!(
                        "bloodhound: the campaign began with a --worker-timeout of {} ms, which holds for all its workers; that of \
                         this one, {} ms, has no effect\n",
                        there.stale_ms, own.stale_ms
                    ));
                }
                there
            }
        };
        let token = token().map_err(|e| Failure::environment(format!("/dev/urandom: {e}")))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let heart = Heart::start(place, &token, &campaign, fail_fast.then(|| stopped.clone()))
            .map_err(environment)?;
        let claims = match &manifest.part {
            Part::Worker(name) => {
                Some(Arc::new(Claims::new(store.clone(), campaign, name.clone(), token.clone(), stopped)))
            }
            Part::All | Part::Shard(_) => None,
        };
        let (part, waiting) = (manifest.part.clone(), std::collections::BTreeMap::new());
        Ok(Share { store, token, part, claims, fail_fast, heart, waiting })
    }

    /// Whether a finding of another process has ended the campaign.
    pub fn stopped(&self) -> Option<Arc<AtomicBool>> {
        self.heart.stopped.clone()
    }

    /// Tells others that this process is there, before it runs anything.
    ///
    /// # Errors
    /// For the user.
    pub fn announce(&self, dir: &Path) -> Result<(), Failure> {
        self.send(dir, MANIFEST, &self.key(MANIFEST)).map_err(Failure::environment)
    }

    /// A seed has come to an end. When those of a range have, others see them.
    ///
    /// # Errors
    /// For the user.
    pub fn record(&mut self, dir: &Path, record: &SeedRecord) -> Result<(), String> {
        if self.fail_fast && record.has_news() {
            let text = format!("seed {}\n", record.seed);
            self.store.put(STOP, text.as_bytes()).map_err(|e| e.to_string())?;
        }
        let Some(claims) = self.claims.clone() else { return Ok(()) };
        let Some(block) = claims.campaign.block_of(record.seed) else { return Ok(()) };
        let waiting = self.waiting.entry(block).or_default();
        waiting.push(record.clone());
        if waiting.len() as u64 == claims.campaign.range(block).1 {
            let records = std::mem::take(waiting);
            self.waiting.remove(&block);
            self.block(dir, block, &records)?;
            // What another worker may have a verdict on is left to others.
            if !records.iter().any(SeedRecord::is_to_be_run_again) {
                claims.done(block).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Puts everything that is not there into the store; shard.json last, which says that it is all.
    ///
    /// # Errors
    /// For the user.
    pub fn end(&mut self, dir: &Path, manifest: &Manifest) -> Result<(), String> {
        for (block, records) in std::mem::take(&mut self.waiting) {
            self.block(dir, block, &records)?;
        }
        if self.claims.is_none() {
            let text = std::fs::read_to_string(dir.join(RESULTS))
                .map_err(|e| format!("{}: {e}", dir.join(RESULTS).display()))?;
            for record in results::read(RESULTS, text.as_bytes())? {
                self.findings(dir, &record, &self.key(""))?;
            }
            self.send(dir, RESULTS, &self.key(RESULTS))?;
        }
        if manifest.identity.code.is_some() && dir.join(coverage::REPORT).exists() {
            self.send(dir, coverage::REPORT, &self.key(coverage::REPORT))?;
        }
        self.send(dir, MANIFEST, &self.key(MANIFEST))?;
        self.heart.stop();
        self.store.put(&beat(&self.token), LAST_BEAT).map_err(|e| e.to_string())
    }

    /// The key of a file of this process.
    fn key(&self, file: &str) -> String {
        let part = match &self.part {
            Part::All => "all".to_owned(),
            Part::Shard(shard) => format!("shard-{}-of-{}", shard.index, shard.of),
            Part::Worker(name) => format!("worker-{name}"),
        };
        format!("{PARTS}{part}/{}/{file}", self.token)
    }

    /// The seeds of a range, their findings first.
    fn block(&self, dir: &Path, block: u64, records: &[SeedRecord]) -> Result<(), String> {
        let below = format!("{PARTS}{}/{}/", block_name(block), self.token);
        let mut lines = String::new();
        for record in records {
            self.findings(dir, record, &below)?;
            lines.push_str(&redact::json(&results::line(record)));
        }
        self.store.put(&format!("{below}{RESULTS}"), lines.as_bytes()).map_err(|e| e.to_string())
    }

    fn findings(&self, dir: &Path, record: &SeedRecord, below: &str) -> Result<(), String> {
        for found in &record.findings {
            let Ok(kept) = &found.kept else { continue };
            let Some(name) = kept.file_name().and_then(|name| name.to_str()) else { continue };
            let from = finding::directory(dir).join(name);
            for file in files(&from).map_err(|e| format!("{}: {e}", from.display()))? {
                let path = format!("findings/{name}/{file}");
                self.send(dir, &path, &format!("{below}{}", encoded(&path)))?;
            }
        }
        Ok(())
    }

    fn send(&self, dir: &Path, file: &str, key: &str) -> Result<(), String> {
        let path = dir.join(file);
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        self.store.put(key, &bytes).map_err(|e| e.to_string())
    }
}

/// The files below a directory, by their paths in it. Links are left out.
///
/// # Errors
/// The host's.
pub fn files(dir: &Path) -> std::io::Result<Vec<String>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            out.extend(files(&entry.path())?.into_iter().map(|file| format!("{name}/{file}")));
        } else if entry.file_type()?.is_file() {
            out.push(name);
        }
    }
    out.sort();
    Ok(out)
}

/// What stands where a part of a path goes on that is too long for a key.
const GOES_ON: &str = "_-/";

/// A path as keys can have it: what cannot be in one is `_` and two hexadecimal digits for each byte, and long names are cut.
pub fn encoded(path: &str) -> String {
    let part = |part: &str| -> String {
        let (mut out, mut begins) = (String::new(), 0);
        for byte in part.bytes() {
            // The longest that a byte can become still fits.
            if out.len() - begins + 3 + GOES_ON.len() > LONGEST {
                out.push_str(GOES_ON);
                begins = out.len();
            }
            match byte {
                b'.' if out.len() == begins => out.push_str("_2e"),
                b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.') => out.push(char::from(b)),
                b => out.push_str(&format!("_{b:02x}")),
            }
        }
        out
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The path of a key; `None` if it is none that leads below a directory.
pub fn decoded(key: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'_' => {
                let digits = [rest.next()?, rest.next()?];
                if digits == GOES_ON.as_bytes()[1..] {
                    continue;
                }
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let path = String::from_utf8(bytes).ok()?;
    let fits = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.split('/').all(fits).then_some(path)
}

/// The campaign that is in the store already, if it is this one.
fn entered(store: &Store, own: &Campaign) -> Result<Campaign, Failure> {
    let at = format!("{}/{CAMPAIGN}", store.place());
    let bytes = store.get(CAMPAIGN).map_err(|e| Failure::environment(e.to_string()))?;
    let bytes = bytes.ok_or_else(|| Failure::environment(format!("{at} has vanished")))?;
    let there = Campaign::parse(&at, &bytes).map_err(Failure::environment)?;
    let seeds = |c: &Campaign| format!("{} seeds from {} on", c.seeds, c.first_seed);
    let difference = own.identity.difference(&there.identity);
    let difference = difference
        .or_else(|| (seeds(own) != seeds(&there)).then(|| format!("{} and {}", seeds(own), seeds(&there))));
    match difference {
        None => Ok(there),
        Some(difference) => Err(Failure {
            code: exit::USAGE,
            text: format!(
                "{} is the store of another campaign: this one and that one have different {difference}\nhelp: give each campaign a \
                 place of its own, for example s3://bucket/<id of the run>, and all its shards the same files and options",
                store.place()
            ),
        }),
    }
}

/// The key of a process's beats.
pub fn beat(token: &str) -> String {
    format!("beats/{token}")
}

/// A thread that tells others that this process lives, with a store of its own: an upload must not keep it from that.
#[derive(Debug)]
pub struct Heart {
    over: Arc<AtomicBool>,
    stopped: Option<Arc<AtomicBool>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Heart {
    fn start(
        place: &Place,
        token: &str,
        campaign: &Campaign,
        stopped: Option<Arc<AtomicBool>>,
    ) -> Result<Heart, bloodhound_store::Error> {
        let store = Store::open(place)?;
        let every = Duration::from_millis(campaign.stale_ms / 6).clamp(LOOK, SLOWEST_BEAT);
        let (over, key) = (Arc::new(AtomicBool::new(false)), beat(token));
        let (ends, tells) = (over.clone(), stopped.clone());
        let thread = std::thread::spawn(move || {
            let mut said = false;
            let mut number = 0u64;
            while !ends.load(Ordering::Relaxed) {
                let began = Instant::now();
                number += 1;
                let looked = store.put(&key, format!("{number}\n").as_bytes()).and_then(|()| match &tells {
                    Some(_) => store.get(STOP).map(|stop| stop.is_some()),
                    None => Ok(false),
                });
                match (looked, &tells) {
                    (Ok(true), Some(tells)) => tells.store(true, Ordering::Relaxed),
                    (Err(error), _) if !said => {
                        said = true;
                        output::eprint(&format!(
                            "bloodhound: warning: others may take this process for dead: {error}\n"
                        ));
                    }
                    _ => {}
                }
                while began.elapsed() < every && !ends.load(Ordering::Relaxed) {
                    std::thread::sleep(LOOK);
                }
            }
        });
        Ok(Heart { over, stopped, thread: Some(thread) })
    }

    fn stop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic; if it did, it is over all the same.
            let _ignored = thread.join();
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop();
    }
}
