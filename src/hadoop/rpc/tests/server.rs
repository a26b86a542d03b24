//! A server's behaviour towards peers that follow the protocol.

use super::*;
use crate::object::Class;
use crate::writables::tests::new_map;

fn value(reply: Reply) -> Object {
    match reply.outcome {
        Outcome::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

fn error(reply: Reply) -> String {
    match reply.outcome {
        Outcome::Error(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn events(from: i32, max: i32) -> Vec<Object> {
    let job: JobId = "job_201401011200.7_0001".parse().unwrap();
    vec![job.into_object(), from.into_object(), max.into_object()]
}

#[tokio::test]
async fn calls_of_a_typed_client() {
    let running = start(Limits::default()).await;
    let options = ClientOptions::new(alice());
    let mut client =
        inter_tracker::InterTrackerClient::new(running.address.clone(), options.clone());
    soon(async {
        assert_eq!(client.get_filesystem_name().await.unwrap(), None);
        let job: JobId = "job_201401011200.7_0001".parse().unwrap();
        let events = client.get_task_completion_events(job, 4, 1000).await.unwrap();
        assert_eq!((events.len(), &events[0]), (1000, &event(4)));
        client.report_task_tracker_error(Some("t".to_owned()), None, None).await.unwrap();
    })
    .await;
    assert_eq!(running.peer.done(), [r#"Some("t") None None"#]);
    let address = running.address.clone();
    let mut client = corona_task_tracker::CoronaTaskTrackerClient::new(address, options);
    let session = {
        let trackers = crate::writables::SessionTrackers {
            job_tracker: running.address.clone(),
            secondary: None,
        };
        SessionInfo { handle: None, trackers }
    };
    let refused = soon(client.start_corona_job_tracker(new_map(), session)).await.unwrap_err();
    assert_eq!(refused.to_string(), "the peer replied: java.io.IOException: no room");
    soon(client.submit_actions(None)).await.unwrap();
    assert_eq!(running.peer.done()[1..], ["None actions of alice"]);
    assert_eq!(running.counters.accepted(), 2, "an error does not end a connection");
}

/// A connection may begin with any call, and either handshake is answered on it for all protocols
/// of the server.
#[tokio::test]
async fn handshakes() {
    let running = start(Limits::default()).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(70, "getFilesystemName", vec![])).await;
    assert_eq!(raw.receive::<Reply>().await.id, 70);
    for (protocol, version) in [(&inter_tracker::PROTOCOL, 29), (&corona_task_tracker::PROTOCOL, 2)]
    {
        let name = || protocol.name.to_owned().into_object();
        raw.send(&frame(1, "getProtocolVersion", vec![name(), 7_i64.into_object()])).await;
        assert_eq!(value(raw.receive().await), Object::Long(version));
        let parameters = vec![name(), 7_i64.into_object(), 7_i32.into_object()];
        raw.send(&frame(2, "getProtocolSignature", parameters)).await;
        let signature = crate::writables::ProtocolSignature { version, methods: None };
        assert_eq!(value(raw.receive().await), signature.into_object());
    }
    let unknown = vec!["a.B".to_owned().into_object(), 7_i64.into_object()];
    raw.send(&frame(3, "getProtocolVersion", unknown)).await;
    assert_eq!(error(raw.receive().await), "java.io.IOException: Unknown protocol: a.B");
}

#[tokio::test]
async fn calls_that_fit_no_method() {
    let running = start(Limits::default()).await;
    let mut raw = Raw::open(&running).await;
    let name = inter_tracker::PROTOCOL.name;
    let io = "java.io.IOException: java.lang.";
    let job: Class = Class::parse("org.apache.hadoop.mapred.JobID").unwrap();
    let mut null_number = events(0, 1);
    null_number[1] = Object::Null(Class::Int);
    let mut wrong_class = events(0, 1);
    let attempt = event(1).attempt;
    wrong_class[0] = Object::Writable(job, attempt.into());
    for (method, parameters, text) in [
        ("nothing", vec![], format!("{io}NoSuchMethodException: {name}.nothing()")),
        (
            "getSystemDir",
            vec![true.into_object(), Object::Null(Class::String)],
            format!("{io}NoSuchMethodException: {name}.getSystemDir(boolean,java.lang.String)"),
        ),
        (
            "submitActions",
            vec![Option::<Vec<TaskTrackerAction>>::None.into_object()],
            format!(
                "{io}NoSuchMethodException: \
                 {name}.submitActions([Lorg.apache.hadoop.mapred.TaskTrackerAction;)"
            ),
        ),
        (
            "getTaskCompletionEvents",
            null_number,
            format!("{io}IllegalArgumentException: argument type mismatch"),
        ),
        (
            "getTaskCompletionEvents",
            wrong_class,
            format!("{io}IllegalArgumentException: argument type mismatch"),
        ),
    ] {
        raw.send(&frame(9, method, parameters)).await;
        assert_eq!(error(raw.receive().await), text);
    }
    assert_eq!(running.counters.faults(), 5);
    raw.send(&frame(10, "getFilesystemName", vec![])).await;
    assert_eq!(value(raw.receive().await), Object::Null(Class::String));
}

#[tokio::test]
async fn a_protocol_that_is_known_and_not_offered() {
    let running = start(Limits::default()).await;
    let mut raw = Raw::connect(&running).await;
    raw.send(&preamble(protocols::task_umbilical::PROTOCOL.name)).await;
    raw.send(&frame(1, "getTask", vec![])).await;
    let text = "java.io.IOException: java.lang.IllegalArgumentException: \
                object is not an instance of declaring class";
    assert_eq!(error(raw.receive().await), text);
}

#[tokio::test]
async fn calls_of_a_connection_are_answered_as_they_end() {
    let running = start(Limits::default()).await;
    let mut raw = Raw::open(&running).await;
    let ping = (-1_i32).to_be_bytes();
    let slow = frame(1, "getSystemDir", vec![]);
    let fast = frame(2, "getFilesystemName", vec![]);
    raw.send(&[&ping[..], &slow, &ping, &ping, &fast].concat()).await;
    assert_eq!(raw.receive::<Reply>().await.id, 2);
    running.peer.gate.add_permits(1);
    let reply: Reply = raw.receive().await;
    assert_eq!(reply.id, 1);
    assert_eq!(value(reply), Object::String("/system".to_owned()));
    drop(raw.stream);
    until("the connection ends", || running.counters.ended(Ending::Peer) == 1).await;
    until("all memory is free", || running.counters.inflight_bytes() == 0).await;
}

#[tokio::test]
async fn more_calls_than_allowed_wait() {
    for limits in [
        Limits { max_calls: 1, ..Limits::default() },
        Limits { max_inflight_bytes: 1, ..Limits::default() },
        Limits { max_running_calls: 1, ..Limits::default() },
    ] {
        let running = start(limits).await;
        let mut raw = Raw::open(&running).await;
        for id in 0..20 {
            raw.send(&frame(id, "getSystemDir", vec![])).await;
        }
        for id in 0..20 {
            let expected = usize::try_from(id).unwrap() * 2 + 1;
            until("the call begins", || running.peer.done().len() >= expected).await;
            running.peer.gate.add_permits(1);
            assert_eq!(raw.receive::<Reply>().await.id, id, "one after the other");
        }
        let done = running.peer.done();
        assert!(done.chunks(2).all(|pair| pair == ["waiting", "passed"]), "{done:?}");
    }
}

/// A peer whose connection ends cannot know how far its call got, so the call is completed.
#[tokio::test]
async fn a_call_whose_connection_ends_is_carried_out() {
    let running = start(Limits::default()).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(1, "getSystemDir", vec![])).await;
    until("the call waits", || running.peer.done() == ["waiting"]).await;
    drop(raw);
    until("all connections end", || running.counters.open() == 0).await;
    running.peer.gate.add_permits(1);
    until("the call ends", || running.peer.done() == ["waiting", "passed"]).await;
    until("all memory is free", || running.counters.inflight_bytes() == 0).await;
}

#[tokio::test]
async fn a_panic_ends_its_connection_only() {
    let running = start(Limits::default()).await;
    let mut other = Raw::open(&running).await;
    let mut raw = Raw::open(&running).await;
    let job = JobId { number: 13, tracker: "t".to_owned() };
    let parameters = vec![job.into_object(), 0_i32.into_object(), 0_i32.into_object()];
    raw.send(&frame(1, "getTaskCompletionEvents", parameters)).await;
    assert_eq!(raw.rest().await, b"");
    assert_eq!(running.counters.ended(Ending::Panic), 1);
    other.send(&frame(1, "getFilesystemName", vec![])).await;
    assert_eq!(other.receive::<Reply>().await.id, 1);
}

#[tokio::test]
async fn a_reply_that_is_too_large_becomes_an_error() {
    let running = start(Limits { max_reply_bytes: 1000, ..Limits::default() }).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(3, "getBuildVersion", vec![])).await;
    let reply: Reply = raw.receive().await;
    assert_eq!(reply.id, 3);
    assert_eq!(error(reply), "java.io.IOException: the reply has more than 1000 bytes");
}

#[tokio::test]
async fn a_stopping_server_answers_what_it_has_begun() {
    let running =
        start(Limits { drain_timeout: Duration::from_secs(60), ..Limits::default() }).await;
    let idle = Raw::open(&running).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(1, "getSystemDir", vec![])).await;
    until("the call waits", || running.peer.done() == ["waiting"]).await;
    running.stop.send(true).unwrap();
    assert_eq!(idle.rest().await, b"");
    raw.send(&frame(2, "getSystemDir", vec![])).await;
    running.peer.gate.add_permits(2);
    assert_eq!(raw.receive::<Reply>().await.id, 1);
    assert_eq!(raw.rest().await, b"", "no answer to what came later");
    soon(running.server).await.unwrap();
    assert_eq!(running.counters.ended(Ending::Shutdown), 2);
    assert_eq!(running.peer.done(), ["waiting", "passed"]);
}

#[tokio::test]
async fn a_stopping_server_does_not_wait_for_ever() {
    let limits = Limits { drain_timeout: Duration::from_millis(20), ..Limits::default() };
    let running = start(limits).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(1, "getSystemDir", vec![])).await;
    until("the call waits", || running.peer.done() == ["waiting"]).await;
    running.stop.send(true).unwrap();
    assert_eq!(raw.rest().await, b"");
    soon(running.server).await.unwrap();
    assert_eq!(running.counters.open(), 0);
    assert_eq!(running.peer.done(), ["waiting"]);
}

/// Also what had arrived of a call, and calls that were sent while nobody served.
#[tokio::test]
async fn the_next_server_goes_on_with_kept_connections() {
    let peer = Peer::new();
    let services =
        || Services::new().offer(inter_tracker::Served::new(peer.clone())).know(protocols::ALL);
    let first =
        Server::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), services(), Limits::default());
    let address = local(first.local_addr().unwrap().port());
    let (keeper, counters) = (first.keeper(), first.counters());
    let (stop, stopped) = watch::channel(false);
    let server = tokio::spawn(first.run(stopped));
    let mut raws = Vec::new();
    for _ in 0..3 {
        let to = (address.host.as_str(), address.port);
        let mut raw = Raw::over(TcpStream::connect(to).await.unwrap());
        raw.send(&preamble(inter_tracker::PROTOCOL.name)).await;
        raws.push(raw);
    }
    let call = |id| frame(id, "getFilesystemName", vec![]);
    for raw in &mut raws {
        raw.send(&call(1)).await;
        assert_eq!(raw.receive::<Reply>().await.id, 1);
    }
    // One waits for a reply, another has sent half a call.
    raws[1].send(&frame(2, "getSystemDir", vec![])).await;
    until("the call waits", || peer.done() == ["waiting"]).await;
    let (half, rest) = (call(3), call(3));
    raws[2].send(&half[..9]).await;
    keeper.keep();
    stop.send_replace(true);
    until("a connection ends", || counters.open() < 3).await;
    peer.gate.add_permits(1);
    assert_eq!(raws[1].receive::<Reply>().await.id, 2, "a call is carried out to its end");
    soon(server).await.unwrap();

    let kept = keeper.take();
    assert_eq!(kept.connections.len(), 3);
    raws[0].send(&call(4)).await;
    let to = (address.host.as_str(), address.port);
    let mut newcomer = Raw::over(soon(TcpStream::connect(to)).await.unwrap());
    newcomer.send(&preamble(inter_tracker::PROTOCOL.name)).await;
    newcomer.send(&call(5)).await;
    let listener = kept.listener.unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let next = Server::new(listener, services(), Limits::default()).with_former(kept.connections);
    let (_stop, stopped) = watch::channel(false);
    let _server = tokio::spawn(next.run(stopped));
    raws[2].send(&rest[9..]).await;
    raws[1].send(&call(6)).await;
    for (raw, id) in raws.iter_mut().chain([&mut newcomer]).zip([4, 6, 3, 5]) {
        assert_eq!(raw.receive::<Reply>().await.id, id);
    }
}
