//! See `compat_tests::fuzzing::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| compat_tests::fuzzing::messages(bytes));
