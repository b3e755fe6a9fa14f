package io.github.headrace.push;

import io.github.headrace.push.HeadraceException.Kind;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Provider;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/** Mutual TLS from three PEM files. */
final class TlsFiles {
    private static final Pattern KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----([^-]*)-----END PRIVATE KEY-----");

    private TlsFiles() {}

    /** A context with our certificate that trusts the authority alone. A null provider is Java's own. */
    static SSLContext context(Target t, Provider provider) throws IOException {
        try {
            KeyStore ours = KeyStore.getInstance("PKCS12");
            ours.load(null, null);
            ours.setKeyEntry("us", key(t.tlsKey()), new char[0], certificates("tls-cert", t.tlsCert()).toArray(new Certificate[0]));
            KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(ours, new char[0]);
            KeyStore theirs = KeyStore.getInstance("PKCS12");
            theirs.load(null, null);
            int n = 0;
            for (Certificate c : certificates("tls-ca", t.tlsCa())) {
                theirs.setCertificateEntry("ca" + n++, c);
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(theirs);
            SSLContext context = provider == null ? SSLContext.getInstance("TLSv1.3") : SSLContext.getInstance("TLSv1.3", provider);
            TrustManager[] managers = provider == null ? trust.getTrustManagers()
                : new TrustManager[] {new TrustOfJava((X509ExtendedTrustManager) trust.getTrustManagers()[0])};
            context.init(keys.getKeyManagers(), managers, null);
            return context;
        } catch (GeneralSecurityException e) {
            throw wrong("tls-cert " + t.tlsCert() + ", tls-key " + t.tlsKey() + ": " + e.getMessage(), e);
        }
    }

    private static HeadraceException wrong(String message, Exception cause) {
        return new HeadraceException(Kind.SETTINGS, message, cause);
    }

    private static String read(String setting, String path) throws HeadraceException {
        try {
            return Files.readString(Path.of(path), StandardCharsets.ISO_8859_1); // around the PEM there may be names in any letters
        } catch (IOException e) {
            throw wrong(setting + " " + path + " cannot be read: " + e, e);
        }
    }

    private static Collection<? extends Certificate> certificates(String setting, String path) throws HeadraceException {
        try {
            byte[] pem = read(setting, path).getBytes(StandardCharsets.ISO_8859_1);
            Collection<? extends Certificate> all = CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
            if (all.isEmpty()) {
                throw wrong(setting + " " + path + ": no PEM certificate in it", null);
            }
            return all;
        } catch (CertificateException e) {
            throw wrong(setting + " " + path + ": " + e.getMessage(), e);
        }
    }

    private static PrivateKey key(String path) throws GeneralSecurityException, HeadraceException {
        String pem = read("tls-key", path);
        Matcher m = KEY.matcher(pem);
        if (!m.find()) {
            String hint = pem.contains("PRIVATE KEY-----") ? ": its form is not PKCS 8; convert it: openssl pkcs8 -topk8 -nocrypt -in " + path : "";
            throw wrong("tls-key " + path + ": no PEM private key in it" + hint, null);
        }
        PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(m.group(1)));
        for (String kind : new String[] {"EC", "RSA", "Ed25519"}) {
            try {
                return KeyFactory.getInstance(kind).generatePrivate(spec);
            } catch (InvalidKeySpecException | java.security.NoSuchAlgorithmException e) {
                continue; // another kind, or one that is not in this Java
            }
        }
        throw wrong("tls-key " + path + ": it is neither an EC, an RSA nor an Ed25519 key", null);
    }
}
