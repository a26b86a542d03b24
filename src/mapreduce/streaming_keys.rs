//! The effect of each key that the original reads on the way of a streaming job.
//!
//! The list has every key that these parts of the original name: the job client, Hadoop Streaming, the
//! processes of tasks, `MapTask`, `ReduceTask`, the input and output formats of text, the partitioners and
//! comparators that native tasks know, `SkipBadRecords`, the distributed cache, the codecs and the output
//! committer. A key that changes a result is heeded, or a job that sets it does not run natively.
//! `docs/reference/native-task-keys.md` is this table, and a test compares both.

use std::fmt;

/// A key and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamingKey {
    /// Its name.
    pub name: &'static str,
    /// Its effect.
    pub fate: Fate,
    /// Its subject, or why it has no meaning here.
    pub note: &'static str,
}

/// The effect of a key on a native task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Native tasks heed it, and refuse a value that is not of this form.
    Heeded(Form),
    /// Another part of the program heeds it, for native tasks as for those of Java.
    By(Part),
    /// It changes no result of a native task.
    Meaningless,
    /// A job with another value than these does not run natively.
    Only(&'static [&'static str]),
}

/// The part of the program that heeds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The client that submits the job.
    Client,
    /// The job tracker.
    JobTracker,
    /// The task tracker.
    TaskTracker,
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any text, or a text that its reader checks.
    Text,
    /// As `corona_config` describes the key.
    Key,
    /// `true` or `false`, in lower case.
    Boolean,
    /// A whole number of Java's `int`, at least this one.
    Whole(i64),
    /// A number above 0, up to 1.
    Share,
    /// A number from 0 to 1.
    ShareOrNone,
}

impl Form {
    /// What a value should have been, if this is none. `expected` describes the values of a key that
    /// `corona_config` knows.
    pub(crate) fn wrong(self, key: &str, value: &str) -> Option<String> {
        let value = value.trim();
        let is_share =
            |least: f64| value.parse().is_ok_and(|share: f64| share >= least && share <= 1.0);
        match self {
            Form::Text => None,
            Form::Key => corona_config::keys::find(key).and_then(|key| key.wrong(value)),
            Form::Boolean if matches!(value, "true" | "false") => None,
            Form::Boolean => Some("expected true or false, in lower case".to_owned()),
            Form::Whole(least) => {
                let number = value.parse::<i32>().ok();
                let is_right = number.is_some_and(|number| i64::from(number) >= least);
                (!is_right).then(|| format!("expected a whole number from {least} to {}", i32::MAX))
            }
            Form::Share => (!is_share(f64::MIN_POSITIVE))
                .then(|| "expected a number above 0 and up to 1, such as 0.8".to_owned()),
            Form::ShareOrNone => {
                (!is_share(0.0)).then(|| "expected a number from 0 to 1, such as 0.7".to_owned())
            }
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Heeded(Form::Text | Form::Key) => f.write_str("heeded"),
            Fate::Heeded(Form::Boolean) => f.write_str("heeded: `true` or `false`"),
            Fate::Heeded(Form::Whole(least)) => write!(f, "heeded: a whole number from {least} on"),
            Fate::Heeded(Form::Share) => f.write_str("heeded: above 0, up to 1"),
            Fate::Heeded(Form::ShareOrNone) => f.write_str("heeded: 0 to 1"),
            Fate::By(Part::Client) => f.write_str("heeded by the client"),
            Fate::By(Part::JobTracker) => f.write_str("heeded by the job tracker"),
            Fate::By(Part::TaskTracker) => f.write_str("heeded by the task tracker"),
            Fate::Meaningless => f.write_str("no meaning"),
            Fate::Only([]) => f.write_str("refused"),
            Fate::Only(allowed) => {
                let allowed: Vec<String> =
                    allowed.iter().map(|value| format!("`{value}`")).collect();
                write!(f, "refused unless {}", allowed.join(" or "))
            }
        }
    }
}

const TEXT: &str = "org.apache.hadoop.io.Text";

const fn heeded(name: &'static str, form: Form, note: &'static str) -> StreamingKey {
    StreamingKey { name, fate: Fate::Heeded(form), note }
}

const fn by(part: Part, name: &'static str, note: &'static str) -> StreamingKey {
    StreamingKey { name, fate: Fate::By(part), note }
}

const fn none(name: &'static str, note: &'static str) -> StreamingKey {
    StreamingKey { name, fate: Fate::Meaningless, note }
}

const fn only(
    name: &'static str,
    allowed: &'static [&'static str],
    note: &'static str,
) -> StreamingKey {
    StreamingKey { name, fate: Fate::Only(allowed), note }
}

use Form::{Boolean, Key, Share, ShareOrNone, Text, Whole};
use Part::{Client, JobTracker, TaskTracker};

/// The table, in the order of the names.
pub const STREAMING_KEYS: &[StreamingKey] = &[
    none("corona.jobtracker.connect.timeout.msec", "patience of Java's processes"),
    none("corona.jt.call.timeout", "patience of Java's processes"),
    heeded(
        "fs.default.name",
        Text,
        "the file system of paths without one, as for all clients of files",
    ),
    none("group.name", "set by clients, read by nothing"),
    none("hadoop.log.dir", "where Java's processes log"),
    none("hadoop.native.lib", "which libraries Java loads"),
    none("hadoop.net.static.resolutions", "names of hosts in tests of the original"),
    none("hive.query.source", "read by Hive"),
    heeded(
        "io.bytes.per.checksum",
        Text,
        "checksums of files that are written, as for all clients of files",
    ),
    none("io.compression.codec.gzip.buffersize", "a buffer of Java"),
    none("io.compression.codec.lzma.buffersize", "a codec that native tasks refuse"),
    none("io.compression.codec.lzma.compresslevel", "a codec that native tasks refuse"),
    none("io.compression.codec.snappy.buffersize", "a codec that native tasks refuse"),
    heeded(
        "io.compression.codecs",
        Text,
        "which endings of input files mean that they are compressed; a class that native tasks do not know is refused",
    ),
    none("io.file.buffer.size", "a buffer of Java"),
    heeded(
        "io.seqfile.compress.blocksize",
        Text,
        "bytes of a block of sequence files that are compressed by blocks; from 1 to 67108864 for a job that writes such",
    ),
    none("io.seqfile.compression.type", "`mapred.output.compression.type` says how output is"),
    none("io.serializations", "keys and values are texts"),
    none("io.skip.checksum.errors", "a file with wrong checksums fails its task"),
    heeded("io.sort.factor", Key, "pieces of intermediate data that are merged at a time"),
    heeded("io.sort.mb", Key, "memory of a map for its output"),
    none("io.sort.mb.localmode", "tasks inside a client of Java"),
    none("io.sort.record.percent", "entries and records share the memory"),
    heeded("io.sort.spill.percent", Share, "how full that memory is when it is spilled"),
    by(JobTracker, "job.end.notification.url", "whom to notify of the end"),
    by(TaskTracker, "job.local.dir", "set for the task"),
    none("jobclient.output.filter", "what Java's client prints"),
    by(TaskTracker, "keep.failed.task.files", "keeps the files of failed attempts"),
    by(TaskTracker, "keep.task.files.pattern", "keeps the files of some attempts"),
    heeded(
        "key.value.separator.in.input.line",
        Text,
        "the first byte of it, between key and value of lines that have both",
    ),
    none("local.cache.numbersubdir", "how Java's task tracker lays out its cache"),
    by(TaskTracker, "local.cache.size", "the size of the cache of files"),
    heeded("map.input.file", Text, "set for the programs"),
    heeded("map.input.length", Text, "set for the programs"),
    heeded("map.input.start", Text, "set for the programs"),
    heeded(
        "map.output.key.field.separator",
        Text,
        "between the fields of a key, for partitioner and comparator",
    ),
    none("map.sort.class", "the order of equal keys is left open by the original"),
    none("mapred.admin.child.java.opts", "options of Java"),
    only("mapred.bigparam.path", &[], "a file that replaces a property of the job"),
    by(TaskTracker, "mapred.cache.archives", "archives for the task"),
    by(TaskTracker, "mapred.cache.archives.timestamps", "their times"),
    by(TaskTracker, "mapred.cache.files", "files for the task"),
    by(TaskTracker, "mapred.cache.files.timestamps", "their times"),
    heeded("mapred.cache.localArchives", Text, "set by the task tracker: what is linked"),
    heeded("mapred.cache.localFiles", Text, "set by the task tracker: what is linked"),
    by(TaskTracker, "mapred.cache.shared.archives", "archives that jobs share"),
    by(Client, "mapred.cache.shared.archives.length", "their sizes, for task trackers of Java"),
    by(TaskTracker, "mapred.cache.shared.enabled", "whether jobs share files"),
    by(TaskTracker, "mapred.cache.shared.files", "files that jobs share"),
    by(Client, "mapred.cache.shared.files.length", "their sizes, for task trackers of Java"),
    heeded("mapred.cache.shared.localArchives", Text, "set by the task tracker: what is linked"),
    heeded("mapred.cache.shared.localFiles", Text, "set by the task tracker: what is linked"),
    by(TaskTracker, "mapred.child.env", "variables of the process"),
    none("mapred.child.java.max.memory.mb", "a bound of Java's heap"),
    heeded(
        "mapred.child.java.opts",
        Text,
        "`-Xmx` is the memory that a reduce's shuffle is measured by",
    ),
    heeded("mapred.child.tmp", Text, "the directory for temporary files"),
    by(TaskTracker, "mapred.child.ulimit", "a bound of the memory of the process"),
    heeded(
        "mapred.combiner.class",
        Text,
        "the combiner; other classes than `PipeCombiner` are refused",
    ),
    by(
        JobTracker,
        "mapred.committer.job.setup.cleanup.needed",
        "whether the job is set up and cleaned up",
    ),
    by(JobTracker, "mapred.committer.task.cleanup.needed", "whether attempts are cleaned up after"),
    heeded("mapred.compress.map.output", Boolean, "whether intermediate data is compressed"),
    none("mapred.copier.max.mapoutput.per.host", "how Java's reduces spread their fetches"),
    heeded(
        "mapred.create.symlink",
        Text,
        "`yes`: files of the cache are linked in the working directory",
    ),
    none("mapred.dfsclient.parallelism.max", "threads of Java's client"),
    heeded(
        "mapred.direct.task.umbilical.address",
        Text,
        "set by the task tracker: where a reduce learns of maps",
    ),
    heeded("mapred.direct.task.umbilical.secondary", Text, "the same after a failure"),
    heeded("mapred.event.sleep.ms", Whole(1), "pause between questions for finished maps"),
    none("mapred.fairscheduler.server.address", "another scheduler"),
    none("mapred.fileinputformat.verifysplits", "a check of Java's client"),
    none("mapred.inmem.merge.threshold", "outputs in memory are merged by their size"),
    by(Client, "mapred.input.dir", "what the job reads"),
    by(Client, "mapred.input.dir.recursive", "whether directories inside it are read"),
    only(
        "mapred.input.format.class",
        &[
            "org.apache.hadoop.mapred.TextInputFormat",
            "org.apache.hadoop.mapred.KeyValueTextInputFormat",
            "org.apache.hadoop.mapred.lib.NLineInputFormat",
            "org.apache.hadoop.mapred.SequenceFileInputFormat",
            "org.apache.hadoop.mapred.SequenceFileAsTextInputFormat",
        ],
        "the input format",
    ),
    by(
        Client,
        "mapred.input.pathFilter.class",
        "refused where the client makes the splits: a class that chooses files",
    ),
    heeded("mapred.jar", Text, "what is unpacked from it is linked in the working directory"),
    by(JobTracker, "mapred.job.finish.when.reduces.done", "ends a job before its maps"),
    by(TaskTracker, "mapred.job.id", "set for the task"),
    by(TaskTracker, "mapred.job.map.memory.mb", "memory of a map"),
    by(JobTracker, "mapred.job.name", "the name of the job"),
    by(JobTracker, "mapred.job.priority", "the priority of the job"),
    by(JobTracker, "mapred.job.queue.name", "the queue of the job"),
    none(
        "mapred.job.reduce.input.buffer.percent",
        "how much stays in memory between shuffle and reduce",
    ),
    by(TaskTracker, "mapred.job.reduce.memory.mb", "memory of a reduce"),
    heeded(
        "mapred.job.reduce.total.mem.bytes",
        Key,
        "memory that a reduce's shuffle is measured by",
    ),
    none("mapred.job.reuse.jvm.num.tasks", "each native task has a process of its own"),
    heeded(
        "mapred.job.shuffle.input.buffer.percent",
        ShareOrNone,
        "how much of its memory a reduce fetches into",
    ),
    heeded(
        "mapred.job.shuffle.merge.percent",
        ShareOrNone,
        "how full that is when it is merged to disk",
    ),
    by(Client, "mapred.job.split.file", "where the splits are"),
    by(Client, "mapred.job.tracker", "the job tracker"),
    none("mapred.job.tracker.class", "which client of Java is used"),
    none("mapred.jobcleanup.child.java.opts", "options of Java"),
    none("mapred.jobsetup.child.java.opts", "options of Java"),
    by(Client, "mapred.jobtracker.maxtasks.per.job", "the most tasks of a job"),
    by(Client, "mapred.line.input.format.linespermap", "lines of a split of `NLineInputFormat`"),
    heeded(
        "mapred.linerecordreader.maxlength",
        Whole(1),
        "a line of so many bytes or more, its end included, is left out",
    ),
    by(TaskTracker, "mapred.local.dir", "directories for intermediate data"),
    none("mapred.map.bigrecord.spill.warn.threshold", "a warning"),
    by(TaskTracker, "mapred.map.child.env", "variables of the process"),
    none("mapred.map.child.java.opts", "options of Java"),
    by(TaskTracker, "mapred.map.child.ulimit", "a bound of the memory of the process"),
    none("mapred.map.lastspill.memory", "memory of Java"),
    by(JobTracker, "mapred.map.max.attempts", "attempts of a map"),
    none("mapred.map.output.blockcollector", "another way to the same output"),
    heeded(
        "mapred.map.output.compression.codec",
        Text,
        "how intermediate data is compressed; other codecs than `DefaultCodec` and `GzipCodec` are refused",
    ),
    heeded("mapred.map.runner.class", Text, "other classes than `PipeMapRunner` are refused"),
    by(TaskTracker, "mapred.map.task.debug.script", "what runs after a failure"),
    by(Client, "mapred.map.tasks", "how many maps there should be"),
    by(JobTracker, "mapred.map.tasks.speculative.execution", "second attempts of slow maps"),
    only("mapred.mapoutput.key.class", &[TEXT], "the class of intermediate keys"),
    only("mapred.mapoutput.value.class", &[TEXT], "the class of intermediate values"),
    heeded("mapred.mapper.class", Text, "the mapper; other classes than `PipeMapper` are refused"),
    only("mapred.mapper.new-api", &["false"], "another interface of mappers"),
    by(JobTracker, "mapred.max.map.failures.percent", "maps that may fail"),
    by(JobTracker, "mapred.max.reduce.failures.percent", "reduces that may fail"),
    none("mapred.max.tracker.failures", "read by Hadoop's job tracker, not by Corona's"),
    none("mapred.merge.recordsBeforeProgress", "each record is progress"),
    by(Client, "mapred.min.split.size", "the smallest split"),
    only(
        "mapred.output.committer.class",
        &["org.apache.hadoop.mapred.FileOutputCommitter"],
        "how the output is committed",
    ),
    heeded("mapred.output.compress", Boolean, "whether the output is compressed"),
    heeded(
        "mapred.output.compression.codec",
        Text,
        "how it is; other codecs than those of the table of formats are refused",
    ),
    only(
        "mapred.output.compression.type",
        &["NONE", "RECORD", "BLOCK"],
        "what of a sequence file is compressed",
    ),
    heeded("mapred.output.dir", Text, "where the output goes"),
    only(
        "mapred.output.format.class",
        &[
            "org.apache.hadoop.mapred.TextOutputFormat",
            "org.apache.hadoop.mapred.SequenceFileOutputFormat",
        ],
        "the output format",
    ),
    only("mapred.output.key.class", &[TEXT], "the class of the output's keys"),
    only(
        "mapred.output.key.comparator.class",
        &["org.apache.hadoop.mapred.lib.KeyFieldBasedComparator"],
        "the order of keys",
    ),
    only("mapred.output.value.class", &[TEXT], "the class of the output's values"),
    only("mapred.output.value.groupfn.class", &[], "which keys are one group"),
    heeded(
        "mapred.partitioner.class",
        Text,
        "the reduce of a key; other classes than `HashPartitioner` and `KeyFieldBasedPartitioner` are refused",
    ),
    by(TaskTracker, "mapred.reduce.child.env", "variables of the process"),
    none("mapred.reduce.child.java.opts", "options of Java"),
    by(TaskTracker, "mapred.reduce.child.ulimit", "a bound of the memory of the process"),
    none(
        "mapred.reduce.copy.backoff.max",
        "`corona.task.shuffle.retry.ms` and `corona.task.shuffle.abort.failures` bound repeated fetches",
    ),
    none("mapred.reduce.input.order.verify", "a check of Java's merges"),
    by(JobTracker, "mapred.reduce.max.attempts", "attempts of a reduce"),
    heeded("mapred.reduce.parallel.copies", Key, "fetches at a time"),
    by(TaskTracker, "mapred.reduce.task.debug.script", "what runs after a failure"),
    heeded("mapred.reduce.tasks", Whole(0), "how many reduces there are"),
    by(JobTracker, "mapred.reduce.tasks.speculative.execution", "second attempts of slow reduces"),
    heeded(
        "mapred.reducer.class",
        Text,
        "the reducer; other classes than `PipeReducer` and `IdentityReducer` are refused",
    ),
    only("mapred.reducer.new-api", &["false"], "another interface of reducers"),
    only("mapred.seqfile.tolerate.corruptions", &["false"], "damaged files that end early"),
    by(
        JobTracker,
        "mapred.skip.attempts.to.start.skipping",
        "failures before records are left out",
    ),
    heeded(
        "mapred.skip.map.auto.incr.proc.count",
        Boolean,
        "whether built-in mappers count what they have processed",
    ),
    heeded("mapred.skip.map.max.skip.records", Key, "records that may be left out"),
    heeded("mapred.skip.on", Text, "set for the programs"),
    heeded("mapred.skip.out.dir", Text, "where records that were left out are written"),
    heeded(
        "mapred.skip.reduce.auto.incr.proc.count",
        Boolean,
        "whether built-in reducers count what they have processed",
    ),
    heeded("mapred.skip.reduce.max.skip.groups", Key, "keys that may be left out"),
    none("mapred.socket.timeout", "patience of Java's processes"),
    by(JobTracker, "mapred.speculative.map.duration", "when a map is slow"),
    by(JobTracker, "mapred.speculative.map.lag", "when a map is slow"),
    by(JobTracker, "mapred.speculative.reduce.duration", "when a reduce is slow"),
    by(JobTracker, "mapred.speculative.reduce.lag", "when a reduce is slow"),
    none(
        "mapred.submit.replication",
        "replicas of the files of a job; their file system has its default",
    ),
    none("mapred.task.default.maxvmem", "replaced by `mapred.job.map.memory.mb` in the original"),
    by(TaskTracker, "mapred.task.id", "set for the task"),
    by(TaskTracker, "mapred.task.is.map", "set for the task"),
    none("mapred.task.limit.maxvmem", "replaced by `mapred.job.map.memory.mb` in the original"),
    none("mapred.task.maxpmem", "read by nothing"),
    none("mapred.task.maxvmem", "replaced by `mapred.job.map.memory.mb` in the original"),
    by(TaskTracker, "mapred.task.partition", "set for the task"),
    by(TaskTracker, "mapred.task.profile", "whether some tasks are profiled"),
    by(TaskTracker, "mapred.task.profile.maps", "which maps"),
    heeded("mapred.task.profile.params", Text, "what profiles them"),
    by(TaskTracker, "mapred.task.profile.reduces", "which reduces"),
    by(TaskTracker, "mapred.task.timeout", "how long a task may make no progress"),
    none("mapred.taskcleanup.child.java.opts", "options of Java"),
    only(
        "mapred.taskrunner.child.class",
        &["org.apache.hadoop.mapred.CoronaChild", "org.apache.hadoop.mapred.Child"],
        "the class of Java's process",
    ),
    none("mapred.taskrunner.custom.runner", "what starts Java"),
    none("mapred.taskrunner.custom.runner.enable", "what starts Java"),
    none("mapred.taskrunner.custom.runner.maps", "what starts Java"),
    none("mapred.taskrunner.custom.runner.reduces", "what starts Java"),
    none("mapred.tasktracker.log.dir", "where Java's task tracker logs"),
    heeded(
        "mapred.text.key.comparator.options",
        Text,
        "the parts of keys that order them, as `sort -k` has them",
    ),
    heeded("mapred.text.key.partitioner.options", Text, "the parts of keys that choose the reduce"),
    heeded("mapred.textoutputformat.separator", Text, "between key and value of the output"),
    by(TaskTracker, "mapred.tip.id", "set for the task"),
    none("mapred.used.genericoptionsparser", "a warning of Java's client"),
    by(TaskTracker, "mapred.userlog.limit.kb", "the size of logs"),
    heeded("mapred.work.output.dir", Text, "set for the programs"),
    by(Client, "mapred.working.dir", "where relative paths begin"),
    heeded(
        "mapreduce.fileoutputcommitter.marksuccessfuljobs",
        Boolean,
        "whether a complete output has a file `_SUCCESS`",
    ),
    heeded("mapreduce.reduce.shuffle.connect.timeout", Key, "patience for a connection to a node"),
    heeded(
        "mapreduce.reduce.shuffle.maxfetchfailures",
        Key,
        "failures after which a map is reported",
    ),
    none("mapreduce.reduce.shuffle.notify.readerror", "each failed fetch counts"),
    heeded("mapreduce.reduce.shuffle.read.timeout", Key, "patience for bytes of a node"),
    heeded("min.num.spills.for.combine", Key, "spills from which on they are combined again"),
    heeded("num.key.fields.for.partition", Whole(0), "how many fields of a key choose the reduce"),
    none("session.id", "read by nothing"),
    heeded("stream.addenvironment", Text, "variables of the programs"),
    heeded("stream.combine.streamprocessor", Text, "the combiner"),
    none("stream.jobLog_", "a log of Java"),
    only("stream.joindelay.milli", &["0"], "after the end of a program its last lines may be lost"),
    only("stream.key_value.class", &["Text"], "the class of keys and values"),
    only(
        "stream.map.input",
        &["text"],
        "of later versions: the form of records, such as typed bytes",
    ),
    heeded(
        "stream.map.input.field.separator",
        Text,
        "between key and value of a mapper's input, which has no keys",
    ),
    heeded(
        "stream.map.input.ignoreKey",
        Boolean,
        "whether a mapper gets values alone; lines of text have no keys in any case",
    ),
    only("stream.map.input.ignoreNewLine", &["false"], "lines without ends"),
    only("stream.map.input.serializer.class", &[], "how the mapper's input is written"),
    only("stream.map.input.writer.class", &[], "of later versions: the same by a class"),
    only("stream.map.output", &["text"], "of later versions: the form of records"),
    heeded("stream.map.output.field.separator", Text, "between the fields of the mapper's lines"),
    only("stream.map.output.reader.class", &[], "of later versions: the same by a class"),
    heeded("stream.map.streamprocessor", Text, "the mapper"),
    only("stream.minRecWrittenToEnableSkip_", &[], "programs that end early without a failure"),
    heeded("stream.non.zero.exit.is.failure", Boolean, "whether an exit status fails the task"),
    heeded(
        "stream.num.map.output.key.fields",
        Whole(0),
        "how many fields of the mapper's lines are the key",
    ),
    heeded(
        "stream.num.reduce.output.key.fields",
        Whole(0),
        "how many fields of the reducer's lines are the key",
    ),
    none("stream.numinputspecs", "read by nothing"),
    only("stream.recordreader.class", &[], "how the input is read"),
    only("stream.reduce.input", &["text"], "of later versions: the form of records"),
    heeded(
        "stream.reduce.input.field.separator",
        Text,
        "between key and value of the reducer's input",
    ),
    heeded("stream.reduce.input.ignoreKey", Boolean, "whether a reducer gets values alone"),
    only("stream.reduce.input.ignoreNewLine", &["false"], "lines without ends"),
    only("stream.reduce.input.serializer.class", &[], "how the reducer's input is written"),
    only("stream.reduce.input.writer.class", &[], "of later versions: the same by a class"),
    only("stream.reduce.output", &["text"], "of later versions: the form of records"),
    heeded(
        "stream.reduce.output.field.separator",
        Text,
        "between the fields of the reducer's lines",
    ),
    only("stream.reduce.output.reader.class", &[], "of later versions: the same by a class"),
    heeded("stream.reduce.streamprocessor", Text, "the reducer"),
    none("stream.shipped.hadoopstreaming", "where Java's client finds its jar"),
    heeded("stream.stderr.reporter.prefix", Text, "what lines of stderr for the task begin with"),
    none("stream.tmpdir", "where Java's client makes its jar"),
    only("textinputformat.record.delimiter", &[], "another end of lines"),
    by(Client, "tmparchives", "archives to ship with the job"),
    by(Client, "tmpfiles", "files to ship with the job"),
    by(Client, "tmpjars", "jars to ship with the job"),
    none("total.order.partitioner.max.trie.depth", "`TotalOrderPartitioner` is refused"),
    none("total.order.partitioner.natural.order", "`TotalOrderPartitioner` is refused"),
    none("total.order.partitioner.path", "`TotalOrderPartitioner` is refused"),
    by(JobTracker, "user.name", "the user of the job"),
];

/// The row of a key.
pub fn find(name: &str) -> Option<&'static StreamingKey> {
    let at = STREAMING_KEYS.binary_search_by(|key| key.name.cmp(name)).ok()?;
    STREAMING_KEYS.get(at)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::native::NotNative;
    use crate::native::tests::with;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The sources below some folders, without the tables of keys.
    fn sources(folders: &[&str]) -> String {
        let mut text = String::new();
        let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|ending| ending == "rs")
                && !path.ends_with("streaming_keys.rs")
                && !path.ends_with("config/keys.rs")
            {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
        text
    }

    /// Whether sources name a key, or its constant in `corona_config::keys`.
    fn reads(sources: &str, keys: &str, name: &str) -> bool {
        let constant = keys.lines().find_map(|line| {
            let (constant, rest) = line.trim().split_once(" = \"")?;
            rest.starts_with(&format!("{name}\"")).then(|| format!("keys::{constant}"))
        });
        let of_both_sides = name.replace("map", "{side}").replace("reduce", "{side}");
        [name, &of_both_sides].iter().any(|name| sources.contains(&format!("\"{name}\"")))
            || constant.is_some_and(|it| sources.contains(&it))
    }

    #[test]
    fn the_table_is_in_order_and_each_key_has_one_row() {
        assert!(STREAMING_KEYS.is_sorted_by(|one, other| one.name < other.name));
        assert_eq!(find("io.sort.mb").map(|key| key.name), Some("io.sort.mb"));
        assert_eq!(find("io.sort"), None);
        for key in STREAMING_KEYS.iter().filter(|key| key.fate == Fate::Heeded(Form::Key)) {
            assert!(corona_config::keys::find(key.name).is_some(), "{}", key.name);
        }
    }

    #[test]
    fn a_key_that_is_heeded_is_read_by_the_part_that_heeds_it() {
        let keys = fs::read_to_string(root().join("src/config/keys.rs")).unwrap();
        // All parts read `mapreduce::settings` and the settings of file systems through `config`.
        let of = |folders: &[&str]| sources(&[&["src/mapreduce", "src/config"], folders].concat());
        let native = of(&["src/task", "src/filesystem"]);
        let client = of(&["src/commands"]);
        let job_tracker = of(&["src/job_tracker", "src/job_engine"]);
        let task_tracker = of(&["src/task_tracker"]);
        let unread = STREAMING_KEYS.iter().filter(|key| {
            let sources = match key.fate {
                Fate::Heeded(_) => &native,
                Fate::By(Part::Client) => &client,
                Fate::By(Part::JobTracker) => &job_tracker,
                Fate::By(Part::TaskTracker) => &task_tracker,
                Fate::Meaningless | Fate::Only(_) => return false,
            };
            !reads(sources, &keys, key.name)
        });
        let unread: Vec<String> = unread.map(|key| format!("{}: {}", key.name, key.fate)).collect();
        assert!(unread.is_empty(), "nothing reads {unread:#?}");
    }

    /// The properties that native tasks read have a row, so the table does not fall behind.
    #[test]
    fn a_key_that_native_tasks_read_has_a_row_that_says_so() {
        let native = sources(&["src/task", "src/mapreduce/native.rs"]);
        let prefixes = ["mapred.", "mapreduce.", "stream.", "io.", "map.", "textinputformat."];
        let mut found = 0;
        for quoted in native.split('"').filter(|text| prefixes.iter().any(|p| text.starts_with(p)))
        {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if !quoted.chars().all(is_name) || quoted.ends_with('.') {
                continue;
            }
            let row = find(quoted).unwrap_or_else(|| panic!("{quoted} has no row"));
            assert_ne!(row.fate, Fate::Meaningless, "{quoted}");
            found += 1;
        }
        assert!(found > 50, "{found}");
    }

    #[test]
    fn a_value_that_only_java_heeds_is_refused_with_its_key() {
        let keys = STREAMING_KEYS.iter().filter_map(|key| match key.fate {
            Fate::Only(allowed) => Some((key.name, allowed)),
            _ => None,
        });
        let mut count = 0;
        for (key, allowed) in keys {
            let refused = with(&[(key, "com.x.Other")]).unwrap_err();
            let value = "com.x.Other".to_owned();
            assert_eq!(refused, NotNative::Class { key, value }, "{key}");
            let text = refused.to_string();
            assert!(text.contains(key) && text.contains("com.x.Other"), "{text}");
            assert!(text.contains("nodes with Java do"), "{text}");
            for value in allowed.iter().chain([&""]) {
                with(&[(key, value)]).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
            }
            count += 1;
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_expected_one() {
        let mut count = 0;
        for key in STREAMING_KEYS {
            let (wrong, right): (&[&str], _) = match key.fate {
                Fate::Heeded(Form::Boolean) => (&["TRUE", "yes", "1"], "false"),
                Fate::Heeded(Form::Whole(_)) => (&["-1", "many", "1.5", "2147483648"], "1"),
                Fate::Heeded(Form::Share) => (&["0", "-0.1", "1.01", "much", "NaN"], "0.5"),
                Fate::Heeded(Form::ShareOrNone) => (&["-0.1", "1.01", "much"], "0"),
                Fate::Heeded(Form::Key) => (&["many", "-1", "1.5"], "7"),
                _ => continue,
            };
            for wrong in wrong {
                let refused = with(&[(key.name, wrong)]).unwrap_err().to_string();
                let begin = format!("{}: value {wrong:?} cannot be used; ", key.name);
                assert!(refused.starts_with(&begin) && refused.contains("expected"), "{refused}");
            }
            with(&[(key.name, right)]).unwrap();
            count += 1;
        }
        assert!(count > 25, "{count}");
    }

    /// `CORONA_WRITE_DOCS=1 cargo test -p corona-mapreduce streaming_keys` writes the page.
    #[test]
    fn the_documentation_has_the_table() {
        let page = root().join("docs/reference/native-task-keys.md");
        let written = fs::read_to_string(&page).unwrap();
        let (head, _) = written.split_once("| key |").unwrap();
        let mut expected = format!("{head}| key | native tasks | about |\n|---|---|---|\n");
        for key in STREAMING_KEYS {
            expected.push_str(&format!("| `{}` | {} | {} |\n", key.name, key.fate, key.note));
        }
        if std::env::var_os("CORONA_WRITE_DOCS").is_some() {
            fs::write(&page, &expected).unwrap();
        }
        assert!(
            fs::read_to_string(&page).unwrap() == expected,
            "CORONA_WRITE_DOCS=1 writes the page again"
        );
    }
}
