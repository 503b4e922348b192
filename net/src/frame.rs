//! Step 1 of 5 of the append path, first half: bytes of a stream become frames.
//!
//! A frame is an int32 length and that many bytes. Both sides of a connection use this. Memory for
//! a large frame is reserved as its bytes arrive, never because its length was announced.
//! Next: `connection`.

use crate::wire::Writer;
use bytes::{Buf, Bytes, BytesMut};

/// Size of the length before each frame, in bytes.
pub const LENGTH_SIZE: usize = 4;

/// Default bound for a frame: a batch of 8 MiB and what goes around it.
pub const FRAME_BYTES_MAX: usize = 9 << 20;

/// Size of the first reservation for received bytes. Small requests share it.
const INPUT_BYTES_MIN: usize = 16 << 10;

/// A stream that cannot be cut into frames. There is no way to go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length below zero.
    #[error("frame length {length}")]
    Negative {
        /// The length.
        length: i32,
    },
    /// A length above the bound for what the frame holds.
    #[error("a frame of {length} bytes, at most {bytes_max} are allowed")]
    TooLarge {
        /// The length.
        length: usize,
        /// The bound.
        bytes_max: usize,
    },
}

/// What can be said of a frame before all of it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStart {
    /// Bytes in the frame, its length not counted; at least 2.
    pub length: usize,
    /// Its first two bytes: in a request the API key.
    pub first_int16: i16,
    /// Whether all of it is there.
    pub is_whole: bool,
}

/// Received bytes that are not a whole frame yet.
#[derive(Debug)]
pub struct FrameReader {
    input: BytesMut,
    frame_bytes_max: usize,
}

impl FrameReader {
    /// An empty one. Frames above `frame_bytes_max`, their length not counted, are refused.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            input: BytesMut::new(),
            frame_bytes_max,
        }
    }

    /// Takes in bytes of the stream.
    pub fn received(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.input.extend_from_slice(bytes);
    }

    /// The next whole frame, without its length.
    ///
    /// # Errors
    /// As soon as a wrong length is there; the stream is lost then.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        if self.input.len() < LENGTH_SIZE + length {
            return Ok(None);
        }
        self.input.advance(LENGTH_SIZE);
        Ok(Some(self.input.split_to(length).freeze()))
    }

    /// The frame that has begun, once its length and the first two bytes in it are there.
    ///
    /// # Errors
    /// As [`FrameReader::next_frame`].
    pub fn peek(&self) -> Result<Option<FrameStart>, FrameError> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        let head = self.input.get(LENGTH_SIZE..LENGTH_SIZE + 2);
        let head = head.filter(|_| length >= 2);
        Ok(head.map(|head| FrameStart {
            length,
            first_int16: i16::from_be_bytes([head[0], head[1]]),
            is_whole: self.input.len() >= LENGTH_SIZE + length,
        }))
    }

    /// Bytes received and not handed out.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.input.len()
    }

    /// Whether the stream stands between two frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// Length of the frame that has begun.
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(length) = self.input.first_chunk::<LENGTH_SIZE>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*length);
        let Ok(length_bytes) = usize::try_from(length) else {
            return Err(FrameError::Negative { length });
        };
        let bytes_max = self.frame_bytes_max;
        if length_bytes > bytes_max {
            return Err(FrameError::TooLarge {
                length: length_bytes,
                bytes_max,
            });
        }
        Ok(Some(length_bytes))
    }

    /// Reserves for `arriving` bytes. While a frame grows its room is doubled, but not beyond its
    /// end: what is reserved stays within twice of what was received.
    fn make_room(&mut self, arriving: usize) {
        let free = self.input.capacity() - self.input.len();
        if arriving <= free {
            return;
        }
        let needed = self.input.len() + arriving;
        let frame_end = match self.announced() {
            Ok(Some(length)) => LENGTH_SIZE + length,
            _ => 0,
        };
        let target = frame_end.min(2 * needed).max(needed).max(INPUT_BYTES_MIN);
        self.input.reserve(target - self.input.len());
    }
}

/// Appends a frame: `write` writes what stands in it.
///
/// # Errors
/// Those of `write`; nothing was appended then.
///
/// # Panics
/// If the frame is larger than 2^31 - 1 bytes: what is written is bounded long before.
pub fn write_frame<E>(
    out: &mut Writer,
    write: impl FnOnce(&mut Writer) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.int32(0);
    if let Err(error) = write(out) {
        out.truncate(start);
        return Err(error);
    }
    let length = out.len() - start - LENGTH_SIZE;
    out.int32_at(start, i32::try_from(length).expect("frames are bounded"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_length_reserves_nothing_before_its_bytes_arrive() {
        let mut reader = FrameReader::new(FRAME_BYTES_MAX);
        let frame = vec![7; FRAME_BYTES_MAX];
        reader.received(&i32::try_from(frame.len()).unwrap().to_be_bytes());
        assert_eq!(reader.next_frame(), Ok(None));
        for chunk in frame.chunks(10_000) {
            let bound = INPUT_BYTES_MIN.max(2 * (reader.buffered() + chunk.len()));
            reader.received(chunk);
            assert!(
                reader.input.capacity() <= bound,
                "{} bytes",
                reader.input.capacity()
            );
        }
        assert_eq!(reader.next_frame(), Ok(Some(Bytes::from(frame))));
    }

    #[test]
    fn start_of_a_frame_is_told_before_the_frame_is_there() {
        let mut reader = FrameReader::new(FRAME_BYTES_MAX);
        reader.received(&[0, 0, 0, 3, 0]);
        assert_eq!(reader.peek(), Ok(None));
        reader.received(&[7]);
        let start = FrameStart {
            length: 3,
            first_int16: 7,
            is_whole: false,
        };
        assert_eq!(reader.peek(), Ok(Some(start)));
        reader.received(&[9]);
        let whole = FrameStart {
            is_whole: true,
            ..start
        };
        assert_eq!(reader.peek(), Ok(Some(whole)));
        let mut tiny = FrameReader::new(FRAME_BYTES_MAX);
        tiny.received(&[0, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(tiny.peek(), Ok(None), "no two bytes in it");
    }

    #[test]
    fn frames_behind_a_large_one_survive_its_growth() {
        let mut reader = FrameReader::new(1 << 20);
        let mut stream = Vec::new();
        for length in [0_usize, 100_000, 3, 50_000, 1] {
            stream.extend(i32::try_from(length).unwrap().to_be_bytes());
            stream.extend(vec![length as u8; length]);
        }
        let mut lengths = Vec::new();
        for chunk in stream.chunks(1234) {
            reader.received(chunk);
            while let Some(frame) = reader.next_frame().unwrap() {
                assert!(frame.iter().all(|byte| *byte == frame.len() as u8));
                lengths.push(frame.len());
            }
        }
        assert_eq!(lengths, [0, 100_000, 3, 50_000, 1]);
        assert!(reader.is_empty());
    }

    #[test]
    fn frame_that_fails_to_be_written_leaves_no_trace() {
        let mut out = Writer::new();
        write_frame(&mut out, |out| -> Result<(), ()> {
            out.put(b"good");
            Ok(())
        })
        .unwrap();
        let failed = write_frame(&mut out, |out| {
            out.put(b"half");
            Err("broken")
        });
        assert_eq!(failed, Err("broken"));
        assert_eq!(out.as_bytes(), b"\0\0\0\x04good");
    }
}
