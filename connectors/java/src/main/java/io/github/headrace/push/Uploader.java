package io.github.headrace.push;

import io.github.headrace.push.HeadraceException.Kind;
import io.github.headrace.v1.LayoutReply;
import io.github.headrace.v1.Upload;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.util.Locale;
import java.util.concurrent.TimeUnit;

/** Names chunks and puts them into the dataset's bucket (docs/LANDING.md, "The key of a chunk"). */
final class Uploader {
    private static final long HOUR_MS = 3_600_000;
    private static final String LETTERS = "abcdefghijklmnopqrstuvwxyz234567";
    private static final int DRAWN = 16; // letters
    private static final int RECORDS_AT = 8; // in a chunk's header
    private static final int SUM_AT = 24;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final Bucket bucket;
    private final String stream;
    private final long masterMs; // the master's clock when it told the layout
    private final long toldNanos;

    private Uploader(Bucket bucket, Upload upload) {
        this.bucket = bucket;
        stream = upload.getStream();
        masterMs = upload.getNowMs();
        toldNanos = System.nanoTime();
    }

    /** Makes one for the bucket that a layout names now. The opener keeps and closes the bucket. */
    static Uploader of(String dataset, LayoutReply layout, Bucket.Opener opener) throws HeadraceException {
        if (!layout.hasUpload()) {
            throw new HeadraceException(Kind.SETTINGS, "dataset " + dataset + ": its master keeps chunks in its state folder, so only the master can write"
                + " them: push without upload, or set landing_storage: s3://... for the master", null);
        }
        return new Uploader(opener.open(layout.getUpload().getUrl()), layout.getUpload());
    }

    /** The bucket of {@link Pusher.Builder#upload()}. */
    static Bucket openS3(String url) throws HeadraceException {
        try {
            return new S3Bucket(url);
        } catch (NoClassDefFoundError e) {
            throw new HeadraceException(Kind.SETTINGS, "upload needs software.amazon.awssdk:s3 and software.amazon.awssdk:url-connection-client on the class path: "
                + e.getMessage() + " is missing", e);
        }
    }

    /**
     * Puts a chunk and returns its locator. Another try has another key: if the first one was stored
     * after all, nobody commits it, and it is deleted after stage_ttl.
     */
    String put(String transaction, int partition, byte[] chunk) throws HeadraceException, InterruptedException {
        String key = key(transaction, partition, masterMs + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - toldNanos));
        bucket.putNew(key, chunk);
        ByteBuffer header = ByteBuffer.wrap(chunk).order(ByteOrder.LITTLE_ENDIAN);
        return String.format(Locale.ROOT, "1 %s %d %d %08x", key, chunk.length, header.getInt(RECORDS_AT), header.getInt(SUM_AT));
    }

    private String key(String transaction, int partition, long ms) {
        StringBuilder key = new StringBuilder(stream).append('/').append(partition).append('/').append(ms / HOUR_MS).append('/');
        byte[] sum = sha256(transaction.getBytes(StandardCharsets.UTF_8));
        for (int i = 0; i < 8; i++) {
            key.append(Character.forDigit(sum[i] >> 4 & 15, 16)).append(Character.forDigit(sum[i] & 15, 16));
        }
        key.append('-').append(ms).append('-');
        for (int i = 0; i < DRAWN; i++) {
            key.append(LETTERS.charAt(RANDOM.nextInt(LETTERS.length())));
        }
        return key.toString();
    }

    private static byte[] sha256(byte[] b) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(b);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java has it
        }
    }
}
