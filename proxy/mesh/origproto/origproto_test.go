package origproto

import (
	"bufio"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/proxy/message"
)

// vector is a line of testdata/mesh/origproto.txt.
type vector struct {
	line          int
	value, origin string
}

func vectors(t testing.TB) (out []vector) {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/mesh/origproto.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(text), "\n") {
		value, quoted, ok := strings.Cut(l, ": ")
		if !ok || strings.HasPrefix(l, "#") {
			continue
		}
		origin, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		out = append(out, vector{i + 1, value, origin})
	}
	if len(out) < 10 {
		t.Fatalf("only %d vectors", len(out))
	}
	return out
}

// head is a request's head as an HTTP/1 connection hands it on, read by net/http.
func head(t testing.TB, text string) *message.Head {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	h := &message.Head{Version: message.HTTP11, Method: []byte(r.Method), Authority: []byte(r.Host), Path: []byte(r.URL.RequestURI()), Upgrade: []byte(r.Header.Get("Upgrade"))}
	if r.ProtoMinor == 0 {
		h.Version = message.HTTP10
	}
	if r.URL.Scheme != "" {
		h.Scheme, h.Absolute = []byte(r.URL.Scheme), true
	}
	if r.RequestURI == "*" {
		h.Path = []byte("*")
	}
	if r.Method == "CONNECT" {
		h.Path = nil
	}
	for name, values := range r.Header {
		for _, v := range values {
			if name != "Connection" && name != "Upgrade" && name != "Content-Length" {
				h.Add(name, v)
			}
		}
	}
	return h
}

// told are the values of Field in a head, and everything else in words.
func told(h *message.Head) (values []string, rest string) {
	var b strings.Builder
	b.WriteString(strings.Join([]string{strconv.Itoa(int(h.Version)), string(h.Method), string(h.Scheme), string(h.Authority), string(h.Path), strconv.FormatBool(h.Absolute)}, " "))
	for _, f := range h.Fields {
		if strings.EqualFold(string(f.Name), Field) {
			values = append(values, string(f.Value))
		} else {
			b.WriteString(" " + string(f.Name) + "=" + string(f.Value))
		}
	}
	return values, b.String()
}

func TestARequestIsCarriedAndComesOutAsItWas(t *testing.T) {
	for _, v := range vectors(t) {
		h := head(t, v.origin)
		if got := Possible(h); got != (v.value != "never") {
			t.Errorf("line %d: possible: %t", v.line, got)
		}
		if v.value == "never" {
			continue
		}
		was := h.Version
		_, before := told(h)
		Upgrade(h)
		values, _ := told(h)
		if !slices.Equal(values, []string{v.value}) || h.Version != message.HTTP2 || h.Absolute {
			t.Errorf("line %d: %q, %+v", v.line, values, h)
		}
		if len(h.Scheme) == 0 {
			h.Scheme = []byte("http") // HTTP/2 has one always
		}
		got, ok := Restore(h)
		if values, after := told(h); !ok || got != was || after != before || len(values) != 0 {
			t.Errorf("line %d: %v, %t, %q, %q\nwant %q", v.line, got, ok, values, after, before)
		}
	}
}

func TestARequestOfHTTP2IsNotCarriedAgain(t *testing.T) {
	h := head(t, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
	h.Version = message.HTTP2
	if Possible(h) {
		t.Error("HTTP/2 was taken for HTTP/1")
	}
}

func TestWhatWasNotUpgradedStaysAsItIs(t *testing.T) {
	for _, tt := range []struct {
		value   string
		version message.Version
	}{
		{"-", message.HTTP2}, {"", message.HTTP2}, {"HTTP/2", message.HTTP2}, {"http/1.1", message.HTTP2}, {"HTTP/1.1, HTTP/1.0", message.HTTP2},
		{"; absolute-form", message.HTTP2}, {"HTTP/1.1", message.HTTP11}, // that came in HTTP/1
	} {
		h := head(t, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
		h.Version, h.Scheme = tt.version, []byte("http")
		_, before := told(h)
		if tt.value != "-" {
			h.Add(Field, tt.value)
		}
		_, ok := Restore(h)
		if values, after := told(h); ok || after != before || len(values) != 0 {
			t.Errorf("%q: %t, %q, %q", tt.value, ok, values, after)
		}
	}
}

func TestAValueIsReadAsLinkerdWritesIt(t *testing.T) {
	for value, want := range map[string]bool{"HTTP/1.1; absolute-form": true, "HTTP/1.1;absolute-form": true, "HTTP/1.1": false, "HTTP/1.1; other": false} {
		h := &message.Head{Version: message.HTTP2, Scheme: []byte("http")}
		h.Add(Field, value)
		if was, ok := Restore(h); !ok || was != message.HTTP11 || h.Absolute != want || (len(h.Scheme) > 0) != want {
			t.Errorf("%q: %v, %t, %+v", value, was, ok, h)
		}
	}
}

func TestAResponseIsCarriedAndComesOutAsItWas(t *testing.T) {
	for was, value := range map[message.Version]string{message.HTTP11: "HTTP/1.1", message.HTTP10: "HTTP/1.0"} {
		h := &message.Head{Version: was, Status: 200}
		h.Add("server", "nginx")
		h.Add(Field, "HTTP/3") // the application's own words
		Mark(h)
		if values, _ := told(h); !slices.Equal(values, []string{value}) || h.Version != message.HTTP2 {
			t.Errorf("%s: %q, version %v", value, values, h.Version)
		}
		Unmark(h)
		if values, _ := told(h); len(values) != 0 || h.Version != was || string(h.Get("server")) != "nginx" {
			t.Errorf("%s: %q, version %v", value, values, h.Version)
		}
	}
}

func TestAResponseOfTheOtherProxyIsHTTP11(t *testing.T) {
	h := &message.Head{Version: message.HTTP2, Status: 502}
	Unmark(h)
	if h.Version != message.HTTP11 {
		t.Errorf("version %v", h.Version)
	}
}

func TestWhatIsNoProxysIsStripped(t *testing.T) {
	h := head(t, "GET / HTTP/1.1\r\nHost: web\r\nl5d-orig-proto: HTTP/1.1\r\nl5D-oRig-proto: HTTP/1.0\r\nA: b\r\n\r\n")
	Strip(h)
	if values, _ := told(h); len(values) != 0 || string(h.Get("a")) != "b" {
		t.Errorf("%q, %+v", values, h)
	}
}

func TestNothingOfAConnectionIsCarried(t *testing.T) {
	h := head(t, "GET / HTTP/1.1\r\nHost: web\r\nTE: trailers\r\n\r\n")
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"} {
		h.Add(name, "x")
	}
	for _, carry := range []func(*message.Head){Upgrade, Mark} {
		c := new(message.Head)
		c.CopyFrom(h)
		carry(c)
		c.Del(Field)
		if len(c.Fields) != 1 || string(c.Get("te")) != "trailers" {
			t.Errorf("%+v", c.Fields)
		}
	}
}

func TestARequestIsEditedWithoutAllocating(t *testing.T) {
	from := head(t, "GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\nAccept: */*\r\n\r\n")
	var h message.Head
	edit := func() {
		h.Reset()
		h.CopyFrom(from)
		Upgrade(&h)
		Restore(&h)
		h.Version = message.HTTP11
		Mark(&h)
		Unmark(&h)
	}
	edit() // makes room
	if n := testing.AllocsPerRun(100, edit); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
