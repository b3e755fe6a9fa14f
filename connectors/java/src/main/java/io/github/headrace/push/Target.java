package io.github.headrace.push;

import java.io.IOException;
import java.io.Serializable;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.util.Objects;

/**
 * Where a master is, and how a caller proves who it is. The fields have the names of the command
 * line's settings (docs/CLI.md). Files are read again for each connection, on the machine that
 * connects, so a token can be replaced.
 */
public final class Target implements Serializable {
    private static final long serialVersionUID = 1L;
    static final String DEFAULT_MASTER = "127.0.0.1:7070";

    private final String master;
    private final String state;
    private final String token;
    private final String tokenFile;
    private final String tlsCert;
    private final String tlsKey;
    private final String tlsCa;

    private Target(Builder b) {
        master = b.master;
        state = b.state;
        token = b.token;
        tokenFile = b.tokenFile;
        tlsCert = b.tlsCert;
        tlsKey = b.tlsKey;
        tlsCa = b.tlsCa;
    }

    /** A new builder. */
    public static Builder builder() {
        return new Builder();
    }

    /** Sets where a master is. */
    public static final class Builder {
        private String master;
        private String state;
        private String token;
        private String tokenFile;
        private String tlsCert;
        private String tlsKey;
        private String tlsCa;

        private Builder() {}

        /** Its address, HOST:PORT. Without one, {@link #state} names it. */
        public Builder master(String address) {
            master = address;
            return this;
        }

        /** The state folder of a master on this machine: its address and its token lie there. */
        public Builder state(String folder) {
            state = folder;
            return this;
        }

        /** The token itself. Prefer a file: this one is kept wherever the job's settings are. */
        public Builder token(String token) {
            this.token = token;
            return this;
        }

        /** A file whose first line is the token. */
        public Builder tokenFile(String path) {
            tokenFile = path;
            return this;
        }

        /** PEM files of our certificate, of its key (PKCS 8) and of the authority that signed the master's. */
        public Builder tls(String cert, String key, String ca) {
            tlsCert = cert;
            tlsKey = key;
            tlsCa = ca;
            return this;
        }

        /** Checks the settings. */
        public Target build() throws HeadraceException {
            Target t = new Target(this);
            t.check();
            return t;
        }
    }

    private static HeadraceException wrong(String message) {
        return new HeadraceException(HeadraceException.Kind.SETTINGS, message, null);
    }

    private void check() throws HeadraceException {
        if (master == null && state == null) {
            throw wrong("master is missing: HOST:PORT of the headrace master, as in " + DEFAULT_MASTER + ", or set state to its state folder");
        }
        if (master != null) {
            Address a = Address.parse("master", master);
            if (!a.loopback() && !tls()) {
                throw wrong("master " + master + ": it is on another machine, and nothing would prove who it is; give tls-cert, tls-key and tls-ca");
            }
        }
        if (tls() && (tlsCert == null || tlsKey == null || tlsCa == null)) {
            throw wrong("TLS needs all three of tls-cert, tls-key and tls-ca: both sides prove who they are");
        }
        if (token != null) {
            checkToken("token", token);
        }
    }

    boolean tls() {
        return tlsCert != null || tlsKey != null || tlsCa != null;
    }

    String tlsCert() {
        return tlsCert;
    }

    String tlsKey() {
        return tlsKey;
    }

    String tlsCa() {
        return tlsCa;
    }

    private static void checkToken(String where, String token) throws HeadraceException {
        if (token.length() < 16 || token.chars().anyMatch(c -> c <= ' ')) {
            throw wrong(where + " is no token: 16 characters or more without a space, as `openssl rand -base64 32` makes them");
        }
    }

    /** The address to connect to now: of a state folder it is read again each time. */
    Address address() throws HeadraceException {
        if (master != null) {
            return Address.parse("master", master);
        }
        Path file = Path.of(state, "master.addr");
        try {
            Address a = Address.parse(file.toString(), Files.readString(file).trim());
            if (!a.loopback() && !tls()) {
                throw wrong(file + " names " + a + ", which is on another machine; give tls-cert, tls-key and tls-ca");
            }
            return a;
        } catch (NoSuchFileException e) {
            throw new HeadraceException(HeadraceException.Kind.UNAVAILABLE, "no master has left its address in " + state, e);
        } catch (IOException e) {
            throw e instanceof HeadraceException ? (HeadraceException) e : wrong(file + " cannot be read: " + e);
        }
    }

    /** The token to prove, or null. */
    String readToken() throws HeadraceException {
        if (token != null) {
            return token;
        }
        Path file = tokenFile != null ? Path.of(tokenFile) : state != null ? Path.of(state, "token") : null;
        if (file == null) {
            return null;
        }
        String setting = tokenFile != null ? "token-file " : "token ";
        try {
            if (tokenFile == null && Files.getPosixFilePermissions(file).stream().anyMatch(Target::ofOthers)) {
                throw wrong("token " + file + " can be read by other users: remove it, and the master makes a new one when it starts");
            }
            for (String line : Files.readString(file, StandardCharsets.UTF_8).split("\n")) {
                if (!line.isBlank()) {
                    checkToken(setting + file, line.trim());
                    return line.trim();
                }
            }
            throw wrong(setting + file + " is empty");
        } catch (NoSuchFileException e) {
            if (tokenFile == null) {
                return null; // a master that starts for the first time makes it
            }
            throw wrong(setting + file + " is not there");
        } catch (IOException e) {
            throw e instanceof HeadraceException ? (HeadraceException) e : wrong(setting + file + " cannot be read: " + e);
        }
    }

    private static boolean ofOthers(PosixFilePermission p) {
        return !p.name().startsWith("OWNER_");
    }

    @Override
    public boolean equals(Object o) {
        if (!(o instanceof Target)) {
            return false;
        }
        Target t = (Target) o;
        return Objects.equals(master, t.master) && Objects.equals(state, t.state) && Objects.equals(token, t.token)
            && Objects.equals(tokenFile, t.tokenFile) && Objects.equals(tlsCert, t.tlsCert)
            && Objects.equals(tlsKey, t.tlsKey) && Objects.equals(tlsCa, t.tlsCa);
    }

    @Override
    public int hashCode() {
        return Objects.hash(master, state, token, tokenFile, tlsCert, tlsKey, tlsCa);
    }

    /** Names the master for people; never the token. */
    @Override
    public String toString() {
        return master != null ? master : "the master of " + state;
    }

    /** HOST:PORT. */
    static final class Address {
        final String host;
        final int port;

        private Address(String host, int port) {
            this.host = host;
            this.port = port;
        }

        static Address parse(String setting, String text) throws HeadraceException {
            int colon = text.lastIndexOf(':');
            String host = colon < 0 ? "" : text.substring(0, colon);
            boolean bracketed = host.startsWith("[") && host.endsWith("]");
            if (colon < 0 || !bracketed && host.contains(":")) {
                throw wrong(setting + ": \"" + text + "\" is not HOST:PORT, as in " + DEFAULT_MASTER);
            }
            if (bracketed) {
                host = host.substring(1, host.length() - 1);
            }
            if (host.isEmpty()) {
                throw wrong(setting + ": \"" + text + "\" has no host");
            }
            String port = text.substring(colon + 1);
            if (!port.matches("[0-9]{1,5}") || Integer.parseInt(port) > 65535 || Integer.parseInt(port) == 0) {
                throw wrong(setting + ": port \"" + port + "\" of \"" + text + "\" is not a number from 1 to 65535");
            }
            return new Address(host, Integer.parseInt(port));
        }

        /** Of names only localhost counts, because the address of any other name can change. */
        boolean loopback() {
            if (host.equals("localhost")) {
                return true;
            }
            if (!host.matches("[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")) {
                return false; // a name: it is not looked up here
            }
            try {
                return InetAddress.getByName(host).isLoopbackAddress();
            } catch (IOException e) {
                return false;
            }
        }

        @Override
        public String toString() {
            return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
        }
    }
}
