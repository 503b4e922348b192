//! See `quorate_fuzz::responses`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::responses(data));
