//! Instruction bytes as text for errors ([`describe`]).

use iced_x86::{Decoder, DecoderOptions};

/// The first instruction's mnemonic and bytes, such as `cmpxchg16b (48 0f c7 09)`; just the bytes if they are none.
pub(crate) fn describe(code: &[u8]) -> String {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    let valid = !instruction.is_invalid();
    let len = if valid { instruction.len().min(code.len()) } else { code.len() };
    let bytes: Vec<String> = code[..len].iter().map(|byte| format!("{byte:02x}")).collect();
    match valid {
        true => format!("{} ({})", format!("{:?}", instruction.mnemonic()).to_lowercase(), bytes.join(" ")),
        false => format!("bytes {}", bytes.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn names_and_bytes() {
        assert_eq!(describe(b"\x48\x0f\xc7\x09\x90\x90"), "cmpxchg16b (48 0f c7 09)");
        assert_eq!(describe(b"\x06\x90"), "bytes 06 90");
    }
}
