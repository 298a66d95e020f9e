//! Users and groups of a root file system, from its /etc/passwd and /etc/group (passwd(5), group(5)).

use std::path::Path;

/// Where a user is at home: what a container runtime sets HOME to. Root is at home in /root and everybody who is not listed
/// in `/`, as Docker has it.
pub fn home(root: &Path, uid: u32) -> Vec<u8> {
    let unknown = || if uid == 0 { b"/root".to_vec() } else { b"/".to_vec() };
    let Ok(text) = std::fs::read(root.join("etc/passwd")) else { return unknown() };
    let entry = text.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        let id: u32 = std::str::from_utf8(fields.get(2)?).ok()?.parse().ok()?;
        (id == uid).then(|| fields.get(5).map(|home| home.to_vec()))?
    });
    entry.filter(|home| !home.is_empty()).unwrap_or_else(unknown)
}

/// The numbers in the third and fourth field of the line of `name`: of etc/passwd a user and its group, of etc/group a group.
pub fn numbers(root: &Path, file: &str, name: &str) -> Option<(u32, Option<u32>)> {
    let text = String::from_utf8_lossy(&std::fs::read(root.join(file)).ok()?).into_owned();
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    let id = fields.next()?.parse().ok()?;
    Some((id, fields.next().and_then(|group| group.parse().ok())))
}

/// The primary group of a user by its number.
pub fn primary_group(root: &Path, uid: u32) -> Option<u32> {
    let text = String::from_utf8_lossy(&std::fs::read(root.join("etc/passwd")).ok()?).into_owned();
    text.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        (fields.next()?.parse::<u32>().ok()? == uid).then(|| fields.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_those_of_the_file() {
        let root = std::env::temp_dir().join(format!("bloodhound-passwd-{}", std::process::id()));
        std::fs::create_dir_all(root.join("etc")).expect("a directory");
        let passwd =
            "root:x:0:0:root:/var/root:/bin/sh\nbroken\nwww:x:33:34::/var/www:/x\nnobody:x:99:99:::/x\n";
        std::fs::write(root.join("etc/passwd"), passwd).expect("a file");
        assert_eq!(home(&root, 0), b"/var/root");
        assert_eq!(home(&root, 33), b"/var/www");
        assert_eq!(home(&root, 99), b"/", "an empty field");
        assert_eq!(home(&root, 4711), b"/", "nobody's number");
        assert_eq!(numbers(&root, "etc/passwd", "www"), Some((33, Some(34))));
        assert_eq!(numbers(&root, "etc/passwd", "none"), None);
        assert_eq!((primary_group(&root, 33), primary_group(&root, 1)), (Some(34), None));
        std::fs::remove_dir_all(&root).expect("removed");
        assert_eq!((home(&root, 0), home(&root, 1)), (b"/root".to_vec(), b"/".to_vec()));
    }
}
