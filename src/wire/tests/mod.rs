//! The room as a whole: the tables against the contract, what becomes of odd bytes, what a peer on
//! a socket sees, and what a hostile one can do.

mod contract;
mod dice;
mod golden;
mod hostile;
mod reading;
mod streams;
