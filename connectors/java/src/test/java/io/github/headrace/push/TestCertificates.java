package io.github.headrace.push;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** An authority and its certificates for 127.0.0.1, made with the JDK's keytool. */
public final class TestCertificates {
    private final Path dir;

    private TestCertificates(Path dir) {
        this.dir = dir;
    }

    /** A new authority in a folder. */
    public static TestCertificates in(Path dir) throws Exception {
        Files.createDirectories(dir);
        TestCertificates t = new TestCertificates(dir);
        t.keytool("-genkeypair", "-keystore", "ca.p12", "-alias", "ca", "-keyalg", "EC", "-dname", "CN=ca", "-ext", "bc:c", "-validity", "2");
        t.keytool("-exportcert", "-keystore", "ca.p12", "-alias", "ca", "-rfc", "-file", "ca.crt");
        return t;
    }

    /** The files of a certificate, of its key and of its authority. */
    public String[] issue(String name) throws Exception {
        keytool("-genkeypair", "-keystore", name + ".p12", "-alias", name, "-keyalg", "EC", "-dname", "CN=" + name, "-validity", "2");
        keytool("-certreq", "-keystore", name + ".p12", "-alias", name, "-file", name + ".csr");
        keytool("-gencert", "-keystore", "ca.p12", "-alias", "ca", "-infile", name + ".csr", "-outfile", name + ".crt", "-rfc",
            "-ext", "san=ip:127.0.0.1", "-ext", "eku=serverAuth,clientAuth", "-validity", "2");
        KeyStore store = KeyStore.getInstance(dir.resolve(name + ".p12").toFile(), "password".toCharArray());
        byte[] key = store.getKey(name, "password".toCharArray()).getEncoded();
        Files.writeString(dir.resolve(name + ".key"), "-----BEGIN PRIVATE KEY-----\n" + Base64.getMimeEncoder().encodeToString(key) + "\n-----END PRIVATE KEY-----\n");
        return new String[] {dir.resolve(name + ".crt").toString(), dir.resolve(name + ".key").toString(), dir.resolve("ca.crt").toString()};
    }

    private void keytool(String... args) throws Exception {
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "keytool").toString()));
        command.addAll(List.of("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"));
        command.addAll(List.of(args));
        command.addAll(List.of("-storepass", "password"));
        Process p = new ProcessBuilder(command).directory(dir.toFile()).redirectErrorStream(true).start();
        String out = new String(p.getInputStream().readAllBytes());
        if (p.waitFor() != 0) {
            throw new IOException(String.join(" ", args) + ": " + out);
        }
    }
}
