//! The crate as a whole: the tables against the contract, the handling of odd bytes, a peer's view
//! on a socket, and the damage that a hostile one can do.

mod contract;
mod dice;
mod golden;
mod hostile;
mod reading;
mod streams;
