package io.github.headrace.push;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.junit.jupiter.api.Test;

/** The Java client agrees with the vectors in api/vectors, as the Go code does. */
class VectorsTest {
    private static JsonObject load(String name) throws Exception {
        return JsonParser.parseString(Files.readString(Path.of("../../api/vectors", name))).getAsJsonObject();
    }

    private static byte[] bytes(JsonObject o, String name) {
        JsonElement e = o.get(name);
        return e == null || e.isJsonNull() ? null : Base64.getDecoder().decode(e.getAsString());
    }

    @Test
    void chunksAreTheSameAsInGo() throws Exception {
        int n = 0;
        for (JsonElement e : load("chunks.json").getAsJsonArray("Chunks")) {
            JsonObject v = e.getAsJsonObject();
            ChunkBuilder b = new ChunkBuilder();
            for (JsonElement r : v.getAsJsonArray("Records")) {
                JsonObject o = r.getAsJsonObject();
                byte[] value = bytes(o, "Value");
                PushRecord record = value == null ? PushRecord.deleted(bytes(o, "Key")) : PushRecord.of(value).withKey(bytes(o, "Key"));
                record = record.withTime(o.has("Time") ? o.get("Time").getAsLong() : 0);
                if (!o.get("Headers").isJsonNull()) {
                    for (JsonElement h : o.getAsJsonArray("Headers")) {
                        record = record.withHeader(bytes(h.getAsJsonObject(), "Key"), bytes(h.getAsJsonObject(), "Value"));
                    }
                }
                b.add(record);
            }
            assertArrayEquals(bytes(v, "Chunk"), b.chunk(Compression.NONE), v.get("Name").getAsString());
            n++;
        }
        assertTrue(n > 5, n + " chunks");
    }

    @Test
    void keysAreFoundAsInGo() throws Exception {
        int n = 0;
        for (JsonElement e : load("chunks.json").getAsJsonArray("Keys")) {
            JsonObject v = e.getAsJsonObject();
            byte[] record = bytes(v, "Record");
            String pointer = v.get("Pointer").getAsString();
            String what = pointer + " of " + new String(record, StandardCharsets.UTF_8);
            if (v.get("Error").getAsBoolean()) {
                assertThrows(JsonKey.Malformed.class, () -> JsonKey.find(pointer, record), what);
            } else {
                assertArrayEquals(bytes(v, "Key"), JsonKey.find(pointer, record), what);
            }
            n++;
        }
        assertTrue(n > 30, n + " keys");
    }

    private static byte[] hex(JsonElement e) {
        return e.isJsonNull() ? null : e.getAsString().isEmpty() ? new byte[0] : new java.math.BigInteger("01" + e.getAsString(), 16).toByteArray();
    }

    /** Parses hex digits. A leading 01 is put before them, because BigInteger drops leading zeros. */
    private static byte[] unhex(JsonElement e) {
        byte[] b = hex(e);
        return b == null || b.length == 0 ? b : java.util.Arrays.copyOfRange(b, 1, b.length);
    }

    @Test
    void keysAndPartitionsOfPushersAreTheSameAsInGo() throws Exception {
        int n = 0;
        for (JsonElement e : load("landing.json").getAsJsonArray("keys")) {
            JsonObject v = e.getAsJsonObject();
            byte[] record = unhex(v.get("record_hex"));
            String pointer = v.get("pointer").getAsString();
            if (v.has("error") && v.get("error").getAsBoolean()) {
                assertThrows(JsonKey.Malformed.class, () -> JsonKey.find(pointer, record), v.toString());
            } else {
                byte[] key = JsonKey.find(pointer, record);
                assertArrayEquals(unhex(v.get("key_hex")), key, v.toString());
                assertEquals(v.get("partition_of_7").getAsInt(), ChunkBuilder.partitionOf(key, 7, 3), v.toString());
            }
            n++;
        }
        assertTrue(n > 30, n + " keys");
        for (JsonElement e : load("landing.json").getAsJsonArray("firsts")) {
            JsonObject v = e.getAsJsonObject();
            assertEquals(v.get("first").getAsInt(), ChunkBuilder.firstOf(v.get("id").getAsString()), v.toString());
        }
    }

    @Test
    void partitionsAreTheSameAsInGo() throws Exception {
        int n = 0;
        for (JsonElement e : load("chunks.json").getAsJsonArray("Partitions")) {
            JsonObject v = e.getAsJsonObject();
            assertEquals(v.get("Partition").getAsInt(), ChunkBuilder.partitionOf(bytes(v, "Key"), v.get("Partitions").getAsInt(), 0), v.toString());
            n++;
        }
        assertTrue(n > 10, n + " keys");
    }

    @Test
    void proofsAreTheSameAsInGo() throws Exception {
        JsonObject all = load("proof.json");
        for (JsonElement e : all.getAsJsonArray("Bindings")) {
            JsonObject v = e.getAsJsonObject();
            byte[] got = Proof.tcpBinding(InetAddress.getByAddress(bytes(v, "Address")), v.get("Port").getAsInt());
            assertEquals(v.get("Binding").getAsString(), new String(got, StandardCharsets.UTF_8));
        }
        assertTrue(all.getAsJsonArray("Proofs").size() > 5);
        for (JsonElement e : all.getAsJsonArray("Proofs")) {
            JsonObject v = e.getAsJsonObject();
            String token = v.get("Token").getAsString();
            byte[] id = Proof.idOf(token);
            assertArrayEquals(bytes(v, "ID"), id);
            for (String side : new String[] {"Master", "Client"}) {
                byte[] got = Proof.proofOf(token, side.toLowerCase(), id, bytes(v, "Client"), bytes(v, "Master"), bytes(v, "Binding"));
                assertArrayEquals(bytes(v, "By" + side), got, token);
            }
        }
    }
}
