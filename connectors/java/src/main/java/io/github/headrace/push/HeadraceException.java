package io.github.headrace.push;

import java.io.IOException;

/** Why records could not be pushed, and what to do about it. */
public class HeadraceException extends IOException {
    private static final long serialVersionUID = 1L;

    /** Kinds of failure. */
    public enum Kind {
        /** The master is away or cannot store now: try again. */
        UNAVAILABLE,
        /** The dataset holds as much as it may: try again after {@link HeadraceException#retryAfterMillis}. */
        FULL,
        /** No such dataset. */
        NOT_FOUND,
        /** What was sent can never be taken as it is. */
        INVALID,
        /** The master will never do this, now or later. */
        REFUSED,
        /** The token or the certificate does not allow it. */
        DENIED,
        /** Settings that cannot be right. */
        SETTINGS,
        /** Anything else. The records may be visible or not: repeat the same commit to find out. */
        UNKNOWN
    }

    private final Kind kind;
    private final long retryAfterMillis;

    /** Made by this package; tests of connectors make their own. */
    public HeadraceException(Kind kind, String message, Throwable cause) {
        this(kind, message, cause, 0);
    }

    HeadraceException(Kind kind, String message, Throwable cause, long retryAfterMillis) {
        super(message, cause);
        this.kind = kind;
        this.retryAfterMillis = retryAfterMillis;
    }

    /** The kind of failure. */
    public Kind kind() {
        return kind;
    }

    /** True if the same call may succeed later. */
    public boolean temporary() {
        return kind == Kind.UNAVAILABLE || kind == Kind.FULL;
    }

    /** How long the master asks to wait; 0: it did not say. */
    public long retryAfterMillis() {
        return retryAfterMillis;
    }
}
