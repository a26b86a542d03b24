//! The tasks, job trackers and cluster managers of the tests without a task tracker: a test acts as
//! it, so that failures of the other tests are not caused by these.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use compat_tests::task_tracker::cluster_manager::{ClusterManager, NodeAnswer};
use compat_tests::task_tracker::job::{Job, map_output};
use compat_tests::task_tracker::job_tracker::{BUILD, JobTracker, client_options};
use compat_tests::task_tracker::steps::TaskRole;
use compat_tests::task_tracker::until;
use corona::config::Source;
use corona::hadoop::protocols::inter_tracker::InterTrackerClient;
use corona::hadoop::protocols::task_umbilical::{Served, TaskUmbilical};
use corona::hadoop::rpc::{Caller, Fault, Limits, Server, Services};
use corona::hadoop::writables::{
    JobId, JvmContext, JvmTask, MapTaskCompletionEventsUpdate, NodeHealth, RecordRange,
    ResourceStatus, Task, TaskAttemptId, TaskState, TaskStatus, TaskTrackerStatus,
};
use corona::task_tracker::child::Logs;
use corona::task_tracker::http::HttpServer;
use corona::task_tracker::local_dirs::LocalDirs;
use corona::task_tracker::map_output::MapOutputs;
use corona::wire::calls::{ClusterManager as Service, ClusterManagerCall, ClusterManagerReply};
use corona::wire::client::{CallError, Client, ClientOptions};
use corona::wire::generated as wire;
use corona::wire::server::{ListenOn, listen};
use tokio::sync::{mpsc, watch};

use super::{block_on, test_task};

/// Acts as a task tracker: gives tasks to processes and records their reports.
#[derive(Default)]
struct StandIn {
    tasks: Mutex<HashMap<i32, Task>>,
    said: Mutex<Vec<(TaskAttemptId, String)>>,
    reports: Mutex<Vec<TaskStatus>>,
}

impl StandIn {
    fn note(&self, attempt: &TaskAttemptId, what: impl Into<String>) {
        self.said.lock().unwrap().push((attempt.clone(), what.into()));
    }

    fn said(&self, attempt: &TaskAttemptId) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().filter(|(id, _)| id == attempt).map(|(_, what)| what.clone()).collect()
    }
}

impl TaskUmbilical for StandIn {
    async fn get_task(&self, _: &Caller, context: JvmContext) -> Result<JvmTask, Fault> {
        let task = self.tasks.lock().unwrap().get(&context.jvm.number).cloned();
        Ok(JvmTask { should_die: task.is_none(), task })
    }

    async fn status_update(
        &self,
        _: &Caller,
        attempt: TaskAttemptId,
        status: TaskStatus,
    ) -> Result<bool, Fault> {
        self.note(&attempt, format!("{} {} {}", status.state, status.phase, status.progress));
        self.reports.lock().unwrap().push(status);
        Ok(true)
    }

    async fn ping(&self, _: &Caller, _: TaskAttemptId) -> Result<bool, Fault> {
        Ok(true)
    }

    async fn report_diagnostic_info(
        &self,
        _: &Caller,
        attempt: TaskAttemptId,
        text: Option<String>,
    ) -> Result<(), Fault> {
        self.note(&attempt, text.unwrap_or_default());
        Ok(())
    }

    async fn report_next_record_range(
        &self,
        _: &Caller,
        _: TaskAttemptId,
        _: RecordRange,
    ) -> Result<(), Fault> {
        Ok(())
    }

    async fn commit_pending(
        &self,
        _: &Caller,
        attempt: TaskAttemptId,
        status: TaskStatus,
    ) -> Result<(), Fault> {
        self.note(&attempt, format!("commit pending: {}", status.state));
        Ok(())
    }

    async fn can_commit(&self, _: &Caller, attempt: TaskAttemptId) -> Result<bool, Fault> {
        let asked = self.said(&attempt).iter().any(|said| said == "can commit?");
        if !asked {
            self.note(&attempt, "can commit?");
        }
        Ok(asked)
    }

    async fn done(&self, _: &Caller, attempt: TaskAttemptId) -> Result<(), Fault> {
        self.note(&attempt, "done");
        Ok(())
    }

    async fn shuffle_error(
        &self,
        _: &Caller,
        attempt: TaskAttemptId,
        text: Option<String>,
    ) -> Result<(), Fault> {
        self.note(&attempt, format!("shuffle: {}", text.unwrap_or_default()));
        Ok(())
    }

    async fn fs_error(
        &self,
        _: &Caller,
        attempt: TaskAttemptId,
        text: Option<String>,
    ) -> Result<(), Fault> {
        self.note(&attempt, format!("fs: {}", text.unwrap_or_default()));
        Ok(())
    }

    async fn fatal_error(
        &self,
        _: &Caller,
        attempt: TaskAttemptId,
        text: Option<String>,
    ) -> Result<(), Fault> {
        self.note(&attempt, format!("fatal: {}", text.unwrap_or_default()));
        Ok(())
    }

    async fn get_map_completion_events(
        &self,
        _: &Caller,
        _: JobId,
        _: i32,
        _: i32,
        _: TaskAttemptId,
    ) -> Result<MapTaskCompletionEventsUpdate, Fault> {
        Ok(MapTaskCompletionEventsUpdate::default())
    }
}

/// A node without a task tracker.
struct World {
    root: tempfile::TempDir,
    tracker: Arc<StandIn>,
    umbilical: SocketAddr,
    http: SocketAddr,
    jvms: i32,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn new() -> World {
        let root = tempfile::tempdir().unwrap();
        let tracker = Arc::new(StandIn::default());
        let free = ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into());
        let listener = listen(free).unwrap();
        let umbilical = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let services = Services::new().offer(Served::new(tracker.clone()));
        tokio::spawn(Server::new(listener, services, Limits::default()).run(stopped.clone()));
        let overrides = [("mapred.local.dir", "local"), ("hadoop.log.dir", "logs")];
        let overrides: Vec<(String, String)> = overrides
            .map(|(key, dir)| (key.to_owned(), root.path().join(dir).display().to_string()))
            .to_vec();
        let source = Source { overrides: &overrides, ..Source::default() };
        let settings = source.load_task_tracker().unwrap().settings;
        let dirs = Arc::new(LocalDirs::open(&settings.local).unwrap());
        let (lost, _) = mpsc::channel(1);
        let outputs = Arc::new(MapOutputs::new(dirs, 1 << 20));
        let server = HttpServer::new(outputs, Logs::new(settings.logs), lost, &settings.http);
        let listener = listen(free).unwrap();
        let http = listener.local_addr().unwrap();
        tokio::spawn(Arc::new(server.unwrap()).serve(listener, stopped));
        World { root, tracker, umbilical, http, jvms: 0, _stop: stop }
    }

    fn job(&self) -> Job {
        Job::new("20261122.1", &self.root.path().join("job"), test_task()).unwrap()
    }

    /// Starts the process of a task that the stand-in knows.
    fn start(&mut self, job: &Job, task: Task, job_tracker: &JobTracker) -> Child {
        self.jvms += 1;
        self.tracker.tasks.lock().unwrap().insert(self.jvms, task.clone());
        self.spawn(job, &task, job_tracker)
    }

    /// Starts the process of a task, as a task tracker does.
    fn spawn(&self, job: &Job, task: &Task, job_tracker: &JobTracker) -> Child {
        let attempt = task.attempt.clone();
        let jt = &job_tracker.session().trackers.job_tracker;
        let work = self.root.path().join(format!("{attempt}/work"));
        std::fs::create_dir_all(&work).unwrap();
        let local = [
            ("mapred.task.id", attempt.to_string()),
            ("mapred.job.id", job.id.to_string()),
            ("mapred.task.partition", task.partition.to_string()),
            ("job.local.dir", "/nowhere".to_owned()),
        ];
        let set = |job: Job, (name, value): &(&str, String)| job.with(name, value);
        let conf = local.iter().fold(job.clone(), set);
        let conf = conf
            .with("mapred.local.dir", &self.root.path().join("local").display().to_string())
            .with("mapred.direct.task.umbilical.address", &jt.to_string());
        conf.write().unwrap();
        let job_xml = work.with_file_name("job.xml");
        std::fs::copy(conf.path(), &job_xml).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "export JVM_PID=$$; exec \"$0\""]).arg(test_task()).current_dir(work);
        command.env("CORONA_UMBILICAL", self.umbilical.to_string());
        command.env("CORONA_JVM_NUMBER", self.jvms.to_string()).env("CORONA_JOB_XML", job_xml);
        command.envs(local.map(|(name, value)| (name.replace('.', "_"), value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    }
}

async fn ended(mut child: Child) -> ExitStatus {
    until("the end of a task", || child.try_wait().unwrap()).await
}

#[test]
fn tasks_do_their_steps() {
    block_on(async {
        let mut world = World::new().await;
        let job_tracker = JobTracker::start("20261122.1");
        let job = world.job().sized(1, 2);
        let (map, reduce) = (job.map(0), job.reduce(1));
        let first = world.start(&job, job.task(&map), &job_tracker);
        assert!(ended(first).await.success());
        assert_eq!(world.tracker.said(&map), ["RUNNING MAP 0.5", "RUNNING MAP 1", "done"]);
        let counters = world.tracker.reports.lock().unwrap()[1].counters.clone().unwrap();
        assert_eq!(counters.get("test", "STEPS"), Some(7));
        // A report in a heartbeat becomes an event.
        let address = job_tracker.session().trackers.job_tracker.clone();
        let mut heartbeats = InterTrackerClient::new(address, client_options());
        assert_eq!(heartbeats.get_build_version().await.unwrap(), BUILD);
        let mut report = job.task(&map).status;
        (report.state, report.output_size) = (TaskState::Succeeded, 1000);
        let status = TaskTrackerStatus {
            name: "tracker_t".to_owned(),
            host: "127.0.0.1".to_owned(),
            http_port: world.http.port().into(),
            failures: 0,
            max_maps: 1,
            max_reduces: 1,
            resources: ResourceStatus::default(),
            tasks: vec![report],
            health: NodeHealth::default(),
        };
        let answer = heartbeats.heartbeat(status, true, true, true, -1).await.unwrap();
        assert_eq!((answer.response_id, answer.actions.len()), (0, 0));
        assert_eq!(job_tracker.ended(&map, 1).await.state, TaskState::Succeeded);

        let second = world.start(&job, job.task(&reduce), &job_tracker);
        assert!(ended(second).await.success());
        let expected = [
            "RUNNING SORT 0.3",
            "RUNNING REDUCE 0.6",
            "RUNNING REDUCE 0.9",
            "commit pending: COMMIT_PENDING",
            "can commit?",
            "COMMIT_PENDING REDUCE 1",
            "done",
        ];
        assert_eq!(world.tracker.said(&reduce), expected);
        let fetched = job.notes().of(&reduce.to_string(), "fetched");
        assert_eq!(fetched, [format!("{map} 1001")]);
        assert_eq!(map_output(&map, 1, 1001).len(), 1001);
    });
}

#[test]
fn tasks_misbehave_as_they_are_told() {
    block_on(async {
        let mut world = World::new().await;
        let job_tracker = JobTracker::start("20261122.1");
        let ways = [
            ("exit=3", Some(3), &[][..]),
            ("abort", None, &[]),
            ("ask,flood=1,diagnose=no use,exit=0", Some(0), &["no use"][..]),
            ("clean-up,fatal-error=x", Some(0), &["RUNNING CLEANUP 0", "fatal: x"]),
            ("fs-error=y,shuffle-error=z", Some(0), &["fs: y", "shuffle: z"]),
            ("memory=2,ignore-term,wait,done", Some(0), &["done"]),
        ];
        for (number, (steps, code, said)) in ways.into_iter().enumerate() {
            let attempt = world.job().map(i32::try_from(number).unwrap());
            let job =
                world.job().steps(TaskRole::Map, "done").map_steps(attempt.task.number, steps);
            job.notes().let_go(&attempt.to_string()).unwrap();
            let child = world.start(&job, job.task(&attempt), &job_tracker);
            assert_eq!(ended(child).await.code(), code, "{steps}");
            assert_eq!(world.tracker.said(&attempt), said, "{steps}");
        }
        // An unknown process is notified of that.
        let job = world.job();
        world.tracker.tasks.lock().unwrap().clear();
        let child = world.spawn(&job, &job.task(&job.map(9)), &job_tracker);
        assert!(ended(child).await.success());
        assert_eq!(job.notes().of(&job.map(9).to_string(), "told to die").len(), 1);
    });
}

#[test]
fn cluster_managers_answer_as_they_are_told() {
    block_on(async {
        let manager = ClusterManager::start();
        let specs = wire::ComputeSpecs::new(1, 100, 1, 1);
        let info = [(wire::ResourceType::MAP, "127.0.0.1:1".to_owned())];
        let node = wire::ClusterNodeInfo {
            name: "n".into(),
            address: wire::InetAddress::new("h".into(), 1),
            total: specs,
            free: None,
            resource_infos: Some(info.into()),
            ended: None,
        };
        let call = ClusterManagerCall::NodeHeartbeat { node: Some(node) };
        let answers = [
            (NodeAnswer::Fine, "false"),
            (NodeAnswer::Restart, "true"),
            (NodeAnswer::Disallowed, "disallowed node: h"),
            (NodeAnswer::SafeMode, "the cluster manager is in safe mode"),
            (NodeAnswer::Close, "closed"),
        ];
        for (answer, expected) in answers {
            manager.state().answer = answer;
            let options = ClientOptions::default();
            let mut client = Client::<Service>::connect(manager.address(), options).await.unwrap();
            let said = match client.call(&call).await {
                Ok(ClusterManagerReply::NodeHeartbeat(reply)) => reply.restart_flag.to_string(),
                Err(CallError::Exception(exception)) => exception.to_string(),
                Err(CallError::Closed) => "closed".to_owned(),
                other => panic!("{other:?}"),
            };
            assert_eq!(said, expected);
        }
        assert_eq!(manager.actions().await, "127.0.0.1:1");
        assert_eq!(manager.state().heartbeats.len(), answers.len());
    });
}
