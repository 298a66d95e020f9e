//! SHA-256 digests: how every blob of an image is named.

use std::fmt;
use std::str::FromStr;

use sha2::Digest as _;

use crate::error::{Error, ErrorKind, shown};

/// A SHA-256 digest, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(sha2::Sha256::digest(bytes).into())
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// A digest of these 32 bytes, which were computed elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    /// The 64 hexadecimal digits, as files of the cache are named.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first 12 hexadecimal digits, as engines show them.
    pub fn short(&self) -> String {
        self.hex()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Digest {
    type Err = Error;

    /// Reads `sha256:HEX`. Other algorithms are refused by name: registries use this one throughout.
    fn from_str(text: &str) -> Result<Digest, Error> {
        let wrong = || {
            Error::damaged(format!(
                "{} is no digest: sha256: and 64 hexadecimal digits are expected",
                shown(text.as_bytes())
            ))
        };
        let (algorithm, hex) = text.split_once(':').ok_or_else(wrong)?;
        if algorithm != "sha256" {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("{} is not supported as a digest: only sha256 is", shown(text.as_bytes())),
            ));
        }
        // Upper case is not allowed by the OCI image specification ("lowercase hex encoded").
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if hex.len() != 64 || !hex.bytes().all(digit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Digest(bytes))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Digest, D::Error> {
        String::deserialize(input)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes a digest of what it is given piece by piece.
#[derive(Clone, Default)]
pub(crate) struct Hasher(sha2::Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = Digest::of(b"");
        assert_eq!(
            digest.to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for wrong in ["", "sha256", "sha256:12", &digest.to_string().to_uppercase(), "sha512:00", "sha256:é"]
        {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        let multibyte = format!("sha256:{}", "é".repeat(32));
        assert!(multibyte.parse::<Digest>().is_err());
    }
}
