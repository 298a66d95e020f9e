//! Base 64 with the usual alphabet (RFC 4648), for basic authentication and the files of credentials.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text for these bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            if digit <= chunk.len() {
                text.push(char::from(ALPHABET[(bits >> (18 - 6 * digit) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The bytes of this text, with or without the signs that fill it up.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.chunks(4) {
        let mut bits = 0u32;
        for byte in chunk {
            // Some tools write the alphabet for addresses.
            let byte = match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => *other,
            };
            bits = (bits << 6) | u32::try_from(ALPHABET.iter().position(|letter| *letter == byte)?).ok()?;
        }
        bits <<= 6 * (4 - chunk.len());
        let whole = bits.to_be_bytes();
        bytes.extend(&whole[1..][..(chunk.len() * 6) / 8]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(decode("Z!"), None);
    }
}
