//! See `quorate_fuzz::settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::settings(data));
