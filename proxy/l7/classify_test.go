package l7

import "testing"

func TestSuccessIsWhatTheServerIsNotToBlameFor(t *testing.T) {
	for status := range 1000 {
		if got, want := Success(status, false, -1), status > 0 && status < 500; got != want {
			t.Errorf("HTTP %d: %v", status, got)
		}
	}
	failures := map[int]bool{-1: true, 2: true, 4: true, 7: true, 13: true, 14: true, 15: true}
	for code := -1; code <= 16; code++ {
		for _, status := range []int{200, 503} {
			if Success(status, true, code) == failures[code] {
				t.Errorf("gRPC %d with HTTP %d: success %v", code, status, !failures[code])
			}
		}
	}
}

func TestContentTypes(t *testing.T) {
	for text, want := range map[string]content{
		"application/grpc":               grpcContent,
		"Application/GRPC":               grpcContent,
		"application/grpc+proto":         grpcContent,
		"application/grpc; charset=utf8": grpcContent,
		"application/grpc-web":           grpcWebContent,
		"application/grpc-web-text+json": grpcWebContent,
		"application/grpcx":              plainContent,
		"application/grp":                plainContent,
		"text/plain":                     plainContent,
		"":                               plainContent,
	} {
		if got := parseContent([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestGRPCStatusesOutsideTheSetAreUnknown(t *testing.T) {
	for text, want := range map[string]int16{"0": 0, "7": 7, "16": 16, "17": 2, "": 2, "-1": 2, "007": 2, "4294967296": 2, "x": 2} {
		if got := parseGRPCStatus([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestNamesAreComparedWithoutCase(t *testing.T) {
	for text, want := range map[string]bool{"te-x": true, "TE-X": true, "tE-x": true, "te-": false, "te-xx": false, "te\rx": false, "tf-x": false, "TF-x": false, "\x34\x45-x": false, "te-\x18": false} {
		if got := equalFold([]byte(text), "te-x"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAResponseIsJudgedByItsGRPCStatusWhereThatCanBeSeen(t *testing.T) {
	ok := []byte("0")
	for _, tc := range []struct {
		contentType string
		status      []byte
		want        bool
	}{
		{"application/grpc", nil, true}, // in the trailers, or missing
		{"application/grpc+proto", ok, true},
		{"application/grpc-web", nil, false}, // in the body, where nobody looks
		{"application/grpc-web+proto", ok, true},
		{"application/grpcx", ok, false},
		{"text/plain", ok, false},
	} {
		if got := JudgedByGRPC([]byte(tc.contentType), tc.status); got != tc.want {
			t.Errorf("%s with status %q: %v", tc.contentType, tc.status, got)
		}
	}
	for text, want := range map[string]int{"0": 0, "16": 16, "17": 2, "x": 2, "": 2} {
		if got := GRPCStatus([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := GRPCStatus(nil); got != -1 {
		t.Errorf("missing: %d", got)
	}
}
