//! See `quorate_fuzz::admin`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::admin(data));
