//! The table of commands against its page and against the commands of the original.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::table::{COMMANDS, Command, FS, Fate, GENERIC, JOB, Opt, STREAMING, Values};

/// The commands and options of the original, by their names in its source.
const ORIGINAL_FS: &[&str] = &[
    "-ls",
    "-lsr",
    "-lsrx",
    "-du",
    "-dus",
    "-count",
    "-mv",
    "-cp",
    "-hardlink",
    "-showlinks",
    "-rm",
    "-rmr",
    "-rmdir",
    "-expunge",
    "-put",
    "-copyFromLocal",
    "-moveFromLocal",
    "-get",
    "-copyToLocal",
    "-moveToLocal",
    "-getmerge",
    "-cat",
    "-text",
    "-decompress",
    "-compress",
    "-undelete",
    "-filecrc",
    "-mkdir",
    "-setrep",
    "-touchz",
    "-touch",
    "-test",
    "-stat",
    "-head",
    "-tail",
    "-chmod",
    "-chown",
    "-chgrp",
    "-help",
];
const ORIGINAL_JOB: &[&str] = &[
    "-submit",
    "-status",
    "-counter",
    "-kill",
    "-set-priority",
    "-events",
    "-history",
    "-list",
    "-list-active-trackers",
    "-list-blacklisted-trackers",
    "-list-trackers",
    "-list-attempt-ids",
    "-kill-task",
    "-fail-task",
];
const ORIGINAL_STREAMING: &[&str] = &[
    "-input",
    "-output",
    "-mapper",
    "-combiner",
    "-reducer",
    "-file",
    "-dfs",
    "-additionalconfspec",
    "-inputformat",
    "-outputformat",
    "-partitioner",
    "-numReduceTasks",
    "-inputreader",
    "-mapdebug",
    "-reducedebug",
    "-jobconf",
    "-cmdenv",
    "-cacheFile",
    "-cacheArchive",
    "-verbose",
    "-info",
    "-debug",
    "-inputtagged",
    "-help",
];
const ORIGINAL_GENERIC: &[&str] = &["-conf", "-D", "-fs", "-jt", "-files", "-libjars", "-archives"];
const ORIGINAL_COMMANDS: &[&str] = &[
    "namenode",
    "avatarshell",
    "avatarzk",
    "avatarnode",
    "journalnode",
    "secondarynamenode",
    "raidnode",
    "notifier",
    "hdfsnfsproxy",
    "fsshellservice",
    "avatardatanode",
    "datanode",
    "fs",
    "dfs",
    "dfsadmin",
    "mradmin",
    "version",
    "fsck",
    "avatarfsck",
    "raidfsck",
    "raidshell",
    "notifiershell",
    "balancer",
    "avatarbalancer",
    "oiv",
    "oev",
    "oid",
    "jmxget",
    "jobtracker",
    "coronaclustermanager",
    "coronatasktracker",
    "coronaproxyjobtracker",
    "coronaclient",
    "coronaadmin",
    "tasktracker",
    "multitasktracker",
    "job",
    "queue",
    "pipes",
    "onejar",
    "jar",
    "fastcopy",
    "distcp",
    "daemonlog",
    "archive",
    "sampler",
    "hourglass",
    "fairscheduler",
    "getconf",
];

#[test]
fn every_command_and_option_of_the_original_has_a_row() {
    let names = |commands: &[Command]| commands.iter().map(|it| it.name).collect::<Vec<_>>();
    for (original, ours) in [
        (ORIGINAL_FS, names(FS)),
        (ORIGINAL_JOB, names(JOB)),
        (ORIGINAL_COMMANDS, names(COMMANDS)),
        (ORIGINAL_GENERIC, GENERIC.iter().map(|it| it.name).collect()),
        (ORIGINAL_STREAMING, STREAMING.iter().map(|it| it.option.name).collect()),
    ] {
        let missing: Vec<_> = original.iter().filter(|name| !ours.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?} have no row");
        let mut sorted = ours.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ours.len(), "a row is there twice");
    }
}

fn fate(fate: Fate) -> String {
    match fate {
        Fate::Works("") => "works".to_owned(),
        Fate::Works(note) => format!("works: {note}"),
        Fate::NoMeaning(why) => format!("without meaning here: {why}"),
        Fate::Refused(why) => format!("refused: {why}"),
    }
}

fn row(name: &str, arguments: &str, text: &str) -> String {
    let name = [name, arguments].join(" ").replace('|', "\\|");
    format!("| `{}` | {text} |\n", name.trim_end())
}

fn rows(commands: &[Command]) -> String {
    let mut text = String::new();
    for command in commands {
        text.push_str(&row(command.name, command.arguments, &fate(command.fate)));
        for Opt { name, value, fate: of_option } in command.options {
            let name = format!("{} {name}", command.name);
            text.push_str(&row(&name, value, &fate(*of_option)));
        }
    }
    text
}

/// `CORONA_WRITE_DOCS=1 cargo test -p corona hadoop` writes the page.
#[test]
fn the_page_has_the_tables() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/hadoop-commands.md");
    let written = fs::read_to_string(&page).unwrap();
    let (head, _) = written.split_once("## hadoop\n").unwrap();
    let mut expected = head.to_owned();
    let generic: String = GENERIC.iter().map(|it| row(it.name, it.value, &fate(it.fate))).collect();
    let streaming = STREAMING.iter().map(|it| {
        let often = match it.values {
            Values::None | Values::One => "",
            Values::Each => "; may be repeated",
            Values::Many => "; may be repeated, and takes several words",
        };
        row(it.option.name, it.option.value, &format!("{}{often}", fate(it.option.fate)))
    });
    for (title, rows) in [
        ("hadoop", rows(COMMANDS)),
        ("Options of all commands", generic),
        ("hadoop fs", rows(FS)),
        ("hadoop jar hadoop-streaming.jar", streaming.collect()),
        ("hadoop job", rows(JOB)),
    ] {
        let gap = if title == "hadoop" { "" } else { "\n" };
        write!(expected, "{gap}## {title}\n\n| what | here |\n|---|---|\n{rows}").unwrap();
    }
    if std::env::var_os("CORONA_WRITE_DOCS").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    assert!(written == expected, "CORONA_WRITE_DOCS=1 writes the page again");
}
