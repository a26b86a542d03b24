package org.apache.hadoop.mapred;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Numbers, texts and objects as Hadoop writes them. Written from docs/reference/spec/mapreduce/02-writables.md. */
final class Wire {
    private Wire() {}

    static void writeVLong(DataOutputStream out, long value) throws IOException {
        if (value >= -112 && value <= 127) {
            out.writeByte((int) value);
            return;
        }
        long bits = value < 0 ? ~value : value;
        int bytes = (64 - Long.numberOfLeadingZeros(bits) + 7) / 8;
        out.writeByte((value < 0 ? -120 : -112) - bytes);
        for (int i = bytes - 1; i >= 0; i--) {
            out.writeByte((int) (bits >> (8 * i)));
        }
    }

    static long readVLong(DataInputStream in) throws IOException {
        byte first = in.readByte();
        if (first >= -112) {
            return first;
        }
        boolean negative = first < -120;
        int bytes = negative ? -120 - first : -112 - first;
        long bits = 0;
        for (int i = 0; i < bytes; i++) {
            bits = bits << 8 | in.readUnsignedByte();
        }
        return negative ? ~bits : bits;
    }

    static void writeText(DataOutputStream out, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        writeVLong(out, bytes.length);
        out.write(bytes);
    }

    static String readText(DataInputStream in) throws IOException {
        return readBytes(in, (int) readVLong(in));
    }

    static String readWString(DataInputStream in) throws IOException {
        int length = in.readInt();
        return length < 0 ? null : readBytes(in, length);
    }

    private static String readBytes(DataInputStream in, int length) throws IOException {
        byte[] bytes = new byte[length];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** What travels so here is plain ASCII, but for texts of errors, which lose what is not. */
    static void writeUtf8(DataOutputStream out, String text) throws IOException {
        String cut = text.length() > 21845 ? text.substring(0, 21845) : text;
        byte[] bytes = cut.getBytes(StandardCharsets.US_ASCII);
        out.writeShort(bytes.length);
        out.write(bytes);
    }

    static String readUtf8(DataInputStream in) throws IOException {
        return readBytes(in, in.readUnsignedShort());
    }

    /** An attempt at a task. */
    static final class Attempt {
        final int number;
        final int task;
        final int job;
        final String tracker;
        final boolean isMap;

        private Attempt(int number, int task, int job, String tracker, boolean isMap) {
            this.number = number;
            this.task = task;
            this.job = job;
            this.tracker = tracker;
            this.isMap = isMap;
        }

        static Attempt parse(String name) {
            String[] parts = name.split("_");
            if (parts.length != 6 || !parts[0].equals("attempt")) {
                throw new IllegalArgumentException(name + " names no attempt");
            }
            return new Attempt(Integer.parseInt(parts[5]), Integer.parseInt(parts[4]),
                Integer.parseInt(parts[2]), parts[1], parts[3].equals("m"));
        }

        static Attempt read(DataInputStream in) throws IOException {
            int number = in.readInt();
            int task = in.readInt();
            int job = in.readInt();
            String tracker = readText(in);
            return new Attempt(number, task, job, tracker, in.readBoolean());
        }

        void write(DataOutputStream out) throws IOException {
            out.writeInt(number);
            out.writeInt(task);
            writeJob(out);
            out.writeBoolean(isMap);
        }

        void writeJob(DataOutputStream out) throws IOException {
            out.writeInt(job);
            writeText(out, tracker);
        }

        String jobName() {
            return String.format("job_%s_%04d", tracker, job);
        }

        @Override
        public String toString() {
            return String.format("attempt_%s_%04d_%s_%06d_%d", tracker, job, isMap ? "m" : "r", task, number);
        }
    }

    /** How an attempt stands. */
    static final class Status {
        Attempt attempt;
        float progress;
        int slots;
        String state;
        String stateString;
        String phase;
        boolean withCounters;
        /** Values by group and name. */
        final Map<String, Map<String, Long>> counters = new LinkedHashMap<>();
        long shuffleFinished;
        long sortFinished;
        final List<Attempt> failedFetches = new ArrayList<>();

        static Status read(DataInputStream in, boolean isMap) throws IOException {
            Status status = new Status();
            status.attempt = Attempt.read(in);
            status.progress = in.readFloat();
            status.slots = in.readInt();
            status.state = readText(in);
            readText(in);
            status.stateString = readText(in);
            status.phase = readText(in);
            in.readLong();
            in.readLong();
            status.withCounters = in.readBoolean();
            in.readLong();
            if (status.withCounters) {
                int groups = in.readInt();
                for (int group = 0; group < groups; group++) {
                    Map<String, Long> counters = new LinkedHashMap<>();
                    status.counters.put(readText(in), counters);
                    readText(in);
                    long count = readVLong(in);
                    for (long i = 0; i < count; i++) {
                        String name = readText(in);
                        if (in.readBoolean()) {
                            readText(in);
                        }
                        counters.put(name, readVLong(in));
                    }
                }
            }
            in.readLong();
            in.readLong();
            if (!isMap) {
                in.readLong();
                in.readLong();
                int failed = in.readInt();
                for (int i = 0; i < failed; i++) {
                    Attempt.read(in);
                }
            }
            return status;
        }

        void write(DataOutputStream out) throws IOException {
            attempt.write(out);
            out.writeFloat(progress);
            out.writeInt(slots);
            writeText(out, state);
            writeText(out, "");
            writeText(out, stateString);
            writeText(out, phase);
            out.writeLong(0);
            out.writeLong(0);
            out.writeBoolean(withCounters);
            out.writeLong(-1);
            if (withCounters) {
                out.writeInt(counters.size());
                for (Map.Entry<String, Map<String, Long>> group : counters.entrySet()) {
                    writeText(out, group.getKey());
                    writeText(out, group.getKey());
                    writeVLong(out, group.getValue().size());
                    for (Map.Entry<String, Long> counter : group.getValue().entrySet()) {
                        writeText(out, counter.getKey());
                        out.writeBoolean(false);
                        writeVLong(out, counter.getValue());
                    }
                }
            }
            out.writeLong(0);
            out.writeLong(0);
            if (!attempt.isMap) {
                out.writeLong(shuffleFinished);
                out.writeLong(sortFinished);
                out.writeInt(failedFetches.size());
                for (Attempt failed : failedFetches) {
                    failed.write(out);
                }
            }
        }

        void add(String name, long value) {
            counters.computeIfAbsent("org.apache.hadoop.mapred.Task$Counter", group -> new LinkedHashMap<>())
                .merge(name, value, Long::sum);
        }
    }

    /** A task as its task tracker hands it out. */
    static final class Task {
        String jobFile;
        Attempt attempt;
        Status status;
        boolean isJobCleanup;
        boolean isJobSetup;
        boolean isTaskCleanup;
        int maps;

        static Task read(DataInputStream in) throws IOException {
            boolean isMap = in.readBoolean();
            Task task = new Task();
            task.jobFile = readText(in);
            task.attempt = Attempt.read(in);
            in.readInt();
            int slots = in.readInt();
            task.status = Status.read(in, isMap);
            task.status.attempt = task.attempt;
            task.status.slots = slots;
            in.readLong();
            in.skipBytes(16 * in.readInt());
            in.readBoolean();
            task.isJobCleanup = in.readBoolean();
            if (task.isJobCleanup) {
                readText(in);
            }
            task.isJobSetup = in.readBoolean();
            readText(in);
            in.readBoolean();
            task.isTaskCleanup = in.readBoolean();
            in.skipBytes(in.readInt());
            if (!isMap) {
                task.maps = in.readInt();
            } else if (task.isWork()) {
                readText(in);
                in.skipBytes(in.readInt());
            }
            return task;
        }

        boolean isWork() {
            return !isJobCleanup && !isJobSetup && !isTaskCleanup;
        }
    }
}
