//! What a client does while nothing fails.

use std::collections::BTreeSet;

use super::*;
use crate::hdfs::transfer::{Layout, SumKind, Sums};
use crate::{ErrorKind, Glob, Summary, copy_to_local, expand, put};

/// Bytes of a block of the tests' clusters.
const BLOCK: usize = 64 << 10;

#[tokio::test]
async fn files_of_all_lengths_are_written_and_read() {
    let world = TestClient::new(3).await;
    for length in [0, 1, 511, 512, 513, 65_024, 65_025, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
        let (path, bytes) = (format!("/f/{length}"), content(length));
        world.write(&path, &bytes).await.unwrap();
        assert!(world.read(&path).await.unwrap() == bytes, "{length}");
        let status = world.files.status(&world.path(&path)).await.unwrap();
        assert_eq!(
            (status.bytes, status.replication, status.permission),
            (length as u64, 2, 0o644)
        );
        for block in world.cluster.name_node.blocks(&path) {
            let replicas = world.cluster.data_nodes.iter();
            assert_eq!(replicas.filter(|node| node.replica(block.id).is_some()).count(), 2);
        }
    }
    let counters = world.systems.counters();
    assert!(counters.local_reads.get() > 0 && counters.remote_reads.get() == 0);
    assert_eq!(counters.failed_reads.get(), 0);
    assert_eq!(world.cluster.name_node.files().len(), 11, "and nothing unfinished");
    until("a verified block", || {
        world.cluster.data_nodes.iter().map(|node| node.verified()).sum::<usize>() > 0
    })
    .await;
}

#[tokio::test]
async fn ranges_are_read_from_all_layouts() {
    let world = TestClient::new(1).await;
    let bytes = content(2 * BLOCK + 700);
    world.write("/a", &bytes).await.unwrap();
    for (layout, packet) in [(Layout::Inline, 4096), (Layout::SumsFirst, 65_536)] {
        for kind in [SumKind::Crc32, SumKind::Crc32c] {
            let node = &world.cluster.data_nodes[0];
            node.set_layout(layout, packet, Sums { kind, covered: 512 });
            let mut reader = soon(world.files.open(&world.path("/a"))).await.unwrap();
            let end = bytes.len();
            for (from, to) in [
                (0, 1),
                (513, 613),
                (1, end),
                (BLOCK - 1, BLOCK + 1),
                (end - 1, end),
                (2 * BLOCK, end),
                (100, 101),
                (700, 70_000),
            ] {
                let mut range = vec![0; to - from];
                let reader: &mut dyn FileReader = &mut *reader;
                soon(reader.read_exact_at(from as u64, &mut range)).await.unwrap();
                assert!(range == bytes[from..to], "{from} to {to}, {layout:?}, {kind:?}");
            }
            reader.seek(end as u64);
            assert_eq!(soon(reader.read(&mut [0])).await.unwrap(), 0);
            // To the end after a range that was announced.
            reader.seek(10);
            reader.read_until(20);
            assert!(soon(all(&mut *reader)).await.unwrap() == bytes[10..]);
        }
    }
}

#[tokio::test]
async fn flush_makes_data_visible_to_readers() {
    let world = TestClient::new(2).await;
    let bytes = content(BLOCK + 5000);
    let path = world.path("/open");
    let mut writer = world.files.create(&path, CreateOptions::default()).await.unwrap();
    let mut written = 0;
    for upto in [1, 100, 511, 2000, 2049, 5000, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 3000] {
        soon(writer.write(&bytes[written..upto])).await.unwrap();
        soon(writer.flush()).await.unwrap();
        written = upto;
        let mut reader = soon(world.files.open(&path)).await.unwrap();
        assert_eq!(reader.length(), upto as u64);
        assert!(soon(all(&mut *reader)).await.unwrap() == bytes[..upto], "{upto}");
    }
    soon(writer.write(&bytes[written..])).await.unwrap();
    soon(writer.close()).await.unwrap();
    assert!(world.read("/open").await.unwrap() == bytes);
    assert_eq!(world.cluster.name_node.count("fsync"), 2, "once a block");
}

#[tokio::test]
async fn files_of_all_lengths_are_written_on_at_their_end() {
    let world = TestClient::new(3).await;
    let bytes = content(3 * BLOCK);
    let block = |path: &str| world.cluster.name_node.blocks(path).first().copied();
    for begun in [0, 1, 511, 512, 700, BLOCK - 1, BLOCK, BLOCK + 5] {
        for more in [0, 1, 30, 600, BLOCK + 10] {
            let name = format!("/{begun}/{more}");
            let path = world.path(&name);
            world.write(&name, &bytes[..begun]).await.unwrap();
            let before = block(&name);
            let mut writer = soon(world.files.append(&path)).await.unwrap();
            assert_eq!(writer.position(), begun as u64);
            let (first, rest) = bytes[begun..begun + more].split_at(more / 3);
            soon(writer.write(first)).await.unwrap();
            soon(writer.flush()).await.unwrap();
            let mut reader = soon(world.files.open(&path)).await.unwrap();
            let seen = soon(all(&mut *reader)).await.unwrap();
            assert!(seen == bytes[..begun + first.len()], "{begun} and {}", first.len());
            soon(writer.write(rest)).await.unwrap();
            assert_eq!(writer.position(), (begun + more) as u64);
            soon(writer.close()).await.unwrap();
            assert!(
                world.read(&name).await.unwrap() == bytes[..begun + more],
                "{begun} and {more}"
            );
            if let (Some(before), Some(after)) = (before, block(&name)) {
                let is_continued = begun < BLOCK;
                assert_eq!(before.id, after.id, "it is the same block");
                assert_eq!(before.generation < after.generation, is_continued, "{begun}");
            }
        }
    }
    let count = |method| world.cluster.name_node.count(method);
    assert_eq!((count("abandonBlock"), count("abandonFile"), count("delete")), (0, 0, 0));
    // Often, and a little each time.
    for at in 0..40 {
        let path = world.path("/log");
        if at == 0 {
            world.write("/log", b"").await.unwrap();
        }
        let mut writer = soon(world.files.append(&path)).await.unwrap();
        soon(writer.write(&bytes[at * 100..][..100])).await.unwrap();
        soon(writer.close()).await.unwrap();
    }
    assert!(world.read("/log").await.unwrap() == bytes[..4000]);
    assert_eq!(world.cluster.name_node.blocks("/log").len(), 1);
    let errors = [("/none", ErrorKind::NotFound), ("/1", ErrorKind::IsADirectory)];
    for (path, kind) in errors {
        let error = soon(world.files.append(&world.path(path))).await.err().unwrap();
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[tokio::test]
async fn blocks_have_the_hosts_of_their_replicas() {
    let world = TestClient::new(2).await;
    let mut infos: Vec<_> = world.cluster.data_nodes.iter().map(|node| node.info()).collect();
    infos[0].host = "one".to_owned();
    infos[1].host.clear();
    infos[1].rack = "/r2".to_owned();
    world.cluster.name_node.set_data_nodes(infos);
    let block = 64 << 10;
    world.write("/f", &content(2 * block + 7)).await.unwrap();
    let path = world.path("/f");
    let found = world.files.blocks(&path, u64::MAX >> 1).await.unwrap();
    let parts: Vec<_> = found.iter().map(|block| (block.start, block.length)).collect();
    let block = block as u64;
    assert_eq!(parts, [(0, block), (block, block), (2 * block, 7)]);
    for block in &found {
        let hosts: BTreeSet<_> =
            block.hosts.iter().map(|host| (host.rack.as_str(), host.name.as_str())).collect();
        assert_eq!(hosts, BTreeSet::from([("/default-rack", "one"), ("/r2", "127.0.0.1")]));
    }
    assert_eq!(world.files.blocks(&path, block).await.unwrap(), found[..1]);
    assert_eq!(world.files.blocks(&path, 0).await.unwrap(), []);
    let error = world.files.blocks(&world.path("/none"), 1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn listings_come_in_pages_and_globs_see_all_of_them() {
    let world = TestClient::new(1).await;
    world.cluster.name_node.set_page(4);
    let mut names: Vec<String> = (0..10).map(|n| format!("part-{n:05}")).collect();
    names.push("\u{1f600} é".to_owned());
    for name in &names {
        world.write(&format!("/d/{name}"), b"x").await.unwrap();
    }
    let listed = world.files.list(&world.path("/d"), 100).await.unwrap();
    let found: Vec<_> = listed.iter().map(|status| status.path.name().to_owned()).collect();
    assert_eq!(found, names);
    assert!(world.files.list(&world.path("/d"), 5).await.is_err(), "no more than wanted");
    assert!(world.cluster.name_node.count("getPartialListing") >= 3);
    for (pattern, count) in
        [("/d/part-0000[0-3]", 4), ("/d/*", 11), ("/{d,x}/*é", 1), ("/?/part-00001", 1), ("/x*", 0)]
    {
        let path = world.path(pattern);
        assert!(Glob::is_pattern(path.path()));
        assert_eq!(expand(&*world.files, &path).await.unwrap().len(), count, "{pattern}");
    }
    let error = expand(&*world.files, &world.path("/d/[")).await.unwrap_err();
    assert!(error.message.starts_with("Illegal file pattern: "), "{error}");
    let own = world.files.list(&world.path("/d/part-00001"), 10).await.unwrap();
    assert_eq!(own[0].path, world.path("/d/part-00001"), "a file lists itself");
}

#[tokio::test]
async fn directories_renames_and_attributes() {
    let world = TestClient::new(1).await;
    let files = &world.files;
    let path = |text: &str| world.path(text);
    assert_eq!(files.home(), path("/user/alice"));
    files.mkdirs(&path("a/b"), Some(0o700)).await.unwrap();
    files.mkdirs(&path("a/b"), None).await.unwrap();
    world.write("/user/alice/f", b"12345").await.unwrap();
    files.rename(&path("f"), &path("a/b")).await.unwrap();
    assert_eq!(files.status(&path("a")).await.unwrap().bytes, 0, "a directory has no bytes");
    let summary = files.summary(&path("a")).await.unwrap();
    assert_eq!(summary, Summary { bytes: 5, files: 1, directories: 2 });
    files.set_permission(&path("a/b/f"), 0o600).await.unwrap();
    files.set_owner(&path("a/b/f"), Some("bob"), None).await.unwrap();
    files.set_times(&path("a/b/f"), Some(1234), None).await.unwrap();
    files.set_replication(&path("a/b/f"), 7).await.unwrap();
    let status = files.status(&path("a/b/f")).await.unwrap();
    assert_eq!((status.owner.as_str(), status.group.as_str()), ("bob", "users"));
    assert_eq!((status.permission, status.modified_ms, status.replication), (0o600, 1234, 7));
    let errors = [
        (files.rename(&path("nothing"), &path("x")).await.unwrap_err(), ErrorKind::NotFound),
        (files.rename(&path("a"), &path("a/b/c")).await.unwrap_err(), ErrorKind::Invalid),
        (files.rename(&path("a"), &path("q/c")).await.unwrap_err(), ErrorKind::NotFound),
        (files.delete(&path("a"), false).await.unwrap_err(), ErrorKind::NotEmpty),
        (files.set_permission(&path("none"), 0).await.unwrap_err(), ErrorKind::NotFound),
        (files.set_replication(&path("a"), 2).await.unwrap_err(), ErrorKind::IsADirectory),
        (files.open(&path("a")).await.err().unwrap(), ErrorKind::IsADirectory),
        (files.open(&path("none")).await.err().unwrap(), ErrorKind::NotFound),
        (world.write("/forbidden/x", b"").await.unwrap_err(), ErrorKind::Permission),
        (world.write("/user/alice/a", b"").await.unwrap_err(), ErrorKind::IsADirectory),
        (world.write("/user/alice/a/b/f", b"").await.unwrap_err(), ErrorKind::AlreadyExists),
        (files.mkdirs(&path("a/b/f/g"), None).await.unwrap_err(), ErrorKind::NotADirectory),
        (files.mkdirs(&path("x\ty"), None).await.unwrap_err(), ErrorKind::Invalid),
    ];
    for (error, kind) in errors {
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.path.starts_with("hdfs://127.0.0.1:"), "it names the path: {error:?}");
    }
    let error = files.open(&path("none")).await.err().unwrap();
    let address = world.cluster.address();
    assert_eq!(
        error.to_string(),
        format!(
            "hdfs://{address}/user/alice/none: No such file or directory (getHdfsFileInfo at {address})"
        )
    );
    assert!(files.delete(&path("a"), true).await.unwrap());
    assert!(!files.delete(&path("a"), true).await.unwrap());
}

#[tokio::test]
async fn copies_have_their_name_only_when_they_are_whole() {
    let world = TestClient::new(2).await;
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let bytes = content(300_000);
    std::fs::write(&from, &bytes).unwrap();
    let local = crate::LocalFiles::new(&world.cluster.settings());
    let path = world.path("/in/copy");
    let mut steps = vec![];
    let options = CreateOptions::default;
    let mut progress = |copied: crate::Copied| steps.push(copied);
    let files = &*world.files;
    let length = soon(put(&from, files, &path, &local, options(), &mut progress)).await.unwrap();
    assert_eq!(length, 300_000);
    assert_eq!(world.cluster.name_node.files(), ["/in/copy"]);
    let again = soon(put(&from, files, &path, &local, options(), &mut |_| {})).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::AlreadyExists);
    let over = CreateOptions { overwrite: true, ..options() };
    soon(put(&from, files, &path, &local, over, &mut |_| {})).await.unwrap();
    assert_eq!(world.cluster.name_node.files(), ["/in/copy"]);
    assert_eq!(steps.last(), Some(&crate::Copied { bytes: 300_000, of: 300_000 }));
    let most = u64::MAX;
    soon(copy_to_local(files, &path, &to, most, &mut |_| {})).await.unwrap();
    assert!(std::fs::read(&to).unwrap() == bytes);
    std::fs::remove_file(&to).unwrap();
    let error = soon(copy_to_local(files, &path, &to, 299_999, &mut |_| {})).await.unwrap_err();
    assert!(error.to_string().contains("larger than 299999 bytes"), "{error}");
    for node in &world.cluster.data_nodes {
        node.set_faults(crate::testing::Faults { is_dead: true, ..Default::default() });
    }
    let error = soon(copy_to_local(files, &path, &to, most, &mut |_| {})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::BlockMissing);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
}
