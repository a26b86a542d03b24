//! See `compat_tests::fuzzing::state_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| compat_tests::fuzzing::state_file(bytes));
