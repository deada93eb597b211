package demo

import (
	"fmt"
	"net/netip"
	"time"
)

// The proxy's times in the demo. The timeout is shorter than the default, 10 s;
// the other is the default.
const (
	detectTimeout  = 2 * time.Second
	earlyDialAfter = 250 * time.Millisecond
)

// soon is the most that a first byte may take which nothing holds back. It is
// less than the early dial's time, so that one cannot be taken for the other.
const soon = 200 * time.Millisecond

// scene is one connection of the demo and what has to come of it.
type scene struct {
	name string
	from *side
	to   netip.AddrPort
	talk talk
	want want
}

// want is what a scene has to show.
type want struct {
	told        string // as told.String says it; empty: the proxy must not know of it
	reason      string // as at /connections
	rule        string // the rule that has to count the connection, when the proxy does not see it
	least, most time.Duration
	because     string // for people; shown when all of it came out so
}

// skippedScene is for rules that skip port 3306.
func skippedScene(p *pair) scene {
	return scene{"MySQL, port skipped", p.pod, p.peer.addr(false, mysqlPort), mysql(), want{
		rule: "skip-outbound-ports", most: soon,
		because: "skipped: the rule counted it",
	}}
}

// quickScenes are for the default rules; each begins when the one before is over.
func quickScenes(p *pair, s *servers) []scene {
	pod, peer := p.pod, p.peer
	bytes := func(told, because string) want {
		return want{told: told, reason: "bytes", most: soon, because: because}
	}
	spoke := want{
		reason: "server_first", least: earlyDialAfter, most: earlyDialAfter + time.Second,
		because: "server spoke first: early dial",
	}
	smtp, first := spoke, spoke
	smtp.told, first.told = "opaque, smtp", "opaque, mysql"
	return []scene{
		{"HTTP/1.1", pod, peer.addr(false, httpPort), request(false), bytes("http/1", "its first bytes")},
		{"HTTP/2", pod, peer.addr(true, httpPort), request(true), bytes("http/2", "its first bytes, the preface")},
		{"TLS", pod, peer.addr(false, tlsPort), secured(s.roots), bytes("tls "+tlsName, "its first bytes, the ClientHello")},
		{"HTTP/1.1 into the pod", peer, pod.addr(true, appPort), request(false), bytes("http/1", "its first bytes")},
		{"MySQL", pod, peer.addr(false, mysqlPort), mysql(), want{
			told: "opaque, mysql", reason: "declared", most: soon,
			because: "port 3306 is opaque by default",
		}},
		{"MySQL, unknown port", pod, peer.addr(false, newPort), mysql(), first},
		{"the same again", pod, peer.addr(false, newPort), mysql(), want{
			told: "opaque, mysql", reason: "server_first", most: soon,
			because: "that server is remembered",
		}},
		{"SMTP, unknown port", pod, peer.addr(true, smtpPort), greeted(smtpGreeting, smtpHello, smtpAnswer), smtp},
		{"Redis, slow to ask", pod, peer.addr(false, redisPort), speaks(400*time.Millisecond, redisPing, redisPong), want{
			told: "opaque, redis", reason: "bytes", least: 400 * time.Millisecond, most: 400*time.Millisecond + time.Second,
			because: "client spoke first, after 0.4 s",
		}},
	}
}

// silentScene takes the whole detection timeout, and runs beside the others.
func silentScene(p *pair) scene {
	after := detectTimeout + 100*time.Millisecond
	return scene{"both silent for 2 s", p.pod, p.peer.addr(false, silentPort), speaks(after, "anyone there?\n", "anyone there?\n"), want{
		told: "opaque", reason: "timeout", least: detectTimeout, most: after + time.Second,
		because: "timeout: passed on as plain TCP",
	}}
}

func mysql() talk { return greeted(string(mysqlGreeting()), string(mysqlLogin()), string(mysqlOK())) }

// outcome is what came of a scene.
type outcome struct {
	first time.Duration
	told  told
	seen  bool   // the proxy knows the connection
	hits  uint64 // how often want.rule counted meanwhile
	err   error
}

// wrong says how an outcome differs from what was wanted; empty when it does not.
func (w want) wrong(o outcome) string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case w.told == "" && o.hits != 1:
		return fmt.Sprintf("rule %s counted %d connections, not 1", w.rule, o.hits)
	case w.told != "" && !o.seen:
		return "the proxy does not know of it"
	case w.told != "" && (o.told.String() != w.told || o.told.Reason != w.reason):
		return fmt.Sprintf("told as %q by %q, not %q by %q", o.told, o.told.Reason, w.told, w.reason)
	case o.first < w.least || o.first > w.most:
		return fmt.Sprintf("the first byte took %s, not %s to %s", inWords(o.first), inWords(w.least), inWords(w.most))
	}
	return ""
}
