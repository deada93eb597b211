package annotation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
)

// ParseDuration reads Linkerd's durations: a whole number and one of ms, s, m,
// h, d, or a bare 0; and Go's ("1m30s"), which some write.
func ParseDuration(value string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(value, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("no duration: %q", value)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return 0, fmt.Errorf("no duration: %q (a number and ms, s, m, h or d)", value)
	case d < 0:
		return 0, fmt.Errorf("negative: %q", value)
	}
	return d, nil
}

// ParsePort reads one port, 1 to 65535.
func ParsePort(value string) (uint16, error) {
	set, err := ports.ParseStrict(value)
	if err != nil || set.Len() != 1 || strings.ContainsAny(value, "-, ") {
		return 0, fmt.Errorf("%q is not a port", value)
	}
	return set.Ranges()[0].Lo, nil
}

// ParseID reads a user or group number.
func ParseID(value string) (uint32, error) {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a user or group number", value)
	}
	return uint32(n), nil
}

// ParseBool reads true or false, and enabled or disabled, which Linkerd's
// documentation uses for some keys.
func ParseBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "enabled":
		return true, nil
	case "false", "disabled", "":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", value)
}

// checkPolicy knows the words of Linkerd's default policies.
func checkPolicy(value string) error {
	switch value {
	case "all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated", "deny", "audit":
		return nil
	}
	return fmt.Errorf("%q is no default policy: want all-unauthenticated, all-authenticated, cluster-unauthenticated, cluster-authenticated, deny or audit", value)
}

// check says whether value is of type t.
func (t Type) check(value string) error {
	var err error
	switch t {
	case PortList:
		_, err = ParsePorts(value)
	case PlainPorts:
		_, err = ports.ParseOver(value, ports.Set{})
	case Subnets:
		_, err = subnet.Parse(value)
	case Port:
		_, err = ParsePort(value)
	case ID:
		_, err = ParseID(value)
	case Duration:
		_, err = ParseDuration(value)
	case Bool:
		_, err = ParseBool(value)
	case Policy:
		err = checkPolicy(value)
	}
	return err
}

// Misspelt is the error of a key that is not known; Meant is what it was
// probably meant to be, or "".
type Misspelt struct{ Key, Meant string }

// Error names both keys.
func (e *Misspelt) Error() string {
	if e.Meant == "" {
		return "unknown key " + e.Key
	}
	return fmt.Sprintf("unknown key %s: did you mean %s?", e.Key, e.Meant)
}

// ErrUnused is the error of a key that is right, and has no effect here.
var ErrUnused = errors.New("this key has no effect here")

// Check looks at one annotation of any object. It returns nil for keys that are
// none of Linkerd's; a *Misspelt; an error that says what is wrong with the
// value, without the key; or ErrUnused.
func Check(key, value string) error {
	k, known := Find(key)
	switch {
	case !known && Suggest(key) != "":
		return &Misspelt{key, Suggest(key)}
	case !known && (strings.HasPrefix(key, Prefix) || strings.HasPrefix(key, AlphaPrefix)):
		return &Misspelt{key, ""}
	case !known:
		return nil
	}
	if err := k.Type.check(value); err != nil {
		return err
	}
	if !k.Used {
		return ErrUnused
	}
	return nil
}
