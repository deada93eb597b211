package detect

import (
	"bytes"
	"encoding/binary"
)

// Protocols of numbers. Most have no magic word, so every field that has few
// legal values is looked at.

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// within reports whether n lies in lo..hi.
func within(n, lo, hi uint32) bool { return lo <= n && n <= hi }

// printable reports whether b is visible ASCII and spaces, and not empty.
func printable(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(b) > 0
}

// The startup packets that carry a code in place of a version, and protocol 3
// with a parameter name (Kafka has the same eight bytes, then a number).
func isPostgresClient(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	const cancel, ssl, gss = 80877102, 80877103, 80877104
	size, code := be.Uint32(b), be.Uint32(b[4:])
	switch code {
	case ssl, gss:
		return size == 8
	case cancel:
		return within(size, 16, 268)
	default:
		return code>>16 == 3 && within(size, 9, 10000) && len(b) > 8 && printable(b[8:9])
	}
}

// An authentication request or an error. The lone 'S' or 'N' says too little.
func isPostgresServer(b []byte) bool {
	if len(b) < 9 {
		return false
	}
	size := be.Uint32(b[1:])
	switch b[0] {
	case 'R':
		return within(size, 8, 2048) && be.Uint32(b[5:]) <= 12
	case 'E':
		return within(size, 16, 8192) && startsAny(b[5:], "SFATAL\x00", "SERROR\x00")
	default:
		return false
	}
}

// mysqlPacket reads a packet's header: 3 bytes of size, little-endian, and its
// number; false if there is nothing behind it.
func mysqlPacket(b []byte) (size uint32, number byte, ok bool) {
	if len(b) < 5 {
		return 0, 0, false
	}
	return le.Uint32(b) & 0xffffff, b[3], true
}

// The greeting, protocol 10 with the version in words, or an error: too many
// connections, host not allowed (codes from 1000).
func isMySQLServer(b []byte) bool {
	size, number, ok := mysqlPacket(b)
	if !ok || number != 0 {
		return false
	}
	switch b[4] {
	case 10:
		end := bytes.IndexByte(b[5:], 0)
		return within(size, 20, 1024) && end > 0 && digits(b[5:]) > 0 && printable(b[5:5+end])
	case 0xff:
		return within(size, 4, 1024) && len(b) > 7 && within(uint32(le.Uint16(b[5:])), 1000, 4999) && printable(b[7:min(len(b), 4+int(size))])
	default:
		return false
	}
}

// The answer to the greeting, or the request for TLS that is its first half:
// flags with CLIENT_PROTOCOL_41, a packet limit, a character set, 19 zeros.
func isMySQLClient(b []byte) bool {
	size, number, ok := mysqlPacket(b)
	if !ok || number != 1 || len(b) < 36 || !within(size, 32, 4096) {
		return false
	}
	return b[5]&0x02 != 0 && zeros(b[13:32])
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// The binary protocol: magic, opcode, lengths that fit each other.
func isMemcachedBinary(b []byte, magic byte) bool {
	if len(b) < 24 || b[0] != magic || b[1] > 0x25 || b[5] != 0 {
		return false
	}
	return uint32(be.Uint16(b[2:]))+uint32(b[4]) <= be.Uint32(b[8:]) && be.Uint32(b[8:]) < 64<<20
}

// mongoHeader reads a message's header (size, number, answered number, opcode).
func mongoHeader(b []byte) (answered, opcode uint32, ok bool) {
	if len(b) < 16 || !within(le.Uint32(b), 17, 48000000) {
		return 0, 0, false
	}
	return le.Uint32(b[8:]), le.Uint32(b[12:]), true
}

const (
	mongoReply      = 1
	mongoQuery      = 2004
	mongoCompressed = 2012
	mongoMessage    = 2013
)

func isMongoDBClient(b []byte) bool {
	answered, op, ok := mongoHeader(b)
	return ok && answered == 0 && (op == mongoQuery || op == mongoMessage || op == mongoCompressed)
}

func isMongoDBServer(b []byte) bool {
	_, op, ok := mongoHeader(b)
	return ok && (op == mongoMessage || op == mongoCompressed || op == mongoReply && le.Uint32(b) >= 36)
}

// A first request: ApiVersions, Metadata or SaslHandshake, with a client id.
func isKafkaClient(b []byte) bool {
	const metadata, saslHandshake, apiVersions = 3, 17, 18
	if len(b) < 15 || !within(be.Uint32(b), 11, 4096) || be.Uint16(b[6:]) > 20 {
		return false
	}
	switch be.Uint16(b[4:]) {
	case metadata, saslHandshake, apiVersions:
		n := int(be.Uint16(b[12:]))
		return 10+n <= int(be.Uint32(b)) && len(b) >= 14+n && printable(b[14:14+n])
	default:
		return false
	}
}

// AMQP 0-9-1, 2.3 and AMQP 1.0, 2.2: the name, then four numbers.
func isAMQPClient(b []byte) bool { return len(b) >= 8 && starts(b, "AMQP") && b[4] <= 3 && b[5] <= 1 }

// The same header, or Connection.Start: method frame of channel 0, class 10.
func isAMQPServer(b []byte) bool {
	return isAMQPClient(b) || len(b) >= 11 && starts(b, "\x01\x00\x00") && within(be.Uint32(b[3:]), 8, 64<<10) && be.Uint32(b[7:]) == 10<<16|10
}

// MQTT 3.1 to 5: CONNECT, a size of 1 to 4 bytes, the protocol's name.
func isMQTTClient(b []byte) bool {
	if b[0] != 0x10 {
		return false
	}
	n := 1
	for n < len(b) && n < 4 && b[n]&0x80 != 0 {
		n++
	}
	return n < len(b) && startsAny(b[n+1:], "\x00\x04MQTT", "\x00\x06MQIsdp")
}

// CONNACK of MQTT 3: two bytes, a flag and a code.
func isMQTTServer(b []byte) bool {
	return len(b) == 4 && b[0] == 0x20 && b[1] == 2 && b[2] <= 1 && b[3] <= 5
}

// CQL: version, flags, stream, opcode, size. Sizes tell it from chance.
func isCassandraClient(b []byte) bool {
	const startup, options = 1, 5
	if len(b) < 9 || !within(uint32(b[0]), 3, 5) || b[1] > 0x1f {
		return false
	}
	switch size := be.Uint32(b[5:]); b[4] {
	case startup:
		return within(size, 2, 1024) && bytes.Contains(b, []byte("CQL_VERSION"))
	case options:
		return size == 0
	default:
		return false
	}
}

func isCassandraServer(b []byte) bool {
	const failed, ready, authenticate, supported = 0, 2, 3, 6
	if len(b) < 9 || !within(uint32(b[0]), 0x83, 0x85) || b[1] > 0x1f {
		return false
	}
	size := be.Uint32(b[5:])
	switch b[4] {
	case ready:
		return size == 0
	case failed, authenticate, supported:
		return within(size, 2, 64<<10)
	default:
		return false
	}
}
