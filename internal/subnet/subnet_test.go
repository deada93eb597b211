package subnet

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestASubnetListIsReadForBothFamilies(t *testing.T) {
	for list, want := range map[string]string{
		"":                                   "",
		" ":                                  "",
		"10.232.0.77/24":                     "10.232.0.0/24",
		" 10.232.0.77/24 , fd31::9/64\t,":    "10.232.0.0/24 fd31::/64",
		"192.0.2.7,2001:db8::7":              "192.0.2.7/32 2001:db8::7/128",
		"0.0.0.0/0,::/0":                     "0.0.0.0/0 ::/0",
		"10.0.0.0/8,10.0.0.0/8,10.1.0.0/16,": "10.0.0.0/8 10.0.0.0/8 10.1.0.0/16",
	} {
		got, err := Parse(list)
		if err != nil {
			t.Errorf("Parse(%q): %v", list, err)
			continue
		}
		text := ""
		for _, s := range got {
			text += " " + s.String()
		}
		if text != "" {
			text = text[1:]
		}
		if text != want {
			t.Errorf("Parse(%q) = %s, want %s", list, text, want)
		}
	}
}

func TestAWrongSubnetListIsRefusedWithTheItemAndItsPlace(t *testing.T) {
	for list, want := range map[string]Error{
		"10.232.0.0/33":             {"10.232.0.0/33", 1, "not a subnet"},
		"fd31::/64,10.232.0":        {"10.232.0", 2, "not a subnet"},
		"fd31::/129":                {"fd31::/129", 1, "not a subnet"},
		"10.0.0.0/8;fd31::/64":      {"10.0.0.0/8;fd31::/64", 1, "not a subnet"},
		"10.0.0.0/08":               {"10.0.0.0/08", 1, "not a subnet"},
		"10.0.0.0/-8":               {"10.0.0.0/-8", 1, "not a subnet"},
		"010.0.0.0/8":               {"010.0.0.0/8", 1, "not a subnet"},
		"10.0.0.0/255.0.0.0":        {"10.0.0.0/255.0.0.0", 1, "not a subnet"},
		"fe80::1%eth0":              {"fe80::1%eth0", 1, "not a subnet"},
		"fe80::%eth0/64":            {"fe80::%eth0/64", 1, "not a subnet"},
		"10.0.0.0/8,,fd31::/64":     {"", 2, "empty item"},
		",":                         {"", 1, "empty item"},
		"10.0.0.0/8\n11.0.0.0/8":    {"10.0.0.0/8\n11.0.0.0/8", 1, "not a subnet"},
		"10.0.0.0/8,::ffff:1.2.3.4": {"::ffff:1.2.3.4", 2, "an IPv4 subnet in IPv6 clothes: write it as IPv4"},
		"example.com":               {"example.com", 1, "not a subnet"},
	} {
		subnets, err := Parse(list)
		var got *Error
		if !errors.As(err, &got) {
			t.Errorf("Parse(%q) = %v, %v; want a *Error", list, subnets, err)
			continue
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", list, diff)
		}
	}
}
