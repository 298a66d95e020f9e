//! Layers and archives may be compressed by gzip or zstd, of which several streams may follow each other (pigz, eStargz,
//! zstd:chunked). Which it is tell the first bytes, not the media type: tools have written the wrong one.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::limits::exceeded;

/// How a stream of bytes is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// What these first bytes of a stream say. Other compressions are an error that names them.
    pub(crate) fn of(first: &[u8]) -> io::Result<Compression> {
        // A skippable frame of zstd has any of 16 numbers.
        let skippable = first.len() >= 4 && first[0] & 0xf0 == 0x50 && first[1..4] == [0x2a, 0x4d, 0x18];
        let other =
            |name| Err(io::Error::other(format!("it is compressed by {name}: gzip and zstd are supported")));
        match first {
            [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Compression::Zstd),
            _ if skippable => Ok(Compression::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => other("xz"),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => other("bzip2"),
            [0x04, 0x22, 0x4d, 0x18, ..] => other("lz4"),
            _ => Ok(Compression::None),
        }
    }
}

/// The uncompressed bytes of `inner`.
pub(crate) fn reader<'a>(inner: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut inner = BufReader::with_capacity(128 << 10, inner);
    let mut first = [0; 6];
    let mut have = 0;
    // Short reads are possible, and fill_buf() need not give all six.
    while have < first.len() {
        match inner.read(&mut first[have..])? {
            0 => break,
            read => have += read,
        }
    }
    let first = io::Cursor::new(first[..have].to_vec());
    let compression = Compression::of(first.get_ref())?;
    let inner = first.chain(inner);
    Ok(match compression {
        Compression::None => Box::new(inner),
        Compression::Gzip => Box::new(Gzip(MultiGzDecoder::new(inner))),
        Compression::Zstd => Box::new(Zstd::new(inner)),
    })
}

/// gzip whose errors say what is damaged.
struct Gzip<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the gzip stream is truncated"),
            io::ErrorKind::Other => e,
            _ => io::Error::other(format!("the gzip stream is damaged: {e}")),
        })
    }
}

/// All frames of a zstd stream, one after the other.
struct Zstd<R> {
    frame: FrameDecoder,
    /// A frame has begun and is not at its end.
    begun: bool,
    inner: R,
}

/// A frame with nothing in it.
const EMPTY: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 1, 0, 0];

impl<R: BufRead> Zstd<R> {
    fn new(inner: R) -> Zstd<R> {
        let mut frame = FrameDecoder::new();
        // ruzstd bounds the window of every frame but the first that a decoder sees.
        let _begun = frame.reset(EMPTY);
        Zstd { frame, begun: false, inner }
    }

    /// Begins the next frame with content; false at the end.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.inner.fill_buf()?.is_empty() {
            match self.frame.reset(&mut self.inner) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut rest = self.inner.by_ref().take(u64::from(length));
                    if io::copy(&mut rest, &mut io::sink())? != u64::from(length) {
                        return Err(io::Error::other("the zstd stream is truncated"));
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { requested }) => {
                    return Err(io::Error::other(format!(
                        "the zstd stream asks for a window of {requested} bytes: at most 100 MiB are supported"
                    )));
                }
                Err(e) => return Err(io::Error::other(format!("the zstd stream is damaged: {e}"))),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.begun {
                if !self.begin()? {
                    return Ok(0);
                }
                self.begun = true;
            }
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBlocks(1);
                self.frame
                    .decode_blocks(&mut self.inner, strategy)
                    .map_err(|e| io::Error::other(format!("the zstd stream is damaged or truncated: {e}")))?;
            }
            let read = self.frame.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            // The frame's own checksum is not looked at: digests cover all that it could.
            self.begun = false;
        }
    }
}

/// Passes on at most so many bytes; one more is an error.
pub(crate) struct Bounded<R> {
    inner: R,
    left: u64,
    most: u64,
    what: &'static str,
    variable: &'static str,
}

impl<R: Read> Bounded<R> {
    /// `what` and `variable` as in [`exceeded`].
    pub(crate) fn new(inner: R, most: u64, what: &'static str, variable: &'static str) -> Bounded<R> {
        Bounded { inner, left: most, most, what, variable }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(exceeded(self.what, self.most, "bytes", self.variable))),
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn plain(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        reader(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).expect("memory");
        out.finish().expect("memory")
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn several_streams_are_one() {
        let text: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(plain(&text).expect("plain"), text);
        assert_eq!(plain(b"").expect("nothing"), b"");
        let twice = [text.as_slice(), &text].concat();
        for compress in [gzip, zstd] {
            let once = compress(&text);
            assert_eq!(plain(&once).expect("one stream"), text);
            assert_eq!(plain(&[once.as_slice(), &once].concat()).expect("two streams"), twice);
            plain(&once[..once.len() - 9]).expect_err("truncated");
        }
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&text)].concat();
        assert_eq!(plain(&skippable).expect("a skippable frame"), text);
    }

    #[test]
    fn other_compressions_are_named() {
        let error = plain(b"\xfd7zXZ\0....").expect_err("xz");
        assert_eq!(error.to_string(), "it is compressed by xz: gzip and zstd are supported");
    }

    #[test]
    fn what_is_too_large_is_an_error() {
        let mut bounded = Bounded::new(&b"12345"[..], 4, "it has", "NAME");
        let error = io::copy(&mut bounded, &mut io::sink()).expect_err("five bytes");
        assert_eq!(error.to_string(), "it has more than 4 bytes, which is the limit: NAME raises it");
    }
}
