package org.apache.hadoop.mapred;

import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URI;
import java.net.URLConnection;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.zip.CRC32;
import javax.xml.parsers.DocumentBuilderFactory;
import org.apache.hadoop.mapred.HadoopRpc.Parameter;
import org.apache.hadoop.mapred.Wire.Attempt;
import org.apache.hadoop.mapred.Wire.Status;
import org.apache.hadoop.mapred.Wire.Task;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;

/**
 * A child of a task tracker, for tests on machines without a Hadoop install. It has the name of the original's
 * class, since task trackers start that, and talks as the original does; see docs/reference/spec,
 * mapreduce/04 §4.5, §4.6.
 * Nothing in it is the original's.
 *
 * Its job is the original's example job "sleep", without the sleep: each map has sleep.job.map.sleep.count records
 * and emits mapred.reduce.tasks times sleep.job.reduce.sleep.count; test.java.act names something else to do.
 */
public final class CoronaChild {
    private static final int UNKNOWN_ATTEMPT = 66;
    private static final String[] LOGS = {"stdout", "stderr", "syslog"};

    private final HadoopRpc umbilical;
    private final Task task;
    private final Map<String, String> conf;
    private final Status status;
    /** The attempt that this process was started for, in whose directory the logs are. */
    private final Attempt first;
    /** Where the part of this attempt begins in each log. */
    private final Map<String, Long> starts = new HashMap<>();
    private volatile boolean ended;

    private CoronaChild(HadoopRpc umbilical, Task task, Attempt first) throws Exception {
        this.first = first;
        this.umbilical = umbilical;
        this.task = task;
        this.status = task.status;
        this.conf = properties(new File(task.jobFile));
    }

    /** Arguments: where to report to, host and port; the attempt; the number of this process. */
    public static void main(String[] arguments) throws Exception {
        Attempt attempt = Attempt.parse(arguments[2]);
        int number = Integer.parseInt(arguments[3]);
        String pid = System.getenv("JVM_PID");
        if (!pid.equals(Long.toString(ProcessHandle.current().pid()))) {
            throw new IllegalStateException("JVM_PID is " + pid);
        }
        for (String name : new String[] {"java.library.path", "java.io.tmpdir", "java.class.path", "hadoop.log.dir",
            "hadoop.root.logger", "hadoop.tasklog.taskid", "user.dir", "test.profile"}) {
            System.out.println(name + "=" + System.getProperty(name));
        }
        HadoopRpc umbilical = new HadoopRpc(arguments[0], Integer.parseInt(arguments[1]),
            "org.apache.hadoop.mapred.TaskUmbilicalProtocol", 18, 937413979);
        for (int executed = 1; ; executed++) {
            Task task = task(umbilical, attempt, number, pid);
            if (task == null) {
                return;
            }
            CoronaChild child = new CoronaChild(umbilical, task, attempt);
            // As the original: no further task after one that has failed.
            if (!child.run() || executed == child.number("mapred.job.reuse.jvm.num.tasks")) {
                return;
            }
        }
    }

    /** Asks until there is a task; null if the process is to end. */
    private static Task task(HadoopRpc umbilical, Attempt attempt, int number, String pid) throws Exception {
        while (true) {
            boolean[] mustDie = new boolean[1];
            Task task = umbilical.call("getTask", in -> {
                HadoopRpc.object(in, "org.apache.hadoop.mapred.JvmTask");
                mustDie[0] = in.readBoolean();
                return in.readBoolean() ? Task.read(in) : null;
            }, Parameter.of("org.apache.hadoop.mapred.JvmContext", out -> {
                out.writeInt(number);
                attempt.writeJob(out);
                out.writeBoolean(attempt.isMap);
                Wire.writeText(out, pid);
            }));
            if (mustDie[0] || task != null) {
                return task;
            }
            Thread.sleep(500);
        }
    }

    /** Whether the task went well. */
    private boolean run() throws Exception {
        if (status.state.equals("UNASSIGNED")) {
            status.state = "RUNNING";
        }
        Thread communication = new Thread(this::stayKnown, "communication");
        communication.setDaemon(true);
        communication.start();
        markLogs();
        System.out.println("task " + task.attempt + " in process " + ProcessHandle.current().pid());
        writeLogIndex();
        boolean isDone = false;
        try {
            work();
            ended = true;
            umbilical.call("done", HadoopRpc::readVoid, attempt());
            isDone = true;
        } catch (Exception exception) {
            // As the original: it cleans up, says what it has met, and ends well.
            ended = true;
            synchronized (status) {
                status.phase = "CLEANUP";
                update();
            }
            StringWriter text = new StringWriter();
            exception.printStackTrace(new PrintWriter(text));
            umbilical.call("reportDiagnosticInfo", HadoopRpc::readVoid, attempt(), Parameter.of(text.toString()));
        }
        writeLogIndex();
        return isDone;
    }

    private void work() throws Exception {
        if (task.isJobSetup) {
            status.stateString = "setup";
        } else if (task.isJobCleanup || task.isTaskCleanup) {
            status.phase = "CLEANUP";
            status.stateString = "cleanup";
            update();
        } else {
            act(conf.getOrDefault("test.java.act", ""));
            if (task.attempt.isMap) {
                map();
            } else {
                reduce();
            }
        }
    }

    private void act(String what) throws Exception {
        switch (what) {
            case "":
                return;
            case "throw":
                throw new IOException("this task is to fail");
            case "exit":
                System.exit(3);
                return;
            case "merge": {
                Path merged = Paths.get(localDirs()[0], task.attempt.toString(), "intermediate.0");
                Files.createDirectories(merged.getParent());
                Files.write(merged, new byte[1 << 20]);
                status.stateString = "merges " + merged;
                update();
                Thread.sleep(600_000);
                return;
            }
            default:
                throw new IllegalArgumentException("test.java.act: " + what);
        }
    }

    private void map() throws Exception {
        int reduces = number("mapred.reduce.tasks");
        int records = number("sleep.job.map.sleep.count");
        int emitted = reduces * number("sleep.job.reduce.sleep.count");
        List<List<Integer>> parts = new ArrayList<>();
        for (int reduce = 0; reduce < reduces; reduce++) {
            parts.add(new ArrayList<>());
        }
        for (int key = 0; key < emitted; key++) {
            parts.get(key % reduces).add(key);
        }
        status.add("MAP_INPUT_RECORDS", records);
        status.add("MAP_OUTPUT_RECORDS", emitted);
        Path output = Paths.get(localDirs()[0], "taskTracker", "jobcache", task.attempt.jobName(),
            task.attempt.toString(), "output");
        Files.createDirectories(output);
        ByteArrayOutputStream file = new ByteArrayOutputStream();
        ByteArrayOutputStream index = new ByteArrayOutputStream();
        DataOutputStream indexes = new DataOutputStream(index);
        for (List<Integer> part : parts) {
            ByteArrayOutputStream segment = new ByteArrayOutputStream();
            DataOutputStream keys = new DataOutputStream(segment);
            for (int key : part) {
                Wire.writeVLong(keys, 4);
                Wire.writeVLong(keys, 0);
                keys.writeInt(key);
            }
            Wire.writeVLong(keys, -1);
            Wire.writeVLong(keys, -1);
            indexes.writeLong(file.size());
            indexes.writeLong(segment.size());
            keys.writeInt((int) checksum(segment.toByteArray(), segment.size()));
            indexes.writeLong(segment.size());
            segment.writeTo(file);
        }
        indexes.writeLong(checksum(index.toByteArray(), index.size()));
        Files.write(output.resolve("file.out"), file.toByteArray());
        Files.write(output.resolve("file.out.index"), index.toByteArray());
        status.progress = 1;
        update();
    }

    private void reduce() throws Exception {
        String[] tracker = conf.get("mapred.direct.task.umbilical.address").split(":");
        HadoopRpc jobTracker = new HadoopRpc(tracker[0], Integer.parseInt(tracker[1]),
            "org.apache.hadoop.mapred.InterTrackerProtocol", 29, -746823657);
        status.phase = "SHUFFLE";
        Set<Integer> fetched = new HashSet<>();
        List<Integer> keys = new ArrayList<>();
        int[] events = new int[1];
        while (fetched.size() < task.maps) {
            Map<Attempt, String> outputs = jobTracker.call("getTaskCompletionEvents", in -> events(in, events),
                Parameter.of("org.apache.hadoop.mapred.JobID", task.attempt::writeJob),
                Parameter.of(events[0]), Parameter.of(Integer.MAX_VALUE));
            for (Map.Entry<Attempt, String> output : outputs.entrySet()) {
                if (fetched.add(output.getKey().task)) {
                    keys.addAll(fetch(output.getValue(), output.getKey()));
                }
            }
            update();
            Thread.sleep(50);
        }
        status.shuffleFinished = System.currentTimeMillis();
        status.phase = "SORT";
        update();
        status.sortFinished = System.currentTimeMillis();
        status.phase = "REDUCE";
        // The example's reduce looks at no value, and only those looked at count.
        status.add("REDUCE_INPUT_RECORDS", 0);
        status.add("REDUCE_INPUT_GROUPS", new TreeSet<>(keys).size());
        status.add("REDUCE_OUTPUT_RECORDS", 0);
        status.progress = 1;
        update();
        if (conf.containsKey("test.java.commit")) {
            commit();
        }
    }

    /** The maps whose output can be fetched, and where. */
    private static Map<Attempt, String> events(DataInputStream in, int[] read) throws IOException {
        Map<Attempt, String> outputs = new LinkedHashMap<>();
        HadoopRpc.expect("[Lorg.apache.hadoop.mapred.TaskCompletionEvent;", Wire.readUtf8(in));
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            HadoopRpc.object(in, "org.apache.hadoop.mapred.TaskCompletionEvent");
            Attempt attempt = Attempt.read(in);
            Wire.readVLong(in);
            boolean isMap = in.readBoolean();
            String state = Wire.readText(in);
            String from = Wire.readWString(in);
            Wire.readVLong(in);
            Wire.readVLong(in);
            if (isMap && state.equals("SUCCEEDED")) {
                outputs.put(attempt, from);
            }
        }
        read[0] += count;
        return outputs;
    }

    /** The keys of a map's output for this reduce, by Java's own HTTP client. */
    private List<Integer> fetch(String from, Attempt map) throws IOException {
        URLConnection connection = URI.create(from + "/mapOutput?job=" + task.attempt.jobName() + "&map=" + map
            + "&reduce=" + task.attempt.task).toURL().openConnection();
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(connection.getInputStream()))) {
            HadoopRpc.expect(map.toString(), Wire.readText(in));
            byte[] segment = new byte[(int) Wire.readVLong(in)];
            long raw = Wire.readVLong(in);
            if (Wire.readVLong(in) != task.attempt.task || !in.readBoolean() || raw != segment.length - 4) {
                throw new IOException("not the output of " + map);
            }
            in.readFully(segment);
            status.add("REDUCE_SHUFFLE_BYTES", segment.length);
            DataInputStream records = new DataInputStream(new ByteArrayInputStream(segment));
            List<Integer> keys = new ArrayList<>();
            while (Wire.readVLong(records) == 4) {
                Wire.readVLong(records);
                keys.add(records.readInt());
            }
            Wire.readVLong(records);
            if (records.readInt() != (int) checksum(segment, segment.length - 4)) {
                throw new IOException("the output of " + map + " is damaged");
            }
            return keys;
        }
    }

    /** Waits for the permission to commit, as a task with output does. */
    private void commit() throws Exception {
        synchronized (status) {
            status.state = "COMMIT_PENDING";
            umbilical.call("commitPending", HadoopRpc::readVoid, attempt(), status());
        }
        while (!umbilical.call("canCommit", HadoopRpc::readBoolean, attempt())) {
            Thread.sleep(50);
        }
        update();
    }

    /** Gives a sign of life every 3 seconds; ends the process when the task tracker does not know it. */
    private void stayKnown() {
        try {
            while (!ended) {
                Thread.sleep(3000);
                if (!ended && !umbilical.call("ping", HadoopRpc::readBoolean, attempt())) {
                    System.exit(UNKNOWN_ATTEMPT);
                }
            }
        } catch (IOException | InterruptedException lost) {
            System.exit(65);
        }
    }

    private void update() throws IOException {
        synchronized (status) {
            if (!umbilical.call("statusUpdate", HadoopRpc::readBoolean, attempt(), status())) {
                System.exit(UNKNOWN_ATTEMPT);
            }
        }
    }

    private Parameter attempt() {
        return Parameter.of("org.apache.hadoop.mapred.TaskAttemptID", task.attempt::write);
    }

    private Parameter status() {
        String actual = task.attempt.isMap ? "MapTaskStatus" : "ReduceTaskStatus";
        return Parameter.of("org.apache.hadoop.mapred.TaskStatus", "org.apache.hadoop.mapred." + actual,
            status::write);
    }

    /** Says where the logs of this attempt begin and end. */
    private void writeLogIndex() throws IOException {
        Path logs = logs(task.attempt);
        StringBuilder index = new StringBuilder("LOG_DIR:" + first + "\n");
        for (String log : LOGS) {
            long start = starts.get(log);
            index.append(log).append(':').append(start).append(' ').append(size(log) - start).append('\n');
        }
        Path written = logs.resolve("log.tmp");
        Files.write(written, index.toString().getBytes(StandardCharsets.UTF_8));
        Files.move(written, logs.resolve("log.index"), StandardCopyOption.REPLACE_EXISTING);
    }

    /** The part of this attempt in the logs begins here. */
    private void markLogs() throws IOException {
        for (String log : LOGS) {
            starts.put(log, task.attempt.toString().equals(first.toString()) ? 0 : size(log));
        }
    }

    private long size(String log) throws IOException {
        System.out.flush();
        Path file = logs(first).resolve(log);
        return Files.exists(file) ? Files.size(file) : 0;
    }

    private static Path logs(Attempt attempt) {
        return Paths.get(System.getProperty("hadoop.log.dir"), "userlogs", attempt.toString());
    }

    private String[] localDirs() {
        return conf.get("mapred.local.dir").split(",");
    }

    private int number(String name) {
        return Integer.parseInt(conf.getOrDefault(name, "1"));
    }

    private static long checksum(byte[] bytes, int length) {
        CRC32 checksum = new CRC32();
        checksum.update(bytes, 0, length);
        return checksum.getValue();
    }

    private static Map<String, String> properties(File file) throws Exception {
        Map<String, String> properties = new HashMap<>();
        NodeList all = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(file)
            .getElementsByTagName("property");
        for (int i = 0; i < all.getLength(); i++) {
            Element property = (Element) all.item(i);
            properties.put(content(property, "name"), content(property, "value"));
        }
        return properties;
    }

    private static String content(Element property, String name) {
        NodeList found = property.getElementsByTagName(name);
        return found.getLength() == 0 ? "" : found.item(0).getTextContent();
    }
}
