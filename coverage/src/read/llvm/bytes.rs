//! Numbers in a stretch of bytes.

/// Reads from the front of bytes.
pub(super) struct Bytes<'b> {
    bytes: &'b [u8],
    at: usize,
    /// What the bytes are, for errors.
    what: &'static str,
}

impl<'b> Bytes<'b> {
    pub(super) fn new(bytes: &'b [u8], what: &'static str) -> Bytes<'b> {
        Bytes { bytes, at: 0, what }
    }

    /// An error at the place that is read next.
    pub(super) fn wrong(&self, text: &str) -> String {
        format!("{}: {text} at byte {:#x}", self.what, self.at)
    }

    pub(super) fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'b [u8], String> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken =
            taken.ok_or_else(|| self.wrong(&format!("{length} bytes are wanted, which are not there,")))?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Goes on to a multiple of eight bytes from the beginning, or to the end.
    pub(super) fn align(&mut self) {
        self.at = self.at.next_multiple_of(8).min(self.bytes.len());
    }

    pub(super) fn u16(&mut self) -> Result<u16, String> {
        Ok(self.take(2)?.iter().rev().fold(0, |sum, byte| sum << 8 | u16::from(*byte)))
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        Ok(self.take(4)?.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        Ok(self.take(8)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A number in unsigned LEB128 (DWARF 5, 7.6).
    pub(super) fn leb(&mut self) -> Result<u64, String> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number has more than 64 bits"))
    }

    /// A number in LEB128 that counts things of which each takes a byte at least.
    pub(super) fn count(&mut self) -> Result<usize, String> {
        let count = self.leb()?;
        let fits = usize::try_from(count).ok().filter(|count| *count <= self.rest().len());
        fits.ok_or_else(|| self.wrong(&format!("it has no room for {count} entries")))
    }

    /// A number in LEB128 of at most 32 bits.
    pub(super) fn small(&mut self) -> Result<u32, String> {
        let number = self.leb()?;
        u32::try_from(number).map_err(|_| self.wrong(&format!("{number} is too large")))
    }
}
