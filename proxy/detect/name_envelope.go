package detect

import "bytes"

// Protocols inside somebody's envelope (BER, TPKT, TDS), and the odd ones.

// RFC 854: a command, and options both sides will or do. RFC 855.
func isTelnet(b []byte) bool {
	const will, dont, iac = 251, 254, 255
	return len(b) >= 3 && b[0] == iac && will <= b[1] && b[1] <= dont && b[2] <= 50
}

// The transport protocol between nodes: ES, then the size of the message.
func isElasticsearch(b []byte) bool {
	return len(b) >= 6 && starts(b, "ES") && within(be.Uint32(b[2:]), 13, 1<<30) && b[2] < 0x20
}

// The binary protocol, framed or not: version 1, call or reply, a name.
func isThrift(b []byte) bool {
	if len(b) >= 12 && within(be.Uint32(b), 12, 16<<20) && b[4] == 0x80 {
		b = b[4:]
	}
	if len(b) < 8 || !within(be.Uint32(b), 0x80010001, 0x80010004) {
		return false
	}
	n := int(min(be.Uint32(b[4:]), 256))
	return n > 0 && n < 256 && printable(b[8:min(len(b), 8+n)])
}

// RFC 4511: a message of BER with number 1 or so, and a bind, a search or an
// extended request (StartTLS) in it.
func isLDAPClient(b []byte) bool {
	op := ldapOperation(b)
	return op == 0x60 || op == 0x63 || op == 0x77
}

func isLDAPServer(b []byte) bool {
	op := ldapOperation(b)
	return op == 0x61 || op == 0x64 || op == 0x78
}

// ldapOperation returns the tag of the operation in an LDAP message, or 0.
func ldapOperation(b []byte) byte {
	if len(b) < 7 || b[0] != 0x30 {
		return 0
	}
	size, b := berSize(b[1:])
	if size < 5 || len(b) < 4 || b[0] != 2 || b[1] != 1 || b[2] == 0 {
		return 0
	}
	return b[3]
}

// berSize reads a length of BER and returns what follows; 0 if there is none.
func berSize(b []byte) (size int, rest []byte) {
	if b[0] < 0x80 {
		return int(b[0]), b[1:]
	}
	n := int(b[0] & 0x7f)
	if n == 0 || n > 4 || len(b) < 1+n {
		return 0, nil
	}
	for _, c := range b[1 : 1+n] {
		size = size<<8 | int(c)
	}
	return size, b[1+n:]
}

// A TPKT (RFC 1006, 6) whose X.224 unit opens a connection: request, confirm.
func isRDPClient(b []byte) bool { return x224(b) == 0xe0 }
func isRDPServer(b []byte) bool { return x224(b) == 0xd0 }

func x224(b []byte) byte {
	if len(b) < 11 || b[0] != 3 || b[1] != 0 {
		return 0
	}
	if size := uint32(be.Uint16(b[2:])); !within(size, 11, 512) || uint32(b[4]) != size-5 {
		return 0
	}
	return b[5]
}

// TDS: pre-login, the last packet of its message, window 0. The answer is a
// table response that starts with the option for the version.
func isMSSQLClient(b []byte) bool { return tds(b, 0x12) }
func isMSSQLServer(b []byte) bool { return tds(b, 0x04) }

func tds(b []byte, kind byte) bool {
	return len(b) >= 9 && b[0] == kind && b[1] == 1 && within(uint32(be.Uint16(b[2:])), 14, 4096) && b[6] <= 1 && b[7] == 0 && b[8] == 0
}

// The stream protocol of Java RMI: magic, version, kind of protocol.
func isRMIClient(b []byte) bool {
	return len(b) >= 7 && starts(b, "JRMI\x00") && b[5] <= 2 && 'K' <= b[6] && b[6] <= 'M'
}

// ProtocolAck and the endpoint as the server saw it: host and port.
func isRMIServer(b []byte) bool {
	if len(b) < 8 || b[0] != 'N' {
		return false
	}
	n := int(be.Uint16(b[1:]))
	return n > 1 && len(b) == 3+n+4 && printable(b[3:3+n]) && be.Uint32(b[3+n:]) <= 65535
}

// A session is opened by a record of fixed size, with or without the byte for
// read-only servers; or one of the four-letter words.
func isZooKeeperClient(b []byte) bool {
	if len(b) < 28 {
		word := firstLine(b)
		return len(word) == 4 && startsAny(word, "ruok", "srvr", "mntr", "cons", "isro")
	}
	size := be.Uint32(b)
	return within(size, 44, 45) && be.Uint32(b[4:]) == 0 && within(be.Uint32(b[16:]), 1, 10000000)
}

func isZooKeeperServer(b []byte) bool {
	if len(b) < 24 {
		return bytes.Equal(b, []byte("imok"))
	}
	size := be.Uint32(b)
	return within(size, 36, 37) && be.Uint32(b[4:]) == 0 && within(be.Uint32(b[8:]), 1, 10000000) && be.Uint32(b[20:]) == 16
}

// RFC 1035, 4: a message with its size in front, one question.
func isDNSQuery(b []byte) bool  { return dnsHeader(b, 0) && be.Uint32(b[8:]) == 0 }
func isDNSAnswer(b []byte) bool { return dnsHeader(b, 0x80) }

func dnsHeader(b []byte, response byte) bool {
	if len(b) < 2+12+5 || !within(uint32(be.Uint16(b)), 17, 4096) {
		return false
	}
	const responseAndOpcode = 0xf8
	return b[4]&responseAndOpcode == response && be.Uint16(b[6:]) == 1 && dnsQuestion(b[14:])
}

// dnsQuestion reports whether b starts with a name, a type and class IN.
func dnsQuestion(b []byte) bool {
	for len(b) > 0 && b[0] != 0 {
		n := int(b[0])
		if n > 63 || len(b) < 1+n || !printable(b[1:1+n]) {
			return false
		}
		b = b[1+n:]
	}
	return len(b) >= 5 && be.Uint16(b[3:]) == 1
}
