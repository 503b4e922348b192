//! See `quorate_fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::frames(data));
