//! The recorded remote jobs of the original, played again as parent, cluster manager and task trackers of
//! the built program as a remote job tracker: it must do what the recorded one did, down to the last field
//! of each launch.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};

use compat_tests::serving::serve;
use corona::hadoop::protocols::corona_task_tracker::{CoronaTaskTracker, Served as Orders};
use corona::hadoop::protocols::inter_corona_job_tracker::Served;
use corona::hadoop::protocols::inter_tracker::InterTrackerClient;
use corona::hadoop::rpc::{Caller, Fault, Limits, Server, Services};
use corona::hadoop::writables::{SessionInfo, Split, Task, TaskKind, TaskTrackerAction};
use corona::job_engine::{GrantedSlot, JobInput};
use corona::model::types::SessionStatus;
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, SessionDriver,
    SessionDriverCall,
};
use corona::wire::client::{Client, ClientOptions as ThriftOptions};
use corona::wire::generated as wire;
use corona::wire::server::Answer;
use tokio::sync::watch;

use super::super::task_tracker::block_on;
use super::recorded_jobs::{Deeds, Recorded, alike_but_for_tasks, recorded, request, usage};
use super::remote::Parent;
use super::*;

/// What the job tracker under test has done.
#[derive(Default)]
struct Seen {
    deeds: Deeds,
    /// Where the cluster manager notifies its session.
    callbacks: Option<wire::InetAddress>,
    names: Vec<String>,
    pool: Option<String>,
}

type Shared = Arc<Mutex<Seen>>;

fn seen(shared: &Shared) -> MutexGuard<'_, Seen> {
    shared.lock().expect("no test panics with it")
}

/// A cluster manager that agrees to everything.
fn reply(shared: &Shared, call: Call, session: &str) -> Reply {
    let mut seen = seen(shared);
    let strings =
        |list: &Option<Vec<String>>| list.iter().flatten().map(|it| it.as_str().into()).collect();
    match call {
        Call::GetNextSessionId => Reply::GetNextSessionId(session.to_owned()),
        Call::SessionStart { info, .. } => {
            let info = info.expect("a session");
            let pool = info.pool_info_strings.expect("a pool");
            seen.callbacks = Some(info.address);
            seen.pool = Some(format!("{}.{}", pool.pool_group_name, pool.pool_name));
            seen.names.push(info.user_id);
            Reply::SessionStart(wire::SessionRegistrationData {
                handle: session.to_owned(),
                cluster_manager_info: wire::ClusterManagerInfo::new(String::new(), "/log".into()),
                pool_info_strings: pool,
            })
        }
        Call::SessionUpdateInfo { info, .. } => {
            seen.names.extend(info.map(|info| info.name));
            Reply::SessionUpdateInfo
        }
        Call::SessionHeartbeatV2 { .. } => Reply::SessionHeartbeatV2,
        Call::RequestResource { requests, .. } => {
            for it in requests.into_iter().flatten() {
                let (near, not) = (strings(&it.hosts), strings(&it.exclude_hosts));
                let near: Vec<Arc<str>> = near;
                let not: Vec<Arc<str>> = not;
                seen.deeds.requests.push(request(it.id, it.type_.0, &near, &not));
            }
            Reply::RequestResource
        }
        Call::ReleaseResource { ids, .. } => {
            seen.deeds.released.extend(ids.unwrap_or_default());
            Reply::ReleaseResource
        }
        Call::NodeFeedback { reports, .. } => {
            seen.deeds.feedback.extend(reports.into_iter().flatten().map(usage));
            Reply::NodeFeedback
        }
        Call::SessionEnd { status, .. } => {
            seen.deeds.end = status.and_then(|status| SessionStatus::from_number(status.0));
            Reply::SessionEnd
        }
        other => panic!("a session does not call {other:?}"),
    }
}

/// A task tracker that notes what it is ordered, under its recorded address.
struct Tracker {
    shared: Shared,
    recorded: String,
    session: String,
}

impl CoronaTaskTracker for Tracker {
    async fn submit_actions(
        &self,
        _caller: &Caller,
        actions: Option<Vec<TaskTrackerAction>>,
    ) -> Result<(), Fault> {
        let mut seen = seen(&self.shared);
        for TaskTrackerAction { session, action } in actions.into_iter().flatten() {
            let of = session.and_then(|session| session.handle);
            assert_eq!(of.as_deref(), Some(&*self.session));
            seen.deeds.order(&self.recorded, action);
        }
        Ok(())
    }

    async fn start_corona_job_tracker(
        &self,
        _caller: &Caller,
        _task: Task,
        _session: SessionInfo,
    ) -> Result<(), Fault> {
        Err(Fault::io("one is enough"))
    }
}

#[test]
fn a_sleep_job() {
    play("remote-sleep", "202611210044.2", "Sleep job");
}

#[test]
fn a_word_count_near_its_files() {
    play("wc-remote", "202611210045.2", "word count");
}

/// The process, which is ended with the test, and its log.
struct Process(Child, PathBuf);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.1).unwrap_or_default();
            tell_end("the job tracker's log", &log, usize::MAX);
        }
    }
}

fn play(name: &str, session: &str, job_name: &str) {
    let recorded = recorded(name, session);
    block_on(async {
        let root = tempfile::tempdir().expect("a directory");
        let shared = Shared::default();
        let (state, own) = (shared.clone(), session.to_owned());
        let (manager, _serving) = serve::<ClusterManager>(move |_, call: Call| {
            let reply = reply(&state, call, &own);
            async move { Answer::Reply(reply) }
        });
        let job = files(&recorded, root.path(), &manager.to_string(), job_name);
        let attempt = format!("attempt_{}_m_100003_0", &recorded.job.as_str()["job_".len()..]);
        let parent = Arc::new(Parent::of(&attempt));
        let (listens, stopped) = watch::channel(false);
        let at_parent = rpc(Services::new().offer(Served::new(parent.clone())), &stopped);
        let mut command = Command::new(corona_program());
        command.args(["job-tracker", "--remote", recorded.job.as_str(), &attempt, "127.0.0.1"]);
        command.args([&at_parent.to_string(), "localhost", "18061", "-1731256069"]);
        command.current_dir(root.path()).env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
        let log = root.path().join("log");
        let written = File::create(&log).expect("a file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(written).spawn();
        let mut process = Process(child.expect("the program can be started"), log);
        let at = until("the first report", || parent.at()).await;
        // The recorded pauses are not kept, so a busy machine may take its time for each connection.
        let options = || ClientOptions {
            attempt_timeout: PATIENCE,
            connect_patience: PATIENCE,
            call_timeout: Some(PATIENCE),
            ..ClientOptions::new(User { name: "root".into(), groups: vec![] })
        };
        let mut client = JobSubmissionClient::new(at.clone(), options());
        let mut reporting = InterTrackerClient::new(at, options());
        let mut trackers = BTreeMap::new();
        let mut statuses = recorded.statuses.iter();
        let mut response = -1;
        for (_, input) in &recorded.heard {
            match input {
                JobInput::Submitted => {
                    client.submit_job(job.clone()).await.expect("a submission");
                }
                JobInput::Granted { slots } => {
                    let known = |slot: &GrantedSlot| {
                        let (seen, begin) = (seen(&shared), format!("{} of type", slot.id.0));
                        seen.deeds.requests.iter().any(|it| it.starts_with(&begin))
                    };
                    until("the requests", || slots.iter().all(known).then_some(())).await;
                    for slot in slots {
                        let recorded = slot.address.to_string();
                        trackers.entry(recorded.clone()).or_insert_with(|| {
                            let (shared, session) = (shared.clone(), session.to_owned());
                            let tracker = Tracker { shared, recorded, session };
                            rpc(Services::new().offer(Orders::new(Arc::new(tracker))), &stopped)
                        });
                    }
                    grant(&shared, session, slots, &trackers).await;
                }
                JobInput::Heartbeat { .. } => {
                    let (_, status) = statuses.next().expect("as many as there are inputs");
                    let launched = || {
                        let seen = seen(&shared);
                        let known = |attempt: String| {
                            seen.deeds.launches.keys().any(|name| name.starts_with(&attempt))
                        };
                        let own = status.tasks.iter().filter(|it| *it.attempt.job() == job);
                        own.map(|it| it.attempt.to_string()).all(known).then_some(())
                    };
                    until("the launches", launched).await;
                    let reply = reporting.heartbeat(status.clone(), false, true, true, response);
                    response = reply.await.expect("a reply").response_id;
                }
                other => panic!("{other:?} is in no recorded remote job"),
            }
        }
        let status = client.get_job_status(job.clone()).await.expect("a status").expect("a status");
        assert_eq!(status.run_state, SUCCEEDED);
        let all = || (seen(&shared).deeds.forgets == recorded.deeds.forgets).then_some(());
        until("the task trackers forget the job", all).await;
        {
            let seen = seen(&shared);
            compare(&seen, &recorded);
            assert_eq!(seen.names.first(), Some(&recorded.user));
            assert_eq!(seen.names.last().map(String::as_str), Some(job_name));
            assert_eq!(seen.pool, Some(format!("default.{}", recorded.user)));
        }
        drop(listens);
        let status = until("the end of the process", || process.0.try_wait().ok().flatten()).await;
        assert_eq!(status.code(), Some(1), "as the original ends without its parent");
    });
}

fn compare(seen: &Seen, recorded: &Recorded) {
    let (ours, theirs) = (&seen.deeds, &recorded.deeds);
    alike_but_for_tasks(ours, theirs);
    for (name, (at, task)) in &theirs.launches {
        let (our_place, our_task) = &ours.launches[name];
        // The job lies in another directory.
        let our_task = Task { job_file: task.job_file.clone(), ..our_task.clone() };
        assert_eq!((our_place, &our_task), (at, task), "{name}");
    }
}

/// Serves on a free port of loopback.
fn rpc(services: Services, stop: &watch::Receiver<bool>) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    tokio::spawn(Server::new(listener, services, Limits::default()).run(stop.clone()));
    port
}

/// Notifies the session of its grants, as the cluster manager does.
async fn grant(
    shared: &Shared,
    session: &str,
    slots: &[GrantedSlot],
    trackers: &BTreeMap<String, u16>,
) {
    let at = until("the session", || seen(shared).callbacks.clone()).await;
    let port = u16::try_from(at.port).expect("a port");
    let options = ThriftOptions::default();
    let client = Client::<SessionDriver>::connect((at.host, port), options).await;
    let mut client = client.expect("the session listens");
    let granted = slots.iter().map(|slot| wire::ResourceGrant {
        id: slot.id.0,
        node_name: slot.node.to_string(),
        address: wire::InetAddress { host: slot.host.to_string(), port: 1 },
        granted_time: 1,
        type_: wire::ResourceType::MAP,
        app_info: Some(format!("127.0.0.1:{}", trackers[&*slot.address])),
    });
    let call = SessionDriverCall::GrantResource {
        handle: Some(session.to_owned()),
        granted: Some(granted.collect()),
    };
    client.call(&call).await.expect("an answer");
}

/// The files of the recorded job: its configuration in the working directory, its splits below the system
/// directory. What its maps read is in their recorded launches.
fn files(recorded: &Recorded, root: &Path, manager: &str, name: &str) -> JobId {
    let job: JobId = recorded.job.as_str().parse().expect("an id");
    let directory = root.join("system").join(recorded.job.as_str());
    fs::create_dir_all(&directory).expect("a directory");
    let split_of = |number: i32| {
        let mut tasks = recorded.deeds.launches.values().map(|(_, task)| task);
        let is_it = |task: &&Task| task.partition == number && !task.job_setup && task.is_map();
        match &tasks.find(is_it).expect("a map").kind {
            TaskKind::Map { split: Some(split) } => split.clone(),
            _ => Split { class: "none".into(), data: vec![] },
        }
    };
    let splits = recorded.hosts.iter().zip(0..).map(|(hosts, number)| {
        let Split { class, data } = split_of(number);
        let hosts = hosts.iter().map(|host| host.to_string()).collect();
        RawSplit { class, length: i64::from(1000 - number), data, hosts }
    });
    let mut writer = Writer::new(1 << 20);
    SplitFile { splits: splits.collect() }.encode(&mut writer);
    fs::write(directory.join("job.split"), writer.finish().expect("a small file")).expect("a file");
    let properties = [
        ("cm.server.address", manager.to_owned()),
        ("corona.system.dir", format!("file:{}", root.join("system").display())),
        ("corona.sessions.log.dir", root.join("history").display().to_string()),
        // A launch that a busy machine delays is not a failed one, which the recorded job did not have.
        ("corona.jt.launch.connect.timeout.ms", PATIENCE.as_millis().to_string()),
        ("mapred.job.name", name.to_owned()),
        ("mapred.reduce.tasks", recorded.reduces.to_string()),
        ("mapred.map.tasks.speculative.execution", "false".to_owned()),
        ("mapred.reduce.tasks.speculative.execution", "false".to_owned()),
        ("user.name", recorded.user.clone()),
    ];
    let property = |(name, value): &(&str, String)| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let properties: String = properties.iter().map(property).collect();
    let xml = format!("<configuration>{properties}</configuration>");
    fs::write(root.join(format!("{}.xml", recorded.job.as_str())), xml).expect("a file");
    job
}
