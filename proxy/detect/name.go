package detect

// signature is one way to know a protocol by the first bytes of one side.
type signature struct {
	name  string
	match func(b []byte) bool // b is not empty
}

// Signatures in the order in which they are tried. Those of a few fixed bytes
// come before those that weigh lengths.
var (
	eitherSide = []signature{
		{"ssh", isSSH},
		{"vnc", isVNC},
		{"bittorrent", isBitTorrent},
		{"elasticsearch", isElasticsearch},
		{"telnet", isTelnet},
		{"thrift", isThrift},
	}
	clientSide = []signature{
		{"proxy-protocol", isProxyProtocol},
		{"postgres", isPostgresClient},
		{"mysql", isMySQLClient},
		{"redis", isRedisClient},
		{"memcached", isMemcachedClient},
		{"nats", isNATSClient},
		{"stomp", isSTOMPClient},
		{"amqp", isAMQPClient},
		{"mqtt", isMQTTClient},
		{"rtsp", isRTSPClient},
		{"sip", isSIPClient},
		{"smtp", isSMTPClient},
		{"imap", isIMAPClient},
		{"pop3", isPOP3Client},
		{"irc", isIRCClient},
		{"java-rmi", isRMIClient},
		{"rdp", isRDPClient},
		{"mssql", isMSSQLClient},
		{"ldap", isLDAPClient},
		{"cassandra", isCassandraClient},
		{"mongodb", isMongoDBClient},
		{"zookeeper", isZooKeeperClient},
		{"kafka", isKafkaClient},
		{"dns", isDNSQuery},
	}
	serverSide = []signature{
		{"mysql", isMySQLServer},
		{"postgres", isPostgresServer},
		{"redis", isRedisServer},
		{"memcached", isMemcachedServer},
		{"nats", isNATSServer},
		{"stomp", isSTOMPServer},
		{"amqp", isAMQPServer},
		{"mqtt", isMQTTServer},
		{"rtsp", isRTSPServer},
		{"sip", isSIPServer},
		{"smtp", isSMTPServer},
		{"ftp", isFTPServer},
		{"imap", isIMAPServer},
		{"pop3", isPOP3Server},
		{"irc", isIRCServer},
		{"java-rmi", isRMIServer},
		{"rdp", isRDPServer},
		{"mssql", isMSSQLServer},
		{"ldap", isLDAPServer},
		{"cassandra", isCassandraServer},
		{"mongodb", isMongoDBServer},
		{"zookeeper", isZooKeeperServer},
		{"dns", isDNSAnswer},
	}
)

// Name returns the protocol that b, the first bytes of one side of an opaque
// connection, belongs to: one of Names, or "" when unsure. It is for people
// (logs, /connections, the label "detected") and never decides anything.
// fromServer says whose bytes they are. It allocates nothing, and looks at the
// first maxNamed bytes only.
func Name(b []byte, fromServer bool) string {
	if len(b) == 0 {
		return ""
	}
	b = b[:min(len(b), maxNamed)]
	side := clientSide
	if fromServer {
		side = serverSide
	}
	for _, s := range [...][]signature{eitherSide, side} {
		for i := range s {
			if s[i].match(b) {
				return s[i].name
			}
		}
	}
	return ""
}

// maxNamed bounds the work of Name, in bytes. A greeting is shorter.
const maxNamed = 1024

// Names returns all that Name may return but "", in no order: the closed set of
// values of the label "detected".
func Names() []string {
	had := make(map[string]bool)
	var names []string
	for _, side := range [][]signature{eitherSide, clientSide, serverSide} {
		for _, s := range side {
			if !had[s.name] {
				had[s.name] = true
				names = append(names, s.name)
			}
		}
	}
	return names
}
