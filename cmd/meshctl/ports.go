package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/internal/knownports"
)

func newPortsCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "ports [NAME|PORT]",
		Short: "List the protocols that may need configuration, and what to set",
		Long: `List the protocols that may need configuration: who speaks first, what becomes
of their ports by default, and what to set. With a name or a port, say more.

Detection reads the client's first bytes. Where the server speaks first there
are none: an undeclared port then costs 250 ms once (the proxy dials early and
hears the server), an opaque port costs nothing.`,
		Example: "  meshctl ports\n  meshctl ports galera\n  meshctl ports 3306 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return printPorts(cmd.OutOrStdout(), args, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// printPorts prints the whole table, or what it has about args[0].
func printPorts(w io.Writer, args []string, output string) error {
	entries := knownports.All()
	if len(args) > 0 {
		entries = knownports.Find(args[0])
		if n, err := strconv.ParseUint(args[0], 10, 16); (err != nil || n == 0) && len(entries) == 0 {
			return &usageError{err: fmt.Errorf("no protocol or port %q in the table", args[0]), hint: "meshctl ports lists them all"}
		}
	}
	switch {
	case output == "json":
		return portsJSON(w, entries)
	case output != "text":
		return usagef("--output %q: want text or json", output)
	case len(args) == 0:
		return portsTable(w, entries)
	case len(entries) == 0:
		_, err := fmt.Fprintf(w, "%s: in no default list, and no protocol is known for it. The proxy tells it from its first bytes;\n"+
			"if the server speaks first there: meshctl proxy --opaque-ports +%[1]s\n", args[0])
		return err
	default:
		return portsDetails(w, entries)
	}
}

func portsJSON(w io.Writer, entries []knownports.Entry) error {
	type row struct {
		Name    string             `json:"name"`
		Title   string             `json:"title"`
		Ports   []uint16           `json:"ports"`
		First   knownports.Speaker `json:"speaks_first"`
		Default knownports.Default `json:"default"`
		Set     string             `json:"set"`
		Note    string             `json:"note"`
	}
	rows := make([]row, 0, len(entries))
	for _, e := range entries {
		numbers := make([]uint16, 0, e.Ports.Len())
		for _, r := range e.Ports.Ranges() {
			for p := int(r.Lo); p <= int(r.Hi); p++ {
				numbers = append(numbers, uint16(p))
			}
		}
		rows = append(rows, row{e.Name, e.Title, numbers, e.First, e.Default, e.Set, e.Note})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

// portsTable prints one line a row, at most 100 columns wide.
func portsTable(w io.Writer, entries []knownports.Entry) error {
	const columns = "%-14s  %-14s  %-6s  %-8s  %s\n"
	var b strings.Builder
	fmt.Fprintf(&b, columns, "PROTOCOL", "PORTS", "FIRST", "DEFAULT", "WHAT TO SET")
	for _, e := range entries {
		fmt.Fprintf(&b, columns, e.Name, portsWord(e), e.First, e.Default, e.Set)
	}
	b.WriteString("\nFIRST: who speaks first. DEFAULT: opaque = --opaque-ports, skipped = --skip-*-ports, else detected.\n" +
		"Say more about one: meshctl ports NAME or PORT.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func portsWord(e knownports.Entry) string {
	if e.Ports.Empty() {
		return "any"
	}
	return e.Ports.String()
}

// portsDetails prints a paragraph a row.
func portsDetails(w io.Writer, entries []knownports.Entry) error {
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s (%s)\n", e.Title, e.Name)
		for _, line := range [][2]string{
			{"ports", portsWord(e)},
			{"speaks first", e.First.String()},
			{"by default", e.Default.String()},
			{"to set", e.Set},
			{"why", e.Note},
		} {
			fmt.Fprintf(&b, "  %-12s  %s\n", line[0], wrapped(line[1], 84, "\n"+strings.Repeat(" ", 16)))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrapped breaks text between words into lines of at most width bytes, with
// newline between them.
func wrapped(text string, width int, newline string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case used+1+len(word) > width:
			b.WriteString(newline)
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += len(word)
	}
	return b.String()
}
