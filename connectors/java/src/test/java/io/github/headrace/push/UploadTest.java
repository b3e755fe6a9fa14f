package io.github.headrace.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headrace.push.HeadraceException.Kind;
import io.github.headrace.v1.LayoutReply;
import io.github.headrace.v1.Upload;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Chunks that this client puts into the bucket itself, with a real master and a real S3 server. */
@Timeout(value = 300, unit = TimeUnit.SECONDS) // only ends a hang
class UploadTest {
    private static void fill(Transaction t, int n) throws Exception {
        for (int i = 0; i < n; i++) {
            t.push(PushRecord.of("{\"n\": " + i + ", \"user\": \"user-" + i % 7 + "\"}"));
        }
    }

    /** Counts the chunks in the bucket, without the objects in which the master notes what is visible. */
    private static long chunks(TestS3 s3) throws Exception {
        return s3.list("java").stream().filter(key -> !key.contains("/visible/")).count();
    }

    @Test
    void chunksGoIntoTheBucketAndOnlyTheCommitToTheMaster() throws Exception {
        try (TestS3 s3 = TestS3.start(); TestMaster master = TestMaster.start(s3.landing("java"))) {
            master.apply("clicks", "{partitions: 3, key: /user, chunk: 4KiB}");
            for (Compression c : Compression.values()) {
                try (Pusher p = Pusher.builder(master.target(), "clicks").compression(c).upload().open()) {
                    Transaction t = p.begin("t-" + c);
                    long before = chunks(s3);
                    master.freeze(true); // so that no chunk can go through the master
                    Staged staged;
                    try {
                        fill(t, 1000);
                        staged = t.stage();
                    } finally {
                        master.freeze(false);
                    }
                    assertTrue(staged.locators().size() > 5, staged.toString());
                    assertEquals(before + staged.locators().size(), chunks(s3));
                    HeadraceException e = assertThrows(HeadraceException.class,
                        () -> p.commit(new Staged("other", staged.locators(), staged.records(), staged.bytes())));
                    assertTrue(e.getMessage().contains("was not staged for"), e.getMessage());
                    assertFalse(p.commit(staged).already());
                    assertTrue(p.commit(staged).already());
                }
            }
            assertEquals(2000, master.visible("clicks"));
            refusedKeys(master);
        }
    }

    private static void refusedKeys(TestMaster master) throws Exception {
        String secret = "not the secret key";
        System.setProperty("aws.secretAccessKey", secret);
        try (Pusher p = Pusher.builder(master.target(), "clicks").upload().open()) {
            Transaction t = p.begin();
            fill(t, 1);
            HeadraceException e = assertThrows(HeadraceException.class, t::commit);
            assertEquals(Kind.DENIED, e.kind(), e.getMessage());
            assertTrue(e.getMessage().contains("403") && !e.getMessage().contains(secret), e.getMessage());
        }
        System.clearProperty("aws.secretAccessKey");
        System.clearProperty("aws.accessKeyId");
        try (Pusher p = Pusher.builder(master.target(), "clicks").upload().open()) {
            Transaction t = p.begin();
            fill(t, 1);
            HeadraceException e = assertThrows(HeadraceException.class, t::commit);
            assertEquals(Kind.SETTINGS, e.kind(), e.getMessage());
            assertTrue(e.getMessage().contains("credentials"), e.getMessage());
        }
    }

    /** Where people write other digits, a locator has those of ASCII all the same. */
    @Test
    void aLocatorIsTheSameInEveryLocale() throws Exception {
        LayoutReply layout = LayoutReply.newBuilder().setUpload(Upload.newBuilder().setUrl("s3://lake/p").setStream("s1").setNowMs(1_700_000_000_000L)).build();
        ChunkBuilder chunk = new ChunkBuilder();
        chunk.add(PushRecord.of("x"));
        byte[] bytes = chunk.chunk(Compression.NONE);
        Locale before = Locale.getDefault();
        Locale.setDefault(Locale.forLanguageTag("ar-EG-u-nu-arab"));
        try {
            String locator = Uploader.of("clicks", layout, url -> new Bucket() {
                @Override
                public void putNew(String key, byte[] data) {}

                @Override
                public void close() {}
            }).put("t", 0, bytes);
            assertTrue(locator.matches("1 s1/0/472222/[0-9a-f]{16}-[0-9]+-[a-z2-7]{16} " + bytes.length + " 1 [0-9a-f]{8}"), locator);
        } finally {
            Locale.setDefault(before);
        }
    }

    @Test
    void aPutIsTriedAgainWithAnotherKey() throws Exception {
        try (TestS3 s3 = TestS3.start(); TestMaster master = TestMaster.start(s3.landing("again"))) {
            master.apply("clicks", "{}");
            List<String> keys = Collections.synchronizedList(new ArrayList<>());
            List<String> waits = Collections.synchronizedList(new ArrayList<>());
            AtomicInteger closed = new AtomicInteger();
            try (Pusher p = Pusher.builder(master.target(), "clicks").onWait(waits::add).upload(url -> {
                assertTrue(url.startsWith("s3://lake/again"), url);
                Bucket real = Uploader.openS3(url);
                return new Bucket() {
                    @Override
                    public void putNew(String key, byte[] data) throws HeadraceException, InterruptedException {
                        keys.add(key);
                        if (keys.size() < 3) {
                            throw new HeadraceException(Kind.UNAVAILABLE, "busy", null);
                        }
                        real.putNew(key, data);
                        real.putNew(key, data); // a second time: its own earlier try is no error
                    }

                    @Override
                    public void close() {
                        closed.incrementAndGet();
                        real.close();
                    }
                };
            }).open()) {
                Transaction t = p.begin();
                fill(t, 10);
                assertEquals(10, t.commit().records());
            }
            assertEquals(3, new HashSet<>(keys).size(), keys.toString());
            assertEquals(List.of("busy", "busy"), waits);
            assertEquals(1, closed.get());
        }
    }

    /** Pushes 100 records. The first try may fail and so make the pusher ask the master again; the second must succeed. */
    private static Committed pushedAtTheSecondTry(Pusher p, Kind failure, String... parts) throws Exception {
        try {
            Transaction t = p.begin();
            fill(t, 100);
            return t.commit();
        } catch (HeadraceException e) {
            assertEquals(failure, e.kind(), e.getMessage());
            for (String part : parts) {
                assertTrue(e.getMessage().contains(part), e.getMessage());
            }
        }
        Transaction t = p.begin();
        fill(t, 100);
        return t.commit();
    }

    @Test
    void aPusherGoesOnAfterItsDatasetWasDeletedAndAppliedAgain() throws Exception {
        try (TestS3 s3 = TestS3.start(); TestMaster master = TestMaster.start(s3.landing("deleted"))) {
            master.apply("clicks", "{partitions: 3, key: /user}");
            AtomicInteger opened = new AtomicInteger();
            AtomicInteger closed = new AtomicInteger();
            try (Pusher uploads = Pusher.builder(master.target(), "clicks").upload(counted(opened, closed)).open();
                Pusher sends = Pusher.open(master.target(), "clicks")) {
                Transaction before = uploads.begin("before");
                fill(before, 100);
                Staged staged = before.stage();
                master.run("delete", "clicks", "--yes");
                master.apply("clicks", "{partitions: 1, key: /user}");
                assertEquals(100, pushedAtTheSecondTry(uploads, Kind.REFUSED, "before dataset clicks was deleted and applied again").records());
                assertEquals(100, pushedAtTheSecondTry(sends, Kind.INVALID, "has no partition").records());
                assertEquals(1, uploads.layout().partitions());
                assertEquals(1, sends.layout().partitions());
                // A commit of chunks that were put for the deleted dataset is still refused.
                HeadraceException e = assertThrows(HeadraceException.class, () -> uploads.commit(staged));
                assertEquals(Kind.REFUSED, e.kind(), e.getMessage());
            }
            assertEquals(200, master.visible("clicks"));
            assertEquals(1, opened.get()); // the pusher has opened the bucket only once
            assertEquals(1, closed.get());
        }
    }

    @Test
    void aPusherFollowsChunksToAnotherBucket() throws Exception {
        try (TestS3 s3 = TestS3.start(); TestMaster master = TestMaster.start(s3.landing("old"))) {
            master.apply("clicks", "{}");
            AtomicInteger opened = new AtomicInteger();
            AtomicInteger closed = new AtomicInteger();
            try (Pusher p = Pusher.builder(master.target(), "clicks").upload(counted(opened, closed)).open()) {
                master.kill();
                master.begin(s3.landing("new"));
                assertEquals(100, pushedAtTheSecondTry(p, Kind.REFUSED).records());
                assertEquals(100, pushedAtTheSecondTry(p, Kind.REFUSED).records());
            }
            assertEquals(200, master.visible("clicks"));
            assertTrue(s3.list("new").stream().filter(key -> key.contains("-")).count() >= 2, s3.list("new").toString());
            assertEquals(2, opened.get());
            assertEquals(2, closed.get());
        }
    }

    private static Bucket.Opener counted(AtomicInteger opened, AtomicInteger closed) {
        return url -> {
            opened.incrementAndGet();
            Bucket real = Uploader.openS3(url);
            return new Bucket() {
                @Override
                public void putNew(String key, byte[] data) throws HeadraceException, InterruptedException {
                    real.putNew(key, data);
                }

                @Override
                public void close() {
                    closed.incrementAndGet();
                    real.close();
                }
            };
        };
    }

    /** A writer keeps only the locators of its chunks. They stay valid, whatever happens to the trainers meanwhile. */
    @Test
    void whatWasPutBeforeARewindLandsOnceAfterIt() throws Exception {
        try (TestS3 s3 = TestS3.start(); TestMaster master = TestMaster.start(s3.landing("rewind"))) {
            master.apply("clicks", "{end: pushed, retain: 1h}");
            master.agent();
            try (Pusher p = Pusher.builder(master.target(), "clicks").upload().open()) {
                Transaction first = p.begin("first");
                fill(first, 100);
                Staged visible = first.stage();
                assertFalse(p.commit(visible).already());
                Path rows = master.trainer("clicks");
                master.untilRows(rows, 100);

                Transaction open = p.begin("open");
                fill(open, 50);
                Transaction second = p.begin("second");
                fill(second, 100);
                Staged staged = second.stage();
                master.endTrainer(); // the shared model outlives its trainer
                master.run("rewind", "default", "--to", "start", "--yes");
                rows = master.trainer("clicks");

                assertTrue(p.commit(visible).already());
                assertFalse(p.commit(staged).already());
                assertTrue(p.commit(staged).already());
                fill(open, 50);
                assertFalse(open.commit().already());
                p.end();
                master.trainerEnded();
                assertEquals(300, Files.readAllLines(rows).size());
            }
            assertEquals(300, master.visible("clicks"));
        }
    }

    @Test
    void aServiceThatIsAwayIsTemporary() throws Exception {
        try (TestS3 s3 = TestS3.start()) {
            Bucket bucket = Uploader.openS3("s3://lake/away");
            s3.close();
            System.setProperty("aws.accessKeyId", "a");
            System.setProperty("aws.secretAccessKey", "b");
            HeadraceException e = assertThrows(HeadraceException.class, () -> bucket.putNew("k", new byte[] {1}));
            assertEquals(Kind.UNAVAILABLE, e.kind(), e.getMessage());
            bucket.close();
        }
    }

    @Test
    void aMasterWithoutABucketIsNamed() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{}");
            HeadraceException e = assertThrows(HeadraceException.class, () -> Pusher.builder(master.target(), "clicks").upload().open());
            assertEquals(Kind.SETTINGS, e.kind());
            assertTrue(e.getMessage().contains("landing_storage"), e.getMessage());
        }
    }
}
