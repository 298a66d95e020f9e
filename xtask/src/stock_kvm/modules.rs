//! Kernel modules: which ones are needed, in which order they load.
//!
//! Key type: [`Tree`], the modules of an unpacked kernel package. modules.dep is not in the packages (depmod writes it at
//! installation), so the dependencies are read from the modules themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, broken_at};

/// A module, ready to be loaded.
#[derive(Debug)]
pub struct Module {
    /// Its name with underscores, as in /proc/modules.
    pub name: String,
    /// The object file, not compressed.
    pub bytes: Vec<u8>,
}

/// The modules below a directory, and the names of those that are built into the kernel.
#[derive(Debug)]
pub struct Tree {
    files: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
}

impl Tree {
    /// Reads `lib/modules/<release>` of a kernel package.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn read(directory: &Path) -> Result<Tree, Failure> {
        let mut files = BTreeMap::new();
        let mut open = vec![directory.to_path_buf()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).map_err(broken_at(&directory))? {
                let entry = entry.map_err(broken_at(&directory))?;
                let kind = entry.file_type().map_err(broken_at(&directory))?;
                if kind.is_dir() {
                    open.push(entry.path());
                } else if let Some(name) = entry.file_name().to_str().and_then(module_name) {
                    files.insert(name, entry.path());
                }
            }
        }
        let list = fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default();
        let built_in =
            list.lines().filter_map(|line| module_name(line.rsplit('/').next().unwrap_or(line))).collect();
        Ok(Tree { files, built_in })
    }

    /// The modules with these names and all that they need, each after what it needs. Built-in ones are left out.
    ///
    /// # Errors
    /// The kernel has no such module, or its file is damaged.
    pub fn in_order(&self, wanted: &[&str]) -> Result<Vec<Module>, Failure> {
        let mut found = Vec::new();
        for name in wanted {
            self.add(name, &mut found, 0)?;
        }
        Ok(found)
    }

    /// Adds a module after its dependencies. No chain of modules is anywhere near as deep as 32.
    fn add(&self, name: &str, found: &mut Vec<Module>, depth: u32) -> Result<(), Failure> {
        let name = name.replace('-', "_");
        if found.iter().any(|module| module.name == name) || self.built_in.contains(&name) {
            return Ok(());
        }
        let path = self
            .files
            .get(&name)
            .filter(|_| depth < 32)
            .ok_or_else(|| Failure::Missing(format!("the kernel's package has no module {name}")))?;
        let bytes = unpacked(path)?;
        for dependency in
            depends(&bytes).ok_or_else(|| Failure::Broken(format!("{}: no module", path.display())))?
        {
            self.add(&dependency, found, depth + 1)?;
        }
        found.push(Module { name, bytes });
        Ok(())
    }
}

/// The module's name in a file name: `kvm-amd.ko.zst` is `kvm_amd`.
fn module_name(file: &str) -> Option<String> {
    let (name, rest) = file.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

/// What a module needs, from the entry `depends=` of its section .modinfo: strings that end with a zero byte.
fn depends(module: &[u8]) -> Option<Vec<String>> {
    const KEY: &[u8] = b"\0depends=";
    let start = module.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let length = module[start..].iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&module[start..start + length]).ok()?;
    Some(text.split(',').filter(|name| !name.is_empty()).map(str::to_string).collect())
}

/// A module's object file.
fn unpacked(path: &Path) -> Result<Vec<u8>, Failure> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).map_err(broken_at(path)),
    };
    let output = Command::new(program).arg("-dc").arg(path).output();
    let output = output.map_err(|e| Failure::Missing(format!("{program}: {e}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Broken(format!("{program} -dc {}: {text}", path.display())));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(depends: &str) -> Vec<u8> {
        format!("\x7fELF\0license=GPL\0depends={depends}\0name=x\0").into_bytes()
    }

    #[test]
    fn names_are_those_of_proc_modules() {
        assert_eq!(module_name("kvm-amd.ko.zst").as_deref(), Some("kvm_amd"));
        assert_eq!(module_name("9p.ko").as_deref(), Some("9p"));
        assert_eq!(module_name("modules.order"), None);
        assert_eq!(module_name("x.ko.new"), None);
    }

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(depends(&module("kvm,irqbypass")), Some(vec!["kvm".into(), "irqbypass".into()]));
        assert_eq!(depends(&module("")), Some(Vec::new()));
        assert_eq!(depends(b"\0depends=kvm"), None, "no end");
        assert_eq!(depends(b""), None);
    }

    #[test]
    fn every_module_comes_after_what_it_needs() {
        let root = std::env::temp_dir().join(format!("xtask-modules-{}", std::process::id()));
        fs::create_dir_all(root.join("kernel/kvm")).expect("a directory");
        for (name, depends) in
            [("kvm-amd", "kvm,ccp"), ("kvm", "irqbypass"), ("ccp", "rng-core"), ("irqbypass", "")]
        {
            fs::write(root.join(format!("kernel/kvm/{name}.ko")), module(depends)).expect("a file");
        }
        fs::write(root.join("modules.builtin"), "kernel/drivers/char/hw_random/rng-core.ko\n")
            .expect("a file");
        let tree = Tree::read(&root).expect("a tree");
        let order = tree.in_order(&["kvm_amd", "kvm"]).expect("all there");
        let names: Vec<&str> = order.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["irqbypass", "kvm", "ccp", "kvm_amd"]);
        assert!(tree.in_order(&["9p"]).is_err());
        fs::remove_dir_all(&root).expect("removed");
    }
}
