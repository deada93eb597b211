package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const begin = "-----BEGIN "

// maxFile bounds a file, in bytes: a bundle of a thousand anchors is smaller.
const maxFile = 4 << 20

// blocks splits PEM text (RFC 7468) into its blocks. Unlike pem.Decode alone,
// which skips what it does not understand, it takes a block that is cut off or
// damaged for an error. Text between blocks is allowed, line ends may be CRLF.
func blocks(text []byte) ([]*pem.Block, error) {
	var out []*pem.Block
	for {
		at := bytes.Index(text, []byte(begin))
		if at < 0 {
			break
		}
		text = text[at:]
		block, rest := pem.Decode(text)
		used := text[:len(text)-len(rest)]
		if block == nil || bytes.Count(used, []byte(begin)) != 1 {
			return nil, fmt.Errorf("PEM block %d is cut off or damaged", len(out)+1)
		}
		out, text = append(out, block), rest
	}
	if tail := strings.TrimSpace(string(text)); tail != "" && strings.HasPrefix(begin, tail) {
		return nil, fmt.Errorf("PEM block %d is cut off or damaged", len(out)+1)
	}
	return out, nil
}

// parseCertificates reads a chain or a bundle: at least one certificate, and
// nothing else.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	list, err := blocks(text)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for i, b := range list {
		if b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %d is a %s: only certificates belong there", i+1, b.Type)
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", i+1, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("holds no certificate")
	}
	return certs, nil
}

// checkKey says what is wrong with the text of a private key before the standard
// library tries it, in clearer words.
func checkKey(text []byte) error {
	list, err := blocks(text)
	if err != nil {
		return err
	}
	for _, b := range list {
		if strings.Contains(b.Type, "ENCRYPTED") || strings.Contains(b.Headers["Proc-Type"], "ENCRYPTED") {
			return errors.New("the key is encrypted: it has to be readable without a password")
		}
	}
	for _, b := range list {
		if strings.HasSuffix(b.Type, "PRIVATE KEY") {
			return nil
		}
	}
	return errors.New("holds no private key")
}
