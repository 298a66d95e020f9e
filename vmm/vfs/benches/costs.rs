//! What file operations cost, in nanoseconds each: `cargo bench -p bloodhound-vfs`. Printed, not judged.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host time, outside of any world

use std::time::Instant;

use bloodhound_abi::SimTime;
use bloodhound_vfs::flags::*;
use bloodhound_vfs::*;

const ROUNDS: u32 = 20_000;

fn time<T>(name: &str, rounds: u32, mut f: impl FnMut(u32) -> T) {
    let start = Instant::now();
    for round in 0..rounds {
        std::hint::black_box(f(round));
    }
    println!("{name:48} {:8} ns", start.elapsed().as_nanos() / u128::from(rounds));
}

fn main() {
    for disk in [None, Some(DiskModel::Ordered)] {
        println!("disk model {disk:?}");
        run(disk);
    }
}

fn run(disk: Option<DiskModel>) {
    let mut base = MemBase::new();
    for i in 0..5000 {
        base.file(TreeId(0), &format!("usr/lib/dir{}/file{i}", i / 100), 0o644, b"content");
    }
    let mut vfs = Vfs::new(Config { root: Some(TreeId(0)), disk, ..Config::default() }, &mut base).unwrap();
    time("first lookup of a base file", 5000, |i| {
        vfs.get_file(&mut base, format!("/usr/lib/dir{}/file{i}", i / 100).as_bytes()).unwrap()
    });
    let log = vfs.put_file(&mut base, b"/var/log/app.log", 0o644, b"").unwrap();
    println!("{:48} {:8}", "inodes", vfs.inode_count());

    let (cred, root, now) = (Cred::root(), vfs.root(), SimTime(1));
    let at = At { dir: root, path: b"/usr/lib/dir49/file4999" };
    let none = At { dir: root, path: b"/usr/lib/dir49/absent" };
    let mut ctx = Ctx { base: &mut base, cred: &cred, root, now, umask: 0o022, links: 0, resolve: 0 };
    time("stat, 4 components", ROUNDS, |_| vfs.stat(&mut ctx, at, true).unwrap());
    time("stat, absent, asks the base", ROUNDS, |_| vfs.stat(&mut ctx, none, true).unwrap_err());
    time("open and close", ROUNDS, |_| {
        let opened = vfs.open(&mut ctx, at, O_RDONLY, 0).unwrap();
        vfs.close_ref(opened.ino, opened.writer);
    });
    time("fstat", ROUNDS, |_| vfs.stat_ino(log).unwrap());
    let mut end = 0;
    time("append 100 bytes", ROUNDS, |_| {
        end += 100;
        vfs.write_at(log, end - 100, &[7; 100], now).unwrap()
    });
    let mut page = vec![0u8; 4096];
    time("read 4096 bytes", ROUNDS, |i| vfs.read_at(log, u64::from(i % 400) * 4096, &mut page).unwrap());
    time("overwrite 4096 bytes", ROUNDS, |i| {
        vfs.write_at(log, u64::from(i % 400) * 4096, &page, now).unwrap()
    });
    time("append 100 bytes and fsync", ROUNDS, |_| {
        end += 100;
        vfs.write_at(log, end - 100, &[7; 100], now).unwrap();
        vfs.sync(log).unwrap();
    });
    time("create, rename and unlink", ROUNDS, |_| {
        let tmp = At { dir: root, path: b"/var/log/tmp" };
        let new = At { dir: root, path: b"/var/log/new" };
        let opened = vfs.open(&mut ctx, tmp, O_CREAT | O_RDWR, 0o644).unwrap();
        vfs.close_ref(opened.ino, opened.writer);
        vfs.rename(&mut ctx, tmp, new, 0).unwrap();
        vfs.unlink(&mut ctx, new).unwrap();
    });
    let dir = vfs.resolve(&mut ctx, At { dir: root, path: b"/usr/lib/dir3" }, true).unwrap();
    time("list 100 names", 1000, |_| vfs.read_dir(ctx.base, dir, 0, 200).unwrap());
    let mut kept = Vec::with_capacity(ROUNDS as usize);
    time("clone", ROUNDS, |_| kept.push(vfs.clone()));
    kept.clear();
    time("clone, then append 100 bytes", 2000, |_| {
        kept.push(vfs.clone());
        end += 100;
        vfs.write_at(log, end - 100, &[7; 100], now).unwrap()
    });
}
