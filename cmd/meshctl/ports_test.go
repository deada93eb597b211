package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/internal/knownports"
)

// portsOutput runs `meshctl ports` with args.
func portsOutput(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetArgs(append([]string{"ports"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestGoldenPortsSaysWhatToSetForWhat(t *testing.T) {
	for name, args := range map[string][]string{
		"all":     nil,
		"galera":  {"galera"},
		"mysql":   {"3306"},
		"nats":    {"NATS"},
		"unknown": {"8080"},
		"json":    {"25", "-o", "json"},
		"none":    {"8080", "--output", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := portsOutput(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "ports/"+name+".txt", out)
		})
	}
}

func TestPortsFitInAHundredColumns(t *testing.T) {
	var queries [][]string
	for _, e := range knownports.All() {
		queries = append(queries, []string{e.Name})
	}
	for _, q := range append(queries, nil, []string{"65535"}) {
		out, err := portsOutput(t, q...)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > 100 || strings.TrimRight(line, " ") != line {
				t.Errorf("ports %v: %d columns: %q", q, len(line), line)
			}
		}
	}
}

func TestPortsTableIsAligned(t *testing.T) {
	out, err := portsOutput(t)
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := strings.Cut(out, "\n")
	at := []int{strings.Index(header, "PORTS"), strings.Index(header, "FIRST"), strings.Index(header, "DEFAULT"), strings.Index(header, "WHAT")}
	for i, line := range strings.Split(out, "\n")[:1+len(knownports.All())] {
		for _, col := range at {
			if line[col-1] != ' ' || line[col] == ' ' {
				t.Errorf("line %d leaves column %d: %q", i, col, line)
			}
		}
	}
}

func TestPortsAsJSONHasEveryRow(t *testing.T) {
	out, err := portsOutput(t, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name        string
		Ports       []uint16
		SpeaksFirst string `json:"speaks_first"`
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	for i, e := range knownports.All() {
		if i >= len(rows) || rows[i].Name != e.Name || rows[i].SpeaksFirst != e.First.String() || len(rows[i].Ports) != e.Ports.Len() {
			t.Fatalf("row %d of %d is not %s: %+v", i, len(rows), e.Name, rows)
		}
	}
}

func TestPortsRefusesWhatItCannotMean(t *testing.T) {
	for _, args := range [][]string{{"nonsense"}, {"0"}, {"65536"}, {"-1"}, {"3306", "5432"}, {"-o", "yaml"}, {"3306", "-o", ""}} {
		out, err := portsOutput(t, args...)
		var usage *usageError
		if !errors.As(err, &usage) || out != "" {
			t.Errorf("ports %q: %v, output %q; want a usage error and none", args, err, out)
		}
	}
}
