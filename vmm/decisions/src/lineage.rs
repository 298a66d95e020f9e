//! [`Lineage`]: the name of a task by its descent, "the second child of the first child of the command". A task's number depends on
//! which other tasks were made before it; its descent does not.

use std::fmt;
use std::str::FromStr;

use crate::mix::Mix;

/// Bytes of a path that are kept as they are.
const ROOM: u32 = 7;
/// The mark of a path that did not fit and is known by its hash only.
const HASHED: u64 = 0xff << 56;

/// A task's descent in the life of its node: numbers of children from a root process down. Root processes (a service's command,
/// its health checks) are numbered too. Paths that fit into seven bytes (LEB128) are kept; longer ones become a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(u64);

impl Lineage {
    /// The root process with this number.
    pub fn root(number: u32) -> Lineage {
        Lineage(0).child(number)
    }

    /// A child of this task.
    #[must_use]
    pub fn child(self, number: u32) -> Lineage {
        let mut path = self;
        let mut rest = number;
        if self.0 & HASHED != HASHED {
            loop {
                let last = rest < 0x80;
                let byte = u64::from(rest & 0x7f) | if last { 0 } else { 0x80 };
                let Some(longer) = path.push(byte) else { break };
                path = longer;
                if last {
                    return path;
                }
                rest >>= 7;
            }
        }
        let mut mix = Mix::new(self.0);
        mix.word(u64::from(number));
        Lineage(HASHED | mix.finish(0) >> 8)
    }

    fn push(self, byte: u64) -> Option<Lineage> {
        let len = (self.0 >> 56) as u32;
        let path = self.0 & !HASHED;
        (len < ROOM).then(|| Lineage(u64::from(len + 1) << 56 | path | byte << (8 * len)))
    }

    /// A hash under a key.
    pub fn hash(self, key: u64) -> u64 {
        let mut mix = Mix::new(key);
        mix.word(self.0);
        mix.finish(0)
    }

    /// As one number, for hashing.
    pub(crate) fn word(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & HASHED == HASHED {
            return write!(f, "x{:014x}", self.0 & !HASHED);
        }
        let (mut number, mut shift, mut first) = (0u64, 0, true);
        for at in 0..self.0 >> 56 {
            let byte = self.0 >> (8 * at) & 0xff;
            number |= (byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                let dot = if first { "" } else { "." };
                write!(f, "{dot}{number}")?;
                (number, shift, first) = (0, 0, false);
            }
        }
        Ok(())
    }
}

impl FromStr for Lineage {
    type Err = ();

    fn from_str(text: &str) -> Result<Lineage, ()> {
        if let Some(hash) = text.strip_prefix('x') {
            let hash = u64::from_str_radix(hash, 16).map_err(drop)?;
            return if hash & HASHED == 0 { Ok(Lineage(HASHED | hash)) } else { Err(()) };
        }
        let mut path = Lineage(0);
        for number in text.split('.') {
            path = path.child(number.parse().map_err(drop)?);
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descents_are_told_apart_and_read_back() {
        let mut all = std::collections::BTreeSet::new();
        let mut layer = vec![Lineage::root(0), Lineage::root(1), Lineage::root(500), Lineage::root(u32::MAX)];
        for _ in 0..5 {
            let children = layer.iter().flat_map(|task| [0, 1, 127, 128, 70_000].map(|n| task.child(n)));
            let children: Vec<Lineage> = children.collect();
            for task in layer {
                assert!(all.insert(task), "{task} is the name of two tasks");
                assert_eq!(task.to_string().parse(), Ok(task));
            }
            layer = children;
        }
        assert_eq!(Lineage::root(0).child(2).child(300).to_string(), "0.2.300");
        assert!(
            ["", "1..2", "x", "xyz", "-1", "4294967296"].iter().all(|bad| bad.parse::<Lineage>().is_err())
        );
    }
}
