//! Events of maps for reduces, and the answer to the handshake. Spec: mapreduce/02 §2.8,
//! mapreduce/01 §1.6.

use super::{TaskAttemptId, constants, writable};
use crate::io::formats::{Bool, Enum, Format, Int, List, Long, Plain, VInt, WString};
use crate::io::{DecodeError, Reader, Writer};

constants! {
    /// The result of an attempt.
    pub enum EventStatus: "org.apache.hadoop.mapred.TaskCompletionEvent$Status" {
        /// It failed; its task gets another attempt, if the job allows one.
        Failed = "FAILED",
        /// It was killed.
        Killed = "KILLED",
        /// It succeeded, and its output can be fetched.
        Succeeded = "SUCCEEDED",
        /// It succeeded, but its output is lost.
        Obsolete = "OBSOLETE",
        /// Its task was given up.
        TipFailed = "TIPFAILED",
        /// It succeeded, and has no output.
        SucceededNoOutput = "SUCCEEDED_NO_OUTPUT",
    }
}

writable! {
    /// An attempt has ended.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TaskCompletionEvent: "org.apache.hadoop.mapred.TaskCompletionEvent" {
        /// The attempt that ended.
        pub attempt: TaskAttemptId as Plain,
        /// The number of its task among the maps or the reduces.
        pub id_within_job: i32 as VInt,
        /// Whether it was a map.
        pub is_map: bool as Bool,
        /// The attempt's result.
        pub status: EventStatus as Enum,
        /// Where its output can be fetched, such as `http://host:50060`.
        pub tracker_http: Option<String> as WString,
        /// How long it ran, in milliseconds.
        pub run_time_ms: i32 as VInt,
        /// The event's place in the job's list of events.
        pub event_id: i32 as VInt,
    }
}

writable! {
    /// A tracker's reply to a child about the maps of its job.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct MapTaskCompletionEventsUpdate:
        "org.apache.hadoop.mapred.MapTaskCompletionEventsUpdate"
    {
        /// Whether the child must discard its events and start again.
        pub reset: bool as Bool,
        /// The events from the requested one on.
        pub events: Vec<TaskCompletionEvent> as List<Int, Plain>,
    }
}

writable! {
    /// A server's version of a protocol.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProtocolSignature: "org.apache.hadoop.ipc.ProtocolSignature" {
        /// The server's version of the protocol.
        pub version: i64 as Long,
        /// The hashes of its methods; `None` if they are those that the client expects.
        pub methods: Option<Vec<i32>> as IfAny,
    }
}

/// Hashes, if there are any, after a `boolean` that indicates whether.
#[derive(Debug)]
struct IfAny;

impl Format<Option<Vec<i32>>> for IfAny {
    fn decode(reader: &mut Reader<'_>) -> Result<Option<Vec<i32>>, DecodeError> {
        reader.bool()?.then(|| List::<Int, Int>::decode(reader)).transpose()
    }

    fn encode(value: &Option<Vec<i32>>, writer: &mut Writer) {
        writer.bool(value.is_some());
        if let Some(methods) = value {
            List::<Int, Int>::encode(methods, writer);
        }
    }
}
