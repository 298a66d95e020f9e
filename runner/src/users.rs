//! Users and groups of a root file system, from its /etc/passwd and /etc/group (passwd(5), group(5)), read through the base
//! layer: whether they lie on the host or in a container image, they are inputs of the run.
//!
//! The rules are those of container engines for `USER` and `--user`: numbers need not be listed, names must.

use bloodhound_config::compose::User;
use bloodhound_vfs::host::HostBase;
use bloodhound_vfs::{BaseFs, BaseKind, TreeId};

/// More than this of a file is not read: the files of real systems have a few kilobytes.
const LARGEST: u64 = 1 << 20;
/// As many symbolic links as Linux follows.
const LINKS: usize = 40;

/// Who a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// The two files, as lines of fields.
#[derive(Clone, Debug, Default)]
pub struct Users {
    passwd: Vec<Vec<String>>,
    group: Vec<Vec<String>>,
    /// What they say is not known: any name may be there.
    unknown: bool,
}

impl Users {
    /// Reads the files of a tree; a missing one is empty.
    pub fn read(base: &HostBase, tree: TreeId) -> Users {
        let lines = |path: &str| match file(base, tree, path) {
            Some(bytes) => String::from_utf8_lossy(&bytes)
                .lines()
                .map(|line| line.split(':').map(str::to_owned).collect())
                .collect(),
            None => Vec::new(),
        };
        Users { passwd: lines("etc/passwd"), group: lines("etc/group"), unknown: false }
    }

    /// Those of an image that is not here, for a look at the files only.
    pub fn unknown() -> Users {
        Users { unknown: true, ..Users::default() }
    }

    /// Where a user is at home: what an engine sets HOME to. Root is at home in /root and everybody who is not listed in
    /// `/`, as Docker has it.
    pub fn home(&self, uid: u32) -> String {
        let found = self.passwd.iter().find(|line| number(line, 2) == Some(uid));
        let home = found.and_then(|line| line.get(5)).filter(|home| !home.is_empty());
        let unknown = || if uid == 0 { "/root".to_owned() } else { "/".to_owned() };
        home.cloned().unwrap_or_else(unknown)
    }

    /// `user[:group]` as numbers. Without a group they are those that the files say the user is in; a number that is not
    /// listed is in root's group. `more` are names or numbers of further groups (`group_add`).
    ///
    /// # Errors
    /// A name that is not listed, in words.
    pub fn identity(&self, user: Option<&User>, more: &[String]) -> Result<Identity, String> {
        if self.unknown {
            return Ok(Identity::default());
        }
        let mut identity = match user {
            Some(user) => self.of(user)?,
            None => self.of(&User { user: "0".into(), group: None })?,
        };
        for name in more {
            let gid = self.gid(name)?;
            if !identity.groups.contains(&gid) {
                identity.groups.push(gid);
            }
        }
        Ok(identity)
    }

    fn of(&self, user: &User) -> Result<Identity, String> {
        let listed = self.passwd.iter().find(|line| line.first() == Some(&user.user));
        let by_number = || {
            let uid: u32 = user.user.parse().ok()?;
            self.passwd.iter().find(|line| number(line, 2) == Some(uid))
        };
        let line = listed.or_else(by_number);
        let uid = match line.map(|line| number(line, 2)) {
            Some(Some(uid)) => uid,
            _ => user.user.parse().map_err(|_| unknown("user", &user.user, "/etc/passwd"))?,
        };
        if let Some(group) = &user.group {
            return Ok(Identity { uid, gid: self.gid(group)?, groups: Vec::new() });
        }
        let gid = line.and_then(|line| number(line, 3)).unwrap_or(0);
        let name = line.and_then(|line| line.first());
        let member = |line: &&Vec<String>| {
            name.is_some_and(|name| line.get(3).is_some_and(|members| members.split(',').any(|m| m == name)))
        };
        let mut groups = Vec::new();
        for other in self.group.iter().filter(member).filter_map(|line| number(line, 2)) {
            if other != gid && !groups.contains(&other) {
                groups.push(other);
            }
        }
        Ok(Identity { uid, gid, groups })
    }

    fn gid(&self, group: &str) -> Result<u32, String> {
        let listed = self.group.iter().find(|line| line.first().is_some_and(|name| name == group));
        listed
            .and_then(|line| number(line, 2))
            .or_else(|| group.parse().ok())
            .ok_or_else(|| unknown("group", group, "/etc/group"))
    }
}

fn unknown(what: &str, name: &str, file: &str) -> String {
    format!("there is no {what} `{name}` in its {file}; a number needs no entry there")
}

fn number(line: &[String], field: usize) -> Option<u32> {
    line.get(field)?.parse().ok()
}

/// A file of a tree, through symbolic links within the tree.
fn file(base: &HostBase, tree: TreeId, path: &str) -> Option<Vec<u8>> {
    let mut base = base.clone();
    let mut rest: Vec<Vec<u8>> = parts(path.as_bytes());
    let mut at: Vec<Vec<u8>> = Vec::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == b".." {
            at.pop();
            continue;
        }
        at.push(part);
        let entry = base.lookup(tree, &at.join(&b'/')).ok()??;
        match entry.kind {
            BaseKind::Symlink(target) => {
                links += 1;
                if links > LINKS {
                    return None;
                }
                at.pop();
                if target.starts_with(b"/") {
                    at.clear();
                }
                rest.extend(parts(&target));
            }
            BaseKind::Regular { content, size } if rest.is_empty() && size <= LARGEST => {
                let image = base.load(content).ok()?;
                let mut bytes = vec![0; usize::try_from(image.size()).ok()?];
                image.read(0, &mut bytes);
                return Some(bytes);
            }
            _ => {}
        }
    }
    None
}

/// The parts of a path, the first one last.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.rev().map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use bloodhound_vfs::host::Allow;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/var/root:/bin/sh\nbroken\nwww:x:33:34::/var/www:/x\nnobody:x:99:99:::/x\n";
    const GROUP: &str = "root:x:0:\nweb:x:34:\nlogs:x:4:www,other\nmail:x:8:other,www\nweb2:x:34:www\n";

    fn user(user: &str, group: Option<&str>) -> User {
        User { user: user.into(), group: group.map(str::to_owned) }
    }

    #[test]
    fn users_are_those_of_the_files() {
        let root = std::env::temp_dir().join(format!("bloodhound-users-{}", std::process::id()));
        std::fs::create_dir_all(root.join("etc")).expect("a directory");
        std::fs::create_dir_all(root.join("usr/share")).expect("a directory");
        std::fs::write(root.join("usr/share/passwd"), PASSWD).expect("a file");
        std::os::unix::fs::symlink("/usr/../usr/share/./passwd", root.join("etc/passwd")).expect("a link");
        std::fs::write(root.join("etc/group"), GROUP).expect("a file");
        let base = HostBase::new();
        let tree = base.add_tree(&root, Allow::All).expect("a tree");
        let users = Users::read(&base, tree);
        std::fs::remove_dir_all(&root).expect("removed");

        let homes = [(0, "/var/root"), (33, "/var/www"), (99, "/"), (4711, "/")];
        for (uid, home) in homes {
            assert_eq!(users.home(uid), home, "{uid}");
        }
        let of = |user| users.identity(Some(&user), &[]).map(|id| (id.uid, id.gid, id.groups));
        assert_eq!(of(user("www", None)), Ok((33, 34, vec![4, 8])));
        assert_eq!(of(user("33", None)), Ok((33, 34, vec![4, 8])), "a number that is listed");
        assert_eq!(of(user("www", Some("mail"))), Ok((33, 8, vec![])), "just the group that is named");
        assert_eq!(of(user("1234", None)), Ok((1234, 0, vec![])));
        assert_eq!(of(user("1234", Some("77"))), Ok((1234, 77, vec![])));
        assert!(of(user("none", None)).is_err_and(|text| text.contains("`none`")));
        assert!(of(user("www", Some("none"))).is_err_and(|text| text.contains("/etc/group")));
        let added = users.identity(None, &["mail".into(), "5".into(), "8".into()]).map(|id| id.groups);
        assert_eq!(added, Ok(vec![8, 5]));
        assert_eq!(Users::default().home(0), "/root");
    }
}
