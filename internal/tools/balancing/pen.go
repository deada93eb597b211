package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// pen writes SVG and remembers the first error.
type pen struct {
	w   io.Writer
	err error
}

func (p *pen) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *pen) text(x, y float64, anchor string, size int, s string) {
	p.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="#222222">%s</text>`+"\n", x, y, anchor, size, s)
}

// The vertical axis is logarithmic, 1 ms to 10 s.
const decades = 4

func yOf(d time.Duration) float64 {
	log := math.Log10(float64(d) / float64(time.Millisecond))
	return height - bottom - log/decades*(height-top-bottom)
}

func xOf(i int) float64 {
	return left + float64(i)/float64(len(percentiles())-1)*(width-left-right)
}

func (p *pen) axes() {
	for d := time.Millisecond; d <= 10*time.Second; d *= 10 {
		y := yOf(d)
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`+"\n", left, y, width-right, y)
		p.text(left-8, y+4, "end", 12, label(d))
	}
	for i, f := range percentiles() {
		p.text(xOf(i), height-bottom+20, "middle", 12, fmt.Sprintf("p%g", f*100))
	}
}

// curve draws one line and its row of the legend, which tells its figures.
func (p *pen) curve(c *curve, row int) {
	var points []string
	for i, f := range percentiles() {
		points = append(points, fmt.Sprintf("%.1f,%.1f", xOf(i), yOf(c.result.Percentile(f))))
	}
	p.printf(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2.5"/>`+"\n", strings.Join(points, " "), c.colour)
	y := float64(height - bottom + 42 + 17*row)
	p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-width="2.5"/>`+"\n", left, y-4, left+24, y-4, c.colour)
	p.text(left+32, y, "start", 12, fmt.Sprintf("%s: p50 %s, p99 %s; the slow endpoint got %.1f %% of all",
		c.name, shown(c.result.Percentile(0.5)), shown(c.result.Percentile(0.99)), 100*c.result.Share(3)))
}

func shown(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}

func label(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
