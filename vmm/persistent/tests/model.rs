//! The containers against the standard library's: any sequence of changes leaves both equal, and a clone made at any time stays as
//! it was.

use std::collections::BTreeMap;

use bloodhound_persistent::{LEAF, Log, Map, Set, Table};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u16, u32),
    Remove(u16),
    Update(u16, u32),
    PopFirst,
    Retain(u16),
    Clone,
}

fn change() -> impl Strategy<Value = Change> {
    let key = 0..600u16;
    prop_oneof![
        8 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Change::Insert(k, v)),
        4 => key.clone().prop_map(Change::Remove),
        4 => (key.clone(), any::<u32>()).prop_map(|(k, v)| Change::Update(k, v)),
        1 => Just(Change::PopFirst),
        1 => (2..40u16).prop_map(Change::Retain),
        1 => Just(Change::Clone),
    ]
}

proptest! {
    #[test]
    fn a_map_does_what_a_btree_map_does(
        begin in 0..1000u16,
        changes in prop::collection::vec(change(), 0..400),
        bounds in prop::collection::vec((0..700u16, 0..700u16), 8),
    ) {
        let mut model: BTreeMap<u16, u32> = (0..begin).map(|k| (k, 7)).collect();
        let mut map: Map<u16, u32> = model.iter().map(|(k, v)| (*k, *v)).collect();
        let mut kept = Vec::new();
        for change in changes {
            match change {
                Change::Insert(k, v) => prop_assert_eq!(map.insert(k, v), model.insert(k, v)),
                Change::Remove(k) => prop_assert_eq!(map.remove(&k), model.remove(&k)),
                Change::Update(k, v) => {
                    *map.get_or_default(k) ^= v;
                    *model.entry(k).or_default() ^= v;
                }
                Change::PopFirst => prop_assert_eq!(map.pop_first(), model.pop_first()),
                Change::Retain(n) => {
                    map.retain(|k, _| k % n != 0);
                    model.retain(|k, _| k % n != 0);
                }
                Change::Clone => kept.push((map.clone(), model.clone())),
            }
        }
        kept.push((map, model));
        for (map, model) in &kept {
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert!(map.iter().rev().eq(model.iter().rev()));
            prop_assert_eq!(map.len(), model.len());
            prop_assert_eq!(map.first_key_value(), model.first_key_value());
            prop_assert_eq!(map.last_key_value(), model.last_key_value());
            for (a, b) in &bounds {
                let (low, high) = (*a.min(b), *a.max(b));
                prop_assert!(map.range(low..high).eq(model.range(low..high)));
                prop_assert!(map.range(low..=high).rev().eq(model.range(low..=high).rev()));
                prop_assert!(map.range(..low).eq(model.range(..low)));
                prop_assert!(map.range(high..).eq(model.range(high..)));
                prop_assert_eq!(map.get(a), model.get(a));
            }
        }
    }

    #[test]
    fn a_log_does_what_a_vector_does(items in prop::collection::vec(any::<u8>(), 0..300), at in 0..400usize) {
        let mut log: Log<u8> = items.iter().copied().collect();
        let before = log.clone();
        prop_assert!(log.iter().eq(items.iter()));
        prop_assert!(log.iter().rev().eq(items.iter().rev()));
        prop_assert!(log.iter_from(at).eq(items.iter().skip(at)));
        prop_assert_eq!(log.get(at), items.get(at));
        prop_assert_eq!(log.last(), items.last());
        if let Some(item) = log.get_mut(at) {
            *item = !*item;
        }
        log.push(1);
        prop_assert_eq!(log.len(), items.len() + 1);
        prop_assert!(before.iter().eq(items.iter()));
    }
}

#[test]
fn removing_nearly_everything_frees_the_leaves() {
    let mut map: Map<usize, usize> = (0..100 * LEAF).map(|k| (k, k)).collect();
    map.retain(|k, _| k % LEAF == 0);
    assert_eq!(map.len(), 100);
    for k in 0..99 * LEAF {
        map.remove(&k);
    }
    assert_eq!(map.iter().collect::<Vec<_>>(), [(&(99 * LEAF), &(99 * LEAF))]);
}

#[test]
fn a_write_to_a_table_copies_one_value() {
    #[derive(Debug)]
    struct Counted(std::sync::Arc<std::sync::atomic::AtomicUsize>);
    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Counted(self.0.clone())
        }
    }
    let copies = std::sync::Arc::default();
    let mut table: Table<u32, Counted> =
        (0..1000).map(|k| (k, Counted(std::sync::Arc::clone(&copies)))).collect();
    let _before = table.clone();
    let _value = table.get_mut(&500).expect("it is there");
    assert_eq!(copies.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn a_set_tells_whether_a_member_is_new() {
    let mut set: Set<u32> = [3, 1, 2].into_iter().collect();
    assert!(!set.insert(3) && set.insert(4) && set.remove(&1) && !set.remove(&1));
    assert!(set.iter().eq(&[2, 3, 4]) && set.first() == Some(&2) && set.last() == Some(&4));
    assert_eq!(set.pop_first(), Some(2));
}
