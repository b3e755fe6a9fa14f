package io.github.headrace.push;

import io.github.headrace.push.HeadraceException.Kind;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.security.Provider;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;

/**
 * The keys of a TLS session, to which a proof is bound so that it cannot be relayed. Java has them
 * since 25; before that, Conscrypt has them if it is on the class path.
 */
final class SessionKeys {
    private static final String LABEL = "EXPORTER-headrace-proof";
    private static final String CONSCRYPT = "org.conscrypt.Conscrypt";

    private SessionKeys() {}

    /** The TLS implementation that tells keys: null is Java's own. */
    static Provider provider() throws IOException {
        if (exporter() != null) {
            return null;
        }
        try {
            return (Provider) Class.forName(CONSCRYPT).getMethod("newProvider").invoke(null);
        } catch (ReflectiveOperationException | LinkageError e) {
            throw new HeadraceException(Kind.SETTINGS, "a token over TLS is bound to the keys of the TLS session, and Java "
                + Runtime.version().feature() + " does not tell them. Leave the token out and give the certificate's name the role"
                + " (headrace master --role pusher=NAME), or use Java 25, or add org.conscrypt:conscrypt-openjdk-uber to the class path", e);
        }
    }

    private static Method exporter() {
        try {
            return Class.forName("javax.net.ssl.ExtendedSSLSession").getMethod("exportKeyingMaterialData", String.class, byte[].class, int.class);
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    /** 32 bytes that only the two ends of the session know. */
    static byte[] of(SSLSocket socket) throws IOException {
        try {
            Method m = exporter();
            if (m != null) {
                SSLSession session = socket.getSession();
                return (byte[]) m.invoke(session, LABEL, null, 32);
            }
            return (byte[]) Class.forName(CONSCRYPT).getMethod("exportKeyingMaterial", SSLSocket.class, String.class, byte[].class, int.class)
                .invoke(null, socket, LABEL, null, 32);
        } catch (InvocationTargetException e) {
            throw new IOException("the keys of the TLS session are not told", e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new IOException("the keys of the TLS session are not told", e);
        }
    }
}
