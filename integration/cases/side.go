package cases

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Side plays one end of a script.
//
//	send BYTES          write them all
//	bytewise GAP BYTES  write them one by one, GAP apart
//	expect BYTES        the next bytes are these
//	match REGEXP        read until it matches; what it matched is used up
//	quiet TIME          nothing comes for so long
//	end, reset, gone    the peer's FIN, with nothing before it; its RST; either
//	pause TIME          do nothing
//	finish, close       send a FIN and read on; close
//	abort               close with a RST
//	hold                stay open until the other side is done
//	within, after TIME  since the script began
//	look                call Look
type Side struct {
	Conn     *net.TCPConn
	Patience time.Duration   // longest wait of one step
	Done     <-chan struct{} // closed when the other side is done; for hold
	Look     func() error    // may be nil

	began time.Time
	got   []byte // read and not used up
	fin   bool
}

// Play does the steps in order. The error says which step failed and how.
func (s *Side) Play(steps []Step) error {
	s.began = time.Now()
	for _, step := range steps {
		if err := s.do(step); err != nil {
			return fmt.Errorf("line %d, %s: %w", step.Line, step.Verb, err)
		}
	}
	return nil
}

func (s *Side) do(step Step) error {
	switch step.Verb {
	case "send":
		return s.send(step.Bytes)
	case "bytewise":
		return s.bytewise(step.Bytes, step.Time)
	case "expect":
		return s.expect(step.Bytes)
	case "match":
		return s.match(step)
	case "end", "reset", "gone":
		return s.ending(step.Verb)
	case "quiet":
		return s.quiet(step.Time)
	case "pause":
		time.Sleep(step.Time)
		return nil
	case "within", "after":
		return s.timed(step)
	case "look":
		if s.Look != nil {
			return s.Look()
		}
		return nil
	default:
		return s.leave(step.Verb)
	}
}

func (s *Side) send(b []byte) error {
	if err := s.Conn.SetWriteDeadline(time.Now().Add(s.Patience)); err != nil {
		return err
	}
	_, err := s.Conn.Write(b)
	return err
}

func (s *Side) bytewise(b []byte, gap time.Duration) error {
	for i := range b {
		if err := s.send(b[i : i+1]); err != nil {
			return err
		}
		time.Sleep(gap)
	}
	return nil
}

// more reads once, until a deadline.
func (s *Side) more(deadline time.Time) error {
	if s.fin {
		return io.EOF
	}
	if err := s.Conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	b := make([]byte, 64<<10)
	n, err := s.Conn.Read(b)
	s.got = append(s.got, b[:n]...)
	s.fin = errors.Is(err, io.EOF)
	return err
}

func (s *Side) expect(want []byte) error {
	deadline := time.Now().Add(s.Patience)
	for len(s.got) < len(want) {
		if err := s.more(deadline); err != nil {
			return fmt.Errorf("have %d of %d bytes (%.60q): %w", len(s.got), len(want), s.got, err)
		}
	}
	if !bytes.Equal(s.got[:len(want)], want) {
		at := 0
		for s.got[at] == want[at] {
			at++
		}
		return fmt.Errorf("byte %d: have %.40q, want %.40q", at, s.got[at:], want[at:])
	}
	s.got = s.got[len(want):]
	return nil
}

func (s *Side) match(step Step) error {
	deadline := time.Now().Add(s.Patience)
	for {
		if at := step.Pattern.FindIndex(s.got); at != nil {
			s.got = s.got[at[1]:]
			return nil
		}
		if err := s.more(deadline); err != nil {
			return fmt.Errorf("no match of %s in %.200q: %w", step.Pattern, s.got, err)
		}
	}
}

// ending reads to the end of the connection; bytes are allowed only before a RST.
func (s *Side) ending(verb string) error {
	deadline := time.Now().Add(s.Patience)
	var err error
	for err == nil {
		err = s.more(deadline)
	}
	fin, rst := errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET)
	switch {
	case verb == "end" && fin && len(s.got) > 0:
		return fmt.Errorf("%.60q before it", s.got)
	case verb == "end" && fin, verb == "reset" && rst, verb == "gone" && (fin || rst):
		return nil
	}
	return fmt.Errorf("the connection ends with %w", err)
}

func (s *Side) quiet(d time.Duration) error {
	if len(s.got) > 0 {
		return fmt.Errorf("%.60q has come", s.got)
	}
	switch err := s.more(time.Now().Add(d)); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("%.60q has come", s.got)
	}
}

func (s *Side) timed(step Step) error {
	passed := time.Since(s.began)
	if (passed <= step.Time) == (step.Verb == "within") {
		return nil
	}
	return fmt.Errorf("%s have passed, want %s %s", passed.Round(time.Millisecond), step.Verb, step.Time)
}

// leave does what ends the side's part of the connection.
func (s *Side) leave(verb string) error {
	switch verb {
	case "finish":
		return s.Conn.CloseWrite()
	case "abort":
		if err := s.Conn.SetLinger(0); err != nil { // close(2) sends a RST then (socket(7))
			return err
		}
	case "hold":
		select {
		case <-s.Done:
			return nil
		case <-time.After(3 * s.Patience):
			return errors.New("the other side is not done")
		}
	}
	return s.Conn.Close()
}
