//! Data nodes that die, lie and hang, replies that are lost, leases that are taken.

use super::*;
use crate::hdfs::transfer::{Layout, SumKind, Sums};
use crate::testing::{Faults, NameNodeFault};
use crate::{ErrorKind, Replay};

const BLOCK: usize = 64 << 10;

#[tokio::test]
async fn a_reader_goes_on_with_another_replica_wherever_the_first_one_breaks_off() {
    let world = TestClient::new(2).await;
    let bytes = content(1300);
    world.write("/a", &bytes).await.unwrap();
    let whole = 15 + 29 + 1300 + 12 + 4 + 9;
    for after in (0..whole).step_by(7) {
        let fault = Faults { close_after: Some(after), ..Faults::default() };
        world.cluster.data_nodes[0].set_faults(fault);
        assert!(world.read("/a").await.unwrap() == bytes, "after {after} bytes");
    }
    assert!(
        world.cluster.name_node.bad_replicas().is_empty(),
        "a broken connection is no bad replica"
    );
    assert!(world.systems.counters().failed_reads.get() > 0);
}

#[tokio::test]
async fn a_corrupt_replica_is_reported_and_another_one_read() {
    let world = TestClient::new(2).await;
    let bytes = content(BLOCK + 100);
    world.write("/a", &bytes).await.unwrap();
    for number in [0, 1] {
        let fault = Faults { corrupt: Some(50), ..Faults::default() };
        world.cluster.data_nodes[number].set_faults(fault);
    }
    let error = world.read("/a").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Checksum);
    assert!(error.message.contains("every replica is corrupt"), "{error}");
    let world = TestClient::new(2).await;
    world.write("/a", &bytes).await.unwrap();
    let fault = Faults { corrupt: Some(50), ..Faults::default() };
    world.cluster.data_nodes[1].set_faults(fault);
    world.cluster.data_nodes[0].set_faults(Faults { is_dead: true, ..Faults::default() });
    let reading = world.read("/a");
    let healing = async {
        until("a report", || !world.cluster.name_node.bad_replicas().is_empty()).await;
        world.cluster.data_nodes[0].set_faults(Faults::default());
    };
    let (read, ()) = tokio::join!(reading, healing);
    assert!(read.unwrap() == bytes);
    let bad = world.cluster.name_node.bad_replicas();
    assert!(bad.iter().all(|(_, node)| *node == 1), "exactly the bad one: {bad:?}");
    assert!(world.systems.counters().corrupt_replicas.get() >= 1);
}

#[tokio::test]
async fn a_stuck_data_node_costs_a_reader_a_time_out_and_others_nothing() {
    let world = TestClient::with(2, |settings| {
        settings.socket_timeout = Duration::from_millis(300);
    })
    .await;
    let bytes = content(5000);
    world.write("/a", &bytes).await.unwrap();
    world.cluster.data_nodes[0].set_faults(Faults { is_stuck: true, ..Faults::default() });
    let (one, other) = tokio::join!(world.read("/a"), world.read("/a"));
    assert!(one.unwrap() == bytes && other.unwrap() == bytes);
    assert!(world.systems.counters().failed_reads.get() >= 1);
}

#[tokio::test]
async fn a_data_node_that_sends_no_data_for_ever_is_left_for_another_one() {
    let world = TestClient::new(2).await;
    let bytes = content(5000);
    world.write("/a", &bytes).await.unwrap();
    for node in 0..2 {
        let nothing = Faults { sends_nothing: true, ..Faults::default() };
        world.cluster.data_nodes[node].set_faults(nothing);
        world.cluster.data_nodes[1 - node].set_faults(Faults::default());
        assert!(world.read("/a").await.unwrap() == bytes);
    }
    assert!(world.systems.counters().failed_reads.get() >= 1);
}

#[tokio::test]
async fn blocks_without_replicas_are_waited_for() {
    let world =
        TestClient::with(1, |settings| settings.acquire_window = Duration::from_millis(100)).await;
    let bytes = content(100);
    world.write("/a", &bytes).await.unwrap();
    world.cluster.name_node.forget_replicas();
    let error = world.read("/a").await.unwrap_err();
    assert_ne!(error.kind, ErrorKind::Checksum, "{error}");
    let world = TestClient::new(1).await;
    world.write("/a", &bytes).await.unwrap();
    world.cluster.data_nodes[0].set_faults(Faults { is_dead: true, ..Faults::default() });
    let healing = async {
        until("a failed read", || world.systems.counters().failed_reads.get() > 0).await;
        world.cluster.data_nodes[0].set_faults(Faults::default());
    };
    let (read, ()) = tokio::join!(world.read("/a"), healing);
    assert_eq!(read.unwrap(), bytes);
}

/// The name, how the first node of the pipeline fails.
fn failures() -> Vec<(&'static str, Faults)> {
    let none = Faults::default();
    vec![
        ("at the connection", Faults { is_dead: true, ..none }),
        ("before the first packet", Faults { die_at_packet: Some(0), ..none }),
        ("in the middle", Faults { die_at_packet: Some(1), ..none }),
        ("by saying so", Faults { refuse_packet: Some(0), ..none }),
        ("at the second packet by saying so", Faults { refuse_packet: Some(1), ..none }),
        ("without a word", Faults { is_stuck: true, ..none }),
    ]
}

#[tokio::test]
async fn a_block_is_written_again_without_the_node_that_failed() {
    for (name, fault) in failures() {
        for bad in [0, 1] {
            let world = TestClient::with(3, |settings| {
                settings.socket_timeout = Duration::from_millis(500);
                settings.read_extension = Duration::ZERO;
                settings.packet_bytes = 4096;
            })
            .await;
            world.cluster.data_nodes[bad].set_faults(fault);
            let bytes = content(2 * BLOCK + 777);
            world.write("/a", &bytes).await.unwrap();
            for node in &world.cluster.data_nodes {
                node.set_faults(Faults::default());
            }
            assert!(world.read("/a").await.unwrap() == bytes, "node {bad} fails {name}");
            assert!(world.systems.counters().rebuilt_blocks.get() > 0, "node {bad} fails {name}");
            assert!(world.cluster.name_node.count("abandonBlock") > 0);
        }
    }
}

/// A file of 700 bytes in a cluster whose nodes are soon given up, and all its bytes to be.
async fn begun(nodes: usize) -> (TestClient, Vec<u8>) {
    let world = TestClient::with(nodes, |settings| {
        settings.socket_timeout = Duration::from_millis(400);
        settings.read_extension = Duration::ZERO;
        settings.call_timeout = Duration::from_millis(400);
        settings.packet_bytes = 4096;
    })
    .await;
    let bytes = content(BLOCK + 777);
    world.write("/a", &bytes[..700]).await.unwrap();
    (world, bytes)
}

/// Writes the rest of the file, with a flush in the middle.
async fn write_on(world: &TestClient, bytes: &[u8]) -> Result<(), FsError> {
    let mut writer = soon(world.files.append(&world.path("/a"))).await?;
    let (first, rest) = bytes[700..].split_at(9000);
    soon(writer.write(first)).await?;
    soon(writer.flush()).await?;
    soon(writer.write(rest)).await?;
    soon(writer.close()).await
}

#[tokio::test]
async fn the_last_block_is_recovered_when_a_node_fails_that_it_is_written_on_to() {
    let mut faults = failures();
    faults.push(("since it has lost the block", Faults { refuses_old: true, ..Faults::default() }));
    for (name, fault) in faults {
        for bad in [0, 1] {
            // For the following blocks a node without reported failures is left.
            let (world, bytes) = begun(3).await;
            let block = world.cluster.name_node.blocks("/a")[0];
            world.cluster.data_nodes[bad].set_faults(fault);
            write_on(&world, &bytes).await.unwrap();
            let other = Faults { is_dead: true, ..Faults::default() };
            world.cluster.data_nodes[bad].set_faults(other);
            assert!(world.read("/a").await.unwrap() == bytes, "node {bad} fails {name}");
            let after = world.cluster.name_node.blocks("/a")[0];
            assert_eq!(after.id, block.id, "node {bad} fails {name}");
            assert!(after.generation > block.generation + 1, "node {bad} fails {name}");
            assert!(world.systems.counters().recovered_blocks.get() > 0);
        }
    }
}

#[tokio::test]
async fn a_block_that_readers_have_seen_is_recovered_and_not_abandoned() {
    for bad in [0, 1, 2] {
        let world = TestClient::with(3, |settings| settings.replication = 3).await;
        let bytes = content(20_000);
        let path = world.path("/a");
        let mut writer = world.create("/a").await;
        soon(writer.write(&bytes[..5000])).await.unwrap();
        soon(writer.flush()).await.unwrap();
        let mut reader = soon(world.files.open(&path)).await.unwrap();
        assert!(soon(all(&mut *reader)).await.unwrap() == bytes[..5000]);
        let fault = Faults { is_dead: true, ..Faults::default() };
        world.cluster.data_nodes[bad].set_faults(fault);
        for piece in bytes[5000..].chunks(1000) {
            soon(writer.write(piece)).await.unwrap();
            soon(writer.flush()).await.unwrap();
        }
        let mut reader = soon(world.files.open(&path)).await.unwrap();
        assert!(soon(all(&mut *reader)).await.unwrap() == bytes, "node {bad}");
        soon(writer.close()).await.unwrap();
        assert!(world.read("/a").await.unwrap() == bytes, "node {bad}");
        assert_eq!(world.cluster.name_node.count("abandonBlock"), 0, "node {bad}");
        assert_eq!(world.systems.counters().recovered_blocks.get(), 1, "node {bad}");
    }
}

#[tokio::test]
async fn another_node_recovers_the_block_if_the_first_one_cannot() {
    let (world, bytes) = begun(3).await;
    world.cluster.name_node.calls();
    let replication = world.files.status(&world.path("/a")).await.unwrap().replication;
    assert_eq!(replication, 2);
    // Both nodes of the block are asked, since none of them is to blame.
    let fault = Faults { recovers_nothing: true, ..Faults::default() };
    world.cluster.data_nodes[0].set_faults(fault);
    let mut writer = soon(world.files.append(&world.path("/a"))).await.unwrap();
    world.cluster.data_nodes[1].set_faults(Faults { die_at_packet: Some(1), ..fault });
    soon(writer.write(&bytes[700..6000])).await.unwrap();
    let mut failing = Box::pin(writer.flush());
    let healing = async {
        until("a refusal", || world.cluster.data_nodes[0].refused_recoveries() > 0).await;
        world.cluster.data_nodes[0].set_faults(Faults::default());
    };
    let (flushed, ()) = soon(async { tokio::join!(&mut failing, healing) }).await;
    flushed.unwrap();
    drop(failing);
    soon(writer.close()).await.unwrap();
    world.cluster.data_nodes[1].set_faults(Faults { is_dead: true, ..Faults::default() });
    assert!(world.read("/a").await.unwrap() == bytes[..6000]);
}

#[tokio::test]
async fn a_file_keeps_what_it_had_when_no_node_takes_more() {
    let (world, bytes) = begun(2).await;
    for node in &world.cluster.data_nodes {
        node.set_faults(Faults { is_dead: true, ..Faults::default() });
    }
    let error = write_on(&world, &bytes).await.unwrap_err();
    assert!(error.message.contains("a block could not be written"), "{error}");
    assert_eq!(error.path, world.path("/a").to_string());
    until("abandonFile", || world.cluster.name_node.count("abandonFile") == 1).await;
    for node in &world.cluster.data_nodes {
        node.set_faults(Faults::default());
    }
    assert!(world.read("/a").await.unwrap() == bytes[..700]);
    write_on(&world, &bytes).await.unwrap();
    assert!(world.read("/a").await.unwrap() == bytes);
    assert_eq!(world.cluster.name_node.count("delete"), 0);
}

#[tokio::test]
async fn replies_to_an_append_that_are_lost_are_made_up_for() {
    for method in ["appendAndFetchOldGS", "updatePipeline", "complete", "addBlockAndFetchMetaInfo"]
    {
        for fault in [NameNodeFault::LoseReply, NameNodeFault::LoseCall] {
            let (world, bytes) = begun(2).await;
            world.cluster.name_node.fail(method, fault, 1);
            write_on(&world, &bytes).await.unwrap();
            assert!(world.read("/a").await.unwrap() == bytes, "{method} {fault:?}");
            assert_eq!(world.cluster.name_node.files(), ["/a"]);
            assert_eq!(world.cluster.name_node.count("delete"), 0);
        }
    }
}

#[tokio::test]
async fn a_lease_that_somebody_else_has_taken_ends_an_append_and_deletes_nothing() {
    let (world, bytes) = begun(2).await;
    let path = world.path("/a");
    let mut writer = soon(world.files.append(&path)).await.unwrap();
    world.cluster.name_node.steal("/a", "DFSClient_other");
    let error = match soon(writer.write(&bytes[700..])).await {
        Err(error) => error,
        Ok(()) => soon(writer.close()).await.unwrap_err(),
    };
    assert_eq!(error.kind, ErrorKind::Lease, "{error}");
    // The client waits for the holder of the lease.
    let mut waiting = Box::pin(world.files.append(&path));
    let tried = world.cluster.name_node.count("appendAndFetchOldGS");
    let ending = async {
        until("appendAndFetchOldGS", || {
            world.cluster.name_node.count("appendAndFetchOldGS") > tried + 1
        })
        .await;
        world.cluster.name_node.release("/a");
    };
    let (writer, ()) = soon(async { tokio::join!(&mut waiting, ending) }).await;
    soon(writer.unwrap().close()).await.unwrap();
    assert_eq!(world.cluster.name_node.files(), ["/a"]);
    assert_eq!(world.cluster.name_node.count("delete"), 0);
}

#[tokio::test]
async fn a_write_that_is_given_up_in_the_middle_is_the_last_one() {
    let world = TestClient::with(1, |settings| settings.block_bytes = 64 << 20).await;
    let mut writer = world.create("/a").await;
    soon(writer.write(b"begun")).await.unwrap();
    soon(writer.flush()).await.unwrap();
    world.cluster.data_nodes[0].set_faults(Faults { is_stuck: true, ..Faults::default() });
    let bytes = content(32 << 20);
    let writing = writer.write(&bytes);
    assert!(tokio::time::timeout(Duration::from_millis(200), writing).await.is_err());
    let error = soon(writer.write(b"x")).await.unwrap_err();
    assert!(error.message.contains("an earlier write"), "{error}");
}

#[tokio::test]
async fn a_block_is_written_again_from_the_file_that_is_copied() {
    let world = TestClient::with(3, |settings| settings.packet_bytes = 4096).await;
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(2 * BLOCK + 777);
    let source = dir.path().join("source");
    std::fs::write(&source, &bytes).unwrap();
    world.cluster.data_nodes[0].set_faults(Faults { die_at_packet: Some(5), ..Faults::default() });
    let file = Arc::new(std::fs::File::open(&source).unwrap());
    let options = CreateOptions { replay: Replay::From(file), ..CreateOptions::default() };
    let path = world.path("/a");
    let mut writer = soon(world.files.create(&path, options)).await.unwrap();
    soon(writer.write(&bytes)).await.unwrap();
    soon(writer.close()).await.unwrap();
    world.cluster.data_nodes[0].set_faults(Faults::default());
    assert!(world.read("/a").await.unwrap() == bytes);
}

#[tokio::test]
async fn a_file_is_given_up_when_no_data_node_takes_it() {
    let world = TestClient::new(2).await;
    for node in &world.cluster.data_nodes {
        node.set_faults(Faults { is_dead: true, ..Faults::default() });
    }
    let error = world.write("/a", b"x").await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Connection), "{error}");
    until("the file goes", || world.cluster.name_node.files().is_empty()).await;
}

#[tokio::test]
async fn a_file_whose_only_block_is_refused_at_the_close_is_gone_when_that_returns() {
    let world = TestClient::new(2).await;
    for node in &world.cluster.data_nodes {
        node.set_faults(Faults { is_dead: true, ..Faults::default() });
    }
    let mut writer = world.create("/a").await;
    soon(writer.write(b"x")).await.unwrap();
    let error = soon(writer.close()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Connection), "{error}");
    assert_eq!(world.cluster.name_node.files(), [""; 0]);
    // What was there before is closed, not deleted.
    let (world, _) = begun(1).await;
    world.cluster.data_nodes[0].set_faults(Faults { is_dead: true, ..Faults::default() });
    let opened = soon(world.files.append(&world.path("/a"))).await;
    if let Ok(mut writer) = opened {
        soon(writer.write(b"x")).await.unwrap();
        soon(writer.close()).await.unwrap_err();
    }
    assert_eq!(world.cluster.name_node.files(), ["/a"]);
}

#[tokio::test]
async fn an_abort_that_is_interrupted_is_done_again() {
    let world = TestClient::new(1).await;
    let mut writer = world.create("/a").await;
    soon(writer.write(b"x")).await.unwrap();
    world.cluster.name_node.fail("delete", NameNodeFault::LoseCall, 1);
    tokio::select! {
        () = until("delete", || world.cluster.name_node.count("delete") == 1) => {}
        done = writer.abort() => unreachable!("{done:?} without a reply"),
    }
    until("the file goes", || world.cluster.name_node.files().is_empty()).await;
}

#[tokio::test]
async fn a_file_whose_creation_is_interrupted_is_reported_as_left() {
    let _alone = crate::given_up::tests::alone().await;
    let world = TestClient::new(1).await;
    let path = world.path("/a");
    world.cluster.name_node.fail("create", NameNodeFault::LoseReply, 1);
    tokio::select! {
        () = until("create", || world.cluster.name_node.count("create") == 1) => {}
        done = world.files.create(&path, CreateOptions::default()) => {
            unreachable!("{} without a reply", done.is_ok())
        }
    }
    assert!(!crate::all_given_up().await);
    assert_eq!(world.cluster.name_node.files(), ["/a"]);
}

#[tokio::test]
async fn a_lease_that_has_expired_is_not_waited_for() {
    for method in ["create", "addBlockAndFetchMetaInfo", "complete"] {
        // A wait would be longer than the test may take.
        let world =
            TestClient::with(1, |settings| settings.create_pause = Duration::from_secs(3600)).await;
        world.cluster.name_node.fail(method, NameNodeFault::NoLease, usize::MAX);
        let error = world.write("/a", b"x").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Lease, "{method}: {error}");
        assert_eq!(world.cluster.name_node.count(method), 1, "{method}");
    }
}

#[tokio::test]
async fn more_data_nodes_than_replicas_are_refused() {
    let world = TestClient::new(2).await;
    world.cluster.name_node.set_copies(300);
    let error = world.write("/a", b"x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
    assert_eq!(error.message, "600 data nodes are named for 2 replicas");
    assert_eq!(world.cluster.name_node.files(), [""; 0]);
}

#[tokio::test]
async fn a_data_node_without_checksums_is_left_for_another_one() {
    let world = TestClient::new(2).await;
    let bytes = content(3000);
    world.write("/a", &bytes).await.unwrap();
    let without = Sums { kind: SumKind::None, covered: 512 };
    for node in 0..2 {
        world.cluster.data_nodes[node].set_layout(Layout::SumsFirst, 65_536, without);
        let read = world.read("/a").await;
        if node == 0 {
            assert!(read.unwrap() == bytes);
        } else {
            let error = read.unwrap_err();
            assert_eq!(error.kind, ErrorKind::BlockMissing, "{error}");
            assert!(error.message.contains("has no checksums of the block"), "{error}");
        }
    }
    assert!(world.cluster.name_node.bad_replicas().is_empty(), "nobody knows that it is bad");
}

#[tokio::test]
async fn a_directory_that_contains_itself_has_a_deepest_path() {
    let world = TestClient::new(1).await;
    world.files.mkdirs(&world.path("/loop"), None).await.unwrap();
    world.cluster.name_node.set_loop("/loop", "again");
    let (mut path, mut depth) = (world.path("/loop"), 1);
    let error = loop {
        match soon(world.files.list(&path, 10)).await {
            Ok(entries) => (path, depth) = (entries[0].path.clone(), depth + 1),
            Err(error) => break error,
        }
    };
    assert_eq!((depth, error.kind), (1000, ErrorKind::Malformed), "{error}");
    for name in ["..", ".", "", "a/../../b"] {
        world.cluster.name_node.set_loop("/loop", name);
        let error = soon(world.files.list(&world.path("/loop"), 10)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed, "{name:?}: {error}");
    }
}

#[tokio::test]
async fn a_writer_that_pauses_keeps_its_pipeline() {
    let world = TestClient::with(2, |settings| {
        settings.socket_timeout = Duration::from_millis(200);
        settings.read_extension = Duration::ZERO;
    })
    .await;
    let mut writer = world.create("/a").await;
    soon(writer.write(b"before")).await.unwrap();
    soon(writer.flush()).await.unwrap();
    until("heartbeats", || world.cluster.data_nodes[1].heartbeats() >= 3).await;
    soon(writer.write(b" after")).await.unwrap();
    soon(writer.close()).await.unwrap();
    assert_eq!(world.read("/a").await.unwrap(), b"before after");
    assert_eq!(world.systems.counters().rebuilt_blocks.get(), 0);
}

#[tokio::test]
async fn the_lease_is_renewed_while_a_file_is_open_and_ends_with_it() {
    let world =
        TestClient::with(1, |settings| settings.lease_renewal = Duration::from_millis(20)).await;
    let writer = world.create("/a").await;
    until("renewLease", || world.cluster.name_node.count("renewLease") >= 4).await;
    // Dropped before it is closed, the file goes.
    drop(writer);
    until("the file goes", || world.cluster.name_node.files().is_empty()).await;
    let renewed = world.cluster.name_node.count("renewLease");
    world.write("/b", b"x").await.unwrap();
    let most = renewed + 3;
    assert!(world.cluster.name_node.count("renewLease") <= most, "nobody renews for nobody");
}

/// The original refuses renewals in safe mode, which ends by itself. Spec: hdfs/01 §1.9 (18).
#[tokio::test]
async fn a_file_that_is_open_survives_safe_mode() {
    let world = TestClient::with(1, |settings| {
        settings.lease_renewal = Duration::from_millis(5);
        settings.lease_renewal_retries = 2;
    })
    .await;
    let mut writer = world.create("/a").await;
    world.cluster.name_node.set_safe_mode(true);
    let begun = world.cluster.name_node.count("renewLease");
    until("renewLease", || world.cluster.name_node.count("renewLease") >= begun + 8).await;
    world.cluster.name_node.set_safe_mode(false);
    soon(writer.write(b"after")).await.unwrap();
    soon(writer.close()).await.unwrap();
    assert_eq!(world.read("/a").await.unwrap(), b"after");
}

/// Two programs with one name could end each other's files. Spec: hdfs/01 §1.9 (17).
#[tokio::test]
async fn each_client_writes_under_a_name_of_its_own() {
    let world = TestClient::new(1).await;
    let other = FileSystems::new(world.cluster.settings()).unwrap();
    let (other, path) = other.resolve("/a").unwrap();
    let mine = soon(world.files.create(&path, CreateOptions::default())).await.unwrap();
    let theirs = soon(other.create(&world.path("/b"), CreateOptions::default())).await.unwrap();
    let names = world.cluster.name_node.writers();
    assert_eq!(names.len(), 2, "{names:?}");
    drop((mine, theirs));
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_ends_the_files() {
    let world = TestClient::with(1, |settings| {
        settings.lease_renewal = Duration::from_millis(5);
        settings.lease_renewal_retries = 3;
        settings.call_timeout = Duration::from_millis(20);
    })
    .await;
    let mut writer = world.create("/a").await;
    world.cluster.name_node.fail("renewLease", NameNodeFault::LoseCall, usize::MAX);
    let error = soon(async {
        loop {
            if let Err(error) = writer.write(b"x").await {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(error.kind, ErrorKind::Lease, "{error}");
}

#[tokio::test]
async fn a_lease_that_somebody_else_has_taken_ends_the_write_and_deletes_nothing() {
    let world = TestClient::new(1).await;
    let mut writer = world.create("/a").await;
    soon(writer.write(&content(BLOCK))).await.unwrap();
    world.cluster.name_node.steal("/a", "DFSClient_other");
    let error = match soon(writer.write(&content(BLOCK))).await {
        Err(error) => error,
        Ok(()) => soon(writer.close()).await.unwrap_err(),
    };
    assert_eq!(error.kind, ErrorKind::Lease);
    assert!(error.message.contains("owned by"), "{error}");
    assert_eq!(world.cluster.name_node.count("delete"), 0);
    assert_eq!(world.cluster.name_node.files(), ["/a"]);
}

#[tokio::test]
async fn lost_replies_are_made_up_for() {
    let change = |settings: &mut FileSystemSettings| {
        settings.call_timeout = Duration::from_millis(300);
    };
    let methods = [
        "create",
        "addBlockAndFetchMetaInfo",
        "complete",
        "fsync",
        "getHdfsFileInfo",
        "openAndFetchMetaInfo",
    ];
    for method in methods {
        for fault in [NameNodeFault::LoseReply, NameNodeFault::LoseCall] {
            let world = TestClient::with(2, change).await;
            world.cluster.name_node.fail(method, fault, 1);
            let bytes = content(2 * BLOCK + 1);
            world.write("/d/a", &bytes).await.unwrap();
            assert!(world.read("/d/a").await.unwrap() == bytes, "{method} {fault:?}");
            assert_eq!(world.cluster.name_node.files(), ["/d/a"]);
        }
    }
    for fault in [NameNodeFault::LoseReply, NameNodeFault::LoseCall] {
        let world = TestClient::with(1, change).await;
        world.write("/a", b"x").await.unwrap();
        let (from, to) = (world.path("/a"), world.path("/b"));
        world.cluster.name_node.fail("rename", fault, 1);
        soon(world.files.rename(&from, &to)).await.unwrap();
        world.cluster.name_node.fail("delete", fault, 1);
        assert!(soon(world.files.delete(&to, false)).await.unwrap(), "{fault:?}");
        world.cluster.name_node.fail("mkdirs", fault, 1);
        soon(world.files.mkdirs(&from, None)).await.unwrap();
        world.cluster.name_node.fail("setTimes", fault, 1);
        let error = soon(world.files.set_times(&from, Some(1), None)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unknown, "nobody knows");
    }
}

#[tokio::test]
async fn pending_completions_are_retried() {
    let world = TestClient::new(2).await;
    world.cluster.name_node.fail("addBlockAndFetchMetaInfo", NameNodeFault::NotYet, 1);
    world.cluster.name_node.fail("complete", NameNodeFault::NotYet, 2);
    let bytes = content(BLOCK + 1);
    world.write("/a", &bytes).await.unwrap();
    assert!(world.read("/a").await.unwrap() == bytes);
    assert_eq!(world.cluster.name_node.count("complete"), 3);
    let world =
        TestClient::with(1, |settings| settings.close_timeout = Duration::from_millis(900)).await;
    world.cluster.data_nodes[0].set_faults(Faults { is_silent: true, ..Faults::default() });
    let error = world.write("/a", b"x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooSlow, "{error}");
    until("the file goes", || world.cluster.name_node.files().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn changes_wait_for_the_end_of_safe_mode_as_long_as_is_configured() {
    let world = TestClient::new(1).await;
    world.cluster.name_node.set_safe_mode(true);
    let error = world.write("/a", b"x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SafeMode);
    assert!(error.to_string().contains("Name node is in safe mode."), "{error}");
    assert_eq!(world.cluster.name_node.count("create"), 1);
    let settings =
        FileSystemSettings { safe_mode_wait: Duration::from_secs(12), ..world.cluster.settings() };
    let patient = FileSystems::new(settings).unwrap().resolve("/d").unwrap();
    let began = tokio::time::Instant::now();
    let error = patient.0.mkdirs(&patient.1, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SafeMode);
    assert!(began.elapsed() >= Duration::from_secs(5) && began.elapsed() < Duration::from_secs(60));
    let waiting = patient.0.mkdirs(&patient.1, None);
    let ending = async { world.cluster.name_node.set_safe_mode(false) };
    let (made, ()) = tokio::join!(waiting, ending);
    made.unwrap();
}

#[tokio::test]
async fn a_quota_and_a_missing_name_node_are_told_apart() {
    let world = TestClient::new(1).await;
    world.write("/a", b"").await.unwrap();
    world.cluster.name_node.set_quota(2);
    let error = world.write("/b", b"").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Quota);
    let elsewhere = |default: &str| {
        let settings =
            FileSystemSettings { default_fs: default.to_owned(), ..world.cluster.settings() };
        FileSystems::new(settings).unwrap().resolve("/a").unwrap()
    };
    let (files, path) = elsewhere("hdfs://127.0.0.1:1/");
    assert_eq!(soon(files.status(&path)).await.unwrap_err().kind, ErrorKind::Connection);
    let (files, path) = elsewhere("hdfs://no.such.host.invalid:1/");
    assert_eq!(soon(files.status(&path)).await.unwrap_err().kind, ErrorKind::NoSuchHost);
}

#[tokio::test]
async fn the_second_address_of_a_name_node_is_tried_where_the_configuration_names_it() {
    let world = TestClient::new(1).await;
    world.write("/a", b"x").await.unwrap();
    let class = "org.apache.hadoop.hdfs.DistributedAvatarFileSystem";
    let settings = FileSystemSettings {
        default_fs: "hdfs://127.0.0.1:1/".to_owned(),
        name_nodes: vec![world.cluster.address()],
        ..world.cluster.settings()
    };
    let plain = FileSystems::new(settings.clone()).unwrap().resolve("/a").unwrap();
    assert_eq!(soon(plain.0.status(&plain.1)).await.unwrap_err().kind, ErrorKind::Connection);
    let settings = FileSystemSettings { hdfs_class: class.to_owned(), ..settings };
    let (files, path) = FileSystems::new(settings).unwrap().resolve("/a").unwrap();
    assert_eq!(soon(files.status(&path)).await.unwrap().bytes, 1);
}

#[tokio::test]
async fn the_second_address_is_tried_when_the_first_name_node_has_ended() {
    let (first, second) = (TestClient::new(1).await, TestClient::new(1).await);
    first.write("/a", b"x").await.unwrap();
    second.write("/a", b"xy").await.unwrap();
    let settings = FileSystemSettings {
        name_nodes: vec![second.cluster.address()],
        hdfs_class: "org.apache.hadoop.hdfs.DistributedAvatarFileSystem".to_owned(),
        ..first.cluster.settings()
    };
    let (files, path) = FileSystems::new(settings).unwrap().resolve("/a").unwrap();
    assert_eq!(soon(files.status(&path)).await.unwrap().bytes, 1);
    let address = first.cluster.address();
    drop(first);
    until("the listener closes", || std::net::TcpStream::connect(&address).is_err()).await;
    // The client has seen the end of its idle connection.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(soon(files.status(&path)).await.unwrap().bytes, 2);
}

#[tokio::test]
async fn somebody_else_who_writes_the_file_is_waited_for() {
    let world = TestClient::with(1, |settings| settings.create_retries = 1000).await;
    let path = world.path("/a");
    let mut first = world.create("/a").await;
    soon(first.write(b"first")).await.unwrap();
    let second =
        FileSystems::new(FileSystemSettings { create_retries: 1000, ..world.cluster.settings() })
            .unwrap();
    let second = second.resolve("/a").unwrap().0;
    let over = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let begun = world.cluster.name_node.count("create");
    let waiting = second.create(&path, over);
    let closing = async {
        until("create", || world.cluster.name_node.count("create") > begun + 2).await;
        first.close().await.unwrap();
    };
    let (writer, ()) = soon(async { tokio::join!(waiting, closing) }).await;
    soon(writer.unwrap().close()).await.unwrap();
    assert_eq!(world.read("/a").await.unwrap(), b"");
}

#[tokio::test]
async fn connections_to_data_nodes_are_bounded_and_end_with_their_reader() {
    let world = TestClient::with(1, |settings| settings.max_data_connections = 2).await;
    let bytes = content(60_000);
    world.write("/a", &bytes).await.unwrap();
    let mut readers = vec![];
    for _ in 0..2 {
        let mut reader = soon(world.files.open(&world.path("/a"))).await.unwrap();
        soon(reader.read(&mut [0; 10])).await.unwrap();
        readers.push(reader);
    }
    let mut third = soon(world.files.open(&world.path("/a"))).await.unwrap();
    let mut piece = [0; 10];
    let blocked = tokio::time::timeout(Duration::from_millis(100), third.read(&mut piece)).await;
    assert!(blocked.is_err(), "two are open");
    readers.pop();
    assert!(soon(all(&mut *third)).await.unwrap() == bytes);
}

#[tokio::test]
async fn a_block_that_cannot_be_kept_ends_the_write() {
    let world = TestClient::with(1, |settings| {
        settings.buffer_dir = "/no/such/directory".into();
        settings.block_bytes = 8 << 20;
    })
    .await;
    let mut writer = world.create("/a").await;
    let piece = content(1 << 20);
    let error = soon(async {
        loop {
            if let Err(error) = writer.write(&piece).await {
                return error;
            }
        }
    })
    .await;
    assert_eq!((error.kind, error.call), (ErrorKind::NotFound, "buffer"), "{error}");
    assert!(soon(writer.write(b"x")).await.is_err(), "nothing is written after that");
    assert!(soon(writer.close()).await.is_err());
    until("the file goes", || world.cluster.name_node.files().is_empty()).await;
}
