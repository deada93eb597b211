// Package cases plays scripted exchanges: a client and a server, each a list of
// steps over one TCP connection, and what a proxy between them has to say of it.
// A script is a text file:
//
//	about  a server that greets first
//	way    direct
//	way    proxy protocol=opaque reason=server_first
//	way    opaque protocol=opaque reason=declared
//	server send "220 ready\r\n"
//	client expect "220 ready\r\n"
//	client look
//
// Words of bytes are "quoted as in Go", hex:00ff, or fill:62*70000; side.go has
// the verbs. The package plays; it knows no proxy.
package cases

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Script is one exchange.
type Script struct {
	Name   string // of its file
	About  string // one line
	Ways   []Way  // how it is to be played, in order
	Client []Step
	Server []Step
}

// Way is one way to play a script.
type Way struct {
	Name  string            // direct, proxy, opaque, mediate
	Flags []string          // further flags of the proxy: flags=--a=1,--b=2
	Want  map[string]string // key=value: what is to be said of the connection
}

// Step is one thing that a side does.
type Step struct {
	Line    int // in the file
	Verb    string
	Bytes   []byte         // send, bytewise, expect
	Pattern *regexp.Regexp // match
	Time    time.Duration  // pause, quiet, within, after; the gap of bytewise
}

// Parse reads a script. Errors name the line.
func Parse(name string, text []byte) (*Script, error) {
	s := &Script{Name: name}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if err := s.line(n, strings.TrimSpace(string(line))); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if s.About == "" || len(s.Ways) == 0 || len(s.Client) == 0 {
		return nil, fmt.Errorf("%s: a script needs about, a way and a client", name)
	}
	return s, nil
}

func (s *Script) line(n int, line string) error {
	if line == "" || line[0] == '#' {
		return nil
	}
	word, rest := cut(line)
	switch word {
	case "about":
		s.About = rest
	case "way":
		way, err := parseWay(rest)
		if err != nil {
			return err
		}
		s.Ways = append(s.Ways, way)
	case "client", "server":
		step, err := parseStep(rest)
		if err != nil {
			return err
		}
		step.Line = n
		if word == "client" {
			s.Client = append(s.Client, step)
		} else {
			s.Server = append(s.Server, step)
		}
	default:
		return fmt.Errorf("no such word: %s", word)
	}
	return nil
}

// cut splits a line behind its first word.
func cut(line string) (word, rest string) {
	word, rest, _ = strings.Cut(line, " ")
	return word, strings.TrimSpace(rest)
}

func parseWay(text string) (Way, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return Way{}, errors.New("a way without a name")
	}
	w := Way{Name: fields[0], Want: map[string]string{}}
	switch w.Name {
	case "direct", "proxy", "opaque", "mediate":
	default:
		return w, fmt.Errorf("no such way: %s", w.Name)
	}
	for _, f := range fields[1:] {
		key, value, ok := strings.Cut(f, "=")
		switch {
		case !ok:
			return w, fmt.Errorf("%q is no key=value", f)
		case key == "flags":
			w.Flags = strings.Split(value, ",")
		default:
			w.Want[key] = value
		}
	}
	return w, nil
}

func parseStep(text string) (Step, error) {
	verb, rest := cut(text)
	s := Step{Verb: verb}
	var err error
	switch verb {
	case "send", "expect":
		s.Bytes, err = parseBytes(rest)
	case "bytewise":
		var gap string
		gap, rest = cut(rest)
		if s.Time, err = time.ParseDuration(gap); err == nil {
			s.Bytes, err = parseBytes(rest)
		}
	case "match":
		s.Pattern, err = regexp.Compile("(?s)" + rest)
	case "pause", "quiet", "within", "after":
		s.Time, err = time.ParseDuration(rest)
	case "end", "reset", "gone", "finish", "close", "abort", "hold", "look":
		if rest != "" {
			err = fmt.Errorf("%s takes nothing", verb)
		}
	default:
		err = fmt.Errorf("no such verb: %s", verb)
	}
	return s, err
}

// parseBytes reads words of bytes and joins them.
func parseBytes(text string) ([]byte, error) {
	var out []byte
	for text != "" {
		var b []byte
		var err error
		if text[0] == '"' {
			b, text, err = quoted(text)
		} else {
			var word string
			word, text = cut(text)
			b, err = unquoted(word)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
		text = strings.TrimSpace(text)
	}
	if len(out) == 0 {
		return nil, errors.New("no bytes")
	}
	return out, nil
}

func quoted(text string) (b []byte, rest string, err error) {
	prefix, err := strconv.QuotedPrefix(text)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", text, err)
	}
	s, err := strconv.Unquote(prefix)
	return []byte(s), text[len(prefix):], err
}

func unquoted(word string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(word, "hex:"); ok {
		return hex.DecodeString(digits)
	}
	fill, ok := strings.CutPrefix(word, "fill:")
	digits, times, found := strings.Cut(fill, "*")
	if !ok || !found {
		return nil, fmt.Errorf("%s is neither quoted nor begins with hex: or fill: as bytes do", word)
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(times)
	if err != nil || n < 0 || n > 64<<20 {
		return nil, fmt.Errorf("%s: a count from 0 to 64 Mi is wanted", word)
	}
	return bytes.Repeat(b, n), nil
}
