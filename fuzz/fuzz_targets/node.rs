//! See `quorate_fuzz::node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::node(data));
