package io.github.headrace.push;

import io.github.headrace.push.HeadraceException.Kind;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Base64;
import software.amazon.awssdk.core.exception.AbortedException;
import software.amazon.awssdk.core.exception.RetryableException;
import software.amazon.awssdk.core.exception.SdkClientException;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.regions.providers.DefaultAwsRegionProviderChain;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.S3Configuration;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * A prefix of a bucket, with the AWS SDK: credentials, region and endpoint come from where it looks
 * for them. No other class here uses the SDK.
 */
final class S3Bucket implements Bucket {
    private static final Duration CONNECTING = Duration.ofSeconds(10);
    private static final Duration SILENT = Duration.ofSeconds(60);
    private static final int EXISTS = 412;
    private static final int CONFLICT = 409; // S3: another put of the same key is under way
    private static final int BUSY = 429;
    private static final int TIMED_OUT = 408;

    private final String bucket;
    private final String prefix; // empty, or it ends with a slash
    private final S3Client s3;

    S3Bucket(String url) throws HeadraceException {
        String[] at = partsOf(url);
        bucket = at[0];
        prefix = at[1];
        try {
            s3 = S3Client.builder()
                .region(region())
                .httpClientBuilder(UrlConnectionHttpClient.builder().connectionTimeout(CONNECTING).socketTimeout(SILENT))
                // As the other writers: the bucket in the path works with every service, and the
                // body is signed as a whole.
                .serviceConfiguration(S3Configuration.builder().pathStyleAccessEnabled(true).chunkedEncodingEnabled(false).build())
                .build();
        } catch (SdkException e) {
            throw new HeadraceException(Kind.SETTINGS, "upload to " + url + ": " + e.getMessage(), e);
        }
    }

    /** The bucket of s3://BUCKET/PREFIX, and the prefix with a slash at its end. A prefix may have spaces and signs that a URI may not. */
    static String[] partsOf(String url) {
        String[] at = url.replaceFirst("^s3://", "").split("/", 2);
        String path = at.length < 2 ? "" : at[1].replaceAll("^/+|/+$", "");
        return new String[] {at[0], path.isEmpty() ? "" : path + "/"};
    }

    private static Region region() {
        try {
            return DefaultAwsRegionProviderChain.builder().build().getRegion();
        } catch (SdkClientException e) {
            String other = System.getenv("AWS_DEFAULT_REGION"); // the SDK for Java does not look at it
            return Region.of(other == null || other.isEmpty() ? "us-east-1" : other);
        }
    }

    @Override
    public void putNew(String key, byte[] data) throws HeadraceException, InterruptedException {
        String sum = Base64.getEncoder().encodeToString(ByteBuffer.allocate(4).putInt(ChunkBuilder.crc(data, data.length)).array());
        PutObjectRequest request = PutObjectRequest.builder().bucket(bucket).key(prefix + key).ifNoneMatch("*").checksumCRC32(sum).build();
        try {
            s3.putObject(request, RequestBody.fromBytes(data));
        } catch (AbortedException e) {
            throw (InterruptedException) new InterruptedException(e.getMessage()).initCause(e);
        } catch (S3Exception e) {
            if (e.statusCode() != EXISTS) {
                throw refused(e);
            }
            // Nobody else has the key: a try of the SDK whose answer was lost has put it, and the
            // commit checks it.
        } catch (SdkException e) {
            throw new HeadraceException(reachable(e) ? Kind.SETTINGS : Kind.UNAVAILABLE, "s3://" + bucket + "/" + prefix + ": " + e.getMessage(), e);
        }
    }

    private HeadraceException refused(S3Exception e) {
        int status = e.statusCode();
        Kind kind = status >= 500 || status == BUSY || status == TIMED_OUT || status == CONFLICT || e.isThrottlingException() ? Kind.UNAVAILABLE
            : status == 401 || status == 403 ? Kind.DENIED : status == 404 ? Kind.NOT_FOUND : Kind.REFUSED;
        return new HeadraceException(kind, "s3://" + bucket + "/" + prefix + ": the service answers " + status + ": " + e.getMessage(), e);
    }

    /** False if the service was not reached, or its answer did not come: a later try may succeed. */
    private static boolean reachable(SdkException e) {
        for (Throwable c = e; c != null; c = c.getCause()) {
            if (c instanceof java.io.IOException || c instanceof RetryableException) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void close() {
        s3.close();
    }
}
