//! The built program and independent clients: Apache Thrift's libraries for Python and Java, with
//! code that its compiler made from the contract.
//!
//! `scripts/test` installs their dependencies. Without these the tests fail and name the missing
//! ones; `CORONA_SKIP_CLIENTS=1` leaves them out.

mod golden;
mod sessions;
