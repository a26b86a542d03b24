//! The task tracker's metrics for Prometheus. A test checks `docs/operate/metrics.md` against the names.

use super::{View, count};
use corona_process::since_epoch_ms;
use corona_web::process::process;
use corona_web::prometheus::{Text, families};

families! {
    BUILD = Gauge "corona_build_info" "Always 1; the version is a label.";
    SLOTS = Gauge "corona_task_tracker_slots" "Maximum of concurrent attempts that the node accepts.";
    SLOTS_USED = Gauge "corona_task_tracker_slots_used" "Slots occupied by attempts.";
    SLOTS_GRANTED = Gauge "corona_task_tracker_granted_slots" "Slots that the cluster manager grants on this node.";
    JAVA = Gauge "corona_task_tracker_java_usable" "1 unless a problem is known that prevents Java tasks from running.";
    JOBS = Gauge "corona_task_tracker_jobs" "Jobs with attempts or files on this node.";
    ATTEMPTS = Gauge "corona_task_tracker_attempts" "Attempts that this node knows, by stage.";
    FAILURES = Counter "corona_task_tracker_failures_total" "Attempts that failed.";
    HEARTBEATS = Counter "corona_task_tracker_heartbeats_total" "Heartbeats to the cluster manager, by outcome.";
    LAST_ANSWER = Gauge "corona_task_tracker_last_answer_timestamp_seconds" "Time of the cluster manager's last reply.";
    IDLE_PROCESSES = Gauge "corona_task_tracker_idle_processes" "Processes of Java that wait for a further task of their job.";
    TAKES_TASKS = Gauge "corona_task_tracker_takes_tasks" "1 unless the node takes no new tasks, for want of room, of file descriptors or of a working disk.";
    HEALTHY = Gauge "corona_task_tracker_healthy" "1 unless the last run of the health script reported a problem.";
    TASKS_CPU = Counter "corona_task_tracker_tasks_cpu_seconds_total" "CPU time of the processes of attempts.";
    TASKS_MEMORY = Gauge "corona_task_tracker_tasks_memory_bytes" "Memory of the processes of running attempts.";
    TASKS_READ = Counter "corona_task_tracker_tasks_disk_read_bytes_total" "Bytes that the processes of attempts read from disks.";
    TASKS_WRITTEN = Counter "corona_task_tracker_tasks_disk_written_bytes_total" "Bytes that the processes of attempts wrote to disks.";
    NODE_CPUS = Gauge "corona_node_cpus" "Processors of the machine.";
    NODE_CPU = Counter "corona_node_cpu_seconds_total" "Time that the processors of the machine were busy, added up.";
    NODE_MEMORY = Gauge "corona_node_memory_bytes" "Physical memory of the machine.";
    NODE_AVAILABLE = Gauge "corona_node_memory_available_bytes" "Physical memory that is free or in use for data that can be discarded.";
    NODE_DISK_READ = Counter "corona_node_disk_read_bytes_total" "Bytes read from the disks of the machine.";
    NODE_DISK_WRITTEN = Counter "corona_node_disk_written_bytes_total" "Bytes written to the disks of the machine.";
    NODE_RECEIVED = Counter "corona_node_network_received_bytes_total" "Bytes received by the network interfaces of the machine, without the loopback.";
    NODE_SENT = Counter "corona_node_network_sent_bytes_total" "Bytes sent by the network interfaces of the machine, without the loopback.";
    HTTP_REFUSED = Counter "corona_task_tracker_http_connections_refused_total" "HTTP connections that were refused, by the limit that they exceeded.";
    FILE_READ_BYTES = Counter "corona_task_tracker_hdfs_read_bytes_total" "Bytes of files of jobs that were read from HDFS, by where the replica was.";
    FILE_READS = Counter "corona_task_tracker_hdfs_reads_total" "Reads of replicas of HDFS, by where the replica was.";
    FILE_FAILED = Counter "corona_task_tracker_hdfs_failed_reads_total" "Replicas of HDFS that could not be read.";
    FILE_CORRUPT = Counter "corona_task_tracker_hdfs_corrupt_replicas_total" "Replicas of HDFS whose bytes did not match their checksums.";
    DIRS_USABLE = Gauge "corona_task_tracker_local_dir_usable" "1 if the local directory passed its last check.";
    DIRS_SIZE = Gauge "corona_task_tracker_local_dir_size_bytes" "Size of the file system of the local directory.";
    DIRS_FREE = Gauge "corona_task_tracker_local_dir_free_bytes" "Free space in the file system of the local directory.";
}

/// Everything, as text. It reads files of the kernel.
pub(super) fn render(view: &View<'_>) -> String {
    let View { tracker, link, dirs, .. } = view;
    let mut text = Text(String::with_capacity(8 * 1024));
    text.family(BUILD).labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let types = [("MAP", tracker.maps), ("REDUCE", tracker.reduces)];
    let mut samples = text.family(SLOTS);
    for (name, slots) in types {
        samples.labelled(&[("type", name)], slots.total);
    }
    let mut samples = text.family(SLOTS_USED);
    for (name, slots) in types {
        samples.labelled(&[("type", name)], slots.used);
    }
    let granted = view.about.granted;
    let mut samples = text.family(SLOTS_GRANTED);
    for (name, slots) in [("MAP", granted.maps), ("REDUCE", granted.reduces)] {
        samples.labelled(&[("type", name)], slots);
    }
    text.family(JAVA).value(u8::from(view.about.java_problem.is_none()));
    text.family(JOBS).value(tracker.jobs.len());
    let mut samples = text.family(ATTEMPTS);
    for (stage, count) in count(tracker.jobs.iter().flat_map(|job| &job.attempts)) {
        samples.labelled(&[("stage", stage)], count);
    }
    text.family(FAILURES).value(tracker.failures);
    let mut samples = text.family(HEARTBEATS);
    samples.labelled(&[("outcome", "answered")], link.answered);
    samples.labelled(&[("outcome", "failed")], link.failed);
    text.family(LAST_ANSWER).value(since_epoch_ms(link.last_answer_at) as f64 / 1000.0);
    usage(&mut text, view);
    let mut samples = text.family(HTTP_REFUSED);
    samples.labelled(&[("limit", "all")], view.http.refused());
    samples.labelled(&[("limit", "peer")], view.http.refused_of_peer());
    let files = view.files;
    let mut samples = text.family(FILE_READ_BYTES);
    samples.labelled(&[("replica", "local")], files.local_read_bytes.get());
    samples.labelled(&[("replica", "remote")], files.remote_read_bytes.get());
    let mut samples = text.family(FILE_READS);
    samples.labelled(&[("replica", "local")], files.local_reads.get());
    samples.labelled(&[("replica", "remote")], files.remote_reads.get());
    text.family(FILE_FAILED).value(files.failed_reads.get());
    text.family(FILE_CORRUPT).value(files.corrupt_replicas.get());
    let dirs: Vec<_> = dirs.iter().map(|dir| (dir.path.display().to_string(), dir)).collect();
    let mut samples = text.family(DIRS_USABLE);
    for (path, dir) in &dirs {
        samples.labelled(&[("dir", path)], u8::from(dir.failed.is_none()));
    }
    let mut samples = text.family(DIRS_SIZE);
    for (path, dir) in &dirs {
        samples.labelled_if_any(&[("dir", path)], dir.space.map(|space| space.total_bytes));
    }
    let mut samples = text.family(DIRS_FREE);
    for (path, dir) in &dirs {
        samples.labelled_if_any(&[("dir", path)], dir.space.map(|space| space.free_bytes));
    }
    process(&mut text);
    text.0
}

/// What tasks and the machine use.
fn usage(text: &mut Text, view: &View<'_>) {
    let View { tracker, machine, traffic, .. } = view;
    text.family(IDLE_PROCESSES).value(tracker.idle_processes);
    text.family(TAKES_TASKS).value(u8::from(tracker.obstacles.is_empty()));
    text.family(HEALTHY).value(u8::from(tracker.health.is_healthy));
    let seconds = |ms: u64| ms as f64 / 1000.0;
    text.family(TASKS_CPU).value(seconds(tracker.used.cpu_ms));
    let attempts = tracker.jobs.iter().flat_map(|job| &job.attempts);
    let memory_bytes: u64 = attempts.map(|attempt| attempt.usage.memory_bytes).sum();
    text.family(TASKS_MEMORY).value(memory_bytes);
    text.family(TASKS_READ).value(tracker.used.read_bytes);
    text.family(TASKS_WRITTEN).value(tracker.used.written_bytes);
    text.family(NODE_CPUS).value(machine.cpus);
    text.family(NODE_CPU).value(seconds(machine.busy_ms()));
    text.family(NODE_MEMORY).value(machine.memory_bytes);
    text.family(NODE_AVAILABLE).value(machine.available_bytes);
    text.family(NODE_DISK_READ).value(traffic.disk_read_bytes);
    text.family(NODE_DISK_WRITTEN).value(traffic.disk_written_bytes);
    text.family(NODE_RECEIVED).value(traffic.network_received_bytes);
    text.family(NODE_SENT).value(traffic.network_sent_bytes);
}
