package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/policy"
)

// checkFlags are the flags of `meshctl check`.
type checkFlags struct {
	targetFlags
	output string
}

func newCheckCommand() *cobra.Command {
	c := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for mistakes in files of Kubernetes objects and annotations",
		Long: `Read what "meshctl proxy" would read with the same flags, and tell what is wrong
with it: fields that cannot be, misspelt annotations, routes that ask for what is
not done here, Services and pods that declare a port differently. Each finding has
its file, line, object and field, and a code in brackets.

An error keeps the proxy from starting, and a file from being taken while it runs;
the others are warnings. With any finding the exit code is 2.`,
		Example: `  meshctl check --resources /etc/meshctl/resources
  meshctl check --annotations /etc/podinfo/annotations`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.OutOrStdout()) },
	}
	c.register(cmd.Flags())
	cmd.Flags().StringVarP(&c.output, "output", "o", "text", "text or json")
	return cmd
}

// finding is one mistake, as -o json writes it.
type finding struct {
	Severity string `json:"severity"` // error or warning
	Code     string `json:"code"`
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Object   string `json:"object,omitempty"`
	Field    string `json:"field,omitempty"`
	Text     string `json:"text"`
}

// checked is the whole answer, as -o json writes it.
type checked struct {
	Findings []finding      `json:"findings"`
	Files    int            `json:"files"`
	Objects  int            `json:"objects"`
	Skipped  map[string]int `json:"skipped,omitempty"` // objects of kinds that mean nothing here
}

func (c *checkFlags) run(w io.Writer) error {
	if c.output != "text" && c.output != "json" {
		return usagef("--output %q: want text or json", c.output)
	}
	api, err := c.api.config(c.resources)
	if err != nil {
		return err
	}
	if len(c.resources) == 0 && c.annotations == "" && api == nil {
		return &usageError{err: fmt.Errorf("nothing to check"), hint: "name files with --resources or --annotations"}
	}
	var all checked
	if err := c.checkAPI(&all, api); err != nil {
		return err
	}
	c.checkResources(&all)
	c.checkAnnotations(&all)
	if err := all.print(w, c.output); err != nil {
		return fmt.Errorf("writing findings: %w", err)
	}
	if n := len(all.Findings); n > 0 {
		return findings{fmt.Sprintf("%d finding%s", n, plural(n))}
	}
	return nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func (c *checkFlags) checkResources(all *checked) {
	if len(c.resources) == 0 {
		return
	}
	_, report := file.NewReader(file.Config{
		Paths:   c.resources,
		Cluster: cluster.Config{Namespace: c.namespace, Opaque: policy.DefaultOpaque(), TrustDomain: c.trustDomain},
	}).Load()
	all.Files, all.Objects, all.Skipped = report.Files, report.Objects, report.Skipped
	all.add(report.Problems)
}

// add appends findings of objects.
func (all *checked) add(problems []file.Problem) {
	for _, p := range problems {
		f := finding{Severity: "warning", Code: string(p.Code), File: p.Object.File, Line: p.Object.Line, Object: p.Object.String(), Field: p.Field, Text: p.Text}
		if p.Breaks() {
			f.Severity = "error"
		}
		all.Findings = append(all.Findings, f)
	}
}

func (c *checkFlags) checkAnnotations(all *checked) {
	if c.annotations == "" {
		return
	}
	all.Files++
	_, notes, err := file.Annotations(c.annotations)
	if err != nil {
		f := finding{Severity: "error", Code: string(file.Unreadable), File: c.annotations, Text: err.Error()}
		if wrong, ok := errors.AsType[*annotation.FileError](err); ok {
			f.Code, f.Line, f.Text = string(file.Syntax), wrong.Line, wrong.Reason
		}
		all.Findings = append(all.Findings, f)
		return
	}
	for _, n := range notes {
		f := finding{Severity: "error", Code: string(file.BadAnnotation), File: c.annotations, Line: n.Line, Field: n.Key, Text: n.Err.Error()}
		switch {
		case n.Misspelt():
			f.Severity, f.Code = "warning", string(file.MisspeltKey)
			if m, ok := errors.AsType[*annotation.Misspelt](n.Err); ok && m.Meant != "" {
				f.Text = "did you mean " + m.Meant + "?"
			}
		case !n.Wrong(): // right, and of no effect here
			continue
		}
		all.Findings = append(all.Findings, f)
	}
}

func (all checked) print(w io.Writer, output string) error {
	if output == "json" {
		if all.Findings == nil {
			all.Findings = []finding{}
		}
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(all)
	}
	for _, f := range all.Findings {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(all.Skipped)) {
		fmt.Fprintf(w, "left out: %d of %s, which mean nothing here\n", all.Skipped[kind], kind)
	}
	_, err := fmt.Fprintf(w, "%d object%s in %d file%s, %d finding%s\n", all.Objects, plural(all.Objects), all.Files, plural(all.Files), len(all.Findings), plural(len(all.Findings)))
	return err
}

func (f finding) String() string {
	s := f.Severity
	if f.File != "" { // else it comes from the API
		s += ": " + f.File
	}
	if f.Line > 0 {
		s += fmt.Sprintf(":%d", f.Line)
	}
	for _, part := range []string{f.Object, f.Field, f.Text} {
		if part != "" {
			s += ": " + part
		}
	}
	return s + " [" + f.Code + "]"
}
