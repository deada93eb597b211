package annotation

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/ports"
)

func TestOpaquePortsAreNumbersRangesAndNames(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  string // Ports.String; "!..." is part of the error
	}{
		{"", ""},
		{" ", ""},
		{"3306", "3306"},
		{"25,587", "25,587"},
		{" 25 , 587 ", "25,587"},
		{"4444-4446,25,4447", "25,4444-4447"},
		{"+3306", "+3306"},
		{"+", "+"},
		{"mysql", "mysql"},
		{"mysql,25,smtp", "25,mysql,smtp"},
		{"+mysql", "+mysql"},
		{"mysql,", "mysql"},
		{"25,", "25"},
		{"0", "!item 1"},
		{"25,70000", "!item 2"},
		{"mysql,0", `!item 2 "0"`},
		{"mysql,,25", "!item 2"},
		{"Mysql", "!neither"},
		{"a_b", "!neither"},
		{"averyveryverylongname", "!neither"},
		{"a--b", "!neither"},
		{"25;587", "!item 1"},
		{"25, +587", "!item 2"},
		{"٣٣٠٦", "!neither"},
	} {
		p, err := ParsePorts(tt.value)
		got := p.String()
		if err != nil {
			if rest, wants := strings.CutPrefix(tt.want, "!"); !wants || !strings.Contains(err.Error(), rest) {
				t.Errorf("%q: error %v, want %q", tt.value, err, tt.want)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%q is read as %q, want %q", tt.value, got, tt.want)
		}
	}
}

func TestAListReplacesTheDefaultAndAPlusAddsToIt(t *testing.T) {
	def := ports.Of(25, 3306)
	for _, tt := range []struct {
		value, name string
		port        uint16
		want        bool
	}{
		{"4406", "", 4406, true},
		{"4406", "", 3306, false},
		{"", "", 3306, false},
		{"+4406", "", 3306, true},
		{"+", "", 25, true},
		{"db", "db", 77, true},
		{"db", "web", 77, false},
		{"db", "", 77, false},
		{"70-80", "db", 77, true},
	} {
		p, err := ParsePorts(tt.value)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Has(tt.port, tt.name, def); got != tt.want {
			t.Errorf("%q has %d %q: %t", tt.value, tt.port, tt.name, got)
		}
	}
}

func TestNamesBecomeThePortsThatHaveThem(t *testing.T) {
	p, err := ParsePorts("+db,99")
	if err != nil {
		t.Fatal(err)
	}
	got := p.Over(ports.Of(25), func(name string) ports.Set {
		if name != "db" {
			t.Errorf("asked for %q", name)
		}
		return ports.Of(5000, 5001)
	})
	if got.String() != "25,99,5000-5001" {
		t.Errorf("got %s", got)
	}
}

func TestAMisspeltKeyIsToldWhatItWasMeantToBe(t *testing.T) {
	for key, want := range map[string]string{
		"config.linkerd.io/skip-oubound-ports":                  SkipOutboundPorts,
		"config.linkerd.io/opauqe-ports":                        OpaquePorts,
		"config.linkerd.io/opaque-port":                         OpaquePorts,
		"config.linkerd.io/Opaque-ports":                        OpaquePorts,
		"config.linkerd.io/skip-inbound-port":                   SkipInboundPorts,
		"config.linkerd.io/skip-subnet":                         SkipSubnets,
		"linkerd.io/opaque-ports":                               OpaquePorts,
		"config.linkerd.oi/opaque-ports":                        OpaquePorts,
		"config.linked.io/skip-outbound-ports":                  SkipOutboundPorts,
		"config.linkerd.io/proxy-uuid":                          ProxyUID,
		"config.linkerd.io/opaque-ports":                        "",
		"linkerd.io/inject":                                     "",
		"linkerd.io/proxy-version":                              "",
		"linkerd.io/created-by":                                 "",
		"linkerd.io/trust-root-sha256":                          "",
		"kubernetes.io/config.seen":                             "",
		"example.com/opaque-ports":                              "",
		"opaque-ports":                                          "",
		"config.linkerd.io/something-else-entirely":             "",
		"viz.linkerd.io/external-prometheus":                    "",
		"retry.linkerd.io/http":                                 "",
		"config.alpha.linkerd.io/proxy-wait-before-exit-second": AlphaPrefix + "proxy-wait-before-exit-seconds",
	} {
		if got := Suggest(key); got != want {
			t.Errorf("%s: did you mean %q? want %q", key, got, want)
		}
	}
}

func TestEveryKnownKeyIsItsOwnSpelling(t *testing.T) {
	for _, k := range known {
		if s := Suggest(k.Key); s != "" {
			t.Errorf("%s is known, and taken for %s", k.Key, s)
		}
		if got, ok := Find(k.Key); !ok || got != k {
			t.Errorf("%s is not found", k.Key)
		}
	}
}

func TestDistanceCountsTypingErrors(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"ab", "ba", 1}, {"oubound", "outbound", 1}, {"opauqe", "opaque", 1}, {"kitten", "sitting", 3}, {"abc", "abc", 0}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q to %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("%q to %q: %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

func TestValuesAreCheckedByTheirForm(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{SkipInboundPorts, "25,80-90", ""},
		{SkipInboundPorts, "mysql", "not a port number"},
		{SkipInboundPorts, "+25", ""},
		{SkipSubnets, "10.0.0.0/8, fd00::/8", ""},
		{SkipSubnets, "10.0.0.0/40", "item 1"},
		{SkipSubnets, "10.0.0.0/8,pod", "item 2"},
		{SkipSubnets, "::ffff:10.0.0.0/104", "IPv6 clothes"},
		{InboundPort, "4143", ""},
		{InboundPort, "0", "not a port"},
		{InboundPort, "80-90", "not a port"},
		{InboundPort, "", "not a port"},
		{ProxyUID, "2102", ""},
		{ProxyUID, "-1", "number"},
		{ShutdownGrace, "2m", ""},
		{ShutdownGrace, "10", "no duration"},
		{ShutdownGrace, "-1s", "negative"},
		{Prefix + "enable-debug-sidecar", "true", "no effect"},
		{Prefix + "enable-debug-sidecar", "yes", "neither"},
		{"config.linkerd.io/proxy-cpu-limit", "1", "no effect"},
		{"config.linkerd.io/opauqe-ports", "1", "did you mean config.linkerd.io/opaque-ports?"},
		{"config.linkerd.io/what-is-this-key-of", "1", "unknown key"},
		{"example.com/x", "1", ""},
	} {
		got := ""
		if err := Check(tt.key, tt.value); err != nil {
			got = err.Error()
		}
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s=%q: %q, want %q", tt.key, tt.value, got, tt.want)
		}
	}
}

func TestDurationsAreLinkerdsAndGos(t *testing.T) {
	for value, want := range map[string]time.Duration{"10s": 10 * time.Second, "100ms": 100 * time.Millisecond, "2d": 48 * time.Hour, "0": 0, "1m30s": 90 * time.Second} {
		if got, err := ParseDuration(value); err != nil || got != want {
			t.Errorf("%q: %s, %v", value, got, err)
		}
	}
	for _, value := range []string{"", "10", "d", "-2d", "1 s", "99999d"} {
		if got, err := ParseDuration(value); err == nil {
			t.Errorf("%q is read as %s", value, got)
		}
	}
}

func TestADownwardAPIFileIsReadLineByLine(t *testing.T) {
	text := "config.linkerd.io/opaque-ports=\"3306\"\n\nkubernetes.io/config.seen=\"2026-11-30T10:00:00Z\"\nnote=\"two\\nlines, \\\"quoted\\\" = \\\\\"\n"
	got, err := ParseFile(text)
	want := []Entry{
		{OpaquePorts, "3306", 1},
		{"kubernetes.io/config.seen", "2026-11-30T10:00:00Z", 3},
		{"note", "two\nlines, \"quoted\" = \\", 4},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
}

func TestAWrongFileIsToldItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"a=\"1\"\nb":                  `line 2: want key="value"`,
		"a=1":                         "line 1: the value of a is not in double quotes",
		"a='1'":                       "line 1: the value of a is not in double quotes",
		"a=`1`":                       "line 1: the value of a is not in double quotes",
		"a=":                          "line 1: the value of a is not in double quotes",
		"=\"1\"":                      `line 1: want key="value"`,
		"a=\"1\"\n\na=\"2\"":          "line 3: a is on line 1 already",
		"a=\"1\" # a comment of ours": "line 1: the value of a is not in double quotes",
	} {
		if got, err := ParseFile(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
}

func TestAPodsAnnotationsAreReadWithNotes(t *testing.T) {
	pod, notes := Read([]Entry{
		{OpaquePorts, "+4406", 1},
		{SkipOutboundPorts, "+3307", 2},
		{"config.linkerd.io/skip-oubound-ports", "3306", 3},
		{SkipSubnets, "10.0.0.0/8", 4},
		{ProxyUID, "nobody", 5},
		{InboundPort, "5143", 6},
		{"config.linkerd.io/proxy-cpu-limit", "1", 7},
		{ShutdownGrace, "30s", 8},
	})
	if pod.OpaquePorts == nil || pod.OpaquePorts.String() != "+4406" || *pod.InboundPort != 5143 || *pod.ShutdownGrace != 30*time.Second {
		t.Errorf("got %+v", pod)
	}
	if pod.ProxyUID != nil {
		t.Errorf("a wrong uid is taken: %d", *pod.ProxyUID)
	}
	if got := Skips(pod.SkipOutboundPorts, ports.Of(4567)); got.String() != "3307,4567" {
		t.Errorf("skip-outbound-ports: %s", got)
	}
	if got := Skips(pod.SkipInboundPorts, ports.Of(4567)); got.String() != "4567" {
		t.Errorf("skip-inbound-ports, not said: %s", got)
	}
	var lines []int
	var wrong []bool
	for _, n := range notes {
		lines, wrong = append(lines, n.Line), append(wrong, n.Wrong())
	}
	if !cmp.Equal(lines, []int{3, 5, 7}) || !cmp.Equal(wrong, []bool{false, true, false}) {
		t.Errorf("notes %v", notes)
	}
	if !errors.Is(notes[2].Err, ErrUnused) || !strings.Contains(notes[2].Error(), "line 7: config.linkerd.io/proxy-cpu-limit") {
		t.Errorf("note %v", notes[2])
	}
}

func FuzzParsePortsNeverPanicsAndReadsItsOwnText(f *testing.F) {
	for _, s := range []string{"", "25,mysql", "+1-5", "a-,b", "1-2-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		p, err := ParsePorts(value)
		if err != nil {
			return
		}
		again, err := ParsePorts(p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%q: %q, then %q, %v", value, p.String(), again.String(), err)
		}
	})
}

func TestTheKeysAreSortedSoThatTheyAreFound(t *testing.T) {
	if !slices.IsSortedFunc(known[:], func(a, b Known) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("keys.go is not sorted")
	}
}
