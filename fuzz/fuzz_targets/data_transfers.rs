//! See `compat_tests::fuzzing::data_transfers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| compat_tests::fuzzing::data_transfers(bytes));
