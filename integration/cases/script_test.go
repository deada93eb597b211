package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAScriptIsReadAsWritten(t *testing.T) {
	s, err := Parse("x", []byte(`
# a remark
about  two ends
way    direct
way    proxy flags=--a=1,--b protocol=opaque
client send "a\r\n" hex:00ff fill:6263*2
client match ^b+
server bytewise 5ms "xy"
server after 1s
server close
`))
	if err != nil {
		t.Fatal(err)
	}
	if s.Client[1].Pattern.String() != "(?s)^b+" {
		t.Errorf("the pattern is %s", s.Client[1].Pattern)
	}
	s.Client[1].Pattern = nil
	want := &Script{
		Name: "x", About: "two ends",
		Ways: []Way{
			{Name: "direct", Want: map[string]string{}},
			{Name: "proxy", Flags: []string{"--a=1", "--b"}, Want: map[string]string{"protocol": "opaque"}},
		},
		Client: []Step{{Line: 6, Verb: "send", Bytes: []byte("a\r\n\x00\xffbcbc")}, {Line: 7, Verb: "match"}},
		Server: []Step{
			{Line: 8, Verb: "bytewise", Time: 5 * time.Millisecond, Bytes: []byte("xy")},
			{Line: 9, Verb: "after", Time: time.Second}, {Line: 10, Verb: "close"},
		},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsNoScriptIsRefusedByItsLine(t *testing.T) {
	for _, v := range []struct{ line, want string }{
		{"clint send \"a\"", "no such word"},
		{"client sned \"a\"", "no such verb"},
		{"client send a", "neither quoted"},
		{"client send", "no bytes"},
		{"client send \"a", "invalid syntax"},
		{"client send hex:0", "odd length"},
		{"client send fill:00*-1", "a count"},
		{"client match (", "missing closing"},
		{"client pause soon", "invalid duration"},
		{"client close now", "takes nothing"},
		{"way round", "no such way"},
		{"way proxy opaque", "no key=value"},
	} {
		_, err := Parse("x", []byte("about x\n"+v.line))
		if err == nil || !strings.Contains(err.Error(), v.want) || !strings.HasPrefix(err.Error(), "x:2: ") {
			t.Errorf("%s: %v, want %q on line 2", v.line, err, v.want)
		}
	}
	if _, err := Parse("x", []byte("about x\n")); err == nil {
		t.Error("a script without steps is none")
	}
}
