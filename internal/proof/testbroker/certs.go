package testbroker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CA is the file of the authority that has signed the broker's certificate.
func (p *process) CA() string { return filepath.Join(p.dir, "ca.pem") }

// ClientCert is a file with a client's certificate and key, signed by the same authority.
func (p *process) ClientCert() string { return filepath.Join(p.dir, "client.pem") }

func (p *process) writeCerts() error {
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "headrace test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.CA(), block("CERTIFICATE", der), 0o600); err != nil {
		return err
	}
	if err := p.writeLeaf("broker.pem", 2, ca, key); err != nil {
		return err
	}
	return p.writeLeaf("client.pem", 3, ca, key)
}

func (p *process) writeLeaf(name string, serial int64, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	leaf := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// Pulsar needs a file that holds only certificates.
	if err := os.WriteFile(filepath.Join(p.dir, certOnly(name)), block("CERTIFICATE", der), 0o600); err != nil {
		return err
	}
	text := append(block("PRIVATE KEY", secret), block("CERTIFICATE", der)...)
	return os.WriteFile(filepath.Join(p.dir, name), text, 0o600)
}

func certOnly(name string) string { return strings.TrimSuffix(name, ".pem") + "-cert.pem" }

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
