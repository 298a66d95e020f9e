//! [`Log`]: what a run is, besides its inputs: two seeds, epochs and overrides. Values that were drawn are no part of it: they are
//! recomputed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::lineage::Lineage;
use crate::site::{Concern, Site};

/// Version of the log's form in files, and of what its entries mean. 1 and 2 were lists of drawn numbers; 3 counted the pass from which
/// a forced switch of tasks came once more, so its switches would be made elsewhere.
pub const VERSION: u32 = 4;

/// Whether a choice was made while the stack booted or after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Until all services were ready. Many runs share a boot.
    Boot,
    /// From then on.
    Run,
}

/// A choice: a site in the boot or in the run. Written as `run:turn(...)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Choice {
    /// When.
    pub part: Part,
    /// Which.
    pub site: Site,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Boot => "boot",
            Part::Run => "run",
        };
        write!(f, "{part}:{}", self.site)
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let (part, site) = match text.split_once(':') {
            Some(("boot", site)) => (Part::Boot, site),
            Some(("run", site)) => (Part::Run, site),
            _ => return Err(format!("`{text}` names no choice: it begins with neither `boot:` nor `run:`")),
        };
        Ok(Choice { part, site: site.parse()? })
    }
}

/// A value that takes the place of the drawn one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// The bound with which the choice is asked for.
    pub bound: u64,
    /// The value.
    pub value: u64,
}

/// From a time on, some concerns have another seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Virtual time, ns.
    pub from: u64,
    /// The seed.
    pub seed: u64,
    /// The concerns.
    pub concerns: Vec<Concern>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// A loop whose passes are counted, because a task that only computes must be preempted there (`bloodhound-sim`, `computing`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountedLoop {
    /// From which step of the run on.
    pub step: u64,
    /// Which.
    pub place: String,
    /// So many bytes before it begin instructions that are executed one behind the other up to it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub straight: u8,
    /// The task that is preempted there in that step counts as endless from then on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endless: bool,
}

/// A task is made to give way to others right before it executes an instruction (`bloodhound-sim`, `switches`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForcedSwitch {
    /// The container of the task.
    pub node: u32,
    /// The life of its service.
    pub life: u32,
    /// The task.
    #[serde(with = "lineage_text")]
    pub task: Lineage,
    /// The instruction.
    pub place: String,
    /// At which of the task's passes of the instruction since the run began, from 1.
    pub nth: u64,
    /// The task has read what the instruction changes before it gives way, and writes what it makes of that afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub torn: bool,
}

mod lineage_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::lineage::Lineage;

    pub fn serialize<S: Serializer>(task: &Lineage, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(task)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Lineage, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom(format!("`{text}` names no task")))
    }
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Seed of the boot.
    pub boot_seed: u64,
    /// Seed of the run.
    pub seed: u64,
    /// In order of time.
    pub epochs: Vec<Epoch>,
    /// Values in place of drawn ones.
    pub overrides: BTreeMap<Choice, Override>,
    /// In order of steps.
    pub counted: Vec<CountedLoop>,
    /// Switches of tasks at instructions. `None`: they have not been drawn.
    pub switches: Option<Vec<ForcedSwitch>>,
    /// Concerns of which all choices after the boot are plain (0) unless there is an override.
    pub plain: Vec<Concern>,
}

impl Log {
    /// A run as its seeds have it.
    pub fn new(boot_seed: u64, seed: u64) -> Log {
        Log { boot_seed, seed, ..Log::default() }
    }

    /// Adds an override.
    #[must_use]
    pub fn with(mut self, choice: Choice, bound: u64, value: u64) -> Log {
        self.overrides.insert(choice, Override { bound, value });
        self
    }
}

/// An override as it stands in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideText {
    site: String,
    bound: u64,
    value: u64,
}

/// A log as it stands in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogText {
    version: u32,
    boot_seed: u64,
    seed: u64,
    #[serde(default)]
    epochs: Vec<Epoch>,
    #[serde(default)]
    overrides: Vec<OverrideText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counted: Vec<CountedLoop>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    switches: Option<Vec<ForcedSwitch>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    plain: Vec<Concern>,
}

impl Serialize for Log {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |(choice, over): (&Choice, &Override)| OverrideText {
            site: choice.to_string(),
            bound: over.bound,
            value: over.value,
        };
        LogText {
            version: VERSION,
            boot_seed: self.boot_seed,
            seed: self.seed,
            epochs: self.epochs.clone(),
            overrides: self.overrides.iter().map(text).collect(),
            counted: self.counted.clone(),
            switches: self.switches.clone(),
            plain: self.plain.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Log {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Log, D::Error> {
        let text = LogText::deserialize(deserializer)?;
        text.checked().map_err(serde::de::Error::custom)
    }
}

impl LogText {
    fn checked(self) -> Result<Log, String> {
        if self.version != VERSION {
            return Err(format!("the log of choices has version {}; this one reads {VERSION}", self.version));
        }
        if !self.epochs.is_sorted_by_key(|epoch| epoch.from) {
            return Err("the epochs of the log are not in order of time".into());
        }
        let mut overrides = BTreeMap::new();
        for OverrideText { site, bound, value } in self.overrides {
            let choice: Choice = site.parse()?;
            if overrides.insert(choice, Override { bound, value }).is_some() {
                return Err(format!("`{site}` has two overrides"));
            }
        }
        Ok(Log {
            boot_seed: self.boot_seed,
            seed: self.seed,
            epochs: self.epochs,
            overrides,
            counted: self.counted,
            switches: self.switches,
            plain: self.plain,
        })
    }
}

impl Serialize for Concern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Concern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Concern, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
