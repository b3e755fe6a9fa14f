package io.github.headrace.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TargetTest {
    private static void refused(Target.Builder b, String... parts) {
        HeadraceException e = assertThrows(HeadraceException.class, b::build);
        assertEquals(HeadraceException.Kind.SETTINGS, e.kind());
        for (String part : parts) {
            assertTrue(e.getMessage().contains(part), e.getMessage());
        }
    }

    @Test
    void settingsThatCannotBeRightAreNamed() {
        refused(Target.builder(), "master is missing");
        refused(Target.builder().master("7070"), "\"7070\" is not HOST:PORT");
        refused(Target.builder().master("::1:7070"), "is not HOST:PORT");
        refused(Target.builder().master(":7070"), "has no host");
        refused(Target.builder().master("h:0"), "port \"0\"");
        refused(Target.builder().master("h:70000"), "port \"70000\"");
        refused(Target.builder().master("10.0.0.1:7070"), "on another machine", "tls-ca");
        refused(Target.builder().master("localhost.evil.org:7070"), "on another machine");
        refused(Target.builder().master("h:7070").tls("c", null, "a"), "all three");
        refused(Target.builder().master("127.0.0.1:7070").token("short"), "token is no token");
    }

    @Test
    void onlyAddressesOfThisMachineAreLoopback() throws Exception {
        for (String a : new String[] {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
            assertTrue(Target.Address.parse("master", a).loopback(), a);
        }
        for (String a : new String[] {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.evil.org:1", "host:1"}) {
            assertFalse(Target.Address.parse("master", a).loopback(), a);
        }
    }

    @Test
    void aTokenIsNeverShown(@TempDir Path dir) throws Exception {
        String secret = "a-token-that-nobody-may-see";
        assertFalse(Target.builder().master("127.0.0.1:1").token(secret).build().toString().contains(secret));
        Path file = Files.writeString(dir.resolve("token"), "\n" + secret + "\nthe-older-token-stands-below\n");
        assertEquals(secret, Target.builder().master("127.0.0.1:1").tokenFile(file.toString()).build().readToken());

        Files.writeString(file, "x y");
        Target bad = Target.builder().master("127.0.0.1:1").tokenFile(file.toString()).build();
        String message = assertThrows(HeadraceException.class, bad::readToken).getMessage();
        assertTrue(message.contains(file.toString()) && !message.contains("x y"), message);
        Files.delete(file);
        assertTrue(assertThrows(HeadraceException.class, bad::readToken).getMessage().contains("is not there"));

        Target ofState = Target.builder().state(dir.toString()).build();
        assertEquals(null, ofState.readToken());
        Files.writeString(file, secret);
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
        assertTrue(assertThrows(HeadraceException.class, ofState::readToken).getMessage().contains("can be read by other users"));
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        assertEquals(secret, ofState.readToken());
    }
}
