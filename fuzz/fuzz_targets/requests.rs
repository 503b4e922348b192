//! See `quorate_fuzz::requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::requests(data));
