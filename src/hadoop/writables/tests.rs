//! Every object against bytes that the original wrote. Spec: mapreduce/02.

use std::fmt::Debug;

use super::*;
use crate::io::formats::{Constant, Format, Plain};
use crate::io::{Reader, Writer};
use crate::testing::{hex, unhex};

/// The job, the map attempt and the reduce attempt of the samples.
const JOB: &str = r#"00000001 0e"201401011200.7""#;

fn job() -> JobId {
    "job_201401011200.7_0001".parse().unwrap()
}

fn map_attempt() -> TaskAttemptId {
    "attempt_201401011200.7_0001_m_000003_0".parse().unwrap()
}

fn reduce_attempt() -> TaskAttemptId {
    "attempt_201401011200.7_0001_r_000002_1".parse().unwrap()
}

/// Puts the job and the attempts of the samples in the place of their names, except in quotes.
fn sample(text: &str) -> Vec<u8> {
    let map = format!("00000000 00000003 {JOB} 01");
    let reduce = format!("00000001 00000002 {JOB} 00");
    let expand = |(place, part): (usize, &str)| match place % 2 {
        0 => part.replace("MAP", &map).replace("REDUCE", &reduce).replace("JOB", JOB),
        _ => part.to_owned(),
    };
    unhex(&text.split('"').enumerate().map(expand).collect::<Vec<_>>().join("\""))
}

/// Checks that the object and the bytes are the same thing in both directions, and that no shorter
/// bytes are.
fn check<F: Format<T>, T: PartialEq + Debug>(value: T, bytes: &str) {
    let bytes = sample(bytes);
    let mut writer = Writer::new(bytes.len());
    F::encode(&value, &mut writer);
    let written = writer.finish().map(|written| hex(&written));
    assert_eq!(written, Ok(hex(&bytes)), "{value:?}");
    let mut reader = Reader::new(&bytes);
    assert_eq!(F::decode(&mut reader).as_ref(), Ok(&value));
    assert_eq!(reader.rest(), b"", "{value:?}");
    for cut in 0..bytes.len() {
        let result = F::decode(&mut Reader::new(&bytes[..cut]));
        assert!(result.is_err(), "{value:?} cut to {cut} bytes is {result:?}");
    }
}

/// The same for an object whose class determines how to read it.
struct AsNamed<T>(std::marker::PhantomData<T>);

impl<T: Named> Format<(&'static str, T)> for AsNamed<T> {
    fn decode(reader: &mut Reader<'_>) -> Result<(&'static str, T), DecodeError> {
        let class = reader.text()?;
        let class = T::CLASSES.iter().find(|known| **known == class).unwrap_or(&"");
        T::decode_fields(class, reader).map(|value| (value.class(), value))
    }

    fn encode((class, value): &(&'static str, T), writer: &mut Writer) {
        writer.text(class);
        value.encode_fields(writer);
    }
}

fn check_named<T: Named + PartialEq + Debug>(value: T, fields: &str) {
    let class = value.class();
    let length = u8::try_from(class.len()).unwrap();
    check::<AsNamed<T>, _>((class, value), &format!(r#"{length:02x} "{class}" {fields}"#));
}

/// A running map as in the samples.
pub(crate) fn running_map() -> TaskStatus {
    TaskStatus {
        attempt: map_attempt(),
        progress: 0.5,
        slots: 1,
        state: TaskState::Running,
        diagnostics: String::new(),
        state_string: "hdfs://x".to_owned(),
        phase: Phase::Map,
        start_time_ms: 0x0143_4dac_b200,
        finish_time_ms: 0,
        output_size: -1,
        counters: None,
        next_records: RecordRange::default(),
        reduce: None,
    }
}

const RUNNING_MAP: &str = r#"MAP 3f000000 00000001 07"RUNNING" 00 08"hdfs://x" 034d4150
    000001434dacb200 0000000000000000 00 ffffffffffffffff 0000000000000000 0000000000000000"#;

fn counter(group: &str, name: &str, value: i64) -> Counters {
    let counter = Counter { name: name.to_owned(), display_name: None, value };
    let (name, display_name) = (group.to_owned(), group.to_owned());
    Counters { groups: vec![CounterGroup { name, display_name, counters: vec![counter] }] }
}

/// A map as a job tracker hands it out.
pub(crate) fn new_map() -> Task {
    let status = TaskStatus {
        progress: 0.0,
        state: TaskState::Unassigned,
        state_string: String::new(),
        start_time_ms: 0,
        output_size: 0,
        counters: Some(counter("org.apache.hadoop.mapred.Task$Counter", "SPILLED_RECORDS", 0)),
        ..running_map()
    };
    let split = Some(Split { class: "C".to_owned(), data: vec![1, 2] });
    let kind = TaskKind::Map { split };
    let task = Task::new(map_attempt(), "/s/job.xml".to_owned(), "alice".to_owned(), kind);
    Task { partition: 3, status, ..task }
}

const NEW_MAP: &str = r#"0a"/s/job.xml" MAP 00000003 00000001
    MAP 00000000 00000001 0a"UNASSIGNED" 00 00 034d4150 0000000000000000 0000000000000000 01
    0000000000000000 00000001 25"org.apache.hadoop.mapred.Task$Counter"
    25"org.apache.hadoop.mapred.Task$Counter" 01 0f"SPILLED_RECORDS" 00 00
    0000000000000000 0000000000000000
    0000000000000000 00000000"#;

#[test]
fn identifiers() {
    check::<Plain, _>(job(), "00000001 0e 3230313430313031313230302e37");
    check::<Plain, _>(map_attempt().task, "00000003 JOB 01");
    check::<Plain, _>(map_attempt(), "MAP");
    check::<Plain, _>(reduce_attempt(), "REDUCE");
    let jvm = JvmId { number: -12345, job: job(), is_map: true };
    check::<Plain, _>(jvm.clone(), "ffffcfc7 JOB 01");
    check::<Plain, _>(JvmContext { jvm, pid: "4711".to_owned() }, "ffffcfc7 JOB 01 04 34373131");
}

#[test]
fn statuses_of_tasks() {
    check_named(running_map(), RUNNING_MAP);
    let counted = TaskStatus { counters: Some(counter("g", "n", 1)), ..running_map() };
    let text = RUNNING_MAP.replace("00 ffffffffffffffff", "01 ffffffffffffffff COUNTERS");
    check_named(counted, &text.replace("COUNTERS", "00000001 0167 0167 01 016e 00 01"));
    let reduce = TaskStatus {
        attempt: reduce_attempt(),
        phase: Phase::Shuffle,
        reduce: Some(ReduceProgress {
            shuffle_finish_time_ms: 5,
            sort_finish_time_ms: 6,
            failed_fetches: vec![map_attempt()],
        }),
        ..running_map()
    };
    let text = RUNNING_MAP.replace("MAP", "REDUCE").replace("034d4150", r#"07"SHUFFLE""#);
    check_named(reduce, &format!("{text} 0000000000000005 0000000000000006 00000001 MAP"));
}

#[test]
fn counters() {
    check::<Plain, _>(Counters::default(), "00000000");
    check::<Plain, _>(counter("g", "n", 300), "00000001 0167 0167 01 016e 00 8e012c");
    let mut shown = counter("g", "n", -1);
    shown.groups[0].display_name = "G shown".to_owned();
    shown.groups[0].counters[0].display_name = Some("N shown".to_owned());
    assert_eq!(
        (shown.get("g", "n"), shown.get("g", "m"), shown.get("h", "n")),
        (Some(-1), None, None)
    );
    let text = "00000001 0167 07472073686f776e 01 016e 01 074e2073686f776e ff";
    check::<Plain, _>(shown, text);
}

#[test]
fn statuses_of_trackers() {
    let resources = "ffffffffffff 887fffffffffffffff ff ff ff bf800000";
    check::<Plain, _>(ResourceStatus::default(), resources);
    let status = TaskTrackerStatus {
        name: "tracker_h:localhost/127.0.0.1:1".to_owned(),
        host: "h".to_owned(),
        http_port: 50060,
        failures: 2,
        max_maps: 20,
        max_reduces: 10,
        resources: ResourceStatus::default(),
        tasks: vec![running_map()],
        health: NodeHealth::default(),
    };
    check_named(
        status,
        &format!(
            r#"1f"tracker_h:localhost/127.0.0.1:1" 0168 0000c38c 00000002 00000014 0000000a
            {resources} 00000001 01 {RUNNING_MAP} 01 00 0000000000000000"#
        ),
    );
}

#[test]
fn tasks() {
    let end = r#"00 00 00 05"alice" 01 00 00000000"#;
    check_named(new_map(), &format!("{NEW_MAP} {end} 0143 00000002 0102"));
    assert_eq!(sample(&format!("{NEW_MAP} {end} 0143 00000002 0102")).len(), 275);
    let no_split = TaskKind::Map { split: None };
    let setup = Task { job_setup: true, kind: no_split, ..new_map() };
    check_named(setup.clone(), &format!(r#"{NEW_MAP} 00 00 01 05"alice" 01 00 00000000"#));
    let kind = setup.kind;
    let job_cleanup = Some(CleanupState::Succeeded);
    let cleanup = Task { job_cleanup, kind: kind.clone(), ..new_map() };
    check_named(cleanup, &format!(r#"{NEW_MAP} 00 01 09"SUCCEEDED" 00 05"alice" 01 00 00000000"#));
    let task_cleanup = Task { task_cleanup: true, kind, ..new_map() };
    check_named(task_cleanup, &format!(r#"{NEW_MAP} 00 00 00 05"alice" 01 01 00000000"#));

    let mut reduce = Task { kind: TaskKind::Reduce { maps: 7 }, ..new_map() };
    reduce.status.reduce = Some(ReduceProgress::default());
    let before_skip = NEW_MAP.strip_suffix("0000000000000000 00000000").unwrap();
    let reduce_status = "0000000000000000 0000000000000000 00000000";
    let ranges = "0000000000000007 00000001 0000000000000005 0000000000000007";
    reduce.skip = SkipRanges { records: 7, ranges: vec![RecordRange { start: 5, length: 7 }] };
    check_named(reduce, &format!("{before_skip} {reduce_status} {ranges} {end} 00000007"));
}

/// A task that contradicts itself can be written, and the bytes can be read.
#[test]
fn tasks_that_contradict_themselves_are_written_as_what_they_are() {
    let reduce = Task { kind: TaskKind::Reduce { maps: 1 }, ..new_map() };
    let setup = Task { job_setup: true, ..new_map() };
    let nothing_to_read = Task { kind: TaskKind::Map { split: None }, ..new_map() };
    for task in [reduce, setup, nothing_to_read] {
        let mut writer = Writer::new(1000);
        task.encode(&mut writer);
        let bytes = writer.finish().unwrap();
        let mut reader = Reader::new(&bytes);
        let read = Task::decode(task.is_map(), &mut reader).unwrap();
        assert_eq!(reader.rest(), b"");
        assert_eq!(read.is_map(), read.status.is_map());
        assert_eq!(read.attempt, task.attempt);
    }
}

#[test]
fn tasks_for_children() {
    check::<Plain, _>(JvmTask::default(), "00 00");
    check::<Plain, _>(JvmTask { should_die: true, task: None }, "01 00");
    let task = JvmTask { should_die: false, task: Some(new_map()) };
    let text =
        format!(r#"00 01 01 {NEW_MAP} 00 00 00 05"alice" 01 00 00000000 0143 00000002 0102"#);
    check::<Plain, _>(task, &text);
}

fn session(port: u16, secondary: Option<InetAddress>) -> SessionInfo {
    let job_tracker = InetAddress { host: "jt".to_owned(), port };
    let trackers = SessionTrackers { job_tracker, secondary };
    SessionInfo { handle: Some("201401011200.7".to_owned()), trackers }
}

#[test]
fn sessions() {
    let front = r#"0000000e"201401011200.7" 00000002"jt""#;
    check::<Plain, _>(session(40001, None), &format!("{front} 8e9c41"));
    let secondary = InetAddress { host: "cl".to_owned(), port: 50001 };
    let both = session(40001, Some(secondary));
    check::<Plain, _>(both, &format!(r#"{front} 8d019c41 00000002"cl" 8ec351"#));
    for port in ["ff", "8d020000", "87ffff"] {
        let bytes = sample(&format!(r#"00000002"jt" {port} 00000001"#));
        let address =
            <InetAddress as crate::io::formats::Writable>::decode(&mut Reader::new(&bytes));
        assert!(matches!(address, Err(DecodeError::Port(_))), "{port}");
    }
}

#[test]
fn actions() {
    let kill = TaskTrackerAction { session: None, action: Action::KillTask(map_attempt()) };
    check_named(kill.clone(), "09 4b494c4c5f5441534b 00000000 MAP");
    let session = Some(session(40001, None));
    let attached = r#"0000002a"org.apache.hadoop.mapred.CoronaSessionInfo"
        0000000e"201401011200.7" 00000002"jt" 8e9c41"#;
    let of = |action| TaskTrackerAction { session: session.clone(), action };
    check_named(of(kill.action), &format!(r#"09"KILL_TASK" {attached} MAP"#));
    check_named(of(Action::KillJob(job())), &format!(r#"08"KILL_JOB" {attached} JOB"#));
    check_named(of(Action::Commit(map_attempt())), &format!(r#"0b"COMMIT_TASK" {attached} MAP"#));
    check_named(of(Action::Reinit), &format!(r#"0e"REINIT_TRACKER" {attached}"#));
    let task = format!(r#"{NEW_MAP} 00 00 00 05"alice" 01 00 00000000 0143 00000002 0102"#);
    check_named(
        of(Action::Launch(Box::new(new_map()))),
        &format!(r#"0b"LAUNCH_TASK" {attached} 01 {task}"#),
    );
}

#[test]
fn actions_of_another_kind_or_with_another_object_are_refused() {
    let class = "org.apache.hadoop.mapred.KillTaskAction";
    let decode =
        |bytes: &str| TaskTrackerAction::decode_fields(class, &mut Reader::new(&sample(bytes)));
    let other = decode(r#"08"KILL_JOB" 00000000 JOB"#).unwrap_err();
    assert_eq!(other.to_string(), r#""KILL_JOB" is not a valid KILL_TASK"#);
    let other = decode(r#"09"KILL_TASK" 00000003"a.B" MAP"#).unwrap_err();
    assert_eq!(other.to_string(), r#"class "a.B" is not known here"#);
    let unknown = decode(r#"04"KILL" 00000000 MAP"#).unwrap_err();
    assert!(matches!(unknown, DecodeError::Constant { .. }));
}

#[test]
fn answers_to_heartbeats() {
    let answer = HeartbeatResponse { response_id: 1, interval_ms: 3000, ..Default::default() };
    check::<Plain, _>(answer, "0001 00000bb8 00 00000000");
    let answer = HeartbeatResponse {
        actions: vec![TaskTrackerAction { session: None, action: Action::Reinit }],
        recovered: vec![job()],
        ..HeartbeatResponse::default()
    };
    let action = r#"0e"REINIT_TRACKER" 0e"REINIT_TRACKER" 00000000"#;
    check::<Plain, _>(answer, &format!("0000 00000000 01 {action} 00000001 JOB"));
}

#[test]
fn events() {
    let event = TaskCompletionEvent {
        attempt: map_attempt(),
        id_within_job: 3,
        is_map: true,
        status: EventStatus::Succeeded,
        tracker_http: Some("http://h:50060".to_owned()),
        run_time_ms: 12345,
        event_id: 4,
    };
    let text = r#"MAP 03 01 09535543434545444544 0000000e687474703a2f2f683a3530303630 8e3039 04"#;
    check::<Plain, _>(event.clone(), text);
    let nowhere = TaskCompletionEvent { tracker_http: None, ..event.clone() };
    check::<Plain, _>(nowhere, r#"MAP 03 01 09"SUCCEEDED" ffffffff 8e3039 04"#);
    let update = MapTaskCompletionEventsUpdate { reset: true, events: vec![event] };
    check::<Plain, _>(update, &format!("01 00000001 {text}"));
}

#[test]
fn signatures() {
    let short = ProtocolSignature { version: 2, methods: None };
    check::<Plain, _>(short, "0000000000000002 00");
    let long = ProtocolSignature { version: 2, methods: Some(vec![-1, 2]) };
    check::<Plain, _>(long, "0000000000000002 01 00000002 ffffffff 00000002");
}

#[test]
fn files_of_jobs() {
    check::<Plain, _>(FilePiece { bytes: vec![1, 2] }, "00000002 0102");
    let status = JobFileStatus { is_directory: false, bytes: 5, modified_ms: 7 };
    check::<Plain, _>(status, "00 0000000000000005 0000000000000007");
    let entries = vec![JobFileEntry { name: "a".to_owned(), status }];
    let page = JobFilePage { entries, has_more: true };
    let text = r#"00000001 01"a" 00 0000000000000005 0000000000000007 01"#;
    check::<Plain, _>(page, text);
}

#[test]
fn jobs() {
    let status = JobStatus {
        job: job(),
        setup_progress: 1.0,
        map_progress: 0.5,
        reduce_progress: 0.0,
        cleanup_progress: 0.0,
        run_state: 1,
        start_time_ms: 0x0143_4dac_b200,
        user: "nobody".to_owned(),
        priority: JobPriority::Normal,
        scheduling_info: "NA".to_owned(),
    };
    check::<Plain, _>(
        status,
        "JOB 3f800000 3f000000 00000000 00000000 00000001 000001434dacb200
         066e6f626f6479 064e4f524d414c 024e41",
    );
    let text = |text: &str| text.to_owned();
    let profile = JobProfile {
        job: job(),
        job_file: text("f"),
        url: text("u"),
        user: text("a"),
        name: text("n"),
        queue: text("q"),
    };
    check::<Plain, _>(profile, r#"JOB 01"f" 01"u" 01"a" 01"n" 01"q""#);
    let queue = JobQueueInfo { name: text("q"), scheduling_info: text("N/A") };
    check::<Plain, _>(queue, r#"01"q" 03"N/A""#);
    let acls = QueueAclsInfo { name: text("q"), operations: vec![text("submit-job")] };
    check::<Plain, _>(acls, r#"01"q" 00000001 0000000a"submit-job""#);
}

#[test]
fn reports_of_tasks() {
    for (state, text) in [
        (TaskReportState::Pending, r#"07"PENDING""#),
        (TaskReportState::Running(vec![map_attempt()]), r#"07"RUNNING" 01 MAP"#),
        (TaskReportState::Complete(map_attempt()), r#"08"COMPLETE" MAP"#),
        (TaskReportState::Killed, r#"06"KILLED""#),
        (TaskReportState::Failed, r#"06"FAILED""#),
    ] {
        let report = TaskReport {
            task: map_attempt().task,
            progress: 1.0,
            state_string: "s".to_owned(),
            start_time_ms: 1,
            finish_time_ms: 2,
            diagnostics: vec!["d".to_owned()],
            counters: Counters::default(),
            state,
        };
        let front = r#"00000003 JOB 01 3f800000 01"s" 0000000000000001 0000000000000002
            00000001 00000001"d" 00000000"#;
        check::<Plain, _>(report, &format!("{front} {text}"));
    }
}

#[test]
fn statistics() {
    let stats = JobStats {
        maps_launched: 1,
        rack_local_maps: 18,
        total_map_input_bytes: 19,
        speculative_reduce_waste_ms: 27,
        ..JobStats::default()
    };
    let zeros = |count| "00000000 ".repeat(count);
    let text =
        format!("00000001 {} 00000012 0000000000000013 {} 000000000000001b", zeros(16), zeros(14));
    assert_eq!(sample(&text).len(), 144);
    check::<Plain, _>(stats, &text);
}

#[test]
fn clusters() {
    let status = ClusterStatus {
        active: 1,
        active_names: vec!["t".to_owned()],
        blacklisted: 2,
        blacklisted_names: vec![],
        excluded: 3,
        tracker_expiry_ms: 4,
        maps: 5,
        reduces: 6,
        max_maps: 7,
        max_reduces: 8,
        used_memory: 9,
        max_memory: 10,
        state: ClusterState::Running,
        total_maps: 11,
        total_reduces: 12,
        trackers: vec![],
        tasks: vec![TrackerTasks { tracker: "t".to_owned(), tasks: vec![running_map()] }],
    };
    check::<Plain, _>(
        status,
        &format!(
            r#"00000001 00000001 01"t" 00000002 00000000 00000003 0000000000000004 00000005 00000006
            00000007 00000008 0000000000000009 000000000000000a 07"RUNNING" 0000000b 0000000c
            00000000 00000001 01"t" 00000001 01 {RUNNING_MAP}"#
        ),
    );
}

#[test]
fn states_of_job_trackers() {
    let at_ms = 0x01a1_fb69_4158;
    let tracker = || Some("t".to_owned());
    let address = InetAddress { host: "jt".to_owned(), port: 40001 };
    let update = |update, at_ms| StateUpdate { update, at_ms };
    let info = TaskTrackerInfo {
        name: "tracker_h:localhost/127.0.0.1:1".to_owned(),
        host: "h".to_owned(),
        http_port: 50060,
    };
    let launch = TaskLaunch { attempt: map_attempt(), tracker: tracker(), address, grant: 42 };
    let reported = TaskStatusUpdate { status: running_map(), tracker: tracker() };
    let reduce = TaskStatus { reduce: Some(ReduceProgress::default()), ..running_map() };
    let time = "8a01a1fb694158";
    let reduce_end = "0000000000000000 0000000000000000 00000000";
    let name = r#"1f"tracker_h:localhost/127.0.0.1:1" 0168 0000c38c"#;
    let table = [
        (Update::Timeout(TaskTimeout { tracker: tracker() }), "06 00000001 74".to_owned()),
        (Update::Tracker(info), format!("02 {name}")),
        (Update::Launch(launch), "01 MAP 00000001 74 00000002 6a74 8e9c41 2a".to_owned()),
        (Update::StatusUpdate(reported), format!("00 01 {RUNNING_MAP} 00000001 74")),
        (Update::Status(Box::new(running_map())), format!("04 {RUNNING_MAP}")),
        (Update::Status(Box::new(reduce)), format!("05 {RUNNING_MAP} {reduce_end}")),
    ];
    for (what, text) in table {
        check::<Plain, _>(update(what, at_ms), &format!("{text} {time}"));
    }
    let timeout = Update::Timeout(TaskTimeout { tracker: tracker() });
    let updates = vec![update(timeout, at_ms)];
    let state = JobTrackerState { updates, session: "s".to_owned(), restarts: 1 };
    check::<Plain, _>(state, &format!("01 06 00000001 74 {time} 0173 01"));
    let empty = JobTrackerState { updates: vec![], session: "s".to_owned(), restarts: 1 };
    check::<Plain, _>(empty, "00 0173 01");
    let unknown = sample(&format!("07 {time}"));
    let unknown = <StateUpdate as crate::io::formats::Writable>::decode(&mut Reader::new(&unknown));
    assert_eq!(unknown, Err(DecodeError::Number { kind: "kind of update", value: 7 }));
}

#[test]
fn splits() {
    let raw = RawSplit {
        class: "C".to_owned(),
        length: 5,
        data: vec![1, 2],
        hosts: vec!["h".to_owned()],
    };
    let text = r#"01"C" 0000000000000005 00000002 0102 01 01"h""#;
    check::<Plain, _>(raw.clone(), text);
    check::<Plain, _>(SplitFile { splits: vec![raw] }, &format!(r#""SPL" 00 01 {text}"#));
    for bytes in [r#""SPX" 00 00"#, r#""SPL" 01 00"#] {
        let file =
            <SplitFile as crate::io::formats::Writable>::decode(&mut Reader::new(&unhex(bytes)));
        assert!(matches!(file, Err(DecodeError::Number { .. })), "{bytes}");
    }
    let split = FileSplit { path: "file:/a".to_owned(), start: 1, length: 2 };
    check::<Plain, _>(split, r#"0007"file:/a" 0000000000000001 0000000000000002"#);
    let split = MapReduceFileSplit { path: "file:/a".to_owned(), start: 1, length: 2 };
    check::<Plain, _>(split, r#"07"file:/a" 0000000000000001 0000000000000002"#);
}

#[test]
fn configurations() {
    let property = Property { name: "n".to_owned(), value: "${v}".to_owned() };
    check::<Plain, _>(Configuration { properties: vec![property] }, r#"01 01"n" 04"${v}""#);
}

#[test]
fn map_outputs() {
    let header = ShuffleHeader {
        attempt: map_attempt().to_string(),
        part_length: 1004,
        raw_length: 1000,
        reduce: 2,
        found: true,
    };
    check::<Plain, _>(header, r#"26"attempt_201401011200.7_0001_m_000003_0" 8e03ec 8e03e8 02 01"#);
    let index = SpillIndex {
        records: vec![
            IndexRecord { start: 0, raw_length: 100, part_length: 104 },
            IndexRecord { start: 104, raw_length: 2, part_length: 6 },
        ],
    };
    let bytes = unhex(
        "0000000000000000 0000000000000064 0000000000000068 0000000000000068 0000000000000002
         0000000000000006 00000000e5032087",
    );
    assert_eq!(hex(&index.encode()), hex(&bytes));
    assert_eq!(SpillIndex::decode(&bytes), Ok(index));
    // Eight zero bytes are the index of no records.
    for cut in (0..8).chain(9..bytes.len()) {
        assert!(SpillIndex::decode(&bytes[..cut]).is_err(), "cut to {cut} bytes");
    }
    let mut damaged = bytes;
    damaged[3] ^= 1;
    assert_eq!(SpillIndex::decode(&damaged), Err(DecodeError::Checksum));
    let empty = SpillIndex::default();
    assert_eq!(SpillIndex::decode(&empty.encode()), Ok(empty));
}

#[test]
fn constants_are_found_by_name_only() {
    for state in TaskState::ALL {
        assert_eq!(TaskState::from_name(state.name()), Some(*state));
        assert_eq!(state.to_string(), state.name());
    }
    assert_eq!(TaskState::from_name("running"), None);
    assert_eq!(TaskState::ALL.len(), 8);
}
