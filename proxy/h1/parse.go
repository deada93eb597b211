package h1

import (
	"bytes"

	"github.com/meshctl/meshctl/proxy/message"
)

// parser reads one head, and keeps what the head says about its connection and
// about where its body ends.
type parser struct {
	maxHead   int
	maxFields int
	response  bool
	trailing  bool // trailers are read: only plain fields count

	version   message.Version
	fields    int
	length    int64 // Content-Length; message.Unknown: none was sent
	hosts     int
	upgrades  int
	te        bool // a Transfer-Encoding was sent
	chunked   bool // and was exactly "chunked"
	close     bool // Connection: close
	keepAlive bool // Connection: keep-alive
	wants     bool // Connection: upgrade
	trailers  bool // TE: trailers
	upgrade   []byte
	named     [maxNamed][]byte // fields that Connection names
	nameds    int
}

const maxNamed = 16

func (p *parser) reset() {
	*p = parser{maxHead: p.maxHead, maxFields: p.maxFields, response: p.response, length: message.Unknown}
}

// trailer reads trailers up to the empty line, 0 when it is not there yet. Fields
// of framing, routing and of the hop have no meaning there and are dropped (RFC
// 9110, 6.5.1).
func (p *parser) trailer(b []byte, h *message.Head) (int, *Refusal) {
	p.reset()
	p.trailing = true
	h.Reset()
	return p.block(b, 0, h)
}

// head reads a head at the start of b into h and returns its length, 0 when it
// is not whole yet. h lies in b.
func (p *parser) head(b []byte, h *message.Head) (int, *Refusal) {
	p.reset()
	h.Reset()
	line, n, r := p.line(b, 0)
	if n == 0 || r != nil {
		return 0, r
	}
	if p.response {
		r = p.statusLine(line, h)
	} else {
		r = p.requestLine(line, h)
	}
	if r != nil {
		return 0, r
	}
	if n, r = p.block(b, n, h); n == 0 || r != nil {
		return 0, r
	}
	if p.response {
		return n, p.judgeResponse(h)
	}
	return n, p.judgeRequest(h)
}

// line returns the line at pos without its CRLF and the position after it, 0
// when it is not whole. A bare LF ends lines for some readers only (RFC 9112,
// 2.2), so it is refused; a bare CR fails as a byte of what it stands in.
func (p *parser) line(b []byte, pos int) ([]byte, int, *Refusal) {
	i := bytes.IndexByte(b[pos:], '\n')
	end := pos + i
	switch {
	case i < 0 && len(b) > p.maxHead, end > p.maxHead:
		if pos == 0 && !p.response && !p.trailing {
			return nil, 0, refuse(414, "request line too long")
		}
		return nil, 0, refuse(431, "head too large")
	case i < 0:
		return nil, 0, nil
	case i == 0 || b[end-1] != '\r':
		return nil, 0, bad("bare LF")
	}
	return b[pos : end-1], end + 1, nil
}

// block reads field lines up to the empty one and returns the position after
// it, 0 when it is not there yet.
func (p *parser) block(b []byte, pos int, h *message.Head) (int, *Refusal) {
	for {
		line, next, r := p.line(b, pos)
		if next == 0 || r != nil {
			return 0, r
		}
		pos = next
		if len(line) == 0 {
			return pos, nil
		}
		if r := p.field(line, h); r != nil {
			return 0, r
		}
	}
}

// field reads one field line (RFC 9112, 5).
func (p *parser) field(line []byte, h *message.Head) *Refusal {
	k := 0
	for k < len(line) && class[line[k]]&tokenChar != 0 {
		k++
	}
	switch {
	case k == len(line):
		return bad("field line without a colon")
	case line[k] == ':' && k > 0:
	case k == 0 && (line[0] == ' ' || line[0] == '\t'):
		return bad("folded field line")
	case line[k] == ' ' || line[k] == '\t':
		return bad("space in a field name")
	default:
		return bad("bad field name")
	}
	value := trim(line[k+1:])
	if !validValue(value) {
		return bad("bad byte in a field value")
	}
	if p.fields++; p.fields > p.maxFields {
		return refuse(431, "too many fields")
	}
	return p.take(line[:k], value, h)
}

// take keeps a field or, of a field that is about the message's end or about
// this connection only, what it says.
func (p *parser) take(name, value []byte, h *message.Head) *Refusal {
	k := kindOf(name)
	if p.trailing && k != plain {
		return nil
	}
	switch k {
	case plain:
	case host:
		if p.response {
			break
		}
		return p.host(value, h)
	case contentLength:
		return p.contentLength(value)
	case transferEncoding:
		if p.te {
			p.chunked = false // a second line makes it a list
		} else {
			p.te, p.chunked = true, is(value, "chunked")
		}
		return nil
	case framingTwin:
		return bad("field name that some servers take for a framing field")
	case connection:
		return p.connection(value)
	case kindUpgrade:
		p.upgrades++
		p.upgrade = value
		return nil
	case kindTE:
		for len(value) > 0 {
			var e []byte
			if e, value = element(value); is(e, "trailers") {
				p.trailers = true
			}
		}
		return nil
	case hop:
		return nil
	case expect:
		if p.version == message.HTTP10 { // RFC 9110, 10.1.1: ignored
			return nil
		}
		h.Expect = is(value, "100-continue")
	}
	h.Fields = append(h.Fields, message.Field{Name: name, Value: value})
	return nil
}

func (p *parser) host(value []byte, h *message.Head) *Refusal {
	if p.hosts++; p.hosts > 1 {
		return bad("several Host fields")
	}
	if !validAuthority(value, false) {
		return bad("bad Host")
	}
	if !h.Absolute && string(h.Method) != "CONNECT" { // else the target's wins (RFC 9112, 3.2.2)
		h.Authority = value
	}
	return nil
}

// contentLength takes decimal digits and nothing else; 18 of them fit int64.
func (p *parser) contentLength(value []byte) *Refusal {
	if p.length != message.Unknown {
		return bad("several Content-Length fields")
	}
	if len(value) == 0 || len(value) > 18 || !all(value, digitChar) {
		return bad("bad Content-Length")
	}
	p.length = 0
	for _, c := range value {
		p.length = p.length*10 + int64(c-'0')
	}
	return nil
}

// connection reads connection options (RFC 9110, 7.6.1).
func (p *parser) connection(list []byte) *Refusal {
	for len(list) > 0 {
		var o []byte
		o, list = element(list)
		switch {
		case len(o) == 0:
		case is(o, "close"):
			p.close = true
		case is(o, "keep-alive"):
			p.keepAlive = true
		case is(o, "upgrade"):
			p.wants = true
		case kindOf(o) != plain && kindOf(o) != expect: // never in Fields, or not a hop's to name
		case p.nameds == maxNamed:
			return bad("too many connection options")
		default:
			p.named[p.nameds] = o
			p.nameds++
		}
	}
	return nil
}
