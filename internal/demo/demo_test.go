package demo

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOutcomeIsHeldAgainstWhatWasWanted(t *testing.T) {
	mysql := told{Protocol: "opaque", Detected: "mysql", Reason: "declared"}
	opaque := want{told: "opaque, mysql", reason: "declared", least: 100 * time.Millisecond, most: time.Second}
	skipped := want{rule: "skip-outbound-ports", most: time.Second}
	for name, c := range map[string]struct {
		want    want
		outcome outcome
		wrong   string
	}{
		"as expected":            {opaque, outcome{first: 200 * time.Millisecond, told: mysql, seen: true}, ""},
		"skipped as expected":    {skipped, outcome{first: time.Millisecond, hits: 1}, ""},
		"it did not work":        {opaque, outcome{err: errors.New("connection refused")}, "connection refused"},
		"not seen by the proxy":  {opaque, outcome{first: 200 * time.Millisecond}, "the proxy does not know of it"},
		"told as something else": {opaque, outcome{first: 200 * time.Millisecond, told: told{Protocol: "http/1", Reason: "declared"}, seen: true}, `told as "http/1" by "declared", not "opaque, mysql" by "declared"`},
		"told by something else": {opaque, outcome{first: 200 * time.Millisecond, told: told{Protocol: "opaque", Detected: "mysql", Reason: "timeout"}, seen: true}, `told as "opaque, mysql" by "timeout", not "opaque, mysql" by "declared"`},
		"too late":               {opaque, outcome{first: 2 * time.Second, told: mysql, seen: true}, "the first byte took 2.0 s, not 100 ms to 1.0 s"},
		"too early":              {opaque, outcome{first: 2 * time.Millisecond, told: mysql, seen: true}, "the first byte took 2.0 ms, not 100 ms to 1.0 s"},
		"skipped by no rule":     {skipped, outcome{first: time.Millisecond}, "rule skip-outbound-ports counted 0 connections, not 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.wrong, c.want.wrong(c.outcome)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRowThatDidNotComeOutSaysFail(t *testing.T) {
	var out strings.Builder
	p := &printer{out: &out}
	s := scene{name: "MySQL", to: netip.MustParseAddrPort("10.77.0.1:3306"), want: want{told: "opaque, mysql", reason: "declared", most: time.Second}}
	if p.row(s, outcome{first: 1500 * time.Microsecond}) {
		t.Error("it passed")
	}
	want := "  MySQL                 10.77.0.1:3306      1.5 ms  not proxied    FAIL\n    the proxy does not know of it\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestColoursAreOnlyWhereTheyWereAskedFor(t *testing.T) {
	for _, color := range []bool{false, true} {
		var out strings.Builder
		p := &printer{out: &out, color: color}
		p.command("meshctl", "why")
		p.heading()
		if got := strings.Contains(out.String(), "\x1b["); got != color {
			t.Errorf("colours %v, want %v", got, color)
		}
	}
}

func TestEndpointsOfTheDemoSpeakAsTheirNamesSay(t *testing.T) {
	// The greeting's length field counts what follows the header of 4 bytes.
	g := mysqlGreeting()
	if n := int(g[0]) | int(g[1])<<8 | int(g[2])<<16; n != len(g)-4 || g[3] != 0 || g[4] != 10 {
		t.Errorf("the header says %d of %d bytes", n, len(g)-4)
	}
	if !strings.HasPrefix(smtpGreeting, "220 ") || !strings.HasSuffix(smtpGreeting, "\r\n") {
		t.Errorf("SMTP begins with %q", smtpGreeting)
	}
}
