//! Jobs of programs on a cluster of this machine: what they read, how they are ordered, and what happens
//! when a disk is full.

use std::fs;
use std::process::Command;

use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::node::{in_own_mounts, may_mount};
use compat_tests::{corona, corona_program};
use corona::filesystem::{CreateOptions, FileSystems};
use corona_filesystem::testing::MiniCluster as SmallHdfs;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::mini_cluster::{MiniCluster, shell, stderr, text};

/// Bytes of a block on the small HDFS.
const BLOCK: usize = 64 << 10;

fn json(cluster: &MiniCluster, arguments: &[&str]) -> Value {
    let output = cluster.run(&[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn counter(job: &Value, name: &str) -> i64 {
    let counters = job["counters"].as_array().unwrap();
    let found = counters.iter().find(|counter| counter["name"] == name);
    found.and_then(|counter| counter["value"].as_i64()).unwrap_or(0)
}

#[test]
fn jobs_read_and_write_hdfs_where_its_blocks_are() {
    let runtime = Runtime::new().unwrap();
    let hdfs = runtime.block_on(SmallHdfs::start(2));
    // All blocks are on the host of the second node.
    let mut infos: Vec<_> = hdfs.data_nodes.iter().map(|node| node.info()).collect();
    infos.iter_mut().for_each(|info| info.host = "127.0.0.2".to_owned());
    hdfs.name_node.set_data_nodes(infos);
    let lines = text().repeat(12);
    assert!(lines.len() > 5 * BLOCK);
    runtime.block_on(async {
        let systems = FileSystems::new(hdfs.settings()).unwrap();
        for (name, text) in [("/in/a", &lines), ("/in/b", &lines.replace("line", "row"))] {
            let (files, path) = systems.resolve(name).unwrap();
            let mut writer = files.create(&path, CreateOptions::default()).await.unwrap();
            writer.write(text.as_bytes()).await.unwrap();
            writer.close().await.unwrap();
        }
    });
    let cluster = MiniCluster::start(&[]);
    cluster.write("a", &lines);
    cluster.write("b", lines.replace("line", "row"));
    let at = |path: &str| format!("hdfs://{}{path}", hdfs.address());
    let (input, words, output) = (at("/in/*"), at("/words"), at("/out"));
    let first = [
        "--input",
        &input,
        "--output",
        &words,
        "--mapper",
        "tr -s ' ' '\\n'",
        "--reduces",
        "2",
        "--compress-output=gzip",
    ];
    let planned = json(&cluster, &[&first[..], &["--dry-run"]].concat());
    let splits = planned["splits"].as_array().unwrap();
    assert!(splits.len() > 10, "{planned}");
    for split in splits {
        let hosts = split["hosts"].as_array().unwrap();
        assert!(!hosts.is_empty() && hosts.iter().all(|host| host == "127.0.0.2"), "{split}");
    }
    assert_eq!(planned["maps_with_hosts"], splits.len());
    assert_eq!(planned["largest_split"], BLOCK);
    assert!(planned["map_waves"].as_u64().unwrap() > 1, "{planned}");
    let done = json(&cluster, &first);
    assert_eq!(done["state"], "SUCCEEDED");
    assert_eq!(counter(&done, "MAP_INPUT_RECORDS"), 2 * lines.lines().count() as i64);
    assert!(counter(&done, "HDFS_BYTES_READ") >= 2 * lines.len() as i64, "{done}");
    assert!(counter(&done, "DATA_LOCAL_MAPS") > 0, "{done}");
    // Its output is the input of another one.
    let words = at("/words/part-*.gz");
    let counted = json(
        &cluster,
        &["--input", &words, "--output", &output, "--mapper", "cat", "--reducer", "uniq -c"],
    );
    assert_eq!((&counted["state"], counted["maps"].as_u64()), (&"SUCCEEDED".into(), Some(2)));
    let copied = corona(&["fs", "cat", &at("/out/part-00000")]).output().unwrap();
    assert!(copied.status.success(), "{}", stderr(&copied));
    let copied = String::from_utf8(copied.stdout).unwrap();
    let mut found: Vec<&str> = copied.lines().map(str::trim_end).collect();
    found.sort_unstable();
    let expected = "cat a b | tr -s ' ' '\\n' | sort | uniq -c";
    assert_eq!(found, shell(cluster.root.path(), expected));
    cluster.stop();
}

#[test]
fn keys_come_in_the_order_of_their_parts() {
    let cluster = MiniCluster::start(&[]);
    let lines = |from: u32| -> String {
        let line = |n: u32| format!("w{} {} {n}\n", n * 7919 % 100, i64::from(n * 31 % 50) - 25);
        (from..from + 20_000).map(line).collect()
    };
    cluster.write("a", lines(0));
    cluster.write("b", lines(20_000));
    // Small memory, so that each map has spills to merge, and the reduce more files than it opens.
    cluster.run(&[
        "--input",
        "a",
        "b",
        "--output",
        "out",
        "--mapper",
        "cat",
        "--separator",
        " ",
        "--key-fields",
        "2",
        "--sort-by",
        "2,2nr",
        "--sort-by",
        "1,1",
        "-D",
        "io.sort.mb=1",
        "-D",
        "io.sort.factor=2",
    ]);
    let found = fs::read_to_string(cluster.path("out/part-00000")).unwrap();
    let sorted = "LC_ALL=C sort -s -k2,2nr -k1,1 a b | cut -d ' ' -f 1,2 > sorted";
    shell(cluster.root.path(), sorted);
    let expected = fs::read_to_string(cluster.path("sorted")).unwrap();
    let keys = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
    let found_keys: Vec<String> = found.lines().map(keys).collect();
    assert!(found_keys.iter().map(String::as_str).eq(expected.lines()), "the order of keys");
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, shell(cluster.root.path(), "cat a b"));
    let wrong = ["--input", "a", "--output", "new", "--mapper", "cat", "--sort-by", "x"];
    let refused = cluster.job(&wrong).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("'--sort-by <FIELDS>': expected FIELD"), "{said}");
    cluster.stop();
}

#[test]
fn a_combiner_keeps_keys_of_two_fields() {
    let cluster = MiniCluster::start(&[]);
    let lines = |from: u32| -> String {
        (from..from + 1000).map(|n| format!("a{} b{} 1\n", n % 3, n % 5)).collect()
    };
    cluster.write("a", lines(0));
    cluster.write("b", lines(1000));
    let sums = "awk '{n[$1\" \"$2] += $3} END {for (k in n) print k, n[k]}' | LC_ALL=C sort";
    let mut arguments = vec!["--input", "a", "b", "--output", "out", "--mapper", "cat"];
    arguments.extend(["--combiner", sums, "--reducer", "cat", "--separator", " "]);
    cluster.run(&[&arguments[..], &["--key-fields", "2"]].concat());
    let found = fs::read_to_string(cluster.path("out/part-00000")).unwrap();
    let keys = (0..3).flat_map(|a| (0..5).map(move |b| (a, b)));
    // Each map has a line for a key, and the lines of a key come together.
    let keys: Vec<String> = keys.flat_map(|(a, b)| vec![format!("a{a} b{b}"); 2]).collect();
    let key = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
    assert_eq!(found.lines().map(key).collect::<Vec<_>>(), keys);
    let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap();
    let counts: Vec<u32> = found.lines().map(count).collect();
    for (n, pair) in counts.chunks(2).enumerate() {
        let (a, b) = (n as u32 / 5, n as u32 % 5);
        let expected = (0..2000).filter(|n| n % 3 == a && n % 5 == b).count();
        assert_eq!(pair.iter().sum::<u32>() as usize, expected, "a{a} b{b}");
    }
    cluster.stop();
}

#[test]
fn a_full_disk_fails_a_job_with_the_reason_and_harms_no_other() {
    if !may_mount() {
        return skip(Missing::SmallDisks);
    }
    let root = tempfile::tempdir().unwrap();
    let disks = ["cluster/node-1/local", "cluster/node-2/local", "full"];
    for disk in disks {
        fs::create_dir_all(root.path().join(disk)).unwrap();
    }
    // Only the cluster sees the disks.
    let mounts = disks.map(|disk| format!("mount -t tmpfs -o size=6m tmpfs {disk} && ")).concat();
    let mut command = in_own_mounts();
    command.args(["sh", "-c", &format!("{mounts}exec \"$@\""), "sh"]).arg(corona_program());
    command.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
    let cluster = MiniCluster::start_by(command, root, &["mapred.map.max.attempts=2"]);
    cluster.write("in", text());
    let small = |output: &str| {
        cluster.run(&["--input", "in", "--output", output, "--mapper", "cat"]);
        let found = cluster.lines(output);
        let found: Vec<&str> = found.iter().map(|line| line.trim_end()).collect();
        assert_eq!(found, shell(cluster.root.path(), "cat in"));
    };
    small("out1");
    // A mapper that writes more than a disk has, and one that writes without end.
    let endless = "yes a line of many words, so that a disk is full soon";
    for (mapper, output) in
        [("head -c 20000000 /dev/zero | tr '\\0' x | fold", "out2"), (endless, "out3")]
    {
        let more = ["-D", "io.sort.mb=2"];
        let job = ["--input", "in", "--output", output, "--mapper", mapper];
        let said = cluster.fails(&[&job[..], &more].concat());
        for expected in ["m_000000 failed 2 times", "/local"] {
            assert!(said.contains(expected), "{mapper}: {expected}: {said}");
        }
        // An attempt that starts while another one fills the same disk does not even begin.
        let reasons =
            ["No space left on device", "No space available in any of the local directories"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{mapper}: {said}");
        assert!(!cluster.path(output).join("_SUCCESS").exists());
        small(&format!("{output}.after"));
    }
    // The disk of the output, which a client outside does not see.
    let and_endless = format!("cat; {endless}");
    let arguments =
        ["--input", "in", "--output", "full/out", "--mapper", &and_endless, "--reduces", "0"];
    let said = cluster.fails(&arguments);
    let full = cluster.path("full");
    assert!(said.contains(&format!("does not see {}", full.display())), "{said}");
    let said = cluster.fails_inside(&arguments);
    for expected in ["cannot write the output", "full/out", "No space left on device"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    small("out4");
    cluster.stop();
}

#[test]
fn directories_archives_and_empty_variables_reach_the_tasks() {
    let cluster = MiniCluster::start(&[]);
    cluster.write("in", "one\ntwo\n");
    fs::create_dir_all(cluster.path("package/sub")).unwrap();
    cluster.write("package/prefix", "p:");
    cluster.write("package/sub/run.sh", "#!/bin/sh\nsed \"s/^/$(cat package/prefix)/\"\n");
    let made = Command::new("sh")
        .args([
            "-c",
            "chmod +x package/sub/run.sh; mkdir data; echo :s > data/suffix; tar czf data.tgz data",
        ])
        .current_dir(cluster.root.path())
        .status();
    assert!(made.unwrap().success());
    let mapper = "test -n \"${EMPTY+set}\" && package/sub/run.sh | \
                  sed \"s/$/$(cat extra/data/suffix)$EMPTY$FULL/\"";
    let job = ["--input", "in", "--output", "out", "--mapper", mapper, "--reduces", "0"];
    let shipped = ["--file", "package", "--archive", "data.tgz#extra"];
    let variables = ["--env", "EMPTY=", "--env", "FULL=!"];
    let all = [&job[..], &shipped, &variables].concat();
    cluster.run(&all);
    let found = cluster.lines("out");
    let found: Vec<&str> = found.iter().map(|line| line.trim_end()).collect();
    assert_eq!(found, ["p:one:s!", "p:two:s!"]);
    // The same directory again: refused, replaced, and refused when it has anything else.
    let refused = cluster.fails(&all);
    assert!(refused.contains("already exists"), "{refused}");
    cluster.write("in", "three\n");
    cluster.run(&[&all[..], &["--overwrite"]].concat());
    assert_eq!(cluster.lines("out")[0].trim_end(), "p:three:s!");
    cluster.write("out/notes", "mine");
    let refused = cluster.fails(&[&all[..], &["--overwrite"]].concat());
    assert!(refused.contains("has more than the output of a job: notes;"), "{refused}");
    assert_eq!(cluster.lines("out").len(), 1);
    // No setting leads the output elsewhere.
    let elsewhere = format!("mapred.output.dir=file:{}", cluster.path("out").display());
    let output = cluster
        .job(&["--input", "in", "--output", "new", "--mapper", "cat", "-D", &elsewhere])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("contradicts --output"), "{}", stderr(&output));
    assert!(!cluster.path("new").exists() && cluster.path("out/notes").exists());
    cluster.stop();
}
