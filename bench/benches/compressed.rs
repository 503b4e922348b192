//! What it costs to check the records inside a compressed batch, for each codec: with records of a
//! usual size, and at the worst, where the batch is nothing but the smallest records there are.
//! Under `cargo test` each runs once and checks its result; `cargo bench` measures.

#![allow(missing_docs)] // criterion's macros make functions without

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quorate_storage::format::{
    BATCH_HEADER_BYTES, BatchBuilder, Decompressor, NewRecord, check_produced, crc32c,
};
use std::hint::black_box;
use std::io::Write;

const MIB: usize = 1024 * 1024;

/// Text of which half repeats itself, as metadata does.
fn usual() -> Vec<u8> {
    let mut builder = BatchBuilder::produced();
    let mut word = 1_u32;
    while builder.size() < MIB {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = format!(
            "{{\"partition\":{},\"leader\":{},\"isr\":[1,2,3]}}",
            word,
            word >> 29
        );
        builder.push(NewRecord::value(1_000, value.as_bytes()));
    }
    builder.build()
}

/// Records without key and value.
fn smallest() -> Vec<u8> {
    let mut builder = BatchBuilder::produced();
    while builder.size() < MIB {
        builder.push(NewRecord::default());
    }
    builder.build()
}

fn compress(codec: i16, bytes: &[u8]) -> Vec<u8> {
    match codec {
        1 => {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        }
        2 => snap::raw::Encoder::new()
            .compress_vec(bytes)
            .expect("a small block"),
        3 => {
            let info = lz4_flex::frame::FrameInfo::new();
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        }
        _ => zstd::stream::encode_all(bytes, 3).expect("memory"),
    }
}

/// The batch with its records compressed.
fn compressed(batch: &[u8], codec: i16) -> Vec<u8> {
    let records = compress(codec, &batch[BATCH_HEADER_BYTES..]);
    let mut batch = [&batch[..BATCH_HEADER_BYTES], &records].concat();
    let length = i32::try_from(batch.len() - 12).expect("a small batch");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[21..23].copy_from_slice(&codec.to_be_bytes());
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn check_compressed(criterion: &mut Criterion) {
    let mut decompressor = Decompressor::new();
    for (what, plain) in [("usual records", usual()), ("smallest records", smallest())] {
        let mut group = criterion.benchmark_group(format!("check a MiB of {what}"));
        let bytes = (plain.len() - BATCH_HEADER_BYTES) as u64;
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function("not compressed", |bencher| {
            bencher.iter(|| check_produced(black_box(&plain)).is_ok());
        });
        for (codec, name) in [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
            let batch = compressed(&plain, codec);
            assert!(check_produced(&batch).is_ok());
            assert_eq!(decompressor.check(&batch, bytes), Ok(bytes), "{name}");
            group.bench_function(name, |bencher| {
                bencher.iter(|| decompressor.check(black_box(&batch), bytes).is_ok());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, check_compressed);
criterion_main!(benches);
