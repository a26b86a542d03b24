//! Tests of the whole journal, on memory that forgets and on real files.

mod crash;
mod disk;
mod lost;
mod memory;
mod own_writes;
