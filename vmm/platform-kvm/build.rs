//! Builds the monitor: assembles and links `monitor/monitor.S` with the C compiler that Rust links with as well.

use std::path::PathBuf;
use std::process::Command;

#[allow(clippy::disallowed_methods)] // what Cargo tells a build script
fn main() {
    for file in ["monitor/monitor.S", "monitor/monitor.ld"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("Cargo sets OUT_DIR")).join("monitor.elf");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args([
            "-nostdlib",
            "-nostartfiles",
            "-static",
            "-no-pie",
            "-Wl,--build-id=none",
            "-Wl,-z,noexecstack",
        ])
        .args(["-Wl,-T,monitor/monitor.ld", "-o"])
        .arg(&out)
        .arg("monitor/monitor.S")
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} cannot build the monitor: {status}"),
        Err(error) => panic!("a C compiler is needed to build the monitor ({compiler}): {error}"),
    }
}
