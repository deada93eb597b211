package detect

import "testing"

func TestALineThatMeansToBeHTTPIsToldFromOtherProtocols(t *testing.T) {
	for first, want := range map[string]bool{
		"GET  /x HTTP/1.1\r\nHost: a\r\n\r\n":     true,
		"GET\t/x HTTP/1.1\r\n":                    true,
		"GET /x\tHTTP/1.1\r\n":                    true,
		"\r\nGET /x\x00 HTTP/1.1\r\n":             true,
		"GET /x HTTP/1.1\rHost: a\r\n":            true,
		"GET /x HTTP/2.0\r\n":                     true,
		"GET /x HTTP/1.10\r\n":                    true,
		"POST /x http/1.1\r\n":                    true,
		"GET /x HTTP/1.+1\r\n":                    true,
		"GET key\r\n":                             false, // Redis
		"GET key\r\nPUT x HTTP/\r\n":              false, // the first line counts
		"get  /x HTTP/1.1\r\n":                    false,
		"GETX /x HTTP/1.2\r\n":                    false,
		"CONNECT {\"verbose\":false}\r\nPING\r\n": false, // NATS
		"OPTIONS rtsp://a/b RTSP/1.0\r\n":         false,
		"OPTIONS sip:a@b SIP/2.0\r\n":             false,
		"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n":        false,
		"HTTP/1.1 200 OK\r\n":                     false,
		"":                                        false,
		"\r\n\r\n":                                false,
		"GET":                                     false,
	} {
		if got := Malformed([]byte(first)); got != want {
			t.Errorf("%q: %t", first, got)
		}
	}
}
