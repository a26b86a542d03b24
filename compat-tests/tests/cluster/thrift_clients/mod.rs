//! The built program and clients that nobody here wrote: Apache Thrift's libraries for Python and
//! Java, with code that its compiler made from the contract.
//!
//! `scripts/test` installs what they need. Without it these tests fail and say what is missing;
//! `CORONA_SKIP_CLIENTS=1` leaves them out.

mod golden;
mod sessions;
mod tools;
