//! See `compat_tests::fuzzing::TARGETS`.
#![no_main]

use compat_tests::fuzzing::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target("sequence_files").check(bytes));
