package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"time"
)

// seen is what a probe prints, as one line of JSON.
type seen struct {
	Local  string           `json:"local"`
	Status int              `json:"status,omitempty"`
	Body   string           `json:"body"`
	Rows   []map[string]any `json:"rows"` // of /connections, those of this connection
}

// probe opens a connection, uses it, asks the proxy of it, and holds it open until its
// own input ends.
func probe(target string) error {
	var s seen
	var err error
	if addr, tcp := strings.CutPrefix(target, "tcp:"); tcp {
		var c net.Conn
		if c, s.Body, err = greeted(addr); err != nil {
			return err
		}
		defer c.Close()
		s.Local = c.LocalAddr().String()
	} else {
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { s.Local = i.Conn.LocalAddr().String() }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		if s.Status, s.Body, err = ask(req); err != nil {
			return err
		}
	}
	if s.Rows, err = rows(s.Local); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err) // there is no proxy on the node
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func greeted(addr string) (net.Conn, string, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		c.Close()
		return nil, "", fmt.Errorf("no greeting from %s: %w", addr, err)
	}
	return c, line, nil
}

func ask(req *http.Request) (int, string, error) {
	client := http.Client{Timeout: 15 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// rows are what the pod's proxy says of the connection from local; a connection that
// has just been made may not be told apart yet.
func rows(local string) (out []map[string]any, err error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://127.0.0.1:4191/connections", nil)
		if err != nil {
			return nil, err
		}
		_, body, err := ask(req)
		if err != nil {
			return nil, err
		}
		var all []map[string]any
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			return nil, fmt.Errorf("%w: %s", err, body)
		}
		out = out[:0]
		for _, row := range all {
			if row["client"] == local {
				out = append(out, row)
			}
		}
		if len(out) > 0 && out[0]["protocol"] != "unknown" || time.Now().After(end) {
			return out, nil
		}
	}
}
