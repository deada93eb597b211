package servers

import (
	"fmt"
	"path/filepath"
	"testing"
)

// SMTP starts an OpenSMTPD that takes mail for everybody and drops it. The server
// greets with `220`.
func SMTP(t testing.TB, p Place) {
	t.Helper()
	dir := folder(t)
	conf := write(t, dir, "smtpd.conf", fmt.Sprintf(`table everybody { "@" = nobody }
listen on %s port %s hostname mail.example
action "drop" mda "cat >/dev/null" virtual <everybody>
match from any for any action "drop"
`, p.host(), p.port()))
	// Its control socket and spool have fixed places: it gets its own, in a mount
	// namespace that goes with it. It looks up the client's name before it greets; a
	// name server that refuses at once makes that short.
	resolv := write(t, dir, "resolv.conf", "nameserver 127.0.0.1\n")
	serve(t, p, "sh", "-ec", `mount --make-rprivate /
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=755 none /var/spool
mount --bind "$1" "$(readlink -f /etc/resolv.conf)"
exec smtpd -d -F -f "$0"`, conf, resolv)
}

// SSH starts an OpenSSH server with a host key of its own and returns the public
// key's file. Both sides send a banner at once.
func SSH(t testing.TB, p Place) (hostKey string) {
	t.Helper()
	dir := folder(t)
	key := filepath.Join(dir, "host_key")
	if err := run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key); err != nil {
		t.Fatal(err)
	}
	conf := write(t, dir, "sshd_config", fmt.Sprintf(
		"ListenAddress %s\nHostKey %s\nPidFile none\nUsePAM no\nMaxStartups 100\n", p.Addr, key))
	serve(t, p, "sh", "-ec", `mount --make-rprivate /
mount -t tmpfs -o mode=755 none /run
mkdir -m 755 /run/sshd
exec /usr/sbin/sshd -D -e -f "$0"`, conf)
	return key + ".pub"
}

// nginx runs one server block of nginx.
func nginx(t testing.TB, p Place, listen, locations string) {
	t.Helper()
	dir := folder(t)
	conf := write(t, dir, "nginx.conf", fmt.Sprintf(`
daemon off; master_process off; pid %[1]s/pid; error_log stderr warn;
events { worker_connections 1000; }
http {
  access_log off; server_tokens off; keepalive_requests 1000000;
  client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
  uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  server { listen %[2]s; default_type text/plain; %[3]s }
}
`, dir, listen, locations))
	serve(t, p, "nginx", "-c", conf, "-e", "stderr")
}

// The pages of both nginx servers.
const pages = `
location = /       { return 200 "hello from nginx\n"; }
location = /500    { return 500 "broken\n"; }
location = /204    { return 204; }`

// HTTP1 starts an nginx for HTTP/1.0 and HTTP/1.1 with the pages /, /204 and /500.
func HTTP1(t testing.TB, p Place) {
	t.Helper()
	nginx(t, p, p.Addr.String(), pages)
}

// HTTP2 starts an nginx for HTTP/2 with prior knowledge, same pages as HTTP1.
func HTTP2(t testing.TB, p Place) {
	t.Helper()
	nginx(t, p, p.Addr.String()+" http2", pages)
}

// HTTPS starts an nginx for HTTP/1 and HTTP/2 over TLS and returns the file with
// its certificate. The name in it is server.example.
func HTTPS(t testing.TB, p Place) (cert string) {
	t.Helper()
	cert, key := Certificate(t, folder(t))
	nginx(t, p, p.Addr.String()+" ssl http2",
		fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; %s", cert, key, pages))
	return cert
}
