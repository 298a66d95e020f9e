//! Directories: names, their order, and the base directory that shows through.
//!
//! Key types: [`Dir`], [`Order`]. Each name gets a *cookie* when it is added: the position that getdents64(2)
//! gives as `d_off`. A listing goes on after a cookie, so it stays right whatever is removed meanwhile: each name
//! that is there all the time is seen once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::TreeId;
use crate::types::{Ino, Name};

/// The order in which directories list their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order in which names were added. A listing during which names are added all the time (each file renamed as
    /// it is met, for example) never ends, as on older tmpfs.
    Insertion,
    /// By a hash of the name and this salt, as ext4 does: programs which rely on an order are found out.
    Hashed(u64),
}

/// A directory of the base layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseDir {
    pub(crate) tree: TreeId,
    /// Path in the tree, empty for its root.
    pub(crate) path: Arc<[u8]>,
    /// Whether all its names have been taken over.
    pub(crate) listed: bool,
}

impl BaseDir {
    /// The path of `name` in this directory.
    pub(crate) fn child(&self, name: &[u8]) -> Vec<u8> {
        let mut path = Vec::with_capacity(self.path.len() + 1 + name.len());
        path.extend_from_slice(&self.path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

/// What is known about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// It names an inode, and has this place in listings.
    Live { ino: Ino, cookie: u64 },
    /// It is hidden: the base layer may have it, this directory does not.
    Whiteout,
}

/// Cookie of `.`; listings begin at 0.
pub(crate) const COOKIE_DOT: u64 = 1;
/// Cookie of `..`.
pub(crate) const COOKIE_DOTDOT: u64 = 2;
const FIRST_COOKIE: u64 = 3;

/// A directory's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dir {
    /// The directory above; a file system's root names itself.
    pub(crate) parent: Ino,
    pub(crate) base: Option<BaseDir>,
    names: BTreeMap<Name, Slot>,
    order: BTreeMap<u64, Name>,
    next: u64,
    subdirs: u32,
}

impl Dir {
    pub(crate) fn new(parent: Ino, base: Option<BaseDir>) -> Dir {
        Dir { parent, base, names: BTreeMap::new(), order: BTreeMap::new(), next: FIRST_COOKIE, subdirs: 0 }
    }

    pub(crate) fn slot(&self, name: &[u8]) -> Option<Slot> {
        self.names.get(name).copied()
    }

    /// Whether the base layer has to be asked about names that [`Dir::slot`] does not know.
    pub(crate) fn unlisted_base(&self) -> Option<&BaseDir> {
        self.base.as_ref().filter(|base| !base.listed)
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds a name which is not live.
    pub(crate) fn insert(&mut self, name: Name, ino: Ino, is_dir: bool, order: Order) {
        let cookie = self.cookie(&name, order);
        self.order.insert(cookie, name.clone());
        let old = self.names.insert(name, Slot::Live { ino, cookie });
        assert!(!matches!(old, Some(Slot::Live { .. })), "a name was added twice");
        self.subdirs += u32::from(is_dir);
    }

    /// Makes a live name mean another inode, at the same place of the listing.
    pub(crate) fn replace(&mut self, name: &[u8], ino: Ino, was_dir: bool, is_dir: bool) {
        if let Some(Slot::Live { ino: old, .. }) = self.names.get_mut(name) {
            *old = ino;
            self.subdirs = (self.subdirs + u32::from(is_dir)).saturating_sub(u32::from(was_dir));
        }
    }

    /// Removes a live name; hides what the base layer may have under it.
    pub(crate) fn remove(&mut self, name: &[u8], was_dir: bool) {
        let Some((key, slot)) = self.names.remove_entry(name) else { return };
        if let Slot::Live { cookie, .. } = slot {
            self.order.remove(&cookie);
            self.subdirs = self.subdirs.saturating_sub(u32::from(was_dir));
        }
        if self.unlisted_base().is_some() {
            self.names.insert(key, Slot::Whiteout);
        }
    }

    /// The names after position `cookie`, in listing order.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Name, Ino)> {
        self.order.range(cookie.saturating_add(1)..).filter_map(|(cookie, name)| match self.names.get(name) {
            Some(Slot::Live { ino, .. }) => Some((*cookie, name, *ino)),
            _ => None,
        })
    }

    /// Number of directories below.
    pub(crate) fn subdirs(&self) -> u32 {
        self.subdirs
    }

    /// Sets that number after it was counted.
    pub(crate) fn set_subdirs(&mut self, subdirs: u32) {
        self.subdirs = subdirs;
    }

    /// `st_nlink`: one for the name, one for `.`, one for each `..` below. A base directory whose names are not
    /// all known shows 1, which tools read as "not counted" (as on overlayfs).
    pub(crate) fn shown_nlink(&self) -> u32 {
        if self.unlisted_base().is_some() { 1 } else { 2 + self.subdirs }
    }

    fn cookie(&mut self, name: &[u8], order: Order) -> u64 {
        match order {
            Order::Insertion => {
                self.next += 1;
                self.next - 1
            }
            Order::Hashed(salt) => {
                let mut cookie = (hash(name, salt) >> 2).max(FIRST_COOKIE);
                while self.order.contains_key(&cookie) {
                    cookie += 1;
                }
                cookie
            }
        }
    }
}

/// FNV-1a of the name, mixed with the salt by the finaliser of SplitMix64. Spreads names; not meant to resist
/// anyone who looks for collisions.
fn hash(name: &[u8], salt: u64) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64 ^ salt;
    for byte in name {
        h = (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from(text.as_bytes())
    }

    #[test]
    fn a_listing_survives_removal_and_addition() {
        for order in [Order::Insertion, Order::Hashed(7)] {
            let mut dir = Dir::new(Ino(1), None);
            for i in 0..100u64 {
                dir.insert(name(&i.to_string()), Ino(i + 2), false, order);
            }
            let all: Vec<Name> = dir.after(0).map(|(_, name, _)| name.clone()).collect();
            let (cookie, ..) = dir.after(0).nth(49).unwrap();
            for gone in &all[40..60] {
                dir.remove(gone, false);
            }
            let rest: Vec<Name> = dir.after(cookie).map(|(_, name, _)| name.clone()).collect();
            assert_eq!(rest, all[60..]);
        }
    }

    #[test]
    fn salts_give_different_orders() {
        let listing = |salt| {
            let mut dir = Dir::new(Ino(1), None);
            for i in 0..20u64 {
                dir.insert(name(&i.to_string()), Ino(i + 2), false, Order::Hashed(salt));
            }
            dir.after(0).map(|(_, _, ino)| ino).collect::<Vec<_>>()
        };
        assert_eq!(listing(1), listing(1));
        assert_ne!(listing(1), listing(2));
    }
}
