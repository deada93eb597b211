package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/meshctl/meshctl/internal/annotation"
)

// oneOf checks that a value is one of several words.
func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(words, v) {
			return nil
		}
		return fmt.Errorf("%q: want %s", v, strings.Join(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" }), ", "))
	}
}

func oneOfSetting(words ...string) func(*settings, string) error {
	return func(_ *settings, v string) error { return oneOf(words...)(v) }
}

func connectTimeout(direction string) func(*settings, string) error {
	return func(s *settings, v string) error {
		d, err := annotation.ParseDuration(v)
		if err == nil && d == 0 {
			err = fmt.Errorf("%q: no time at all", v)
		}
		if err != nil {
			return err
		}
		return proxyArg(direction+"-connect-timeout")(s, d.String())
	}
}

func noDetectTimeout(direction string) func(*settings, string) error {
	return func(s *settings, v string) error {
		on, err := annotation.ParseBool(v)
		if err != nil || !on {
			return err
		}
		return proxyArg(direction+"-detect-timeout")(s, "8760h") // a year, as in Linkerd
	}
}

// logLevel reads a level, or a list of levels by target as linkerd2-proxy (the
// tracing-subscriber library) does: the target linkerd's counts, else the one
// without a target.
func logLevel(v string) (string, error) {
	level := "info"
	of := ""
	for item := range strings.SplitSeq(v, ",") {
		target, l, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			target, l = "", target
		}
		if target == "" && of == "" || target == "linkerd" || target == "meshctl" {
			level, of = strings.ToLower(l), target
		}
	}
	switch level {
	case "debug", "info", "warn", "error":
		return level, nil
	case "trace":
		return "debug", nil
	case "off":
		return "error", nil
	}
	return "", fmt.Errorf("%q: want debug, info, warn or error", level)
}

// addEnv reads a list of environment variables; one of the same name is replaced.
func (s *settings) addEnv(v string) error {
	if strings.TrimSpace(v) == "" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(v)))
	dec.DisallowUnknownFields()
	var list []corev1.EnvVar
	if err := dec.Decode(&list); err != nil {
		return fmt.Errorf(`want a JSON list, as [{"name": "A", "value": "b"}]: %w`, err)
	}
	for _, e := range list {
		if e.Name == "" {
			return fmt.Errorf("a variable without a name")
		}
		if i := slices.IndexFunc(s.env, func(have corev1.EnvVar) bool { return have.Name == e.Name }); i >= 0 {
			s.env[i] = e
		} else {
			s.env = append(s.env, e)
		}
	}
	return nil
}

// quantity reads an amount of a resource.
func quantity(name corev1.ResourceName, limit bool) func(*settings, string) error {
	return func(s *settings, v string) error {
		q, err := resource.ParseQuantity(v)
		if err != nil || q.Sign() <= 0 {
			return fmt.Errorf("%q is no amount, such as 100m or 20Mi", v)
		}
		list := &s.resources.Requests
		if limit {
			list = &s.resources.Limits
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q
		return nil
	}
}

// checkResources makes sure that nothing is asked for beyond its limit, which the
// API server would refuse.
func (s *settings) checkResources() error {
	for name, limit := range s.resources.Limits {
		if request, ok := s.resources.Requests[name]; ok && request.Cmp(limit) > 0 {
			return fmt.Errorf("proxy-%s-request %s is above proxy-%s-limit %s", name, request.String(), name, limit.String())
		}
	}
	return nil
}

// trimList takes blanks and a trailing comma from a list of ports.
func trimList(list string) string {
	list = strings.NewReplacer(" ", "", "\t", "").Replace(list)
	return strings.TrimSuffix(list, ",")
}
