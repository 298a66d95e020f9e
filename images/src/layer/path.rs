//! Names in a layer's archive: relative to the root of the image, whatever they begin with.

use std::collections::VecDeque;

use crate::error::{Error, shown};

/// Bytes of a path and of one name: Linux's PATH_MAX and NAME_MAX.
const PATH: usize = 4096;
const NAME: usize = 255;

/// The names of a path, without `.` and with `..` taken lexically, as engines do. What would lead out of the image is refused.
pub(super) fn names(path: &[u8]) -> Result<VecDeque<&[u8]>, Error> {
    let refuse = |what: String| Err(Error::refused(format!("the name {}{what}", shown(path))));
    if path.len() >= PATH {
        return refuse(format!(" is longer than the {} bytes that Linux allows", PATH - 1));
    }
    let mut names: VecDeque<&[u8]> = VecDeque::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                if names.pop_back().is_none() {
                    return refuse(" leads out of the image".to_owned());
                }
            }
            name if name.len() > NAME => {
                return refuse(format!(" has a part that is longer than the {NAME} bytes that Linux allows"));
            }
            name if name.contains(&0) => return refuse(" has a NUL in it".to_owned()),
            name => names.push_back(name),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_image() {
        let joined =
            |path: &[u8]| names(path).map(|names| Vec::from(names).join(&b'/')).map_err(|e| e.to_string());
        for (path, expected) in [
            (&b"./usr//bin/"[..], &b"usr/bin"[..]),
            (b"/etc/passwd", b"etc/passwd"),
            (b"a/../b", b"b"),
            (b"./", b""),
            (b"", b""),
        ] {
            assert_eq!(joined(path).as_deref(), Ok(expected));
        }
        assert_eq!(
            joined(b"a/../../etc/passwd"),
            Err("the name \"a/../../etc/passwd\" leads out of the image".to_owned())
        );
        joined(&[b'a'; 256]).expect_err("too long");
        joined(&b"ab/".repeat(1400)).expect_err("too long");
        joined(b"a\0b").expect_err("a NUL");
    }
}
