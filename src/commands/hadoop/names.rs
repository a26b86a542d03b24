//! Names that later versions of the original gave to keys and classes, and their names in this version.

/// Keys: the later name, and that of this version.
const KEYS: &[(&str, &str)] = &[
    ("fs.defaultFS", "fs.default.name"),
    ("mapreduce.job.name", "mapred.job.name"),
    ("mapreduce.job.reduces", "mapred.reduce.tasks"),
    ("mapreduce.job.maps", "mapred.map.tasks"),
    ("mapreduce.job.queuename", "mapred.job.queue.name"),
    ("mapreduce.job.priority", "mapred.job.priority"),
    ("mapreduce.job.user.name", "user.name"),
    ("mapreduce.jobtracker.address", "mapred.job.tracker"),
    ("mapreduce.job.output.key.comparator.class", "mapred.output.key.comparator.class"),
    ("mapreduce.job.partitioner.class", "mapred.partitioner.class"),
    ("mapreduce.partition.keycomparator.options", "mapred.text.key.comparator.options"),
    ("mapreduce.partition.keypartitioner.options", "mapred.text.key.partitioner.options"),
    ("mapreduce.map.output.key.field.separator", "map.output.key.field.separator"),
    ("mapreduce.map.output.compress", "mapred.compress.map.output"),
    ("mapreduce.map.output.compress.codec", "mapred.map.output.compression.codec"),
    ("mapreduce.output.fileoutputformat.compress", "mapred.output.compress"),
    ("mapreduce.output.fileoutputformat.compress.codec", "mapred.output.compression.codec"),
    ("mapreduce.output.textoutputformat.separator", "mapred.textoutputformat.separator"),
    ("mapreduce.input.fileinputformat.split.minsize", "mapred.min.split.size"),
    ("mapreduce.input.fileinputformat.input.dir.recursive", "mapred.input.dir.recursive"),
    ("mapreduce.input.linerecordreader.line.maxlength", "mapred.linerecordreader.maxlength"),
    (
        "mapreduce.input.keyvaluelinerecordreader.key.value.separator",
        "key.value.separator.in.input.line",
    ),
    ("mapreduce.input.lineinputformat.linespermap", "mapred.line.input.format.linespermap"),
    ("mapreduce.map.memory.mb", "mapred.job.map.memory.mb"),
    ("mapreduce.reduce.memory.mb", "mapred.job.reduce.memory.mb"),
    ("mapreduce.map.maxattempts", "mapred.map.max.attempts"),
    ("mapreduce.reduce.maxattempts", "mapred.reduce.max.attempts"),
    ("mapreduce.map.failures.maxpercent", "mapred.max.map.failures.percent"),
    ("mapreduce.reduce.failures.maxpercent", "mapred.max.reduce.failures.percent"),
    ("mapreduce.map.speculative", "mapred.map.tasks.speculative.execution"),
    ("mapreduce.reduce.speculative", "mapred.reduce.tasks.speculative.execution"),
    ("mapreduce.task.timeout", "mapred.task.timeout"),
    ("mapreduce.task.io.sort.mb", "io.sort.mb"),
    ("mapreduce.task.io.sort.factor", "io.sort.factor"),
];

/// The name that this version has for a key.
pub(in crate::commands) fn of_this_version(key: &str) -> &str {
    KEYS.iter().find(|(later, _)| *later == key).map_or(key, |(_, name)| *name)
}

/// The name that this version has for a class.
pub(in crate::commands) fn class_of_this_version(class: &str) -> &str {
    match class {
        "org.apache.hadoop.mapreduce.lib.partition.KeyFieldBasedPartitioner" => {
            "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner"
        }
        "org.apache.hadoop.mapreduce.lib.partition.KeyFieldBasedComparator" => {
            "org.apache.hadoop.mapred.lib.KeyFieldBasedComparator"
        }
        "org.apache.hadoop.mapreduce.lib.partition.HashPartitioner" => {
            "org.apache.hadoop.mapred.lib.HashPartitioner"
        }
        other => other,
    }
}
