package detect

import (
	"bytes"
	"crypto/tls"
	"testing"
)

func benchmarkSniff(b *testing.B, head []byte) {
	b.ReportAllocs()
	for b.Loop() {
		if Sniff(head).More {
			b.Fatal("undecided")
		}
	}
}

func BenchmarkSniffGET(b *testing.B) {
	benchmarkSniff(b, []byte("GET /api/v2/carts/17/items?sort=price HTTP/1.1\r\nHost: shop.default.svc:8080\r\nAccept: */*\r\n\r\n"))
}

func BenchmarkSniffPROPFIND(b *testing.B) {
	benchmarkSniff(b, []byte("PROPFIND /dav/files HTTP/1.1\r\nHost: dav\r\n\r\n"))
}

func BenchmarkSniffPreface(b *testing.B) {
	benchmarkSniff(b, []byte(clientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
}

func BenchmarkSniffOpaque(b *testing.B) {
	benchmarkSniff(b, []byte("\x00\x00\x00\x08\x04\xd2\x16\x2f"))
}

func BenchmarkSniffClientHello(b *testing.B) {
	benchmarkSniff(b, realHello(b, &tls.Config{ServerName: "svc.example", NextProtos: []string{"h2", "http/1.1"}}))
}

func BenchmarkNameMySQL(b *testing.B) {
	head := []byte("\x4a\x00\x00\x00\x0a8.4.3\x00\x08\x00\x00\x00abcdefgh\x00")
	b.ReportAllocs()
	for b.Loop() {
		if Name(head, true) != "mysql" {
			b.Fatal("not named")
		}
	}
}

func BenchmarkNameNobody(b *testing.B) {
	head := []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19")
	b.ReportAllocs()
	for b.Loop() {
		if Name(head, false) != "" {
			b.Fatal("named")
		}
	}
}

func BenchmarkMemoryEmpty(b *testing.B) {
	var m Memory
	b.ReportAllocs()
	for b.Loop() {
		if m.Has(db, noon) {
			b.Fatal("remembers")
		}
	}
}

func BenchmarkMemoryMiss(b *testing.B) {
	var m Memory
	m.Add(mail, noon)
	b.ReportAllocs()
	for b.Loop() {
		if m.Has(db, noon) {
			b.Fatal("remembers")
		}
	}
}

// A client may send 64 KiB of these byte by byte, and each time all is looked at.
func BenchmarkSniffUndecidedTarget(b *testing.B) {
	head := append([]byte("GET /"), bytes.Repeat([]byte{'a'}, MaxHead-6)...)
	b.ReportAllocs()
	for b.Loop() {
		if !Sniff(head).More {
			b.Fatal("decided")
		}
	}
}

func BenchmarkSniffUndecidedRecordsOfOneByte(b *testing.B) {
	m := message(append([]byte{3, 3}, make([]byte, 10900)...))
	head := records(m, bytewise(m)...)
	head = head[:len(head)-1]
	b.ReportAllocs()
	for b.Loop() {
		if !Sniff(head).More {
			b.Fatal("decided")
		}
	}
}
