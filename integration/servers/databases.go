package servers

import (
	"fmt"
	"path/filepath"
	"testing"
)

// MariaDB starts a MariaDB server without passwords. In its protocol the server
// speaks first.
func MariaDB(t testing.TB, s *Templates, p Place) {
	t.Helper()
	data := copyTo(t, s.mariadb, "mysql")
	serve(t, p, "mariadbd", "--no-defaults", "--user=mysql", "--datadir="+data,
		"--socket="+filepath.Join(data, "s.sock"), "--pid-file="+filepath.Join(data, "pid"),
		"--bind-address="+p.host(), "--port="+p.port(),
		"--skip-grant-tables", "--skip-name-resolve", "--skip-log-bin", "--performance-schema=OFF",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M",
		"--innodb-doublewrite=0", "--key-buffer-size=1M")
}

// Postgres starts a PostgreSQL server that trusts everybody, with TLS if tls says
// so. The client speaks first; with TLS it asks for it in eight bytes and waits.
func Postgres(t testing.TB, s *Templates, p Place, tls bool) {
	t.Helper()
	bin, err := postgresBin()
	if err != nil {
		t.Fatal(err)
	}
	data := copyTo(t, s.postgres, "postgres")
	args := []string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--",
		filepath.Join(bin, "postgres"), "-D", data, "-h", p.host(), "-p", p.port(), "-k", "",
		"-c", "fsync=off", "-c", "shared_buffers=8MB", "-c", "autovacuum=off"}
	if tls {
		cert, key := Certificate(t, data)
		for _, file := range []string{cert, key} {
			if err := give(file, "postgres"); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, "-c", "ssl=on", "-c", "ssl_cert_file="+cert, "-c", "ssl_key_file="+key)
	}
	serve(t, p, "setpriv", args...)
}

// Redis starts a Redis server that keeps nothing. The client speaks first, but a
// subscriber's connection may stay silent for ever.
func Redis(t testing.TB, p Place) {
	t.Helper()
	serve(t, p, "redis-server", "--bind", p.host(), "--port", p.port(), "--protected-mode", "no",
		"--save", "", "--appendonly", "no", "--dir", folder(t), "--daemonize", "no")
}

// Memcached starts a memcached with its text and binary protocols.
func Memcached(t testing.TB, p Place) {
	t.Helper()
	serve(t, p, "memcached", "-u", "nobody", "-l", p.host(), "-p", p.port(), "-U", "0", "-m", "16")
}

// NATS starts a NATS server, which greets with an INFO line.
func NATS(t testing.TB, p Place) {
	t.Helper()
	conf := write(t, folder(t), "nats.conf", fmt.Sprintf("listen: %q\n", p.Addr))
	serve(t, p, "nats-server", "-c", conf)
}
