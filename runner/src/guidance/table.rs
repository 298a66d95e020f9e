//! A table from hashes to small values, for counting in the middle of a run: open addressing in one array, which grows by doubling and is
//! looked up without allocation. Its order is that of hashes, so nothing in it depends on the host.
//!
//! Key types: [`Table`] and [`mix`], by which hashes are made of hashes. Neighbour: [`super::book`], which counts features in one.

/// How many slots there are at first; a power of two.
const FIRST: usize = 1 << 10;

/// A keyed hash of two words.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b.rotate_left(32) ^ 0xd6e8_feb8_6659_fd93);
    let folded = (wide as u64) ^ ((wide >> 64) as u64) ^ a.rotate_left(17);
    folded.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ b
}

/// A table of values by hashes.
#[derive(Clone, Debug)]
pub struct Table<V> {
    slots: Vec<(u64, V)>,
    len: usize,
    most: usize,
}

impl<V: Copy + Default> Table<V> {
    /// An empty table that takes at most so many entries.
    pub fn new(most: usize) -> Table<V> {
        Table { slots: vec![(0, V::default()); FIRST], len: 0, most }
    }

    /// The value of a hash.
    pub fn get(&self, hash: u64) -> Option<V> {
        let (key, value) = self.slots[self.place(hash)];
        (key != 0).then_some(value)
    }

    /// The value of a hash, made with its default if there is none; `None` where the table is full.
    pub fn entry(&mut self, hash: u64) -> Option<&mut V> {
        let mut place = self.place(hash);
        if self.slots[place].0 == 0 {
            if self.len == self.most {
                return None;
            }
            self.len += 1;
            if self.len * 2 > self.slots.len() {
                self.grow();
                place = self.place(hash);
            }
            self.slots[place].0 = hash.max(1);
        }
        Some(&mut self.slots[place].1)
    }

    /// Keeps a value; not where the table is full.
    pub fn set(&mut self, hash: u64, value: V) {
        if let Some(slot) = self.entry(hash) {
            *slot = value;
        }
    }

    /// Where a hash is, or would be. 0 marks free slots, so hash 0 is taken for 1.
    fn place(&self, hash: u64) -> usize {
        let (hash, mask) = (hash.max(1), self.slots.len() - 1);
        let mut place = (hash >> 7) as usize & mask;
        while self.slots[place].0 != 0 && self.slots[place].0 != hash {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let double = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![(0, V::default()); double]);
        for (hash, value) in old.into_iter().filter(|(hash, _)| *hash != 0) {
            let place = self.place(hash);
            self.slots[place] = (hash, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_table_is_a_map() {
        let (mut table, mut map) = (Table::<u32>::new(5000), BTreeMap::new());
        for n in 0..20_000u64 {
            let hash = mix(n % 4999, 7);
            *table.entry(hash).expect("there is room") += 1;
            *map.entry(hash).or_insert(0u32) += 1;
        }
        assert!(map.iter().all(|(hash, count)| table.get(*hash) == Some(*count)));
        assert_eq!(table.get(mix(5000, 7)), None);
    }

    #[test]
    fn a_full_table_takes_nothing_new_and_keeps_counting_the_rest() {
        let mut table = Table::<u32>::new(2);
        table.set(0, 3);
        table.set(9, 4);
        table.set(10, 5);
        assert_eq!((table.get(0), table.get(9), table.get(10)), (Some(3), Some(4), None));
        *table.entry(9).expect("it is in it") += 1;
        assert_eq!(table.get(9), Some(5));
    }

    #[test]
    fn order_and_every_word_count_in_a_hash() {
        let all = [mix(1, 2), mix(2, 1), mix(1, 1), mix(0, 0), mix(0, 1), mix(1, 0)];
        let set: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(set.len(), all.len());
    }
}
