//! See `compat_tests::fuzzing::scheduling_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| compat_tests::fuzzing::scheduling_files(bytes));
