//! See `quorate_fuzz::recovery`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::recovery(data));
