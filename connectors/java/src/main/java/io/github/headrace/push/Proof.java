package io.github.headrace.push;

import io.github.headrace.push.HeadraceException.Kind;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * The client's side of the proof with which a connection begins (docs/PROTOCOL.md, The proof): both
 * sides show that they know the same token, and neither sends it. The vectors in
 * api/vectors/proof.json hold for it and for internal/link.
 */
final class Proof {
    private static final byte[] MAGIC = "HEADRAC1".getBytes(StandardCharsets.US_ASCII);
    private static final int NONCE = 32;
    private static final int SUM = 32;
    private static final int ID = 16;
    private static final int LONGEST_WHY = 1024;
    private static final SecureRandom RANDOM = new SecureRandom();

    private Proof() {}

    private static byte[] hmac(byte[] key, byte[]... parts) throws IOException {
        try {
            Mac m = Mac.getInstance("HmacSHA256");
            m.init(new SecretKeySpec(key, "HmacSHA256"));
            for (byte[] p : parts) {
                m.update(p);
            }
            return m.doFinal();
        } catch (GeneralSecurityException e) {
            throw new IOException("HMAC-SHA256 is missing in this Java", e);
        }
    }

    private static byte[] utf8(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    /** Names a token without telling it. */
    static byte[] idOf(String token) throws IOException {
        return Arrays.copyOf(hmac(utf8("headrace token id"), utf8(token)), ID);
    }

    /** What one side sends to show that it knows the token. */
    static byte[] proofOf(String token, String side, byte[] id, byte[] client, byte[] master, byte[] binding) throws IOException {
        return hmac(utf8(token), utf8("headrace " + side + "\0"), binding, new byte[1], id, client, master);
    }

    /** Names a TCP connection: the master's address, as Go writes it. */
    static byte[] tcpBinding(InetAddress address, int port) {
        return utf8("tcp " + (address instanceof Inet6Address ? "[" + shorten(address.getAddress()) + "]" : address.getHostAddress()) + ":" + port);
    }

    /** An IPv6 address by RFC 5952. */
    private static String shorten(byte[] b) {
        int from = -1;
        int length = 1; // one zero alone is not left out
        for (int i = 0; i < 8; i++) {
            int n = 0;
            while (i + n < 8 && b[2 * (i + n)] == 0 && b[2 * (i + n) + 1] == 0) {
                n++;
            }
            if (n > length) {
                from = i;
                length = n;
            }
        }
        StringBuilder s = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            if (i == from) {
                s.append("::");
                i += length - 1;
                continue;
            }
            if (s.length() > 0 && s.charAt(s.length() - 1) != ':') {
                s.append(':');
            }
            s.append(Integer.toHexString((b[2 * i] & 0xFF) << 8 | b[2 * i + 1] & 0xFF));
        }
        return s.toString();
    }

    /** Proves the token on a connection. A null token asks the master what it wants, and is refused. */
    static void prove(Socket s, byte[] binding, String token, boolean tls) throws IOException {
        byte[] id = token == null ? new byte[ID] : idOf(token);
        byte[] nonce = new byte[NONCE];
        RANDOM.nextBytes(nonce);
        ByteArrayOutputStream hello = new ByteArrayOutputStream();
        hello.writeBytes(MAGIC);
        hello.writeBytes(id);
        hello.writeBytes(nonce);
        s.getOutputStream().write(hello.toByteArray());
        s.getOutputStream().flush();
        DataInputStream in = new DataInputStream(s.getInputStream());
        int answer;
        try {
            answer = in.readUnsignedByte();
        } catch (EOFException | SocketException e) {
            String why = tls ? "has its tls-ca signed our certificate?" : "does it want TLS (tls-cert, tls-key, tls-ca), or is it of another version?";
            throw new IOException("it ended the connection without an answer; " + why, e);
        }
        if (answer != 0) {
            byte[] text = new byte[Math.min(in.readUnsignedShort(), LONGEST_WHY)];
            in.readFully(text);
            // It comes from a process that has proven nothing: only print what can be printed.
            String why = new String(text, StandardCharsets.UTF_8).replaceAll("\\p{Cntrl}", "");
            throw new HeadraceException(Kind.DENIED, "the master does not accept this caller: " + why, null);
        }
        byte[] masters = new byte[NONCE];
        byte[] proof = new byte[SUM];
        in.readFully(masters);
        in.readFully(proof);
        if (token == null || !MessageDigest.isEqual(proof, proofOf(token, "master", id, nonce, masters, binding))) {
            // Our master may come back, here or elsewhere.
            throw new HeadraceException(Kind.UNAVAILABLE, "this is not our master: the process that listens at "
                + s.getRemoteSocketAddress() + " does not know our token, so nothing was sent to it", null);
        }
        s.getOutputStream().write(proofOf(token, "client", id, nonce, masters, binding));
        s.getOutputStream().flush();
    }
}
