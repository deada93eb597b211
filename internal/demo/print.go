package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// ANSI colours (ECMA-48, SGR).
const (
	bold  = "1"
	faint = "2"
	red   = "1;31"
	green = "32"
	cyan  = "36"
)

// printer writes for people, in 100 columns.
type printer struct {
	out   io.Writer
	color bool
	err   error // the first failure to write
}

func (p *printer) line(format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	if _, err := fmt.Fprintln(p.out, text); err != nil && p.err == nil {
		p.err = fmt.Errorf("printing: %w", err)
	}
}

func (p *printer) paint(color, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// command shows what is run, as a user would type it.
func (p *printer) command(text, comment string) {
	if comment != "" {
		comment = "   " + p.paint(faint, "# "+comment)
	}
	p.line("%s %s%s", p.paint(faint, "$"), p.paint(bold, text), comment)
}

// columns are those of the table; colours must not count as width.
func (p *printer) columns(color, name, to, first, told, because string) {
	p.line("  %-22s%-16s%10s  %s%s", name, to, first, p.paint(color, fmt.Sprintf("%-15s", told)), because)
}

func (p *printer) heading() {
	head := fmt.Sprintf("  %-22s%-16s%10s  %-15s%s", "connection", "to", "first byte", "told as", "because")
	p.line("%s", p.paint(faint, head))
}

// row shows what came of a scene, and tells whether it was what was wanted.
func (p *printer) row(s scene, o outcome) bool {
	first, kind, color := "-", "not proxied", cyan
	if o.first > 0 {
		first = inWords(o.first)
	}
	if o.seen {
		kind, color = o.told.String(), green
	}
	if wrong := s.want.wrong(o); wrong != "" {
		p.columns(red, s.name, s.to.String(), first, kind, p.paint(red, "FAIL"))
		p.line("    %s", p.paint(red, wrong))
		return false
	}
	p.columns(color, s.name, s.to.String(), first, kind, s.want.because)
	return true
}

// inWords writes a time as people take it in.
func inWords(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
