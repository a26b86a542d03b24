//! Counters of tasks and jobs. Spec: mapreduce/02 §2.4.

use super::writable;
use crate::io::formats::{Format, Int, List, Plain, Text, VInt, VLong, Writable};
use crate::io::{DecodeError, Reader, Writer};

writable! {
    /// Groups of counters, in no defined order.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Counters: "org.apache.hadoop.mapred.Counters" {
        /// The groups, whose names differ.
        pub groups: Vec<CounterGroup> as List<Int, Plain>,
    }
}

writable! {
    /// A group of counters.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CounterGroup {
        /// Mostly the name of the Java enum whose constants are the counters.
        pub name: String as Text,
        /// The displayed name.
        pub display_name: String as Text,
        /// The counters, in no defined order.
        pub counters: Vec<Counter> as List<VInt, Plain>,
    }
}

/// A counter of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name within the group.
    pub name: String,
    /// The displayed name, if it is different.
    pub display_name: Option<String>,
    /// The count.
    pub value: i64,
}

impl Writable for Counter {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = reader.text()?;
        let display_name = reader.bool()?.then(|| reader.text()).transpose()?;
        Ok(Counter { name, display_name, value: VLong::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.text(&self.name);
        writer.bool(self.display_name.is_some());
        if let Some(name) = &self.display_name {
            writer.text(name);
        }
        writer.vlong(self.value);
    }
}

impl Counters {
    /// The memory that they take, roughly, in bytes.
    pub fn bytes(&self) -> usize {
        let groups = self.groups.iter().map(|group| {
            let counters = group.counters.iter().map(|counter| {
                let names =
                    counter.name.len() + counter.display_name.as_ref().map_or(0, String::len);
                size_of::<Counter>() + names
            });
            let names = group.name.len() + group.display_name.len();
            size_of::<CounterGroup>() + names + counters.sum::<usize>()
        });
        groups.sum()
    }

    /// The value of a counter, if there is one of that name in that group.
    pub fn get(&self, group: &str, counter: &str) -> Option<i64> {
        let group = self.groups.iter().find(|candidate| candidate.name == group)?;
        group.counters.iter().find(|candidate| candidate.name == counter).map(|found| found.value)
    }
}
