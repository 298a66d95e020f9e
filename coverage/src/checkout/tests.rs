//! Paths of builds and the files of a checkout that they mean.

use super::*;

fn checkout(files: &[&str]) -> Checkout {
    Checkout::of(PathBuf::from("/home/me/kv"), files.iter().map(|file| (*file).to_owned()).collect())
}

fn named(paths: &[&str]) -> Vec<Named> {
    paths.iter().map(|path| Named { path: (*path).to_owned(), md5: None }).collect()
}

fn file(path: &str) -> Meant {
    Meant::File(path.to_owned())
}

#[test]
fn paths_are_made_plain() {
    assert_eq!(normal("/build", "src/../a.c"), "/build/a.c");
    assert_eq!(normal("/build", "/x//y/./a.c"), "/x/y/a.c");
    assert_eq!(normal("/build/sub", "../../../../a.c"), "/a.c");
    assert_eq!(normal("", "../a.c"), "../a.c");
}

#[test]
fn a_file_below_the_checkout_is_itself() {
    let names = named(&["/home/me/kv/src/main.c", "/home/me/kv/src/gone.c", "/home/me/kvx/src/main.c"]);
    let meant = checkout(&["src/main.c"]).map(&names[..2], &[]);
    assert_eq!(meant, [file("src/main.c"), Meant::Outside]);
    // A second path that claims the same file is another file.
    assert_eq!(checkout(&["src/main.c"]).map(&names, &[])[2], Meant::Outside);
}

#[test]
fn paths_of_a_container_are_found_by_their_end() {
    let files = ["service/src/main.rs", "service/src/raft/log.rs", "other/src/main.rs", "service/main.c"];
    let names = named(&["/app/src/main.rs", "/app/src/raft/log.rs", "/rustc/abc/library/core/src/main.rs"]);
    let meant = checkout(&files).map(&names, &[]);
    // src/main.rs is in two directories.
    assert!(matches!(meant[0], Meant::Ambiguous(..)), "{meant:?}");
    assert_eq!(meant[1..], [file("service/src/raft/log.rs"), Meant::Outside]);
}

#[test]
fn a_common_name_alone_is_not_trusted_beside_better_matches() {
    let files = ["src/main.c", "src/kv/store.c", "src/util.c"];
    let names = named(&["/build/src/main.c", "/build/src/kv/store.c", "/glibc/csu/util.c"]);
    assert_eq!(
        checkout(&files).map(&names, &[]),
        [file("src/main.c"), file("src/kv/store.c"), Meant::Outside]
    );
    // A program of one file has nothing else to go by.
    assert_eq!(checkout(&files).map(&named(&["/build/util.c"]), &[]), [file("src/util.c")]);
}

#[test]
fn a_build_in_the_checkout_names_its_own_files() {
    let files = ["src/main.rs", "src/lib.rs", "other/src/lib.rs"];
    let names = named(&["/home/me/kv/src/main.rs", "/deps/hash/src/lib.rs", "/x/src/main.rs"]);
    assert_eq!(checkout(&files).map(&names, &[]), [file("src/main.rs"), Meant::Outside, Meant::Outside]);
}

#[test]
fn a_few_common_names_of_a_large_program_are_chance() {
    let files = ["conformance/c/signal.c", "conformance/c/pipe.c"];
    let mut names: Vec<String> = (0..20).map(|n| format!("/deps/uv/src/unix/file{n}.c")).collect();
    names.extend(["/deps/uv/src/unix/signal.c".to_owned(), "/deps/uv/src/unix/pipe.c".to_owned()]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let meant = checkout(&files).map(&named(&names), &[]);
    assert!(meant.iter().all(|meant| *meant == Meant::Outside), "{meant:?}");
}

#[test]
fn dependencies_with_common_paths_are_outside() {
    let files = ["src/lib.rs", "src/main.rs"];
    let names = named(&[
        "/root/.cargo/registry/src/index.crates.io-1/serde-1.0.0/src/lib.rs",
        "/app/vendor/serde/src/lib.rs",
        "/deps/serde/src/lib.rs",
        "/app/src/lib.rs",
        "/app/src/main.rs",
    ]);
    let meant = checkout(&files).map(&names, &[]);
    assert_eq!(meant[..3], [Meant::Outside, Meant::Outside, Meant::Outside]);
    assert_eq!(meant[3..], [file("src/lib.rs"), file("src/main.rs")]);
}

#[test]
fn the_path_map_comes_first() {
    let files = ["a/src/main.c", "b/src/main.c"];
    let map = [("/build".to_owned(), "b".to_owned())];
    let names = named(&["/build/src/main.c", "/build/src/gone.c", "/builder/src/main.c"]);
    let meant = checkout(&files).map(&names, &map);
    assert_eq!(meant[0], file("b/src/main.c"));
    assert_eq!(meant[1], Meant::Outside);
    assert!(matches!(meant[2], Meant::Ambiguous(..)), "{meant:?}");
    let map = [("/build".to_owned(), "/home/me/kv/a".to_owned())];
    assert_eq!(checkout(&files).map(&names[..1], &map), [file("a/src/main.c")]);
}

#[test]
fn digests_decide_and_refuse() {
    let root = std::env::temp_dir().join(format!("bloodhound-coverage-md5-{}", std::process::id()));
    for (path, text) in [("a/src/main.c", "int a;\n"), ("b/src/main.c", "int b;\n"), ("c/src/one.c", "old\n")]
    {
        std::fs::create_dir_all(root.join(path).parent().expect("a directory")).expect("a directory");
        std::fs::write(root.join(path), text).expect("a file");
    }
    let checkout = Checkout::scan(&root).expect("a checkout");
    let md5 = |text: &str| Some(Md5::digest(text).into());
    let name = |path: &str, text: &str| Named { path: path.to_owned(), md5: md5(text) };
    let meant = checkout.map(&[name("/build/src/main.c", "int b;\n")], &[]);
    assert_eq!(meant, [file("b/src/main.c")]);
    assert_eq!(checkout.map(&[name("/build/src/main.c", "int c;\n")], &[]), [Meant::Outside]);
    let own = checkout.root().join("c/src/one.c").to_string_lossy().into_owned();
    assert_eq!(checkout.map(&[name(&own, "new\n")], &[]), [Meant::Changed("c/src/one.c".to_owned())]);
    std::fs::remove_dir_all(&root).expect("removed");
}
