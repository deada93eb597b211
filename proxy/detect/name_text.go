package detect

import "bytes"

// Protocols of lines. A first word is enough only where nobody else uses it.

func starts(b []byte, s string) bool { return follow(b, s) == whole }

func startsAny(b []byte, ss ...string) bool {
	for _, s := range ss {
		if starts(b, s) {
			return true
		}
	}
	return false
}

// firstLine returns the first line of b without its end; all of b if the line
// is not whole.
func firstLine(b []byte) []byte {
	if n := bytes.IndexByte(b, '\n'); n >= 0 {
		b = b[:n]
	}
	return bytes.TrimSuffix(b, []byte{'\r'})
}

func digits(b []byte) int {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return n
}

// RFC 4253, 4.2: both sides send this first.
func isSSH(b []byte) bool { return startsAny(b, "SSH-2.0-", "SSH-1.99-", "SSH-1.5-") }

// RFC 6143, 7.1.1: "RFB 003.008\n".
func isVNC(b []byte) bool {
	return len(b) >= 12 && starts(b, "RFB 00") && b[7] == '.' && b[11] == '\n'
}

// BEP 3: the length of the name, then the name.
func isBitTorrent(b []byte) bool { return starts(b, "\x13BitTorrent protocol") }

// The PROXY protocol, versions 1 and 2.
func isProxyProtocol(b []byte) bool {
	return startsAny(b, "PROXY TCP4 ", "PROXY TCP6 ", "PROXY UNKNOWN", "\r\n\r\n\x00\r\nQUIT\n")
}

// RESP: an array of bulk strings. Commands typed as a line could be anybody's.
func isRedisClient(b []byte) bool {
	if b[0] != '*' {
		return false
	}
	n := 1 + digits(b[1:])
	rest := b[n:]
	return n > 1 && starts(rest, "\r\n$") && digits(rest[3:]) > 0
}

// Status lines only Redis has; "+OK" and "-ERR" are POP3's and NATS' too.
func isRedisServer(b []byte) bool {
	return startsAny(b, "+PONG\r\n", "-NOAUTH ", "-WRONGPASS ", "-NOPERM ", "-DENIED ", "-LOADING ", "-MOVED ", "-READONLY ", "-MASTERDOWN ")
}

// The text protocol's retrieval and storage commands, and the binary one.
func isMemcachedClient(b []byte) bool {
	line := firstLine(b)
	switch {
	case isMemcachedBinary(b, 0x80):
		return true
	case len(line) == len(b):
		return false // not whole: "get x" may become anything
	case startsAny(b, "get ", "gets ", "gat ", "mg "):
		return len(line) > 4 && !bytes.ContainsAny(line[4:], "/\"'{}()")
	case startsAny(b, "set ", "add ", "replace ", "append ", "prepend ", "cas "):
		f := bytes.Count(line, []byte{' '})
		return f >= 4 && f <= 6 && digits(lastWord(bytes.TrimSuffix(line, []byte(" noreply")))) > 0
	default:
		return startsAny(b, "stats\r\n", "version\r\n", "flush_all\r\n")
	}
}

func lastWord(line []byte) []byte { return line[bytes.LastIndexByte(line, ' ')+1:] }

func isMemcachedServer(b []byte) bool {
	return startsAny(b, "STORED\r\n", "NOT_STORED\r\n", "END\r\n", "VALUE ", "STAT ") ||
		starts(b, "VERSION ") && digits(b[8:]) > 0 || isMemcachedBinary(b, 0x81)
}

// INFO and CONNECT carry JSON. Faktory says HELLO, STOMP ends the line.
func isNATSClient(b []byte) bool { return starts(b, "CONNECT {") }
func isNATSServer(b []byte) bool { return starts(b, "INFO {") }

func isSTOMPClient(b []byte) bool {
	return startsAny(b, "CONNECT\n", "CONNECT\r\n", "STOMP\n", "STOMP\r\n")
}
func isSTOMPServer(b []byte) bool { return startsAny(b, "CONNECTED\n", "CONNECTED\r\n") }

// RFC 7826 and RFC 3261: lines like HTTP's with another version at their end.
func isRTSPClient(b []byte) bool {
	line := firstLine(b)
	return bytes.HasSuffix(line, []byte(" RTSP/1.0")) || bytes.HasSuffix(line, []byte(" RTSP/2.0"))
}
func isRTSPServer(b []byte) bool { return startsAny(b, "RTSP/1.0 ", "RTSP/2.0 ") }
func isSIPClient(b []byte) bool  { return bytes.HasSuffix(firstLine(b), []byte(" SIP/2.0")) }
func isSIPServer(b []byte) bool  { return starts(b, "SIP/2.0 ") }

func isSMTPClient(b []byte) bool { return startsAny(b, "EHLO ", "HELO ", "LHLO ") }

// "220 " greets in SMTP (RFC 5321, 4.2) and in FTP (RFC 959, 5.4), and both
// leave the words behind it open. Only a whole line that says which it is counts.
func isSMTPServer(b []byte) bool {
	smtp, ftp := greetingWords(b)
	return smtp && !ftp
}

func isFTPServer(b []byte) bool {
	smtp, ftp := greetingWords(b)
	return ftp && !smtp
}

// greetingWords reports which of both a greeting names. Words with a dot are
// host names: "220 ftp.example ESMTP" is SMTP.
func greetingWords(b []byte) (smtp, ftp bool) {
	if !startsAny(b, "220 ", "220-") || bytes.IndexByte(b, '\n') < 0 {
		return false, false
	}
	for rest := firstLine(b)[4:]; len(rest) > 0; {
		var word []byte
		word, rest, _ = bytes.Cut(rest, []byte{' '})
		switch {
		case bytes.IndexByte(word, '.') >= 0:
		case containsFold(word, "smtp") || containsFold(word, "lmtp"):
			smtp = true
		case containsFold(word, "ftp"):
			ftp = true
		}
	}
	return smtp, ftp
}

// containsFold reports whether b has s, which is lower case, in any case.
func containsFold(b []byte, s string) bool {
	for ; len(b) >= len(s); b = b[1:] {
		n := 0
		for n < len(s) && b[n]|0x20 == s[n] {
			n++
		}
		if n == len(s) {
			return true
		}
	}
	return false
}

// RFC 9051, 7.1: the greeting is untagged. A client's commands carry a tag.
func isIMAPServer(b []byte) bool { return startsAny(b, "* OK ", "* PREAUTH ", "* BYE ") }

func isIMAPClient(b []byte) bool {
	n := bytes.IndexByte(b, ' ')
	if n < 1 || n > 16 || digits(b[n-1:n]) == 0 {
		return false // tags count up: a1, A0001, 1
	}
	return startsAny(b[n+1:], "CAPABILITY\r\n", "LOGIN ", "AUTHENTICATE ", "STARTTLS\r\n", "ID (", "ID NIL")
}

// RFC 1939, 4: "+OK", then words. Redis and NATS put nothing behind it.
func isPOP3Server(b []byte) bool { return starts(b, "+OK ") }
func isPOP3Client(b []byte) bool { return starts(b, "CAPA\r\n") }

// RFC 2812: a client registers, a server looks it up or welcomes it.
func isIRCClient(b []byte) bool {
	return startsAny(b, "CAP LS", "NICK ") || starts(b, "PASS ") && bytes.Contains(b, []byte("\nNICK "))
}

func isIRCServer(b []byte) bool {
	line := firstLine(b)
	n := bytes.IndexByte(line, ' ')
	return startsAny(b, "NOTICE AUTH :", "NOTICE * :") ||
		b[0] == ':' && n > 1 && startsAny(line[n:], " NOTICE ", " 001 ", " CAP ")
}
