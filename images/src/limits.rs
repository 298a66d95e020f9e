//! Bounds for what an image may make this process do. An image comes from elsewhere: without bounds, 10 MB that
//! decompress to 10 GiB of zeros, or a million directories, would fill the disk or the memory.

use crate::error::Error;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How large things may be. Each can be raised by the environment variable that is named with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one layer, uncompressed, and bytes of all its files together: `BLOODHOUND_IMAGE_MAX_LAYER`.
    pub layer: u64,
    /// Bytes of all layers of an image, uncompressed: `BLOODHOUND_IMAGE_MAX_SIZE`.
    pub image: u64,
    /// Files and directories of one layer: `BLOODHOUND_IMAGE_MAX_ENTRIES`.
    pub entries: u64,
    /// Layers of an image: `BLOODHOUND_IMAGE_MAX_LAYERS`. Engines stop at 127.
    pub layers: u64,
    /// Bytes of a manifest, an index or a configuration: `BLOODHOUND_IMAGE_MAX_MANIFEST`. Registries stop at 4 MiB.
    pub manifest: u64,
    /// How many times larger than its compressed form a layer may be that has more than 1 GiB: `BLOODHOUND_IMAGE_MAX_RATIO`.
    /// Files of programs reach 20, only zeros reach a thousand.
    pub ratio: u64,
    /// Bytes of the names, links and extended attributes of one layer: `BLOODHOUND_IMAGE_MAX_NAMES`.
    pub names: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            layer: 8 * GIB,
            image: 32 * GIB,
            entries: 1_000_000,
            layers: 256,
            manifest: 4 * MIB,
            ratio: 200,
            names: 256 * MIB,
        }
    }
}

impl Limits {
    /// The defaults, with what the environment says otherwise.
    ///
    /// # Errors
    /// A variable that is no number of bytes.
    pub fn from_environment() -> Result<Limits, Error> {
        Limits::default().overridden(&|name| std::env::var(name).ok())
    }

    fn overridden(mut self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Limits, Error> {
        let fields = [
            ("BLOODHOUND_IMAGE_MAX_LAYER", &mut self.layer),
            ("BLOODHOUND_IMAGE_MAX_SIZE", &mut self.image),
            ("BLOODHOUND_IMAGE_MAX_ENTRIES", &mut self.entries),
            ("BLOODHOUND_IMAGE_MAX_LAYERS", &mut self.layers),
            ("BLOODHOUND_IMAGE_MAX_MANIFEST", &mut self.manifest),
            ("BLOODHOUND_IMAGE_MAX_RATIO", &mut self.ratio),
            ("BLOODHOUND_IMAGE_MAX_NAMES", &mut self.names),
        ];
        for (name, field) in fields {
            if let Some(text) = variable(name) {
                *field = number(&text).ok_or_else(|| {
                    Error::new(
                        crate::ErrorKind::Usage,
                        format!("{name}={text} is no size: a number is expected, such as 1000000 or 16GiB"),
                    )
                })?;
            }
        }
        Ok(self)
    }
}

/// `123`, `16MiB`, `16GiB`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" | "k" => 1 << 10,
        "MiB" | "m" => MIB,
        "GiB" | "g" => GIB,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The error of something that is larger than `most` allows.
pub(crate) fn exceeded(what: &str, most: u64, unit: &str, variable: &str) -> Error {
    Error::limit(format!("{what} more than {most} {unit}, which is the limit: {variable} raises it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_raises_limits() {
        let set = |name: &str| (name == "BLOODHOUND_IMAGE_MAX_LAYER").then(|| "16GiB".to_owned());
        let limits = Limits::default().overridden(&set).expect("a size");
        assert_eq!((limits.layer, limits.image), (16 * GIB, Limits::default().image));
        let wrong = Limits::default().overridden(&|_| Some("much".to_owned())).expect_err("no size");
        assert_eq!(
            wrong.to_string(),
            "BLOODHOUND_IMAGE_MAX_LAYER=much is no size: a number is expected, such as 1000000 or 16GiB"
        );
    }
}
