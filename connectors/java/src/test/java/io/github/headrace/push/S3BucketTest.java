package io.github.headrace.push;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import org.junit.jupiter.api.Test;

/** The place of a bucket, as the master names it. */
class S3BucketTest {
    @Test
    void thePrefixIsTakenAsItIsWritten() {
        for (String[] c : new String[][] {
            {"s3://lake", "lake", ""}, {"s3://lake/", "lake", ""}, {"s3://lake/a/b", "lake", "a/b/"},
            {"s3://lake/my data/job", "lake", "my data/job/"}, {"s3://lake/a%20b/job", "lake", "a%20b/job/"}, {"s3://lake/a#b?c/job/", "lake", "a#b?c/job/"}}) {
            assertArrayEquals(new String[] {c[1], c[2]}, S3Bucket.partsOf(c[0]), c[0]);
        }
    }
}
