//! See `quorate_fuzz::batches`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::batches(data));
