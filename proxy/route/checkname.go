package route

import (
	"errors"
	"fmt"
	"strings"
)

var errEmpty = errors.New("empty")

// framing are the fields that a message.Head does not hold: what they say is
// the connection's business, and a rule about them would never see them.
var framing = [...]string{"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

func isFraming(name string) bool {
	for _, f := range framing {
		if strings.EqualFold(f, name) {
			return true
		}
	}
	return false
}

// checkMatchedName allows Host, which is matched as the authority, and Upgrade,
// which a head keeps.
func checkMatchedName(name string) error {
	if strings.EqualFold(name, "upgrade") {
		return nil
	}
	return checkEditedName(name)
}

func checkEditedName(name string) error {
	switch {
	case !isToken(name):
		return fmt.Errorf("%q is not the name of a header field", name)
	case isFraming(name):
		return fmt.Errorf("%s belongs to the connection and cannot be used here", name)
	}
	return nil
}

func checkValue(v string) error {
	if strings.Trim(v, " \t") != v {
		return fmt.Errorf("%q begins or ends with a blank", v)
	}
	for i := range len(v) {
		if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("%q has a control character", v)
		}
	}
	return nil
}

// isToken follows RFC 9110, 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
