//! See `quorate_fuzz::marks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quorate_fuzz::marks(data));
