package io.github.headrace.push;

import java.io.ByteArrayOutputStream;
import java.util.Arrays;

/**
 * Finds the key of a JSON record by a JSON Pointer, as internal/chunk does: the key of a string is
 * its bytes, the key of any other value is its JSON. The vectors in api/vectors/chunks.json hold for
 * both.
 */
final class JsonKey {
    /** What is wrong with a record. */
    static final class Malformed extends Exception {
        private static final long serialVersionUID = 1L;

        Malformed(String why) {
            super(why);
        }
    }

    private static final int DEEPEST = 1000;

    private final byte[] b;
    private int at;

    private JsonKey(byte[] b) {
        this.b = b;
    }

    /** The key, or null if the record has none. */
    static byte[] find(String pointer, byte[] record) throws Malformed {
        String path = pointer.startsWith("/") ? pointer.substring(1) : pointer;
        int from = 0;
        int to = record.length;
        for (String escaped : path.split("/", -1)) {
            String token = escaped.replace("~1", "/").replace("~0", "~");
            JsonKey in = new JsonKey(Arrays.copyOfRange(record, from, to));
            int[] found = in.member(token);
            if (found == null) {
                return null;
            }
            to = from + found[1];
            from += found[0];
        }
        byte[] value = Arrays.copyOfRange(record, from, to);
        if (value[0] == 'n') {
            return null;
        }
        return value[0] == '"' ? new JsonKey(value).text() : value;
    }

    /** Where the value of a member lies; the last one of a name counts. Null: there is none. */
    private int[] member(String token) throws Malformed {
        space();
        int[] found = null;
        if (peek() == 'n') {
            value(0);
            space();
            end();
            return null;
        }
        boolean array = peek() == '[';
        int index = array && token.matches("[+-]?[0-9]{1,9}") ? Integer.parseInt(token) : -1;
        if (!array && peek() != '{') {
            throw new Malformed("it is neither an object nor an array");
        }
        int close = array ? ']' : '}';
        at++;
        space();
        for (int i = 0; peek() != close; i++) {
            if (i > 0) {
                expect(',');
                space();
            }
            boolean is;
            if (array) {
                is = i == index;
            } else {
                is = Arrays.equals(text(), token.getBytes(java.nio.charset.StandardCharsets.UTF_8));
                space();
                expect(':');
                space();
            }
            int start = at;
            value(0);
            if (is) {
                found = new int[] {start, at};
            }
            space();
        }
        at++;
        space();
        end();
        return found;
    }

    private void end() throws Malformed {
        if (at != b.length) {
            throw new Malformed("something follows its end, at byte " + at);
        }
    }

    private void value(int depth) throws Malformed {
        if (depth > DEEPEST) {
            throw new Malformed("it is nested too deep");
        }
        int c = peek();
        if (c == '"') {
            string();
        } else if (c == '{' || c == '[') {
            at++;
            space();
            int close = c == '{' ? '}' : ']';
            for (int i = 0; peek() != close; i++) {
                if (i > 0) {
                    expect(',');
                    space();
                }
                if (c == '{') {
                    string();
                    space();
                    expect(':');
                    space();
                }
                value(depth + 1);
                space();
            }
            at++;
        } else {
            int start = at;
            while (at < b.length && "+-.0123456789Eaeflnrstu".indexOf(b[at]) >= 0) {
                at++;
            }
            String word = new String(b, start, at - start, java.nio.charset.StandardCharsets.US_ASCII);
            if (!word.matches("true|false|null|-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?")) {
                throw new Malformed("there is no value at byte " + start);
            }
        }
    }

    private int peek() throws Malformed {
        if (at >= b.length) {
            throw new Malformed("it ends in the middle");
        }
        return b[at];
    }

    private void expect(int c) throws Malformed {
        if (peek() != c) {
            throw new Malformed("byte " + at + " is not " + (char) c);
        }
        at++;
    }

    private void space() {
        while (at < b.length && (b[at] == ' ' || b[at] == '\t' || b[at] == '\r' || b[at] == '\n')) {
            at++;
        }
    }

    /** Passes over a string. */
    private void string() throws Malformed {
        expect('"');
        for (; peek() != '"'; at++) {
            if (b[at] == '\\') {
                at++;
                int c = peek();
                if (c == 'u') {
                    hex(at + 1);
                    at += 4;
                } else if ("\"\\/bfnrt".indexOf(c) < 0) {
                    throw new Malformed("byte " + at + " is no escape");
                }
            } else if (b[at] >= 0 && b[at] < ' ') {
                throw new Malformed("byte " + at + " is a control character in a text");
            }
        }
        at++;
    }

    private int hex(int from) throws Malformed {
        int x = 0;
        for (int i = from; i < from + 4; i++) {
            int digit = i < b.length ? Character.digit(b[i], 16) : -1;
            if (digit < 0) {
                throw new Malformed("byte " + i + " is no hexadecimal digit");
            }
            x = x << 4 | digit;
        }
        return x;
    }

    /** Reads a string, as UTF-8. What is no character becomes U+FFFD. */
    private byte[] text() throws Malformed {
        int from = at + 1;
        string();
        int to = at - 1;
        ByteArrayOutputStream out = new ByteArrayOutputStream(to - from);
        for (int i = from; i < to; ) {
            if (b[i] != '\\') {
                int n = Utf8.length(b, i, to);
                if (n == 0) {
                    Utf8.write(out, 0xFFFD);
                    i++;
                } else {
                    out.write(b, i, n);
                    i += n;
                }
                continue;
            }
            int c = b[i + 1];
            i += 2;
            if (c != 'u') {
                int which = "\"\\/bfnrt".indexOf(c);
                out.write("\"\\/\b\f\n\r\t".charAt(which));
                continue;
            }
            int x = hex(i);
            i += 4;
            if (Character.isSurrogate((char) x)) {
                boolean pair = x < 0xDC00 && i + 6 <= to && b[i] == '\\' && b[i + 1] == 'u';
                int low = pair ? hex(i + 2) : 0;
                if (pair && low >= 0xDC00 && low < 0xE000) {
                    x = Character.toCodePoint((char) x, (char) low);
                    i += 6;
                } else {
                    x = 0xFFFD;
                }
            }
            Utf8.write(out, x);
        }
        return out.toByteArray();
    }
}
