//! See `compat_tests::fuzzing::configuration`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| compat_tests::fuzzing::configuration(bytes));
