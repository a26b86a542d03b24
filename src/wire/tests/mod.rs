//! The room as a whole: what a peer on a socket sees.

mod streams;
