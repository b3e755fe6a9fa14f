package io.github.headrace.flink.table;

import java.nio.charset.StandardCharsets;

/** JSON that is being written. */
final class JsonText {
    private final StringBuilder s = new StringBuilder(128);
    private boolean first = true;

    void open(char c) {
        s.append(c);
        first = true;
    }

    void close(char c) {
        s.append(c);
        first = false;
    }

    /** Begins the next element of an array. */
    void next() {
        if (!first) {
            s.append(',');
        }
        first = false;
    }

    /** Begins the next member of an object. */
    void name(String name) {
        next();
        text(name);
        s.append(':');
    }

    void raw(String json) {
        s.append(json);
    }

    void text(String text) {
        s.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                s.append('\\').append(c);
            } else if (c < ' ') {
                s.append(String.format("\\u%04x", (int) c));
            } else {
                s.append(c);
            }
        }
        s.append('"');
    }

    byte[] utf8() {
        return s.toString().getBytes(StandardCharsets.UTF_8);
    }
}
