//! Compressed record batches: checks that they hold the records they say, without ever holding
//! these at once.
//!
//! What is taken is what Kafka's own clients can read, exactly one stream and nothing behind it:
//! - gzip (RFC 1952), one member.
//! - snappy: blocks in the framing of snappy-java, or one bare block.
//! - LZ4 frames with independent blocks and no dictionary (Kafka: `Lz4BlockInputStream`).
//! - Zstandard (RFC 8878), one frame, with a window of at most 128 MiB.
//!
//! Decompressed bytes are bounded, and so is the memory, whatever the data claims: one buffer, and
//! what a decompressor keeps. Only a snappy block is decompressed whole, since nothing else can be
//! done with it; it is refused first if it claims more than its bytes can make.

use super::batch::{BATCH_HEADER_BYTES, BatchError, BatchHeader, Codec};
use super::record_check::{RecordsFault, check_records};
use flate2::bufread::GzDecoder;
use lz4_flex::frame::FrameDecoder;
use std::io::{self, BufRead, Read};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

/// Decompressed bytes that are looked at in one go.
const BUFFER_BYTES: usize = 64 * 1024;

/// Larger buffers are given back after use.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Greatest window of a Zstandard frame, as a power of two (Kafka's reader: zstd-jni's default).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What snappy-java writes before its blocks; two version numbers follow.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_BYTES: usize = 16;

/// A snappy element of three bytes makes 64 at most.
const SNAPPY_RATIO_MAX: usize = 22;

const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// Checks compressed batches, one after the other, in the same memory.
#[derive(Default)]
pub struct Decompressor {
    buffer: Vec<u8>,
    zstd: Option<ZstdDecoder<'static>>,
}

impl Decompressor {
    /// One that has no memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the records of a whole batch, of which all else is checked, and which may be
    /// `bytes_max` bytes. How many they are.
    ///
    /// # Errors
    /// `Record` for a malformed record, `Compression` for a stream that is none or not only one,
    /// `Decompressed` if there is more than is allowed.
    pub fn check(&mut self, batch: &[u8], bytes_max: u64) -> Result<u64, BatchError> {
        let header = BatchHeader::parse(batch)?;
        let Some(bytes) = batch.get(BATCH_HEADER_BYTES..header.size) else {
            let (needed, found) = (header.size, batch.len());
            return Err(BatchError::Cut { needed, found });
        };
        let checked = self.check_stream(&header, bytes, bytes_max);
        self.give_back(checked.unwrap_or(u64::MAX));
        checked.map_err(|fault| match fault {
            RecordsFault::Record { index, fault } => BatchError::Record { index, fault },
            RecordsFault::TooLarge => BatchError::Decompressed(bytes_max),
            RecordsFault::Source => BatchError::Compression(header.codec()),
        })
    }

    /// Gives memory back that a large batch took.
    fn give_back(&mut self, decompressed_bytes: u64) {
        if self.buffer.len() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
        // Its window is as large as what it has seen, at most.
        if decompressed_bytes > KEPT_BYTES_MAX as u64 {
            self.zstd = None;
        }
    }

    fn check_stream(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        bytes_max: u64,
    ) -> Result<u64, RecordsFault> {
        match header.codec() {
            Codec::None => check_records(&mut &*bytes, header, bytes_max),
            Codec::Gzip => self.gzip(header, bytes, bytes_max),
            Codec::Snappy => self.snappy(header, bytes, bytes_max),
            Codec::Lz4 => lz4(header, bytes, bytes_max),
            Codec::Zstd => self.zstd(header, bytes, bytes_max),
            Codec::Unknown(_) => Err(RecordsFault::Source),
        }
    }

    fn gzip(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        bytes_max: u64,
    ) -> Result<u64, RecordsFault> {
        let mut source = Buffered::new(GzDecoder::new(bytes), &mut self.buffer);
        let count = check_records(&mut source, header, bytes_max)?;
        nothing_follows(source.reader.into_inner())?;
        Ok(count)
    }

    fn snappy(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        bytes_max: u64,
    ) -> Result<u64, RecordsFault> {
        let (blocks, is_framed) = match bytes.split_at_checked(XERIAL_HEADER_BYTES) {
            Some((start, blocks)) if start.starts_with(XERIAL_MAGIC) => (blocks, true),
            _ => (bytes, false),
        };
        let mut source = Snappy {
            blocks,
            is_framed,
            block: &mut self.buffer,
            at: 0,
            end: 0,
            left: bytes_max,
        };
        check_records(&mut source, header, bytes_max)
    }

    fn zstd(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        bytes_max: u64,
    ) -> Result<u64, RecordsFault> {
        let source = |_| RecordsFault::Source;
        let decoder = match &mut self.zstd {
            Some(decoder) => decoder,
            none => none.insert(zstd_decoder().map_err(source)?),
        };
        decoder.reinit().map_err(source)?;
        let frame = ZstdFrame {
            decoder,
            bytes,
            is_over: false,
        };
        let mut source = Buffered::new(frame, &mut self.buffer);
        let count = check_records(&mut source, header, bytes_max)?;
        nothing_follows(source.reader.bytes)?;
        Ok(count)
    }
}

fn nothing_follows(rest: &[u8]) -> Result<(), RecordsFault> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(RecordsFault::Source)
    }
}

/// A reader with a buffer that is lent to it.
struct Buffered<'a, R> {
    reader: R,
    buffer: &'a mut [u8],
    at: usize,
    end: usize,
}

impl<'a, R> Buffered<'a, R> {
    fn new(reader: R, buffer: &'a mut Vec<u8>) -> Self {
        buffer.resize(BUFFER_BYTES, 0);
        Self {
            reader,
            buffer,
            at: 0,
            end: 0,
        }
    }
}

impl<R: Read> Read for Buffered<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for Buffered<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.end {
            self.at = 0;
            self.end = self.reader.read(self.buffer)?;
        }
        Ok(&self.buffer[self.at..self.end])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
        assert!(self.at <= self.end, "took more than there was");
    }
}

/// Snappy blocks, decompressed one at a time.
struct Snappy<'a> {
    blocks: &'a [u8],
    /// Each block has its size before it.
    is_framed: bool,
    block: &'a mut Vec<u8>,
    at: usize,
    end: usize,
    /// Bytes that may still come.
    left: u64,
}

impl Snappy<'_> {
    fn next_block(&mut self) -> io::Result<()> {
        let block = if self.is_framed {
            let (size, rest) = self.blocks.split_first_chunk().ok_or_else(invalid)?;
            let size = u32::from_be_bytes(*size) as usize;
            let (block, rest) = rest.split_at_checked(size).ok_or_else(invalid)?;
            self.blocks = rest;
            block
        } else {
            std::mem::take(&mut self.blocks)
        };
        let size = snap::raw::decompress_len(block).map_err(|_| invalid())?;
        if size > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
            return Err(invalid());
        }
        if size as u64 > self.left {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.left -= size as u64;
        self.block.resize(size, 0);
        let made = snap::raw::Decoder::new().decompress(block, self.block);
        self.at = 0;
        self.end = made.map_err(|_| invalid())?;
        Ok(())
    }
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl Read for Snappy<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Snappy<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.end && !self.blocks.is_empty() {
            self.next_block()?;
        }
        Ok(&self.block[self.at..self.end])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
        assert!(self.at <= self.end, "took more than there was");
    }
}

fn lz4(header: &BatchHeader, bytes: &[u8], bytes_max: u64) -> Result<u64, RecordsFault> {
    // Version 1, independent blocks, no dictionary, nothing reserved. The rest the decoder checks.
    match bytes.split_first_chunk() {
        Some((&LZ4_MAGIC, [flags, ..])) if flags & 0b1110_0011 == 0b0110_0000 => {}
        _ => return Err(RecordsFault::Source),
    }
    let input = Input {
        bytes,
        is_short: false,
    };
    let mut source = FrameDecoder::new(input);
    let count = check_records(&mut source, header, bytes_max)?;
    let input = source.into_inner();
    if input.is_short {
        return Err(RecordsFault::Source);
    }
    nothing_follows(input.bytes)?;
    Ok(count)
}

/// Bytes that tell whether more of them were wanted: an LZ4 frame without an end mark is cut off,
/// and its decoder does not say so.
struct Input<'a> {
    bytes: &'a [u8],
    is_short: bool,
}

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.is_short |= self.bytes.is_empty() && !into.is_empty();
        self.bytes.read(into)
    }
}

fn zstd_decoder() -> io::Result<ZstdDecoder<'static>> {
    let mut decoder = ZstdDecoder::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
    Ok(decoder)
}

/// One Zstandard frame.
struct ZstdFrame<'a> {
    decoder: &'a mut ZstdDecoder<'static>,
    /// What is not decompressed yet.
    bytes: &'a [u8],
    is_over: bool,
}

impl Read for ZstdFrame<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_over || into.is_empty() {
                return Ok(0);
            }
            let mut input = InBuffer::around(self.bytes);
            let mut output = OutBuffer::around(&mut *into);
            let wanted = self.decoder.run(&mut input, &mut output)?;
            let (taken, made) = (input.pos(), output.pos());
            self.bytes = &self.bytes[taken..];
            self.is_over = wanted == 0;
            if made > 0 {
                return Ok(made);
            }
            if taken == 0 && !self.is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
