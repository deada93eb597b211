package integration

import (
	"net/netip"
	"net/smtp"
	"strconv"
	"strings"
	"testing"
)

// Each talk is a conversation of a real client with a real server; it fails the
// test if any answer is wrong.

func talkMariaDB(t *testing.T, c client, to netip.AddrPort) {
	sql := func(query string) string {
		return c.run(t, "mariadb", "--no-defaults", "--protocol=tcp", "--user=root", "--batch", "--skip-column-names",
			"--host="+to.Addr().String(), "--port="+port(to), "--execute="+query)
	}
	equal(t, "arithmetic", sql("select 40+2"), "42")
	equal(t, "a megabyte", sql("select length(repeat('x', 1000000))"), "1000000")
	if n := len(sql("select repeat('x', 1000000)")); n != 1000000 {
		t.Errorf("a result of %d bytes, want 1000000", n)
	}
}

func talkPostgres(mode string) func(*testing.T, client, netip.AddrPort) {
	return func(t *testing.T, c client, to netip.AddrPort) {
		sql := func(query string) string {
			return c.run(t, "psql", "host="+to.Addr().String()+" port="+port(to)+
				" user=postgres dbname=postgres connect_timeout=15 sslmode="+mode, "-XAtc", query)
		}
		equal(t, "arithmetic", sql("select 40+2"), "42")
		equal(t, "encrypted", sql("select ssl from pg_stat_ssl where pid = pg_backend_pid()"),
			map[string]string{"disable": "f", "require": "t"}[mode])
		if n := len(sql("select repeat('x', 1000000)")); n != 1000000 {
			t.Errorf("a result of %d bytes, want 1000000", n)
		}
	}
}

func talkRedis(t *testing.T, c client, to netip.AddrPort) {
	redis := func(args ...string) string {
		return c.run(t, "redis-cli", append([]string{"-h", to.Addr().String(), "-p", port(to)}, args...)...)
	}
	equal(t, "set", redis("set", "k", "v"), "OK")
	equal(t, "get", redis("get", "k"), "v")
	// An inline command begins with the word GET, like HTTP.
	converse(t, c.dial(t, to), "GET k\r\n", "$1\r\nv\r\n")
}

func talkMemcached(t *testing.T, c client, to netip.AddrPort) {
	converse(t, c.dial(t, to),
		"set k 0 0 5\r\nhello\r\n", "STORED",
		"get k\r\n", "VALUE k 0 5\r\nhello\r\nEND",
		"quit\r\n", "")
}

func talkNATS(t *testing.T, c client, to netip.AddrPort) {
	converse(t, c.dial(t, to),
		"", "INFO {",
		"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n", "PONG",
		"SUB news 1\r\nPUB news 5\r\nhello\r\n", "MSG news 1 5\r\nhello\r\n")
}

func talkSMTP(t *testing.T, c client, to netip.AddrPort) {
	conn, err := smtp.NewClient(c.dial(t, to), "mail.example")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, step := range []func() error{
		func() error { return conn.Hello("client.example") },
		func() error { return conn.Mail("a@client.example") },
		func() error { return conn.Rcpt("b@mail.example") },
		func() error {
			w, err := conn.Data()
			if err != nil {
				return err
			}
			if _, err := w.Write([]byte("Subject: hello\r\n\r\n" + strings.Repeat("text\r\n", 1000))); err != nil {
				return err
			}
			return w.Close()
		},
		conn.Quit,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// talkSSH runs a whole key exchange: the host's key comes signed.
func talkSSH(t *testing.T, c client, to netip.AddrPort) {
	got := c.run(t, "ssh-keyscan", "-T", "15", "-t", "ed25519", "-p", port(to), to.Addr().String())
	if !strings.Contains(got, "ssh-ed25519 AAAA") {
		t.Errorf("ssh-keyscan: %q", got)
	}
}

// port is the port in digits.
func port(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }
