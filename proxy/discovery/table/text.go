package table

import (
	"fmt"
	"strings"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/message"
)

// Text is a View in lines that begin with what they are about: the kind, then
// refused, decided, beware, to, request and backend. Files and lines are left
// out, because objects need not come from a file.
func Text(v *discovery.View, requests ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s port %d", v.Kind, word(v.Object.String()), v.Port)
	if v.PortName != "" {
		fmt.Fprintf(&b, " (%s)", v.PortName)
	}
	b.WriteByte('\n')
	if v.Refused != 0 {
		fmt.Fprintf(&b, "refused %s\n", v.Refused)
		return b.String()
	}
	b.WriteString(decision("decided", v.Protocol))
	for _, e := range v.Endpoints {
		b.WriteString("to " + endpoint(e) + "\n")
	}
	for _, r := range requests {
		b.WriteString("request " + r + " " + answer(v, r) + "\n")
	}
	for i, o := range v.Backends {
		if i == 0 {
			continue // the destination itself
		}
		fmt.Fprintf(&b, "backend %s %s\n", o, word(o.Object.String()))
		if !o.Object.IsZero() {
			b.WriteString(decision("backend decided", o.Protocol))
		}
		for _, e := range o.Endpoints {
			b.WriteString("backend to " + endpoint(e) + "\n")
		}
	}
	return b.String()
}

func word(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// decision leaves out the text of the default list, which is the same everywhere.
func decision(what string, d discovery.Decision) string {
	text := fmt.Sprintf("%s %s by %s", what, d.Kind, d.Reason)
	if !d.By.IsZero() {
		text += fmt.Sprintf(" of %s %q", d.By, d.Value)
	}
	text += "\n"
	for _, w := range d.Warnings {
		text += "beware " + w + "\n"
	}
	return text
}

func endpoint(e discovery.Endpoint) string {
	text := e.Addr.String()
	for _, p := range [][2]string{{"pod", e.Pod}, {"node", e.Node}, {"zone", e.Zone}} {
		if p[1] != "" {
			text += " " + p[0] + " " + p[1]
		}
	}
	if e.Opaque {
		text += " opaque"
	}
	if m := e.Mesh; m.Meshed() {
		text += fmt.Sprintf(" mesh %s as %s at %d", m.ID, m.ServerName, m.Port)
	} else if m.Reason() != discovery.NotProvided {
		text += " " + m.Reason()
	}
	return text
}

// answer is which rule a request comes under, and where it may go.
func answer(v *discovery.View, request string) string {
	if v.Table == nil {
		return "-> itself"
	}
	line, fields, _ := strings.Cut(request, "; ")
	method, rest, _ := strings.Cut(line, " ")
	host, path, _ := strings.Cut(rest, "/")
	h := &message.Head{}
	h.Method, h.Authority, h.Path = h.HoldString(method), h.HoldString(host), h.HoldString("/"+path)
	for f := range strings.SplitSeq(fields, "; ") {
		if name, value, ok := strings.Cut(f, ": "); ok {
			h.Add(name, value)
		}
	}
	hit := v.Table.Match(h)
	if hit.Action == nil {
		return "-> no rule"
	}
	text := "->"
	if hit.Route.Kind != 0 {
		text += fmt.Sprintf(" %s %s/%s rule %d", hit.Route.Kind, hit.Route.Namespace, hit.Route.Name, hit.Rule)
	}
	for _, s := range hit.Shares() {
		if s.Backend == 0 {
			text += " itself"
			continue
		}
		b := v.Table.Backends[s.Backend]
		text += fmt.Sprintf(" %s/%s:%d", b.Namespace, b.Name, b.Port)
	}
	if t := hit.Policy.Timeouts.Request; t != 0 {
		text += " within " + t.String()
	}
	if n := hit.Policy.Retry.Limit; n != 0 {
		text += fmt.Sprintf(" retries %d", n)
	}
	return text
}
