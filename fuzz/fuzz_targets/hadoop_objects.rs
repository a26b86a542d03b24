//! See `compat_tests::fuzzing::hadoop_objects`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| compat_tests::fuzzing::hadoop_objects(bytes));
