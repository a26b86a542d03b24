//! Hadoop RPC as Corona's trackers, job trackers and children speak it.
//!
//! This room moves messages and knows no cluster. From the inside out: [`io`] has Java's encodings,
//! [`writables`] the objects with the exact bytes of each, [`object`] the values with the name of
//! their class that parameters and results are, [`rpc`] calls and replies with a server and a
//! client, [`protocols`] the methods that can be called. Spec: mapreduce/01 to 03.

// It reads bytes of peers: nothing in them may end the program, or become another number.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod io;
pub mod object;
pub mod protocols;
pub mod rpc;
#[cfg(test)]
mod testing;
pub mod writables;
