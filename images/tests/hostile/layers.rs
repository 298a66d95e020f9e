//! Layers that no image may have: name, bytes, words of the error.

use super::common::{Head, Tar, checksum, gzip, zstd};

/// A layer that begins well and then has this.
pub fn after(tar: impl FnOnce(Tar) -> Tar) -> Vec<u8> {
    tar(Tar::default().dir("dir").file("dir/file", b"1").symlink("link", "dir")).end()
}

fn pax(key: &str, value: &[u8]) -> Vec<u8> {
    after(|tar| tar.pax(&[(key, value)]).file("x", b"content"))
}

fn head(change: impl FnOnce(&mut [u8; 512])) -> Vec<u8> {
    let mut block = Head { size: 3, ..Head::new(b'0', "x") }.block();
    change(&mut block);
    checksum(&mut block);
    after(|tar| tar.raw(&block, b"abc"))
}

/// A member of old GNU tar's sparse type with these pieces.
fn sparse(pieces: &[(u64, u64)], real: &str, stored: &[u8]) -> Vec<u8> {
    let mut block = Head { size: stored.len() as u64, ..Head::new(b'S', "sparse") }.block();
    block[257..265].copy_from_slice(b"ustar  \0");
    block[345..500].fill(0);
    for (number, (at, len)) in pieces.iter().enumerate() {
        let text = format!("{at:011o} {len:011o} ");
        block[386 + number * 24..386 + number * 24 + 24].copy_from_slice(text.as_bytes());
    }
    block[483..495].copy_from_slice(format!("{real:0>11}\0").as_bytes());
    checksum(&mut block);
    after(|tar| tar.raw(&block, stored))
}

/// All of them.
pub fn cases() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    [headers(), records_and_links(), streams()].concat()
}

#[rustfmt::skip] // a case in a line
fn headers() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let long = "n".repeat(256);
    let deep = "d/".repeat(2100);
    let good = after(|tar| tar);
    let cut = |bytes: &[u8], less: usize| bytes[..bytes.len() - less].to_vec();
    let big = after(|tar| tar.file("big", &vec![1; 70_000]));
    vec![
        ("a name that leads out", after(|tar| tar.file("../x", b"")), "leads out of the image"),
        ("a name that leads out later", after(|tar| tar.file("a/../../../etc/shadow", b"")), "leads out of the image"),
        ("a directory that leads out", after(|tar| tar.dir("..")), "leads out of the image"),
        ("a symlink by a name that leads out", after(|tar| tar.symlink("../../x", "y")), "leads out of the image"),
        ("a whiteout by a name that leads out", after(|tar| tar.file("../.wh.x", b"")), "leads out of the image"),
        ("a hard link that leads out", after(|tar| tar.hard_link("x", "../../etc/shadow")), "leads out of the image"),
        ("a name with a NUL", pax("path", b"a\0b"), "makes no sense"),
        ("a name of 256 bytes", pax("path", long.as_bytes()), "longer than the 255 bytes"),
        ("a path of 4200 bytes", pax("path", deep.as_bytes()), "longer than the 4095 bytes"),
        ("a whiteout of nothing", after(|tar| tar.file("dir/.wh.", b"")), "whiteout of no name"),
        ("a whiteout of .", after(|tar| tar.file("dir/.wh..", b"")), "whiteout of no name"),
        ("a whiteout of ..", after(|tar| tar.file("dir/.wh...", b"")), "whiteout of no name"),
        ("a file in a whiteout", after(|tar| tar.file(".wh.dir/x", b"")), "a whiteout is used as a directory"),
        ("a member of no type", after(|tar| tar.member(&Head::new(b'Z', "x"), b"")), "no layer may have"),
        ("a member of another volume", after(|tar| tar.member(&Head::new(b'M', "x"), b"")), "no layer may have"),
        ("an inode's metadata of Solaris", after(|tar| tar.member(&Head::new(b'I', "x"), b"")), "no layer may have"),
        ("a wrong checksum", after(|tar| tar.raw(&[b'x'; 512], b"")), "checksum is wrong"),
        ("a header cut in the middle", cut(&good, 1024 + 200), "truncated"),
        ("a file cut in the middle", cut(&big, 1024 + 30_000), "truncated"),
        ("a size beyond the end", head(|b| b[124..136].copy_from_slice(b"00000100000\0")), "truncated"),
        ("a size of 8 GiB", head(|b| b[124..136].copy_from_slice(b"77777777777\0")), "BLOODHOUND_IMAGE_MAX_LAYER"),
        ("a negative size", head(|b| b[124..136].fill(0xff)), "is negative"),
        ("a size of 2^95", head(|b| { b[124..136].fill(0); b[124] = 0x90; }), "is no number"),
        ("a size of 2^63 - 1", head(|b| { b[124..136].fill(0xff); b[124..129].copy_from_slice(&[0x80, 0, 0, 0, 0x7f]); }), "says that it has"),
        ("a size that is no number", head(|b| b[124..136].copy_from_slice(b"abcdefghijk\0")), "is no number"),
        ("a mode that is no number", head(|b| b[100..108].copy_from_slice(b"rwxr-xr\0")), "is no number"),
        ("an owner of 2^40", head(|b| b[108..116].copy_from_slice(&[0x80, 0, 1, 0, 0, 0, 0, 0])), "is no number of an owner"),
    ]
}

#[rustfmt::skip] // a case in a line
fn records_and_links() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    vec![
        ("a PAX size of 2^64", pax("size", b"18446744073709551616"), "makes no sense"),
        ("a PAX size of 2^64 - 1", pax("size", b"18446744073709551615"), "says that it has"),
        ("a negative PAX size", pax("size", b"-5"), "makes no sense"),
        ("a PAX owner of 2^32", pax("uid", b"4294967296"), "is no number of an owner"),
        ("a PAX group of -1", pax("gid", b"4294967295"), "is no number of an group"),
        ("a PAX time that is none", pax("mtime", b"1e400"), "makes no sense"),
        ("an attribute without a name", pax("SCHILY.xattr.", b"x"), "makes no sense"),
        ("a PAX record without a length", after(|tar| tar.member(&Head::new(b'x', "p"), b"path=x\n").file("x", b"")), "is no record"),
        ("a PAX record longer than all", after(|tar| tar.member(&Head::new(b'x', "p"), b"999 path=x\n").file("x", b"")), "is no record"),
        ("a PAX record of length 0", after(|tar| tar.member(&Head::new(b'x', "p"), b"0 path=x\n").file("x", b"")), "is no record"),
        ("a PAX record without a line end", after(|tar| tar.member(&Head::new(b'x', "p"), b"10 path=ab").file("x", b"")), "is no record"),
        ("extended records of 2 MiB", after(|tar| tar.member(&Head::new(b'x', "p"), &vec![b' '; 2 << 20])), "more than 1048576 are refused"),
        ("a long name of 2 MiB", after(|tar| tar.member(&Head::new(b'L', "l"), &vec![b'a'; 2 << 20])), "more than 1048576 are refused"),
        ("extended records of nothing", after(|tar| tar.pax(&[("path", b"x")])), "ends after the extended header"),
        ("a file that is a directory", after(|tar| tar.file("dir/file/x", b"")), "is a file and a directory"),
        ("a fifo that is a directory", after(|tar| tar.member(&Head::new(b'6', "f"), b"").file("f/x", b"")), "is a file and a directory"),
        ("a link that is a directory", after(|tar| tar.hard_link("h", "below").file("h/x", b"")), "used as a directory"),
        ("a hard link to nothing", after(|tar| tar.hard_link("x", "nothing")), "which is not there"),
        ("a hard link to itself", after(|tar| tar.hard_link("x", "x")), "which is not there"),
        ("a loop of hard links", after(|tar| tar.hard_link("x", "y").hard_link("y", "x")), "which is not there"),
        ("a hard link to a directory", after(|tar| tar.hard_link("x", "dir")), "hard link to the directory"),
        ("a hard link to the root", after(|tar| tar.hard_link("x", "/")), "hard link to the directory"),
        ("a loop of symbolic links", after(|tar| tar.symlink("a", "b").symlink("b", "a").file("a/x", b"")), "form a loop"),
        ("a symbolic link to itself", after(|tar| tar.symlink("a", "a/a").file("a/x", b"")), "form a loop"),
        ("a symbolic link to nothing", after(|tar| tar.symlink("a", "")), "no target of a symbolic link"),
        ("a root that is a file", after(|tar| tar.file("./", b"").file(".", b"")), "the root of the image is no directory"),
        ("a root that is a link", after(|tar| tar.symlink(".", "x")), "the root of the image is no directory"),
        ("a sparse file with pieces out of order", sparse(&[(512, 10), (0, 10)], "2000", &[1; 20]), "lies before another"),
        ("a sparse file with a piece behind its end", sparse(&[(600, 600)], "1000", &[1; 600]), "behind its end"),
        ("a sparse file with more than is stored", sparse(&[(0, 512)], "2000", &[1; 20]), "its pieces have 512 bytes"),
        ("a sparse file of 8 GiB of nothing", sparse(&[], "77777777777", b""), "BLOODHOUND_IMAGE_MAX_LAYER"),
        ("a sparse file with a map that is none", after(|tar| tar.pax(&[("GNU.sparse.map", b"1,2,3"), ("GNU.sparse.size", b"9")]).file("x", b"")), "makes no sense"),
        ("a sparse file with a map of letters", after(|tar| { tar.pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"9")]).file("x", b"abc") }), "number in its map"),
        ("a sparse file with a million pieces", after(|tar| { tar.pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"9")]).file("x", b"1000000\n") }), "more than 65536 are refused"),
    ]
}

#[rustfmt::skip] // a case in a line
fn streams() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let good = after(|tar| tar);
    let cut = |bytes: &[u8], less: usize| bytes[..bytes.len() - less].to_vec();
    let mut damaged_gzip = gzip(&[good.clone(), vec![7; 9000]].concat());
    let middle = damaged_gzip.len() / 2;
    damaged_gzip[middle] ^= 0xff;
    let big = after(|tar| tar.file("big", &vec![1; 70_000]));
    let many: Vec<u8> = (0..2100).fold(Tar::default(), |tar, n| tar.file(&format!("f{n}"), b"")).end();
    let implicit = (0..30).fold(Tar::default(), |tar, n| {
        tar.pax(&[("path", format!("{n}/{}x", "d/".repeat(100)).as_bytes())]).file("x", b"")
    });
    let names = (0..60).fold(Tar::default(), |tar, n| {
        tar.pax(&[("path", format!("{n}/{}", format!("{}/", "n".repeat(250)).repeat(15)).as_bytes())])
            .file("x", b"")
    });
    let attribute = vec![7; 60_000];
    let attributes = (0..4).fold(Tar::default(), |tar, n| {
        tar.pax(&[("SCHILY.xattr.user.x", &attribute)]).file(&format!("{n}"), b"")
    });
    vec![
        ("a text", b"this is no archive but a text, of which there is enough for a header. ".repeat(20), "this is no tar archive"),
        ("a text, compressed", gzip(&b"this is no archive but a text, of which there is enough for a header. ".repeat(20)), "this is no tar archive"),
        ("xz", b"\xfd7zXZ\0\0\0\0\0".to_vec(), "compressed by xz"),
        ("bzip2", b"BZh91AY&SY".to_vec(), "compressed by bzip2"),
        ("lz4", b"\x04\x22\x4d\x18\x64\x40".to_vec(), "compressed by lz4"),
        ("a cut gzip stream", cut(&gzip(&big), 30), "gzip stream is truncated"),
        ("a damaged gzip stream", damaged_gzip, "damaged"),
        ("garbage behind a gzip stream", [gzip(&good), b"garbage".to_vec()].concat(), "gzip stream"),
        ("a cut zstd stream", cut(&zstd(&big), 20), "zstd stream is damaged or truncated"),
        ("a zstd stream with a window of 1 GiB", vec![0x28, 0xb5, 0x2f, 0xfd, 0x04, 0xa0, 0, 0, 0], "at most 100 MiB"),
        ("zstd of nothing but a magic number", vec![0x28, 0xb5, 0x2f, 0xfd], "zstd stream is damaged"),
        ("5 MiB of zeros in 5 kB", gzip(&after(|tar| tar.file("zeros", &vec![0; 5 << 20]))), "BLOODHOUND_IMAGE_MAX_LAYER"),
        ("5 MiB of zeros behind the end", gzip(&[good.clone(), vec![0; 5 << 20]].concat()), "BLOODHOUND_IMAGE_MAX_LAYER"),
        ("too many files", many, "BLOODHOUND_IMAGE_MAX_ENTRIES"),
        ("too many directories in names", implicit.end(), "BLOODHOUND_IMAGE_MAX_ENTRIES"),
        ("too many bytes of names", names.end(), "BLOODHOUND_IMAGE_MAX_NAMES"),
        ("too many bytes of attributes", attributes.end(), "BLOODHOUND_IMAGE_MAX_NAMES"),
    ]
}
