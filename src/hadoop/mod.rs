//! Hadoop RPC as Corona's trackers, job trackers and children speak it.
//!
//! This room moves messages and knows no cluster. From the inside out: [`io`] has Java's encodings,
//! [`writables`] the objects with the exact bytes of each, [`object`] the values with the name of
//! their class that parameters and results are. Spec: mapreduce/01 to 03.

pub mod io;
pub mod object;
#[cfg(test)]
mod testing;
pub mod writables;
