//! The kernel: found by apt, downloaded and checked by apt, unpacked below the target directory, never installed.
//!
//! Key type: [`Kernel`]. What is kept of a package is the kernel and the modules that the virtual machine loads, under the
//! release and version of the package, so a new kernel in the archive is a new entry.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::Distribution;
use super::modules::{Module, Tree};
use crate::failure::{Failure, broken_at};

/// What the virtual machine needs beyond what is built in: KVM, the port of its output, the files of this machine.
const MODULES: [&str; 6] = ["kvm_amd", "virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];

/// A kernel that is there to be booted.
#[derive(Debug)]
pub struct Kernel {
    /// The bootable file.
    pub image: PathBuf,
    /// Its modules in the order of loading: file name `<number>-<name>.ko`, and the bytes.
    pub modules: Vec<(String, Vec<u8>)>,
}

/// What apt says about a package.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    depends: Vec<String>,
}

/// Takes the kernel from the cache, or downloads it.
///
/// # Errors
/// apt does not know it, it cannot be downloaded, or it is no kernel with the modules that are needed.
pub fn fetch(distribution: Distribution, package: Option<&str>, root: &Path) -> Result<Kernel, Failure> {
    let packages = resolve(package.unwrap_or(distribution.kernel_package()))?;
    let image = &packages[0];
    let release = release(&image.name);
    let kept = root.join("kernel").join(format!("{release}_{}", image.version.replace([':', '~'], "-")));
    if !kept.join("vmlinuz").exists() {
        eprintln!("downloading the kernel: {} {}", image.name, image.version);
        let work = root.join(format!("run-{}", std::process::id())).join("kernel");
        fs::create_dir_all(&work).map_err(broken_at(&work))?;
        download(&packages, &work)?;
        keep(&work, release, &kept)?;
        fs::remove_dir_all(&work).map_err(broken_at(&work))?;
    }
    read(&kept)
}

/// The release in a package's name: `linux-image-6.1.0-48-amd64` holds 6.1.0-48-amd64.
fn release(package: &str) -> &str {
    let rest = package.strip_prefix("linux-image-").unwrap_or(package);
    rest.strip_prefix("unsigned-").unwrap_or(rest)
}

/// Follows a package that only depends on others to the kernel's image, which comes first, and the packages of its modules.
fn resolve(name: &str) -> Result<Vec<Package>, Failure> {
    let mut package = describe(name)?;
    // A metapackage depends on another one at most twice in all distributions known.
    for _ in 0..4 {
        match package.depends.iter().find(|name| name.starts_with("linux-image-")) {
            Some(next) => package = describe(next)?,
            None => break,
        }
    }
    let modules: Vec<String> =
        package.depends.iter().filter(|name| name.starts_with("linux-modules-")).cloned().collect();
    let mut all = vec![package];
    for name in modules {
        all.push(describe(&name)?);
    }
    Ok(all)
}

fn describe(name: &str) -> Result<Package, Failure> {
    let output = Command::new("apt-cache").args(["show", "--no-all-versions", name]).output();
    let output = output.map_err(|e| Failure::Missing(format!("apt-cache: {e}")))?;
    parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        Failure::Missing(format!(
            "apt knows no package {name}: its lists are empty or old\n\
             get them: sudo apt-get update, or: cargo xtask stock-kvm --install"
        ))
    })
}

/// Reads one record of deb822(5) as apt-cache prints it. Of alternatives the first is taken.
fn parse(record: &str) -> Option<Package> {
    let field = |key: &str| record.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let depends = field("Depends:").unwrap_or("").split(',');
    let name = |dependency: &str| {
        let name = dependency.trim().split([' ', '|', ':', '(']).next()?;
        (!name.is_empty()).then(|| name.to_string())
    };
    Some(Package {
        name: field("Package:")?.to_string(),
        version: field("Version:")?.to_string(),
        depends: depends.filter_map(name).collect(),
    })
}

/// Lets apt download packages into a directory. It compares them with the hashes of its signed lists.
fn download(packages: &[Package], directory: &Path) -> Result<(), Failure> {
    let mut command = Command::new("apt-get");
    // As root, apt would drop its rights and then fail to write here.
    command.args(["download", "-q", "-o", "APT::Sandbox::User=root"]).current_dir(directory);
    command.args(packages.iter().map(|package| format!("{}={}", package.name, package.version)));
    let output = command.output().map_err(|e| Failure::Missing(format!("apt-get: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::Missing(format!(
        "apt-get download failed: {}\nthe lists may be old: sudo apt-get update, or: cargo xtask stock-kvm --install",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Unpacks what was downloaded and keeps what is needed of it.
fn keep(work: &Path, release: &str, kept: &Path) -> Result<(), Failure> {
    let tree = work.join("tree");
    for entry in fs::read_dir(work).map_err(broken_at(work))?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "deb") {
            let status = Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(&tree).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(Failure::Broken(format!("dpkg-deb cannot unpack {}", entry.path().display())));
            }
        }
    }
    let first = |paths: [String; 2]| paths.map(|path| tree.join(path)).into_iter().find(|path| path.exists());
    let missing = |what: &str| Failure::Missing(format!("the kernel's package has no {what} for {release}"));
    let image = first([format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")]);
    let modules = first([format!("lib/modules/{release}"), format!("usr/lib/modules/{release}")]);
    let modules = Tree::read(&modules.ok_or_else(|| missing("modules"))?)?.in_order(&MODULES)?;
    let new = work.join("new");
    write(&new, &image.ok_or_else(|| missing("vmlinuz"))?, &modules)?;
    let parent = kept.parent().unwrap_or(work);
    fs::create_dir_all(parent).map_err(broken_at(parent))?;
    // A directory without a kernel is left of something else; another process may also have been faster.
    if fs::rename(&new, kept).is_err() && !kept.join("vmlinuz").exists() {
        let _ignored = fs::remove_dir_all(kept);
        fs::rename(&new, kept).map_err(broken_at(kept))?;
    }
    Ok(())
}

fn write(directory: &Path, image: &Path, modules: &[Module]) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(broken_at(directory))?;
    for (index, module) in modules.iter().enumerate() {
        let path = directory.join(format!("{index:02}-{}.ko", module.name));
        fs::write(&path, &module.bytes).map_err(broken_at(&path))?;
    }
    fs::copy(image, directory.join("vmlinuz")).map(drop).map_err(broken_at(image))
}

fn read(kept: &Path) -> Result<Kernel, Failure> {
    let mut modules = Vec::new();
    for entry in fs::read_dir(kept).map_err(broken_at(kept))?.flatten() {
        if let Some(name) = entry.file_name().to_str().filter(|name| name.ends_with(".ko")) {
            modules.push((name.to_string(), fs::read(entry.path()).map_err(broken_at(&entry.path()))?));
        }
    }
    modules.sort();
    let image = kept.join("vmlinuz");
    let size = fs::metadata(&image).map_err(broken_at(&image))?.size();
    if modules.is_empty() || size == 0 {
        return Err(Failure::Broken(format!("{} is not whole: remove it and try again", kept.display())));
    }
    Ok(Kernel { image, modules })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_read_from_apt_cache() {
        let text = "Package: linux-image-virtual\nVersion: 6.8.0-149.149\n\
                    Depends: linux-image-6.8.0-149-generic (= 6.8), linux-base | other, kmod:any\nSize: 1\n";
        let package = parse(text).expect("a package");
        assert_eq!(package.name, "linux-image-virtual");
        assert_eq!(package.version, "6.8.0-149.149");
        assert_eq!(package.depends, ["linux-image-6.8.0-149-generic", "linux-base", "kmod"]);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_release_is_in_the_name() {
        assert_eq!(release("linux-image-6.1.0-48-amd64"), "6.1.0-48-amd64");
        assert_eq!(release("linux-image-unsigned-6.8.0-149-generic"), "6.8.0-149-generic");
    }
}
