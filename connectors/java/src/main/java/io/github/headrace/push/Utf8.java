package io.github.headrace.push;

import java.io.ByteArrayOutputStream;

/** UTF-8 by the byte, so that text that is not UTF-8 is treated as Go treats it. */
final class Utf8 {
    private Utf8() {}

    /** The length of the character at {@code i}; 0: there is none. */
    static int length(byte[] b, int i, int end) {
        int c = b[i] & 0xFF;
        if (c < 0x80) {
            return 1;
        }
        int n = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
        if (c < 0xC2 || c > 0xF4 || i + n > end) {
            return 0;
        }
        int second = b[i + 1] & 0xFF;
        int low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
        int high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
        if (second < low || second > high) {
            return 0;
        }
        for (int k = 2; k < n; k++) {
            if ((b[i + k] & 0xC0) != 0x80) {
                return 0;
            }
        }
        return n;
    }

    static void write(ByteArrayOutputStream out, int codePoint) {
        out.writeBytes(new String(Character.toChars(codePoint)).getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }
}
