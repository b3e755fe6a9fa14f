package io.github.headrace.push;

/** How a chunk is compressed on its way to the master. */
public enum Compression {
    /** Not at all; the master compresses what it stores. Best on one machine. */
    NONE(0),
    /** zlib at its fastest level: no native code. */
    ZLIB(2);

    final byte codec;

    Compression(int codec) {
        this.codec = (byte) codec;
    }
}
