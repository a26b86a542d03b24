package org.apache.hadoop.mapred;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * One connection of Hadoop's RPC: a header that names a protocol, then calls one after the other, each of which
 * waits for its answer. Written from docs/reference/spec/mapreduce/01-hadoop-rpc.md.
 */
final class HadoopRpc {
    private static final String NULL = "org.apache.hadoop.io.ObjectWritable$NullInstance";

    /** Writes or reads the fields of an object. */
    interface Fields {
        void write(DataOutputStream out) throws IOException;
    }

    /** Reads the fields of a result. */
    interface Result<T> {
        T read(DataInputStream in) throws IOException;
    }

    /** A parameter: the class that the interface declares, the class of the object, and its fields. */
    static final class Parameter {
        private final String declared;
        private final String actual;
        private final Fields fields;

        private Parameter(String declared, String actual, Fields fields) {
            this.declared = declared;
            this.actual = actual;
            this.fields = fields;
        }

        static Parameter of(String declared, String actual, Fields fields) {
            return new Parameter(declared, actual, fields);
        }

        static Parameter of(String declared, Fields fields) {
            return new Parameter(declared, declared, fields);
        }

        static Parameter of(String text) {
            return new Parameter("java.lang.String", null, out -> Wire.writeUtf8(out, text));
        }

        static Parameter of(int number) {
            return new Parameter("int", null, out -> out.writeInt(number));
        }

        static Parameter of(long number) {
            return new Parameter("long", null, out -> out.writeLong(number));
        }
    }

    private final DataInputStream in;
    private final DataOutputStream out;
    private int nextId;

    /** Connects, and asks for the protocol as every client in Java does first. */
    HadoopRpc(String host, int port, String protocol, long version, int fingerprint) throws IOException {
        Socket socket = new Socket(host, port);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(60_000);
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        out = new DataOutputStream(socket.getOutputStream());
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream header = new DataOutputStream(bytes);
        Wire.writeText(header, protocol);
        header.writeBoolean(true);
        Wire.writeText(header, "STRING_UGI");
        Wire.writeText(header, System.getProperty("user.name", "nobody"));
        Wire.writeVLong(header, 1);
        Wire.writeText(header, "users");
        out.write("hrpc".getBytes(StandardCharsets.US_ASCII));
        out.writeByte(3);
        out.writeInt(bytes.size());
        bytes.writeTo(out);
        long served = call("getProtocolSignature", HadoopRpc::signature,
            Parameter.of(protocol), Parameter.of(version), Parameter.of(fingerprint));
        if (served != version) {
            throw new IOException(protocol + " is served in version " + served);
        }
    }

    private static long signature(DataInputStream in) throws IOException {
        object(in, "org.apache.hadoop.ipc.ProtocolSignature");
        long version = in.readLong();
        if (in.readBoolean()) {
            int methods = in.readInt();
            for (int i = 0; i < methods; i++) {
                in.readInt();
            }
        }
        return version;
    }

    /** Reads the names in front of an object of this class. */
    static void object(DataInputStream in, String type) throws IOException {
        expect(type, Wire.readUtf8(in));
        expect(type, Wire.readUtf8(in));
    }

    static void expect(String expected, String found) throws IOException {
        if (!expected.equals(found)) {
            throw new IOException("expected " + expected + ", found " + found);
        }
    }

    static boolean readBoolean(DataInputStream in) throws IOException {
        expect("boolean", Wire.readUtf8(in));
        return in.readBoolean();
    }

    static Void readVoid(DataInputStream in) throws IOException {
        expect("org.apache.hadoop.io.Writable", Wire.readUtf8(in));
        expect(NULL, Wire.readUtf8(in));
        expect("void", Wire.readUtf8(in));
        return null;
    }

    /** Makes a call. An error of the other side is an IOException with its text. */
    synchronized <T> T call(String method, Result<T> result, Parameter... parameters) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream frame = new DataOutputStream(bytes);
        int id = nextId++;
        frame.writeInt(id);
        Wire.writeUtf8(frame, method);
        frame.writeInt(parameters.length);
        for (Parameter parameter : parameters) {
            Wire.writeUtf8(frame, parameter.declared);
            if (parameter.actual != null) {
                Wire.writeUtf8(frame, parameter.actual);
            }
            parameter.fields.write(frame);
        }
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        new DataOutputStream(whole).writeInt(bytes.size());
        bytes.writeTo(whole);
        whole.writeTo(out);
        int answered = in.readInt();
        if (answered != id) {
            throw new IOException("answer " + answered + " where " + id + " was due");
        }
        int status = in.readInt();
        if (status != 0) {
            throw new IOException(method + ": " + Wire.readWString(in) + ": " + Wire.readWString(in));
        }
        return result.read(in);
    }
}
