package io.github.headrace.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headrace.push.HeadraceException.Kind;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The client against real masters. */
@Timeout(value = 1800, unit = TimeUnit.SECONDS) // only ends a hang
class PusherTest {
    private static void fill(Transaction t, int from, int to) throws Exception {
        for (int i = from; i < to; i++) {
            t.push(PushRecord.of("{\"n\": " + i + ", \"user\": \"user-" + i % 7 + "\"}"));
        }
    }

    private static HeadraceException failure(Kind kind, org.junit.jupiter.api.function.Executable call, String... parts) {
        HeadraceException e = assertThrows(HeadraceException.class, call);
        assertEquals(kind, e.kind(), e.getMessage());
        for (String part : parts) {
            assertTrue(e.getMessage().contains(part), e.getMessage());
        }
        return e;
    }

    @Test
    void aTransactionLandsOnceHoweverOftenItIsCommitted() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{partitions: 3, key: /user, chunk: 1KiB}");
            for (Compression c : Compression.values()) {
                try (Pusher p = Pusher.builder(master.target(), "clicks").compression(c).open()) {
                    Transaction t = p.begin("t-" + c);
                    fill(t, 0, 1000);
                    Staged staged = t.stage();
                    assertEquals(1000, staged.records());
                    assertNull(p.landed("t-" + c));
                    assertTrue(staged.locators().size() > 10, staged.toString());
                    Committed first = p.commit(staged);
                    assertEquals(1000, first.records());
                    assertFalse(first.already());
                    assertTrue(p.commit(staged).already());
                    assertEquals(1000, p.landed("t-" + c).records());

                    Transaction again = p.begin("t-" + c); // as a producer does after it was killed
                    fill(again, 0, 1000);
                    assertTrue(again.commit().already());
                    Transaction another = p.begin("t-" + c);
                    fill(another, 0, 10);
                    failure(Kind.REFUSED, another::commit, "another producer has used the same id");
                }
            }
            assertEquals(2000, master.visible("clicks"));
        }
    }

    @Test
    void theChunkThatMakesACommitTooLargeIsRefused() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 1KiB}");
            try (Pusher p = Pusher.open(master.target(), "clicks")) {
                Transaction t = p.begin("fits");
                fill(t, 0, 200);
                Staged staged = t.stage();
                int size = 0;
                for (String locator : staged.locators()) {
                    size = p.sizeOfCommit("fits", size, locator);
                }
                p.mostCommit = size - 1;
                String many = "has " + staged.locators().size() + " chunks";
                failure(Kind.INVALID, () -> p.commit(staged), "transaction fits " + many, "make landing.chunk in the spec larger");
                p.mostCommit = size;
                assertEquals(200, p.commit(staged).records());
                p.mostCommit = size - 1;
                Transaction more = p.begin("more"); // refused already while records are pushed
                failure(Kind.INVALID, () -> fill(more, 0, 10_000), "transaction more " + many);
                failure(Kind.INVALID, more::commit, "transaction more " + many);
                p.mostCommit = Pusher.MOST_COMMIT;
                p.mostChunks = staged.locators().size() - 1;
                failure(Kind.INVALID, () -> p.commit(staged), "transaction fits " + many);
                Transaction chunks = p.begin("many");
                failure(Kind.INVALID, () -> fill(chunks, 0, 10_000), "transaction many " + many);
            }
            assertEquals(200, master.visible("clicks"));
        }
    }

    @Test
    void theMostBytesOfACommitAreThoseThatAMasterReads() throws Exception {
        String scale = Files.readString(Path.of("../../internal/link/scale.go"));
        assertTrue(scale.contains("const PusherMessage = " + (Pusher.MOST_COMMIT >> 20) + " << 20\n"), scale);
    }

    @Test
    void anotherProcessCommitsWhatWasStagedAndWhatWasGivenUpIsNotSeen() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 1KiB}");
            Staged staged;
            try (Pusher p = Pusher.open(master.target(), "clicks")) {
                Transaction t = p.begin("kept");
                fill(t, 0, 300);
                staged = t.stage();
                Transaction lost = p.begin("given up");
                fill(lost, 0, 300);
                lost.abort();
                failure(Kind.REFUSED, lost::commit, "given up");
            }
            assertEquals(0, master.visible("clicks"));
            master.kill();
            master.begin();
            Staged copy = new Staged(staged.transaction(), staged.locators(), staged.records(), staged.bytes());
            assertEquals(staged, copy);
            assertEquals(staged.checksum(), copy.checksum());
            try (Pusher p = Pusher.open(master.target(), "clicks")) {
                assertFalse(p.commit(copy).already());
                assertTrue(p.commit(copy).already());
                failure(Kind.REFUSED, () -> p.commit(new Staged("other", copy.locators(), 300, 1)), "was not staged for transaction");
            }
            assertEquals(300, master.visible("clicks"));
        }
    }

    @Test
    void aCallWaitsForAMasterThatIsAwayAndFindsItOnAnotherPort() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 1KiB}");
            BlockingQueue<String> waits = new LinkedBlockingQueue<>();
            try (Pusher p = Pusher.builder(master.target(), "clicks").onWait(waits::add).open()) {
                Transaction t = p.begin();
                fill(t, 0, 500);
                String before = master.address();
                master.kill();
                CompletableFuture<Committed> done = CompletableFuture.supplyAsync(() -> {
                    try {
                        fill(t, 500, 1000);
                        return t.commit();
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                });
                assertFalse(waits.take().isEmpty());
                master.begin();
                assertEquals(1000, done.get().records());
                assertFalse(before.equals(master.address()));
                assertTrue(p.waitedMillis() > 0);
            }
            assertEquals(1000, master.visible("clicks"));
        }
    }

    @Test
    void aFullDatasetTellsToWait() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 256KiB, max_bytes: 1MiB}");
            BlockingQueue<String> waits = new LinkedBlockingQueue<>();
            try (Pusher p = Pusher.builder(master.target(), "clicks").compression(Compression.NONE).onWait(waits::add).open()) {
                Transaction t = p.begin();
                byte[] random = new byte[100_000];
                CompletableFuture<Boolean> pushed = CompletableFuture.supplyAsync(() -> {
                    try {
                        for (int i = 0; i < 100; i++) {
                            new java.util.Random(i).nextBytes(random);
                            t.push(PushRecord.of(random.clone()));
                        }
                        return true;
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                });
                assertTrue(waits.take().contains("max_bytes is 1048576"), "the wait must name its reason");
                assertFalse(pushed.isDone());
                // The first pusher must go on waiting. If it gave up, its chunks on their way would leave room.
                try (Pusher other = Pusher.builder(master.target(), "clicks").patience(Duration.ofMillis(1)).open()) {
                    Transaction second = other.begin();
                    byte[] large = new byte[900_000];
                    new java.util.Random(1).nextBytes(large);
                    second.push(PushRecord.of(large));
                    HeadraceException e = failure(Kind.FULL, second::commit, "max_bytes is 1048576");
                    assertTrue(((HeadraceException) e.getCause()).retryAfterMillis() > 0, "the master must say after how long to retry");
                }
            }
            assertEquals(0, master.visible("clicks"));
        }
    }

    @Test
    void whatCanNeverBeTakenIsRefusedWithTheReason() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{key: /user, max_record: 1KiB}");
            failure(Kind.NOT_FOUND, () -> Pusher.open(master.target(), "klicks"), "no dataset \"klicks\"", "headrace dataset apply");
            try (Pusher p = Pusher.open(master.target(), "clicks")) {
                failure(Kind.INVALID, () -> p.begin("t").push(PushRecord.of("x".repeat(1025))), "record 0 of transaction t", "1025 bytes", "max_record of dataset clicks is 1024");
                failure(Kind.INVALID, () -> p.begin("t").push(PushRecord.of("no json")), "record 0 of transaction t", "its key /user", "not JSON");
                failure(Kind.REFUSED, p::end, "end: never", "end: pushed");
                Transaction t = p.begin("x".repeat(201));
                fill(t, 0, 1);
                failure(Kind.INVALID, t::commit, "1 to 200 bytes");
            }
        }
    }

    @Test
    void aLimitThatWasRaisedHoldsForTheNextTransaction() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{max_record: 1KiB, chunk: 1KiB}");
            String large = "{\"n\": 1, \"text\": \"" + "x".repeat(1500) + "\"}";
            try (Pusher p = Pusher.open(master.target(), "clicks")) {
                failure(Kind.INVALID, () -> p.begin("large").push(PushRecord.of(large)), "max_record of dataset clicks is 1024");
                master.apply("clicks", "{max_record: 2KiB, chunk: 1KiB}");
                Transaction t = p.begin("large");
                t.push(PushRecord.of(large));
                assertEquals(1, t.commit().records());
                p.mostChunks = 1;
                failure(Kind.INVALID, () -> p.commit(new Staged("many", List.of("a", "b"), 2, 2)), "make landing.chunk in the spec larger");
                master.apply("clicks", "{max_record: 2KiB, chunk: 1MiB}");
                Transaction many = p.begin("many");
                fill(many, 0, 200);
                assertEquals(200, many.commit().records());
            }
        }
    }

    @Test
    void patienceMayBeLongerThanNanosecondsCount() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 1KiB}");
            Pusher.builder(master.target(), "clicks").patience(Duration.ofMillis(Long.MAX_VALUE)).open().close();
        }
    }

    @Test
    void aCommitCanBeRepeatedAfterAnErrorOrAnInterrupt() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 1KiB}");
            try (Pusher p = Pusher.builder(master.target(), "clicks").patience(Duration.ofSeconds(1)).open()) {
                Transaction t = p.begin();
                fill(t, 0, 100);
                Thread.currentThread().interrupt();
                assertThrows(InterruptedException.class, t::commit);
                Staged staged = t.stage();
                assertEquals(staged, t.stage());
                assertThrows(IllegalStateException.class, () -> fill(t, 100, 101));
                master.kill();
                HeadraceException e = failure(Kind.UNAVAILABLE, t::commit);
                assertTrue(e.temporary(), e.getMessage());
                master.begin();
                Committed done = null;
                while (done == null) {
                    try {
                        done = t.commit();
                    } catch (HeadraceException again) {
                        assertTrue(again.temporary(), again.getMessage());
                    }
                }
                assertEquals(100, done.records());
                assertFalse(done.already());
            }
            assertEquals(100, master.visible("clicks"));
        }
    }

    @Test
    void closeEndsTransactionsWhoseChunksWait() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 1KiB}");
            PushRecord chunk = PushRecord.of("{\"n\": 1, \"text\": \"" + "x".repeat(1500) + "\"}"); // one of these fills a chunk
            Pusher p = Pusher.open(master.target(), "clicks");
            master.freeze(true);
            try {
                Transaction sending = p.begin("sending");
                for (int i = 0; i < Transaction.STAGING; i++) { // all threads of the pusher wait for the master
                    sending.push(chunk);
                }
                Transaction waiting = p.begin("waiting");
                waiting.push(chunk);
                Transaction later = p.begin("later");
                fill(later, 0, 1);
                p.close();
                failure(Kind.UNAVAILABLE, sending::stage);
                failure(Kind.UNAVAILABLE, waiting::stage, "the pusher was closed while transaction waiting was being staged");
                failure(Kind.UNAVAILABLE, later::commit, "the pusher was closed while transaction later was being staged");
            } finally {
                master.freeze(false);
            }
            assertEquals(0, master.visible("clicks"));
        }
    }

    @Test
    void onlyACallerThatProvesATokenWithTheRoleMayPush(@TempDir Path dir) throws Exception {
        Path pusher = Files.writeString(dir.resolve("pusher"), "a-token-for-pushing-only\n");
        Path viewer = Files.writeString(dir.resolve("viewer"), "a-token-for-looking-only\n");
        try (TestMaster master = TestMaster.start("--role-token", "pusher=" + pusher, "--role-token", "viewer=" + viewer)) {
            master.apply("clicks", "{}");
            Target.Builder at = Target.builder().master(master.address());
            try (Pusher p = Pusher.open(at.tokenFile(pusher.toString()).build(), "clicks")) {
                Transaction t = p.begin();
                fill(t, 0, 10);
                assertEquals(10, t.commit().records());
            }
            failure(Kind.DENIED, () -> Pusher.open(at.tokenFile(viewer.toString()).build(), "clicks"), "needs pusher", "--token-file");
            HeadraceException e = failure(Kind.DENIED, () -> Pusher.open(Target.builder().master(master.address()).token("nobody-knows-this-one").build(), "clicks"),
                "the master does not accept this caller", "it wants a token, which lies in");
            assertFalse(e.getMessage().contains("nobody-knows"), e.getMessage());
            failure(Kind.DENIED, () -> Pusher.open(Target.builder().master(master.address()).build(), "clicks"), "it wants a token");
            failure(Kind.SETTINGS, () -> Pusher.open(Target.builder().master(master.address()).tokenFile(dir + "/none").build(), "clicks"), "token-file " + dir + "/none is not there");
        }
    }

    @Test
    void aProcessInTheMastersPlaceLearnsNothing() throws Exception {
        String token = "the-token-of-our-real-master";
        try (ServerSocket stranger = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            CompletableFuture<byte[]> heard = CompletableFuture.supplyAsync(() -> {
                try (Socket s = stranger.accept()) {
                    InputStream in = s.getInputStream();
                    byte[] hello = in.readNBytes(8 + 16 + 32);
                    s.getOutputStream().write(new byte[1 + 32 + 32]); // a nonce, and a wrong proof
                    return java.util.Arrays.copyOf(hello, hello.length + in.readAllBytes().length);
                } catch (java.io.IOException e) {
                    throw new IllegalStateException(e);
                }
            });
            Target t = Target.builder().master("127.0.0.1:" + stranger.getLocalPort()).token(token).build();
            failure(Kind.UNAVAILABLE, () -> Pusher.builder(t, "clicks").patience(Duration.ofMillis(1)).open(), "this is not our master", "nothing was sent to it");
            byte[] all = heard.get();
            assertEquals(8 + 16 + 32, all.length, "the client must send nothing after the hello");
            assertFalse(new String(all, java.nio.charset.StandardCharsets.ISO_8859_1).contains(token));
        }
    }

    @Test
    void certificatesAreCheckedAndTheirNamesHaveRoles(@TempDir Path dir) throws Exception {
        TestCertificates ours = TestCertificates.in(dir.resolve("ours"));
        TestCertificates theirs = TestCertificates.in(dir.resolve("theirs"));
        String[] m = ours.issue("master");
        String[] flink = ours.issue("flink-1");
        String[] nobody = ours.issue("nobody");
        Path pusher = Files.writeString(dir.resolve("pusher"), "a-token-for-pushing-only\n");
        try (TestMaster master = TestMaster.start("--listen", "0.0.0.0:0", "--tls-cert", m[0], "--tls-key", m[1], "--tls-ca", m[2],
            "--role", "pusher=flink-*", "--role", "operator=master", "--role-token", "pusher=" + pusher)) {
            String address = "127.0.0.1:" + master.address().replaceAll(".*:", "");
            Path spec = Files.writeString(master.dir().resolve("clicks.yaml"), "name: clicks\nlanding: {}\ndecode: lines\n");
            master.run("apply", "-f", spec.toString(), "--master", address, "--tls-cert", m[0], "--tls-key", m[1], "--tls-ca", m[2]);
            Target.Builder at = Target.builder().master(address);

            for (String file : flink) { // tools write names into a file of PEM
                Path pem = Path.of(file);
                Files.writeString(pem, "# Subject: O=Főtanúsítvány\n" + Files.readString(pem));
            }
            push(at.tls(flink[0], flink[1], flink[2]).build());
            failure(Kind.DENIED, () -> push(at.tls(nobody[0], nobody[1], nobody[2]).build()), "needs pusher");
            // Over TLS a token's proof is bound to the keys of the session. Here Conscrypt exports them.
            push(at.tls(nobody[0], nobody[1], nobody[2]).tokenFile(pusher.toString()).build());
            failure(Kind.DENIED, () -> push(at.token("nobody-knows-this-one").build()), "does not accept this caller");

            String[] stranger = theirs.issue("flink-1");
            Target.Builder bare = Target.builder().master(address);
            failure(Kind.DENIED, () -> push(bare.tls(stranger[0], stranger[1], stranger[2]).build()), "this is not our master", "the certificate of " + address);
            failure(Kind.UNAVAILABLE, () -> pushOnce(bare.tls(stranger[0], stranger[1], flink[2]).build()));
            // The certificate is for 127.0.0.1, not for this name.
            Target.Builder named = Target.builder().master(address.replace("127.0.0.1", "localhost")).tls(flink[0], flink[1], flink[2]);
            failure(Kind.DENIED, () -> push(named.build()), "this is not our master", "localhost");
            failure(Kind.DENIED, () -> push(named.tokenFile(pusher.toString()).build()), "this is not our master", "localhost");
            failure(Kind.UNAVAILABLE, () -> pushOnce(Target.builder().master(address).token("nobody-knows-this-one").build()), "does it want TLS");
            failure(Kind.SETTINGS, () -> push(bare.tls(flink[0], flink[0], flink[2]).build()), "tls-key " + flink[0]);
            failure(Kind.SETTINGS, () -> push(bare.tls(flink[0] + "x", flink[1], flink[2]).build()), "tls-cert " + flink[0] + "x");
        }
    }

    /** Tries again for a while, because on a very busy machine a handshake may take longer than the master waits. */
    private static void push(Target target) throws Exception {
        push(target, Duration.ofMinutes(5));
    }

    private static void pushOnce(Target target) throws Exception {
        push(target, Duration.ofMillis(1));
    }

    private static void push(Target target, Duration patience) throws Exception {
        try (Pusher p = Pusher.builder(target, "clicks").patience(patience).open()) {
            Transaction t = p.begin();
            fill(t, 0, 3);
            assertEquals(3, t.commit().records());
        }
    }

    @Test
    void aThreadThatWaitsCanBeInterruptedAndAPusherClosed() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{chunk: 1KiB}");
            BlockingQueue<String> waits = new LinkedBlockingQueue<>();
            Pusher p = Pusher.builder(master.target(), "clicks").onWait(waits::add).open();
            Transaction t = p.begin();
            fill(t, 0, 10);
            Staged staged = t.stage();
            master.kill();
            BlockingQueue<Exception> ended = new LinkedBlockingQueue<>();
            Thread waiting = new Thread(() -> {
                try {
                    p.commit(staged);
                } catch (Exception e) {
                    ended.add(e);
                }
            });
            waiting.start();
            waits.take();
            waiting.interrupt();
            assertEquals(InterruptedException.class, ended.take().getClass());
            new Thread(() -> {
                try {
                    p.commit(staged);
                } catch (Exception e) {
                    ended.add(e);
                }
            }).start();
            waits.take();
            p.close();
            assertEquals(HeadraceException.class, ended.take().getClass());
            for (Thread thread : Thread.getAllStackTraces().keySet()) {
                if (thread.getName().startsWith("headrace-push")) {
                    thread.join();
                }
            }
        }
    }

    @Test
    void theEndIsToldOnceProducersSaySo() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{end: pushed}");
            try (Pusher p = Pusher.open(master.target(), "clicks")) {
                Transaction late = p.begin();
                fill(late, 0, 1);
                Staged staged = late.stage();
                p.end();
                failure(Kind.REFUSED, () -> p.commit(staged), "has ended");
            }
            try (Pusher p = Pusher.open(master.target(), "clicks")) {
                assertTrue(p.layout().ended());
                assertEquals(List.of(), p.begin().stage().locators());
            }
        }
    }
}
