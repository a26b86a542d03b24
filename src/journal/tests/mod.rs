//! Tests of the whole journal, on memory that forgets and on real files.

mod crash;
mod disk;
mod memory;
mod own_writes;
