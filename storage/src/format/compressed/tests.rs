//! Good streams of every codec pass; streams that some reader could not read do not.

use super::*;
use crate::format::{BatchBuilder, NewRecord, check_produced, crc32c};
use flate2::Compression;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use std::io::Write;

const LIMIT: u64 = 1024 * 1024;
const CODECS: [i16; 4] = [1, 2, 3, 4];
/// Behind the four of Kafka's attribute bits: snappy in one bare block.
const BARE_SNAPPY: i16 = 12;

fn plain(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::produced();
    for value in values {
        builder.push(NewRecord::value(1000, value));
    }
    builder.build()
}

/// `batch` with `records` in place of its own, and a CRC that is right.
fn with_records(batch: &[u8], codec: i16, records: &[u8]) -> Vec<u8> {
    let mut batch = [&batch[..BATCH_HEADER_BYTES], records].concat();
    let length = i32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[21..23].copy_from_slice(&(codec & 7).to_be_bytes());
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn lz4_frame(info: FrameInfo, bytes: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xerial(bytes: &[u8]) -> Vec<u8> {
    let mut framed = [&XERIAL_MAGIC[..], &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
    for block in bytes.chunks(32 * 1024) {
        let block = snap::raw::Encoder::new().compress_vec(block).unwrap();
        framed.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
        framed.extend(block);
    }
    framed
}

fn compress(codec: i16, bytes: &[u8]) -> Vec<u8> {
    match codec {
        1 => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        2 => xerial(bytes),
        BARE_SNAPPY => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        3 => lz4_frame(FrameInfo::new().block_size(BlockSize::Max64KB), bytes),
        4 => zstd::stream::encode_all(bytes, 3).unwrap(),
        other => panic!("codec {other}"),
    }
}

fn compressed(codec: i16, batch: &[u8]) -> Vec<u8> {
    let records = compress(codec, &batch[BATCH_HEADER_BYTES..]);
    with_records(
        batch,
        if codec == BARE_SNAPPY { 2 } else { codec },
        &records,
    )
}

fn check(batch: &[u8]) -> Result<u64, BatchError> {
    check_produced(batch).expect("nothing is wrong but the records");
    Decompressor::new().check(batch, LIMIT)
}

fn all_codecs() -> impl Iterator<Item = i16> {
    CODECS.into_iter().chain([BARE_SNAPPY])
}

#[test]
fn good_batches_of_every_codec_pass() {
    let long = b"a value that goes on and on ".repeat(5_000);
    let mut decompressor = Decompressor::new();
    for values in [
        vec![&b"one"[..], b"", b"three"],
        vec![&long],
        vec![&long; 4],
    ] {
        let batch = plain(&values);
        let bytes = (batch.len() - BATCH_HEADER_BYTES) as u64;
        for codec in all_codecs() {
            let compressed = compressed(codec, &batch);
            assert_eq!(decompressor.check(&compressed, LIMIT), Ok(bytes), "{codec}");
        }
    }
}

#[test]
fn a_stream_that_is_cut_off_anywhere_is_refused() {
    let batch = plain(&[b"one one one one", b"two two two two", b"three"]);
    for codec in all_codecs() {
        let whole = compressed(codec, &batch);
        for end in BATCH_HEADER_BYTES + 1..whole.len() {
            let cut = with_records(&batch, codec, &whole[BATCH_HEADER_BYTES..end]);
            assert!(
                check(&cut).is_err(),
                "codec {codec} to {end} of {}",
                whole.len()
            );
        }
    }
}

#[test]
fn whatever_follows_the_stream_is_refused() {
    let batch = plain(&[b"one one one one", b"two"]);
    for codec in all_codecs() {
        let stream = &compressed(codec, &batch)[BATCH_HEADER_BYTES..];
        for behind in [&[0][..], &[0; 4], &[7; 9], stream] {
            let longer = with_records(&batch, codec, &[stream, behind].concat());
            assert!(check(&longer).is_err(), "codec {codec}, {behind:?}");
        }
    }
}

#[test]
fn no_changed_bit_of_a_stream_panics() {
    let batch = plain(&[b"one one one one", b"two two two two"]);
    for codec in all_codecs() {
        let good = compressed(codec, &batch);
        for at in BATCH_HEADER_BYTES..good.len() {
            for bit in 0..8 {
                let mut records = good[BATCH_HEADER_BYTES..].to_vec();
                records[at - BATCH_HEADER_BYTES] ^= 1 << bit;
                let _ = check(&with_records(&batch, codec, &records));
            }
        }
    }
}

#[test]
fn a_malformed_record_is_found_behind_every_codec() {
    let batch = plain(&[b"one", b"two"]);
    let records = &batch[BATCH_HEADER_BYTES..];
    for codec in CODECS {
        // The second record says that it is the third.
        let mut wrong = records.to_vec();
        let at = records.len() / 2 + 3;
        assert_eq!(wrong[at], 2, "offset delta 1, zigzag");
        wrong[at] = 4;
        let sent = with_records(&batch, codec, &compress(codec, &wrong));
        let fault = "offset out of sequence";
        assert_eq!(check(&sent), Err(BatchError::Record { index: 1, fault }));
        // One record too many, and one too few.
        let more = compress(codec, &[records, &records[..records.len() / 2]].concat());
        let fewer = compress(codec, &records[..records.len() / 2]);
        for stream in [more, fewer] {
            let error = check(&with_records(&batch, codec, &stream)).unwrap_err();
            assert!(matches!(error, BatchError::Record { .. }), "{error}");
        }
    }
}

#[test]
fn a_bomb_is_refused_at_the_limit() {
    let zeros = vec![0; 7 * 1024 * 1024];
    let batch = plain(&[&zeros]);
    for codec in all_codecs() {
        let bomb = compressed(codec, &batch);
        assert!(bomb.len() < zeros.len() / 20);
        let error = check(&bomb).unwrap_err();
        assert_eq!(error, BatchError::Decompressed(LIMIT), "{codec}");
        assert_eq!(
            error.error_code(),
            quorate_raft::ErrorCode::MESSAGE_TOO_LARGE
        );
        let bytes = (batch.len() - BATCH_HEADER_BYTES) as u64;
        let mut enough = Decompressor::new();
        assert_eq!(
            enough.check(&bomb, bytes),
            Ok(bytes),
            "just within the limit"
        );
        assert!(enough.buffer.len() <= KEPT_BYTES_MAX && enough.zstd.is_none());
    }
}

#[test]
fn a_snappy_block_that_claims_more_than_it_can_hold_is_refused_unseen() {
    let batch = plain(&[b"one"]);
    // 4 GiB, then a literal of one byte.
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x61];
    let bare = with_records(&batch, 2, &claim);
    assert_eq!(check(&bare), Err(BatchError::Compression(Codec::Snappy)));
    let mut framed = xerial(b"");
    framed.extend(7_u32.to_be_bytes());
    framed.extend(claim);
    let framed = with_records(&batch, 2, &framed);
    assert_eq!(check(&framed), Err(BatchError::Compression(Codec::Snappy)));
}

#[test]
fn lz4_frames_that_kafka_cannot_read_are_refused() {
    let batch = plain(&[b"one one one one one one one one", b"two"]);
    let records = &batch[BATCH_HEADER_BYTES..];
    let linked = FrameInfo::new().block_mode(BlockMode::Linked);
    let linked = with_records(&batch, 3, &lz4_frame(linked, records));
    assert_eq!(check(&linked), Err(BatchError::Compression(Codec::Lz4)));
    let sums = FrameInfo::new()
        .block_checksums(true)
        .content_checksum(true);
    let sums = with_records(&batch, 3, &lz4_frame(sums, records));
    assert!(check(&sums).is_ok(), "checksums are fine");
}

#[test]
fn a_zstandard_window_above_the_limit_is_refused() {
    let batch = plain(&[&[7; 100]]);
    let compress = |window_log| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(window_log).unwrap();
        encoder.write_all(&batch[BATCH_HEADER_BYTES..]).unwrap();
        with_records(&batch, 4, &encoder.finish().unwrap())
    };
    assert!(check(&compress(ZSTD_WINDOW_LOG_MAX)).is_ok());
    let beyond = check(&compress(ZSTD_WINDOW_LOG_MAX + 1));
    assert_eq!(beyond, Err(BatchError::Compression(Codec::Zstd)));
}

#[test]
fn a_decompressor_is_as_good_as_new_after_a_fault() {
    let batch = plain(&[b"one one one one", b"two"]);
    let mut decompressor = Decompressor::new();
    for codec in all_codecs() {
        let good = compressed(codec, &batch);
        let stream = &good[BATCH_HEADER_BYTES..];
        let cut = with_records(&batch, codec, &stream[..stream.len() - 1]);
        assert!(decompressor.check(&cut, LIMIT).is_err());
        assert!(decompressor.check(&good, LIMIT).is_ok());
    }
}
