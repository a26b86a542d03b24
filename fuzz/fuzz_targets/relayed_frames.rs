//! See `compat_tests::fuzzing::relayed_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| compat_tests::fuzzing::relayed_frames(bytes));
