package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
)

// Read reads the rules found in a family back, line by line, as far as
// rules.ConfigOf needs them: IDs, users, subnets, ports and the ports that are
// redirected to. What it does not understand it leaves out.
func (f Found) Read(family rules.Family) []rules.Rule {
	out := make([]rules.Rule, 0, len(f.Rules))
	for _, line := range f.Rules {
		id, _ := rules.ParseComment(commentOf(line))
		r := rules.Rule{ID: id}
		words := strings.Fields(withoutQuoted(line))
		for i := 1; i < len(words); i++ {
			readWord(&r, words[i-1], words[i])
		}
		// iptables-save says nothing of a subnet that holds every address.
		if strings.Contains(id, "-subnets") && len(r.Match.Src.Subnets) == 0 {
			r.Match.Src.Subnets = []netip.Prefix{everything(family)}
		}
		r.Match.Dst = r.Match.Src
		out = append(out, r)
	}
	return out
}

// readWord reads a flag and what follows it. Whether a subnet is one of sources
// or of destinations is known by the rule's ID.
func readWord(r *rules.Rule, flag, value string) {
	switch flag {
	case "-s", "-d":
		if p, err := netip.ParsePrefix(value); err == nil {
			r.Match.Src.Subnets = append(r.Match.Src.Subnets, p)
		}
	case "--dports":
		if set, err := ports.Parse(value); err == nil {
			r.Match.DstPorts.Ports = set
		}
	case "--uid-owner":
		r.Match.UID = number(value)
	case "--gid-owner":
		r.Match.GID = number(value)
	case "--to-ports":
		if n := number(value); n != nil {
			r.RedirectTo = uint16(*n)
		}
	}
}

func number(text string) *uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil
	}
	return new(uint32(n))
}

func everything(f rules.Family) netip.Prefix {
	if f == rules.IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}
