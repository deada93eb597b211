package knownports

import (
	"fmt"
	"slices"

	"github.com/meshctl/meshctl/internal/ports"
)

// nothing is the advice for what works without any.
const nothing = "nothing"

// onOtherPorts is the advice for a protocol whose customary port is in the
// default list of opaque ports.
const onOtherPorts = nothing + "; on other ports --opaque-ports +PORT"

// declare is the advice for a server that speaks first on a port that is in no
// default list. Nothing breaks without it.
func declare(list string) string {
	return fmt.Sprintf("optional: meshctl proxy --opaque-ports +%s", list)
}

// All returns the table: first the ports of the default lists, then what speaks
// first elsewhere, then what detection handles by itself. The caller owns it.
func All() []Entry { return slices.Concat(inDefaultLists(), serverFirst(), clientFirst()) }

func inDefaultLists() []Entry {
	return []Entry{
		{Name: "smtp", Title: "SMTP", Aliases: []string{"mail", "submission"}, Ports: ports.Of(25, 587), First: Server, Default: Opaque,
			Set:  onOtherPorts,
			Note: "The server greets with 220. Port 465 starts with TLS: there the client speaks first and nothing waits."},
		{Name: "mysql", Title: "MySQL, MariaDB, Galera clients", Aliases: []string{"mariadb", "galera"}, Ports: ports.Of(3306), First: Server, Default: Opaque,
			Set:  onOtherPorts,
			Note: "The server sends its greeting, TLS or not, before the client says a word."},
		{Name: "galera-sst", Title: "Galera state transfer", Aliases: []string{"galera"}, Ports: ports.Of(4444), First: Either, Default: Opaque,
			Set:  onOtherPorts,
			Note: "rsync, mariabackup or socat, by choice of the cluster; with some of them the receiver is silent."},
		{Name: "galera-group", Title: "Galera group communication, IST", Aliases: []string{"galera"}, Ports: ports.Of(4567, 4568), First: Either, Default: Skipped,
			Set:  nothing + "; on other ports --skip-*-ports, both sides",
			Note: "Nodes know each other by source address, which no proxy keeps: opaque is not enough. Skip the ports in the rules of every node, inbound and outbound: meshctl redirect --skip-inbound-ports, --skip-outbound-ports."},
		{Name: "postgres", Title: "PostgreSQL", Aliases: []string{"postgresql", "pg", "cockroachdb"}, Ports: ports.Of(5432), First: Client, Default: Opaque,
			Set:  nothing + "; other ports are detected",
			Note: "The client asks for TLS in 8 bytes that are nothing else, so that detection knows at once; the list has the port as Linkerd's has."},
		{Name: "redis", Title: "Redis, Valkey", Aliases: []string{"valkey"}, Ports: ports.Of(6379), First: Either, Default: Opaque,
			Set:  onOtherPorts,
			Note: "The client speaks first, but pools open connections long before they use them. Such a one waits 10 s in detection, and loses nothing."},
		{Name: "elasticsearch", Title: "Elasticsearch transport", Aliases: []string{"es", "opensearch"}, Ports: ports.Of(9300), First: Either, Default: Opaque,
			Set:  onOtherPorts,
			Note: "Nodes open spare connections to each other and keep them silent. Port 9200 is HTTP: never make that opaque."},
		{Name: "memcached", Title: "Memcached", Ports: ports.Of(11211), First: Either, Default: Opaque,
			Set:  onOtherPorts,
			Note: "The client speaks first, but pools open connections and leave them silent."},
	}
}

func serverFirst() []Entry {
	return []Entry{
		{Name: "nats", Title: "NATS clients, routes", Ports: ports.Of(4222, 6222), First: Server, Default: Detected,
			Set:  declare("4222,6222"),
			Note: "The server sends INFO. Clients whose own timeout is short (2 s and less in some) fail where detection waits for 10 s, as it does with early dial off."},
		{Name: "ftp", Title: "FTP", Ports: ports.Of(21), First: Server, Default: Detected,
			Set:  declare("21"),
			Note: "The server greets with 220. Data connections go to ports of their own; in a download the server speaks first there too."},
		{Name: "ssh", Title: "SSH, SFTP, git over SSH", Aliases: []string{"sftp", "git"}, Ports: ports.Of(22), First: Either, Default: Detected,
			Set:  declare("22"),
			Note: "Both sides send their version at once, without waiting for the other. A client that waits for the server's is served by early dial."},
		{Name: "pop3", Title: "POP3", Ports: ports.Of(110), First: Server, Default: Detected,
			Set:  declare("110"),
			Note: "The server greets with +OK. Port 995 starts with TLS: nothing waits there."},
		{Name: "imap", Title: "IMAP", Ports: ports.Of(143), First: Server, Default: Detected,
			Set:  declare("143"),
			Note: "The server greets with * OK. Port 993 starts with TLS: nothing waits there."},
		{Name: "telnet", Title: "Telnet", Ports: ports.Of(23), First: Either, Default: Detected,
			Set:  declare("23"),
			Note: "Mostly the server begins to negotiate options."},
		{Name: "vnc", Title: "VNC", Aliases: []string{"rfb"}, Ports: ports.Of(5900, 5901, 5902, 5903), First: Server, Default: Detected,
			Set:  declare("5900-5903"),
			Note: "The server sends the version of RFB it speaks."},
		{Name: "irc", Title: "IRC", Ports: ports.Of(6667), First: Either, Default: Detected,
			Set:  nothing,
			Note: "Clients register at once; a server may send notices before that."},
	}
}

func clientFirst() []Entry {
	detected := func(name, title, note string, list ...uint16) Entry {
		return Entry{Name: name, Title: title, Ports: ports.Of(list...), First: Client, Default: Detected, Set: nothing, Note: note}
	}
	return []Entry{
		detected("nats-http", "NATS monitoring", "HTTP. Linkerd's documentation lists the port beside 4222 and 6222, but it needs nothing.", 8222),
		detected("mongodb", "MongoDB", "The client sends hello.", 27017, 27018, 27019),
		detected("mssql", "Microsoft SQL Server", "The client sends a pre-login packet.", 1433),
		detected("cassandra", "Cassandra, Scylla", "CQL clients send OPTIONS. Nodes among themselves use 7000.", 9042),
		detected("zookeeper", "ZooKeeper", "Clients open a session. 2888 and 3888 are between servers, and there too the one that connects speaks.", 2181, 2888, 3888),
		detected("kafka", "Kafka", "The client asks for the versions of the API. Brokers advertise addresses: clients go where these point.", 9092, 9093),
		detected("amqp", "AMQP, RabbitMQ", "The client sends the name and version of the protocol.", 5672),
		detected("mqtt", "MQTT", "The client sends CONNECT. Port 8883 is MQTT in TLS.", 1883),
		detected("stomp", "STOMP", "The client sends CONNECT and a line end, which no HTTP does.", 61613),
		detected("ldap", "LDAP", "The client binds, searches or asks for TLS. Port 636 is TLS from the start.", 389),
		detected("dns", "DNS over TCP", "The client sends a query. UDP is not redirected at all.", 53),
		detected("sip", "SIP", "Lines like HTTP's that end in SIP/2.0: opaque from the byte that differs.", 5060),
		detected("rtsp", "RTSP", "Lines like HTTP's that end in RTSP/1.0: opaque from the byte that differs.", 554, 8554),
		detected("rdp", "Remote Desktop", "The client asks for a connection.", 3389),
		detected("java-rmi", "Java RMI", "The client sends 7 bytes and waits: opaque from the first.", 1099),
		detected("bittorrent", "BitTorrent", "The client sends its handshake.", 6881),
		detected("thrift", "Thrift", "No port of its own. The client calls.", []uint16{}...),
		detected("proxy-protocol", "PROXY protocol", "A header in front of any protocol: the connection is opaque, HTTP behind it too, and the header reaches the server untouched.", []uint16{}...),
	}
}
