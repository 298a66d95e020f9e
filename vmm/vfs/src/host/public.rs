//! What of the host every user may read ([`Allow::Public`]): the same for root and for anybody else who runs Bloodhound.
//!
//! A file is shown if it is readable for others and all directories on its way are readable and searchable for others. Directories that are not, as
//! `/var/lib/redis`, are shown with their owner and their mode, and nothing of what is in them: a server finds its directories as its package
//! has made them. What belongs to other people (not to the system, nor to who runs Bloodhound) is closed as well; sockets, pipes
//! and devices are nobody's but the host's.

use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;

use bloodhound_abi::Errno;

use super::{Allow, Inner, Key, Sight, Tree, guest_errno, trim, within};

/// Users that are people: login.defs(5), "UID_MIN (number), UID_MAX (number): Range of user IDs used for the creation of regular users"; the
/// default is 1000 to 60000.
const PEOPLE: std::ops::RangeInclusive<u32> = 1000..=60_000;
const READABLE: u32 = 0o004;
const OPEN: u32 = 0o005;

impl Inner {
    /// Whether a world is shown what was found at a path of that sight.
    pub(super) fn shows(&self, (tree, _): &Key, sight: Sight, found: &Metadata) -> bool {
        match sight {
            Sight::Full => true,
            Sight::Way => found.is_dir() || found.is_symlink(),
            Sight::Public => {
                let of_somebody = self.is_of_other_people(*tree, found.uid());
                found.is_dir()
                    || found.is_symlink()
                    || found.is_file() && found.mode() & READABLE != 0 && !of_somebody
            }
            Sight::Hidden => false,
        }
    }

    /// Whether a name's directory is one that every user may list.
    pub(super) fn is_in_open_directory(&mut self, (tree, path): &Key) -> bool {
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(end) => self.is_open(&(*tree, path[..end].to_vec())),
            // The root itself, and what is in it.
            None => path.is_empty() || self.is_open(&(*tree, Vec::new())),
        }
    }

    /// Whether every user may list a directory and look up names in it.
    fn is_open(&mut self, key: &Key) -> bool {
        if let Some(open) = self.open.get(key) {
            return *open;
        }
        let open = !self.is_closed(key)
            && (key.1.is_empty() || self.is_in_open_directory(key))
            && self.found(key).is_some_and(|found| {
                found.is_dir() && found.mode() & OPEN == OPEN && !self.is_of_other_people(key.0, found.uid())
            });
        self.open.insert(key.clone(), open);
        open
    }

    fn found(&self, key: &Key) -> Option<Metadata> {
        self.host_path(key).ok()?.symlink_metadata().ok()
    }

    /// Whether nothing of a directory is shown but that it is there.
    fn is_closed(&self, (tree, path): &Key) -> bool {
        let Some(Tree::Host { allow: Allow::Public { closed, .. }, .. }) = self.trees.get(tree.0 as usize)
        else {
            return false;
        };
        closed.iter().any(|closed| within(path, trim(closed)))
    }

    fn is_of_other_people(&self, tree: crate::base::TreeId, uid: u32) -> bool {
        match self.trees.get(tree.0 as usize) {
            Some(Tree::Host { allow: Allow::Public { user, .. }, .. }) => {
                PEOPLE.contains(&uid) && uid != *user
            }
            _ => false,
        }
    }

    /// The names in a directory of the host that a world may be shown.
    pub(super) fn names(&mut self, key: &Key) -> Result<Vec<Vec<u8>>, Errno> {
        let is_public =
            matches!(self.trees.get(key.0.0 as usize), Some(Tree::Host { allow: Allow::Public { .. }, .. }));
        let listable = !is_public || self.sight(key) == Sight::Full || self.is_open(key);
        let found = match self.host_path(key)?.read_dir() {
            // Then it is closed to whoever runs this as well.
            Err(_) if !listable => return Ok(Vec::new()),
            found => found.map_err(|error| guest_errno(&error))?,
        };
        let mut names: Vec<Vec<u8>> = Vec::new();
        for found in found {
            names.push(found.map_err(|error| guest_errno(&error))?.file_name().into_vec());
        }
        Ok(names)
    }
}
