package io.github.headrace.push;

import java.net.Socket;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Java's own check of certificates and host names, for another implementation of TLS. In TLS 1.3 a
 * certificate has no kind of exchange: Conscrypt calls that GENERIC, and Java UNKNOWN.
 */
final class TrustOfJava extends X509ExtendedTrustManager {
    private final X509ExtendedTrustManager java;

    TrustOfJava(X509ExtendedTrustManager java) {
        this.java = java;
    }

    private static String kind(String authType) {
        return authType.equals("GENERIC") ? "UNKNOWN" : authType;
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String authType, Socket socket) throws CertificateException {
        java.checkServerTrusted(chain, kind(authType), socket);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String authType, SSLEngine engine) throws CertificateException {
        java.checkServerTrusted(chain, kind(authType), engine);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String authType) throws CertificateException {
        throw new CertificateException("a certificate cannot be checked without its host name");
    }

    private static CertificateException client() {
        return new CertificateException("this side is the client");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String authType, Socket socket) throws CertificateException {
        throw client();
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String authType, SSLEngine engine) throws CertificateException {
        throw client();
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String authType) throws CertificateException {
        throw client();
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
        return java.getAcceptedIssuers();
    }
}
