//! The commands and options of the original's `hadoop`, and whether each works here. Data alone: the
//! commands are run from it, and `docs/reference/hadoop-commands.md` shows it.

/// Whether a command or an option works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Fate {
    /// It does what the original does. The text says what differs, if anything does.
    Works(&'static str),
    /// It is accepted, and there is nothing for it to do, for this reason.
    NoMeaning(&'static str),
    /// It is refused, for this reason.
    Refused(&'static str),
}

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Opt {
    /// As it is written, such as `-skipTrash`.
    pub(in crate::commands) name: &'static str,
    /// What stands for its value; empty if it has none.
    pub(in crate::commands) value: &'static str,
    pub(in crate::commands) fate: Fate,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Command {
    /// As it is written, such as `-ls`.
    pub(in crate::commands) name: &'static str,
    /// Its arguments, such as `<src> <dst>`.
    pub(in crate::commands) arguments: &'static str,
    /// How many arguments it has at least, and at most.
    pub(in crate::commands) count: (usize, usize),
    pub(in crate::commands) options: &'static [Opt],
    pub(in crate::commands) fate: Fate,
}

const ANY: usize = usize::MAX;
const WORKS: Fate = Fate::Works("");

const fn flag(name: &'static str, fate: Fate) -> Opt {
    Opt { name, value: "", fate }
}

const fn opt(name: &'static str, value: &'static str, fate: Fate) -> Opt {
    Opt { name, value, fate }
}

const fn command(
    name: &'static str,
    arguments: &'static str,
    count: (usize, usize),
    options: &'static [Opt],
) -> Command {
    Command { name, arguments, count, options, fate: WORKS }
}

const fn but(command: Command, note: &'static str) -> Command {
    Command { fate: Fate::Works(note), ..command }
}

const fn refused(name: &'static str, arguments: &'static str, why: &'static str) -> Command {
    Command { name, arguments, count: (0, ANY), options: &[], fate: Fate::Refused(why) }
}

/// Finds a command by its name.
pub(in crate::commands) fn find(
    commands: &'static [Command],
    name: &str,
) -> Option<&'static Command> {
    commands.iter().find(|command| command.name == name)
}

const LATER: Fate = Fate::Works("of later versions");
const CHECKED: Fate = Fate::NoMeaning("every copy is checked against its checksums");
const RATE: Opt =
    opt("-rate", "<bandwidth>", Fate::Refused("the speed of copies is not limited here"));

const GET: &[Opt] = &[
    RATE,
    flag("-ignoreCrc", Fate::Refused("files are not read without their checksums")),
    flag(
        "-crc",
        Fate::NoMeaning("files of HDFS have no files of checksums, and none are made here"),
    ),
    flag(
        "-gencrc",
        Fate::Refused("no sum of the whole file is made; pipe the file to a program that does"),
    ),
    flag("-validate", CHECKED),
    opt("-start", "offset", Fate::Refused("files are copied whole; use -cat and tail -c")),
];
const PUT: &[Opt] = &[
    flag("-validate", CHECKED),
    RATE,
    flag("-f", Fate::Works("of later versions: files that exist are replaced")),
];
const REMOVE: &[Opt] = &[
    flag("-skipTrash", WORKS),
    flag("-R", LATER),
    flag("-r", LATER),
    flag("-f", Fate::Works("of later versions: a path that does not exist is no failure")),
];
const RECURSIVE: &[Opt] = &[flag("-R", WORKS)];
const CHANGE: &str = "ends with 255 if a file could not be changed; the original ends with 0";
const REMOVAL: &str = "directories with the home or working directory of this machine, mount points and roots are refused";

/// The commands of `hadoop fs`.
pub(in crate::commands) const FS: &[Command] = &[
    command("-ls", "[-d] [-R] <path>", (0, ANY), &[flag("-d", WORKS), flag("-R", LATER)]),
    command("-lsr", "<path>", (0, ANY), &[]),
    command("-lsrx", "<path>", (0, ANY), &[]),
    command("-du", "<path>", (0, ANY), &[]),
    command("-dus", "<path>", (0, ANY), &[]),
    command("-count", "[-q] <path>", (0, ANY), &[flag("-q", Fate::Refused("quotas are not read"))]),
    command("-mv", "<src> <dst>", (2, ANY), &[]),
    command("-cp", "<src> <dst>", (2, ANY), &[]),
    refused("-hardlink", "<src> <dst>", "the client does not make links of HDFS"),
    refused("-showlinks", "<srcs...>", "the client does not know links of HDFS"),
    but(command("-rm", "[-skipTrash] <src>", (1, ANY), REMOVE), REMOVAL),
    but(command("-rmr", "[-skipTrash] <src>", (1, ANY), REMOVE), REMOVAL),
    command(
        "-rmdir",
        "[-ignore-fail-on-non-empty] <src>",
        (1, ANY),
        &[flag("-ignore-fail-on-non-empty", WORKS)],
    ),
    refused("-expunge", "", "name nodes empty the trash themselves"),
    command("-put", "<localsrc> ... <dst>", (2, ANY), PUT),
    command("-copyFromLocal", "<localsrc> ... <dst>", (2, ANY), PUT),
    command("-moveFromLocal", "<localsrc> ... <dst>", (2, ANY), &[]),
    command("-get", "<src> <localdst>", (2, ANY), GET),
    command("-copyToLocal", "<src> <localdst>", (2, ANY), GET),
    refused("-moveToLocal", "<src> <localdst>", "the original only lists it; use -get and -rm"),
    command("-getmerge", "<src> <localdst> [addnl]", (2, 3), &[]),
    command("-cat", "<src>", (1, ANY), &[]),
    but(
        command("-text", "<src>", (1, ANY), &[]),
        "reads gzip, plain and sequence files, these with the keys and values above",
    ),
    but(
        command("-decompress", "<src>", (1, ANY), &[]),
        "by the endings .gz, .deflate and .bz2, and those that native tasks read",
    ),
    refused("-compress", "<src> <tgt>", "pipe the file through gzip: -cat, gzip, and -put -"),
    refused("-undelete", "[-u <username>] <src>", "move the file out of .Trash with -mv"),
    refused("-filecrc", "<src>", "no sum of the whole file is made"),
    command("-mkdir", "[-p] <path>", (1, ANY), &[flag("-p", LATER)]),
    command(
        "-setrep",
        "[-R] [-w] <rep> <path/file ...>",
        (2, ANY),
        &[
            flag("-R", WORKS),
            flag(
                "-w",
                Fate::Refused("the command does not wait; see -stat or the name node's page"),
            ),
        ],
    ),
    command("-touchz", "<path>", (1, ANY), &[]),
    command("-touch", "[-acdmu] PATH...", (1, ANY), &[]),
    command("-test", "-[ezd] <path>", (2, 2), &[]),
    command("-stat", "[format] <path>", (1, 2), &[]),
    command("-head", "<file>", (1, 1), &[]),
    command("-tail", "[-f] <file>", (1, 1), &[flag("-f", WORKS)]),
    but(
        command("-chmod", "[-R] <MODE[,MODE]... | OCTALMODE> PATH...", (2, ANY), RECURSIVE),
        CHANGE,
    ),
    but(command("-chown", "[-R] [OWNER][:[GROUP]] PATH...", (2, ANY), RECURSIVE), CHANGE),
    but(command("-chgrp", "[-R] GROUP PATH...", (2, ANY), RECURSIVE), CHANGE),
    command("-help", "[cmd]", (0, 1), &[]),
];

/// Options of all commands, which stand before the command's own words. Those of streaming jobs may stand
/// between its own.
pub(in crate::commands) const GENERIC: &[Opt] = &[
    opt("-conf", "<configuration file>", WORKS),
    opt("-D", "<property=value>", Fate::Works("names of later versions count as well")),
    opt("-fs", "<local|namenode:port>", WORKS),
    opt(
        "-jt",
        "<local|jobtracker:port>",
        Fate::Works("`local` is refused: no job runs in the client"),
    ),
    opt("-files", "<paths>", WORKS),
    opt("-libjars", "<paths>", Fate::NoMeaning("no task loads classes of Java")),
    opt("-archives", "<paths>", WORKS),
];

/// How often an option of streaming may be given, and how many words follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Values {
    None,
    /// One word; the last one counts.
    One,
    /// One word, which may be repeated.
    Each,
    /// All words up to the next option; may be repeated.
    Many,
}

/// An option of streaming jobs.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct StreamOpt {
    pub(in crate::commands) option: Opt,
    pub(in crate::commands) values: Values,
}

const fn streaming(
    name: &'static str,
    value: &'static str,
    values: Values,
    fate: Fate,
) -> StreamOpt {
    StreamOpt { option: opt(name, value, fate), values }
}

const NO_CLASS: &str = "a program, or one of the classes below";

/// The options of `hadoop jar hadoop-streaming.jar`.
pub(in crate::commands) const STREAMING: &[StreamOpt] = &[
    streaming("-input", "<path>", Values::Many, WORKS),
    streaming("-output", "<path>", Values::One, WORKS),
    streaming("-mapper", "<cmd|class>", Values::One, Fate::Works(NO_CLASS)),
    streaming("-combiner", "<cmd>", Values::One, Fate::Works("a program")),
    streaming("-reducer", "<cmd|class>", Values::One, Fate::Works(NO_CLASS)),
    streaming(
        "-file",
        "<file>",
        Values::Many,
        Fate::Works("files lie in the working directory of tasks, .jar and .zip as well"),
    ),
    streaming("-inputformat", "<class>", Values::One, Fate::Works("those below")),
    streaming("-outputformat", "<class>", Values::One, Fate::Works("those below")),
    streaming("-partitioner", "<class>", Values::One, Fate::Works("those below")),
    streaming("-numReduceTasks", "<num>", Values::One, WORKS),
    streaming(
        "-inputreader",
        "<spec>",
        Values::One,
        Fate::Refused("readers of records are classes of Java"),
    ),
    streaming(
        "-io",
        "<identifier>",
        Values::One,
        Fate::Refused("of later versions: programs read and write lines of text, no typed bytes"),
    ),
    streaming("-cmdenv", "<n>=<v>", Values::Each, WORKS),
    streaming("-mapdebug", "<path>", Values::One, WORKS),
    streaming("-reducedebug", "<path>", Values::One, WORKS),
    streaming("-jobconf", "<n>=<v>", Values::Each, WORKS),
    streaming("-cacheFile", "<uri>", Values::Many, WORKS),
    streaming("-cacheArchive", "<uri>", Values::Many, WORKS),
    streaming("-dfs", "<h:p>|local", Values::One, WORKS),
    streaming("-additionalconfspec", "<file>", Values::One, WORKS),
    streaming("-background", "", Values::None, Fate::Works("of later versions")),
    streaming("-verbose", "", Values::None, WORKS),
    streaming("-info", "", Values::None, WORKS),
    streaming("-help", "", Values::None, WORKS),
    streaming("-debug", "", Values::None, Fate::NoMeaning("no jar of the job is made")),
    streaming("-inputtagged", "", Values::None, Fate::NoMeaning("the original reads it nowhere")),
];

const JAVA: &str = "needs Java: run it with the original's `hadoop`";
const DAEMON: &str = "a service of HDFS or of Java's MapReduce, which needs Java";

/// The commands of `hadoop`.
pub(in crate::commands) const COMMANDS: &[Command] = &[
    command("version", "", (0, ANY), &[]),
    command("fs", "", (0, ANY), &[]),
    command("dfs", "", (0, ANY), &[]),
    but(command("jar", "", (0, ANY), &[]), "streaming jobs; any other jar needs Java"),
    command("job", "", (0, ANY), &[]),
    but(command("coronaadmin", "", (0, ANY), &[]), "as `corona admin`"),
    but(command("coronaclient", "", (0, ANY), &[]), "as `corona client`"),
    refused("coronaclustermanager", "", "the service is `corona cluster-manager`"),
    refused("coronatasktracker", "", "the service is `corona task-tracker`"),
    refused("coronaproxyjobtracker", "", "the service is `corona proxy-job-tracker`"),
    refused("queue", "", "queues are pools: `corona pools`"),
    refused("fairscheduler", "", "pools are shown by `corona pools`"),
    refused("mradmin", "", "nodes are managed by `corona admin` and `corona nodes`"),
    refused("pipes", "", JAVA),
    refused("onejar", "", JAVA),
    refused("distcp", "", "needs Java; `hadoop fs -cp` copies from one file system to another"),
    refused("fastcopy", "", JAVA),
    refused("archive", "", JAVA),
    refused("sampler", "", JAVA),
    refused("hourglass", "", JAVA),
    refused("daemonlog", "", "levels of logs are set at start: `--log-level`"),
    refused("getconf", "", "`corona check-config` shows the configuration"),
    refused("dfsadmin", "", JAVA),
    refused("fsck", "", JAVA),
    refused("avatarfsck", "", JAVA),
    refused("raidfsck", "", JAVA),
    refused("raidshell", "", JAVA),
    refused("notifiershell", "", JAVA),
    refused("balancer", "", JAVA),
    refused("avatarbalancer", "", JAVA),
    refused("oiv", "", JAVA),
    refused("oev", "", JAVA),
    refused("oid", "", JAVA),
    refused("jmxget", "", JAVA),
    refused("avatarshell", "", JAVA),
    refused("avatarzk", "", JAVA),
    refused("namenode", "", DAEMON),
    refused("secondarynamenode", "", DAEMON),
    refused("datanode", "", DAEMON),
    refused("avatarnode", "", DAEMON),
    refused("avatardatanode", "", DAEMON),
    refused("journalnode", "", DAEMON),
    refused("raidnode", "", DAEMON),
    refused("notifier", "", DAEMON),
    refused("hdfsnfsproxy", "", DAEMON),
    refused("fsshellservice", "", DAEMON),
    refused("jobtracker", "", "the service is `corona job-tracker`"),
    refused("tasktracker", "", "the service is `corona task-tracker`"),
    refused("multitasktracker", "", "the service is `corona task-tracker`"),
];

/// The commands of `hadoop job`.
pub(in crate::commands) const JOB: &[Command] = &[
    but(command("-submit", "<job-file>", (1, 1), &[]), "as `corona job submit --no-wait`"),
    command("-status", "<job-id>", (1, 1), &[]),
    command("-counter", "<job-id> <group-name> <counter-name>", (3, 3), &[]),
    but(
        command("-kill", "<job-id>", (1, 1), &[]),
        "ends with 0; the original with 255, also if it has killed the job",
    ),
    command("-set-priority", "<job-id> <priority>", (2, 2), &[]),
    command("-events", "<job-id> <from-event-#> <#-of-events>", (3, 3), &[]),
    refused("-history", "<jobOutputDir>", "`corona jobs history JOB` shows the history of a job"),
    command("-list", "[all]", (0, 1), &[]),
    command("-list-active-trackers", "", (0, 0), &[]),
    command("-list-blacklisted-trackers", "", (0, 0), &[]),
    refused("-list-trackers", "", "`corona nodes list` shows the nodes and what runs there"),
    command("-list-attempt-ids", "<job-id> <task-type> <task-state>", (3, 3), &[]),
    command("-kill-task", "<task-id>", (1, 1), &[]),
    command("-fail-task", "<task-id>", (1, 1), &[]),
];
