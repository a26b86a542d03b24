//! The built program's `what-if`: from traces and recordings to reports, as its page describes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use compat_tests::browser::Browser;
use compat_tests::{corona_program, repository};
use serde_json::Value;

/// What the program prints for these words, with its status.
fn what_if(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(corona_program());
    command.arg("what-if").args(words).stdin(Stdio::null());
    for variable in ["HADOOP_CONF_DIR", "COLUMNS", "NO_COLOR", "RUST_LOG"] {
        command.env_remove(variable);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[track_caller]
fn done(words: &[&str]) -> String {
    let (status, out, err) = what_if(words);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{words:?}");
    out
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&done(&[words, &["--json"]].concat())).unwrap()
}

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

/// Writes a file with this configuration; its path.
pub(super) fn pools(directory: &Path, name: &str, pools: &str) -> String {
    let file = directory.join(name);
    fs::write(&file, format!("<?xml version=\"1.0\"?>\n<configuration>{pools}</configuration>\n"))
        .unwrap();
    path(&file).to_owned()
}

#[test]
fn a_trace_is_played_against_pools_files_and_reported_in_three_forms() {
    let directory = tempfile::tempdir().unwrap();
    let trace = repository().join("fixtures/workloads/small.swf");
    let group = |most| {
        format!(
            "<group name=\"group1\"><pool name=\"queue1\"><maxMAP>{most}</maxMAP></pool></group>"
        )
    };
    let [tight, wide] = [("tight.xml", 2), ("wide.xml", 800)]
        .map(|(name, most)| pools(directory.path(), name, &group(most)));
    let out = directory.path().join("out");
    let words = [path(&trace), "--report", path(&out), "--compare", &tight, &wide];
    let text = done(&words);
    assert!(text.contains("comes out as recorded"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(fs::read_to_string(out.join("report.txt")).unwrap(), text);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("tight.xml"), "{page}");
    let report: Value =
        serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    let median = |run: usize| {
        let pools = report["runs"][run]["pools"].as_array().unwrap();
        let pool = pools.iter().find(|pool| pool["name"] == "group1.queue1").unwrap();
        pool["waits"]["median_ms"].as_u64().unwrap()
    };
    assert!(median(1) > median(0) + 10_000, "{} {}", median(1), median(0));
    assert_eq!(median(2), median(0));
}

#[test]
fn a_recording_is_saved_as_a_workload_that_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let recorded = repository().join("fixtures/recordings/scenarios/min_and_max");
    let (capture, conf) = (recorded.join("traffic.pcap"), ["--conf-dir", path(&recorded)]);
    let saved = directory.path().join("saved.jsonl.gz");
    let of_capture = json(&[&[path(&capture)], &conf[..]].concat());
    assert!(of_capture["check"]["error"].as_f64().unwrap() <= 0.05, "{of_capture}");
    let save = [&[path(&capture), "--save", path(&saved), "--anonymise"], &conf[..]].concat();
    assert_eq!(what_if(&save).0, Some(0));
    let of_saved = json(&[&[path(&saved)], &conf[..]].concat());
    assert_eq!(of_saved["tasks"], of_capture["tasks"]);
    assert_eq!(of_saved["name"], "anonymous");
    // Half of a compressed workload is used as far as it goes, and that is said.
    let bytes = fs::read(&saved).unwrap();
    let cut = directory.path().join("cut.gz");
    fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    let of_cut = json(&[&[path(&cut)], &conf[..]].concat());
    assert_eq!(of_cut["left_out"].as_array().map(Vec::len), Some(1), "{of_cut}");
}

/// One slot of each type for each CPU.
const SLOTS: &str =
    "cm.cpu.to.resource.partitioning={\"1\":{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}";

/// The workload of a pool with much work, and another one with little: 10 nodes with 4 CPUs and 8 GB of memory, and
/// tasks with 1 CPU and 4 GB.
fn hog_and_poor(directory: &Path) -> String {
    let file = directory.join("two.jsonl");
    let mut lines = vec!["{\"corona_workload\":1,\"name\":\"two\",\"until_ms\":600000}".to_owned()];
    for node in 0..10 {
        lines.push(format!(
            "{{\"node\":{{\"name\":\"n{node}\",\"host\":\"h{node}\",\"cpus\":4,\"memory_mb\":8192}}}}"
        ));
    }
    let session = |id: &str, pool: &str, at_ms: u32, count: u32| {
        format!(
            "{{\"session\":{{\"id\":\"{id}\",\"user\":\"u\",\"pool\":\"{pool}\",\"at_ms\":{at_ms},\
             \"tasks\":[{{\"type\":\"MAP\",\"ms\":10000,\"count\":{count},\"cpus\":1,\"memory_mb\":4096}}]}}}}"
        )
    };
    lines.push(session("hog", "g.hog", 0, 4_000));
    lines.extend((0..10).map(|at| session(&format!("s{at}"), "g.poor", at * 60_000, 40)));
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    path(&file).to_owned()
}

#[test]
fn resources_may_be_counted_and_nodes_may_have_more_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = hog_and_poor(directory.path());
    let play = |more: &[&str]| json(&[&[&*file, "-D", SLOTS], more].concat());
    let counted = play(&["--resources", "cpus,memory"]);
    assert_eq!(counted["changes"][0], "cpus,memory counted.");
    let [before, after] = [0, 1].map(|run| &counted["runs"][run]);
    assert!(before["cluster"].get("resources").is_none(), "{}", before["cluster"]);
    let resources = after["cluster"]["resources"].as_array().unwrap();
    assert_eq!(
        (&resources[1]["resource"], &resources[1]["all"]),
        (&"memory".into(), &81_920.into())
    );
    // Two of four slots stay empty, and it takes twice as long.
    let lacks = |run: &Value| run["cluster"]["lacks"][0]["of"].as_str().map(str::to_owned);
    assert_eq!(lacks(after).as_deref(), Some("memory"));
    let ended = |run: &Value| run["ended_ms"].as_u64().unwrap();
    assert!(ended(after) > ended(before) * 19 / 10, "{} {}", ended(after), ended(before));
    // With more memory it does not.
    let larger = play(&["--resources", "cpus,memory", "--nodes", "10x4x16g"]);
    assert_eq!(ended(&larger["runs"][1]), ended(before));
    let twice = play(&["--resources", "cpus,memory", "-D", "corona.cm.overcommit.memory=200"]);
    assert_eq!(ended(&twice["runs"][1]), ended(before));
    let text = done(&[&*file, "-D", SLOTS, "--resources", "memory"]);
    assert!(text.contains("LARGEST*") && text.contains("memory 100 %"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// Tables that do not fit on paper.
const CUT_OFF: &str = "[...document.querySelectorAll('.wide')] \
                       .filter((box) => box.scrollWidth > box.clientWidth).length";

#[test]
fn the_page_of_a_report_fits_wide_narrow_dark_and_on_paper() {
    let directory = tempfile::tempdir().unwrap();
    let file = hog_and_poor(directory.path());
    let pools = |name: &str, minimum: u32| {
        let minimum = format!("<minMAP>{minimum}</minMAP>");
        let group = format!("<group name=\"g\"><pool name=\"poor\">{minimum}</pool></group>");
        pools(directory.path(), name, &group)
    };
    let long = "a-name-of-a-pools-file-that-is-longer-than-anybody-would-like-it-to-be.xml";
    let (some, more) = (pools("some.xml", 4), pools(long, 16));
    let out = directory.path().join("out");
    let words = ["--resources", "cpus,memory", "--report", path(&out), "--compare", &some, &more];
    done(&[&[&*file, "-D", SLOTS], &words[..]].concat());
    let page = format!("file://{}", out.join("report.html").display());
    let pictures = repository().join("target/web");
    fs::create_dir_all(&pictures).unwrap();
    let mut browser = Browser::start();
    for (width, dark) in [(1400, false), (1400, true), (390, false), (390, true)] {
        browser.look_through(width, dark);
        browser.open(&page);
        let wider = "document.documentElement.scrollWidth - window.innerWidth";
        assert_eq!(browser.value(wider), 0, "the page is wider than {width}");
        // Wide tables scroll on a telephone, and nowhere else.
        let cut_off = browser.value(CUT_OFF).as_u64().unwrap();
        assert!(width < 600 || cut_off == 0, "{cut_off} tables are wider than {width}");
        let theme = if dark { "dark" } else { "light" };
        browser.picture(&pictures.join(format!("what-if-{width}-{theme}.png")));
    }
    // The width of A4 without the usual margins, in pixels.
    browser.look_through(718, true);
    browser.command("Emulation.setEmulatedMedia", serde_json::json!({ "media": "print" }));
    browser.open(&page);
    assert_eq!(browser.value(CUT_OFF), 0, "tables are cut off on paper");
    let paper = browser.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(paper, "rgb(255, 255, 255)");
    browser.picture(&pictures.join("what-if-print.png"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn suggestions_say_what_was_tried() {
    let directory = tempfile::tempdir().unwrap();
    let file = hog_and_poor(directory.path());
    let pools = pools(
        directory.path(),
        "pools.xml",
        "<group name=\"g\"><pool name=\"hog\"><weight>1000</weight></pool></group>",
    );
    let pools = format!("cm.pools.config.file={pools}");
    let words = |goal: &'static str| {
        vec!["suggest", &file, "-D", SLOTS, "-D", &pools, "--goal", goal, "--tries", "30"]
    };
    let text = done(&words("p95 of g.poor < 60s"));
    assert!(text.contains("Reached, at the least cost to others"), "{text}");
    assert!(text.contains("  g.poor: minMAP 8 instead of 0"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let (status, out, _) = what_if(&[&words("longest of g.poor < 1ms")[..], &["--json"]].concat());
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status, Some(1));
    let trials = found["trials"].as_array().unwrap();
    assert!(trials.len() > 5 && trials.iter().all(|trial| trial["reached"] == false), "{found}");
    for (words, status, expected) in [
        (vec!["suggest", &file], 2, "--goal"),
        (vec!["suggest", &file, "--goal", "soon"], 2, "expected a goal"),
        (
            vec!["suggest", &file, "--goal", "p95 of x.* < 1s", "-D", SLOTS],
            1,
            "no pool of the input fits x.*",
        ),
        (
            vec!["suggest", &file, "--goal", "p95 of * < 1s", "--knob", "min"],
            2,
            "expected min:GROUP.POOL",
        ),
    ] {
        let (found, _, err) = what_if(&words);
        assert!(found == Some(status) && err.contains(expected), "{words:?}: {err}");
    }
}

#[test]
fn journals_and_histories_are_read_as_far_as_they_are_whole() {
    let directory = tempfile::tempdir().unwrap();
    let fixtures = repository().join("fixtures");
    let conf = directory.path().join("conf");
    fs::create_dir(&conf).unwrap();
    let slots = "<property><name>cm.cpu.to.resource.partitioning</name>\
        <value>{\"1\":{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}</value></property>";
    pools(&conf, "core-site.xml", slots);
    let with_conf = ["--conf-dir", path(&conf)];
    let copy = |from: &Path, name: &str| {
        let to = directory.path().join(name);
        fs::create_dir(&to).unwrap();
        for file in fs::read_dir(from).unwrap().flatten().filter(|file| file.path().is_file()) {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        to
    };
    let journal = copy(&fixtures.join("journal/version_1"), "journal");
    let whole = json(&[&[path(&journal)], &with_conf[..]].concat());
    assert_eq!((whole["sessions"].as_u64(), whole["tasks"].as_u64()), (Some(3), Some(14)));
    assert_eq!(whole["left_out"].as_array().map(Vec::len), Some(0), "{whole}");
    // It is used up to the damage, wherever that is.
    let segment = journal.join("00000000000000000001.journal");
    let bytes = fs::read(&segment).unwrap();
    let mut tasks = Vec::new();
    for tenths in 3..10 {
        let mut damaged = bytes.clone();
        damaged[bytes.len() * tenths / 10] ^= 1;
        fs::write(&segment, damaged).unwrap();
        let (status, out, err) = what_if(&[&[path(&journal), "--json"], &with_conf[..]].concat());
        if status == Some(1) {
            assert!(tasks.is_empty() && err.contains("00000000000000000001"), "{err}");
            continue;
        }
        let damaged: Value = serde_json::from_str(&out).unwrap();
        let left_out = damaged["left_out"].to_string();
        assert!(
            left_out.contains("bytes of the journal") || left_out.contains("The rest of"),
            "{left_out}"
        );
        tasks.push(damaged["tasks"].as_u64().unwrap());
    }
    assert!(tasks.is_sorted() && tasks.iter().any(|tasks| (1..14).contains(tasks)), "{tasks:?}");

    let histories = copy(&fixtures.join("recordings/job-clients/history"), "histories");
    let classic = fixtures.join("recordings/job-clients/classic-history");
    for (input, sessions, least) in [(&histories, 10, 20), (&classic, 3, 8)] {
        let whole = json(&[&[path(input)], &with_conf[..]].concat());
        assert_eq!(whole["sessions"].as_u64(), Some(sessions), "{whole}");
        assert!(whole["tasks"].as_u64() >= Some(least), "{}", whole["tasks"]);
        let mut pools = whole["runs"][0]["pools"].as_array().unwrap().iter();
        assert!(pools.any(|pool| pool["name"] == "default.root"), "{whole}");
    }
    let file = histories.join("job_202611221049.2_0001");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let cut = json(&[&[path(&histories)], &with_conf[..]].concat());
    assert_eq!(cut["sessions"].as_u64(), Some(10));
    let left_out = cut["left_out"].to_string();
    assert!(left_out.contains("records of histories that are not whole"), "{left_out}");
    // One file alone is an input as well.
    let file = histories.join("job_202611221049.10_0001");
    assert_eq!(json(&[&[path(&file)], &with_conf[..]].concat())["sessions"], 1);
    let (status, _, err) = what_if(&[path(&conf)]);
    assert_eq!(status, Some(1));
    assert!(err.contains("neither a journal nor histories of jobs"), "{err}");
}

#[test]
fn wrong_inputs_and_options_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &str| {
        let file = directory.path().join(name);
        fs::write(&file, contents).unwrap();
        path(&file).to_owned()
    };
    let (empty, newer) = (file("empty", ""), file("newer", "{\"corona_workload\":99}\n"));
    let (text, trace) =
        (file("text", "hello\n"), repository().join("fixtures/workloads/small.swf"));
    for (words, status, expected) in [
        (vec!["/no/such/file"], 1, "cannot open /no/such/file"),
        (vec![&*empty], 1, "the file is empty"),
        (vec![&*newer], 1, "has version 99"),
        (vec![&*text], 1, "neither"),
        (vec![path(&trace), "--pools", "/no/such.xml"], 1, "cannot read /no/such.xml"),
        (vec![path(&trace), "--fail-nodes", "ghost@1m"], 1, "no node ghost"),
        (vec![path(&trace), "--nodes", "4x0"], 2, "NODESxCPUS"),
        (vec![path(&trace), "--nodes", "4x2x64"], 2, "NODESxCPUSxMEMORY"),
        (vec![path(&trace), "--resources", "ram"], 1, "some of cpus,memory,disk,network"),
        (vec![path(&trace), "--load", "0"], 2, "expected a factor above 0"),
        (vec![path(&trace), "--fail-nodes", "3"], 2, "expected NODES@TIME"),
    ] {
        let (found, out, err) = what_if(&words);
        assert_eq!((found, out.as_str()), (Some(status), ""), "{words:?}: {err}");
        assert!(
            err.contains(expected) && (status == 2 || err.lines().count() == 1),
            "{words:?}: {err}"
        );
    }
}
