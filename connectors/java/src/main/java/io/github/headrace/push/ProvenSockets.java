package io.github.headrace.push;

import io.github.headrace.push.HeadraceException.Kind;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.security.Provider;
import java.security.cert.CertificateException;
import javax.net.SocketFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * Makes connections to a master on which TLS and the proof are done already, so that gRPC only has
 * to speak HTTP/2. The address that gRPC names is not used: the target is asked again each time, so
 * a master that comes back on another port is found.
 */
final class ProvenSockets extends SocketFactory {
    private static final int WITHIN_MS = 5000;

    private final Target target;

    ProvenSockets(Target target) {
        this.target = target;
    }

    @Override
    public Socket createSocket(InetAddress ignored, int alsoIgnored) throws IOException {
        Target.Address to = target.address();
        String token = target.readToken();
        Socket s = new Socket();
        try {
            InetSocketAddress where = new InetSocketAddress(to.host, to.port);
            if (where.isUnresolved()) {
                throw new IOException("the name " + to.host + " is not known");
            }
            s.connect(where, WITHIN_MS);
            s.setTcpNoDelay(true);
            s.setSoTimeout(WITHIN_MS);
            if (!target.tls()) {
                Proof.prove(s, Proof.tcpBinding(s.getInetAddress(), s.getPort()), token, false);
            } else {
                // Without a token the certificate alone is the proof.
                Provider provider = token == null ? null : SessionKeys.provider();
                SSLSocket tls = handshake(s, to, TlsFiles.context(target, provider));
                s = tls;
                if (token != null) {
                    byte[] keys = SessionKeys.of(tls);
                    byte[] binding = new byte[4 + keys.length];
                    System.arraycopy(new byte[] {'t', 'l', 's', ' '}, 0, binding, 0, 4);
                    System.arraycopy(keys, 0, binding, 4, keys.length);
                    Proof.prove(tls, binding, token, true);
                }
            }
            s.setSoTimeout(0);
            return s;
        } catch (HeadraceException e) {
            close(s);
            throw e;
        } catch (IOException e) {
            close(s);
            throw new HeadraceException(Kind.UNAVAILABLE, to + ": " + e.getMessage(), e);
        }
    }

    private static SSLSocket handshake(Socket s, Target.Address to, SSLContext context) throws IOException {
        SSLSocket tls = (SSLSocket) context.getSocketFactory().createSocket(s, to.host, to.port, true);
        SSLParameters p = tls.getSSLParameters();
        p.setProtocols(new String[] {"TLSv1.3"});
        p.setApplicationProtocols(new String[] {"h2"});
        p.setEndpointIdentificationAlgorithm("HTTPS");
        tls.setSSLParameters(p);
        try {
            tls.startHandshake();
        } catch (SSLException e) {
            for (Throwable t = e; t != null; t = t.getCause()) {
                if (t instanceof CertificateException) {
                    throw new HeadraceException(Kind.DENIED, "this is not our master: the certificate of " + to + " is not good: " + t.getMessage(), e);
                }
            }
            throw e; // the master may have been killed meanwhile
        }
        return tls;
    }

    private static void close(Socket s) {
        try {
            s.close();
        } catch (IOException e) {
            // The connection has failed already, and the caller throws why.
        }
    }

    private static IOException notUsed() {
        return new IOException("gRPC connects to addresses only");
    }

    @Override
    public Socket createSocket(String host, int port) throws IOException {
        throw notUsed();
    }

    @Override
    public Socket createSocket(String host, int port, InetAddress local, int localPort) throws IOException {
        throw notUsed();
    }

    @Override
    public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) throws IOException {
        throw notUsed();
    }
}
