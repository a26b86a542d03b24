//! Native map and reduce tasks: the process of a task, without Java.
//!
//! From the inside out: `vint.rs`, [`ifile`], [`lines`], `order.rs`, [`partition`], [`run`],
//! [`sequence_file`], `skip.rs` and [`sort`] know bytes, [`Read`](std::io::Read) and
//! [`Write`](std::io::Write) alone; [`segment`] and [`spill`] put sorted data
//! into the local directories of a node; [`program`] and [`builtin`] are the user's code; [`shuffle`] decides
//! and [`fetch`] carries out what a reduce fetches; [`output`] commits; [`child`] ties all of it to the task
//! tracker's umbilical.

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

pub mod aggregate;
pub mod builtin;
pub mod child;
pub mod codec;
mod commands;
pub mod counters;
pub mod error;
pub mod fetch;
pub mod files;
pub mod hints;
pub mod ifile;
pub mod lines;
mod map;
mod order;
pub mod output;
pub mod partition;
mod profile;
pub mod program;
mod reduce;
pub mod run;
pub mod scratch;
pub mod segment;
pub mod sequence_file;
mod settings;
pub mod shuffle;
mod skip;
mod skipped;
pub mod sort;
pub mod spill;
pub mod status;
mod umbilical;
mod vint;

#[cfg(test)]
mod testing {
    //! Values that the tests of several modules need.

    use corona_hadoop::writables::{EventStatus, TaskAttemptId, TaskCompletionEvent};
    use corona_mapreduce::native::{KeyField, KeyOrder, SortField};

    use crate::error::TaskError;
    use crate::ifile::InMemory;
    use crate::run::tests::run_of;
    use crate::spill::Collector;
    use crate::vint;

    /// Records that a step has put out, as text. So many that it must be one without an end are refused.
    #[derive(Default)]
    pub(crate) struct Found(pub(crate) Vec<(String, String)>);

    impl Collector for Found {
        fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            self.0.push((text(key), text(value)));
            if self.0.len() > 10_000 {
                return Err(TaskError::Task("enough".to_owned()));
            }
            Ok(())
        }
    }

    /// Records whose keys and values are texts as a run in memory.
    pub(crate) fn texts(records: &[(&str, &str)]) -> InMemory {
        let text = |value: &str| {
            let mut text = Vec::new();
            vint::put_text(value.as_bytes(), &mut text);
            text
        };
        let records = records.iter().map(|(key, value)| (key.as_bytes().to_vec(), text(value)));
        run_of(&records.collect::<Vec<_>>())
    }

    /// The order of keys that are numbers, the largest first.
    pub(crate) fn numbers_from_large_to_small() -> KeyOrder {
        let field = KeyField { begin_field: 1, begin_char: 1, end_field: 0, end_char: 0 };
        let fields = vec![SortField { field, numeric: true, reverse: true }];
        KeyOrder::Fields { separator: b"\t".to_vec(), fields }
    }

    /// The event of a map whose output is served at `host:port`.
    pub(crate) fn event(
        attempt: TaskAttemptId,
        status: EventStatus,
        at: &str,
    ) -> TaskCompletionEvent {
        TaskCompletionEvent {
            id_within_job: attempt.task.number,
            attempt,
            is_map: true,
            status,
            tracker_http: Some(at.to_owned()),
            run_time_ms: 0,
            event_id: 0,
        }
    }
}
