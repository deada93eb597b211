package redirect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
)

// programs are the iptables programs of one family and kind.
type programs struct {
	family rules.Family
	base   string // "iptables-nft", "ip6tables-legacy", or "iptables" where only that is there
	lock   *os.File
}

// findPrograms looks for the programs by name and then by what they say of
// themselves; the error is exec.ErrNotFound if there are none.
func findPrograms(ctx context.Context, kind Kind, f rules.Family, lock *os.File) (programs, error) {
	name := "iptables"
	if f == rules.IPv6 {
		name = "ip6tables"
	}
	suffix := strings.TrimPrefix(kind.String(), "iptables")
	if path, err := exec.LookPath(name + suffix); err == nil {
		return programs{f, name + suffix, lock}, tryOut(path, f)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return programs{}, fmt.Errorf("%s%s: %w", name, suffix, exec.ErrNotFound)
	}
	if err := tryOut(path, f); err != nil {
		return programs{}, err
	}
	if is, err := kindOf(ctx, path); err != nil || is != kind {
		return programs{}, fmt.Errorf("%s%s: %w", name, suffix, exec.ErrNotFound)
	}
	return programs{f, name, lock}, nil
}

// tryOut makes sure that the program runs at all.
func tryOut(path string, f rules.Family) error {
	protocol := iptables.ProtocolIPv4
	if f == rules.IPv6 {
		protocol = iptables.ProtocolIPv6
	}
	if _, err := iptables.New(iptables.Path(path), iptables.IPFamily(protocol)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// kindOf asks an iptables program which kernel interface it writes to:
// "iptables v1.8.9 (nf_tables)".
func kindOf(ctx context.Context, path string) (Kind, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w", path, err)
	}
	if bytes.Contains(out, []byte("nf_tables")) {
		return IPTablesNFT, nil
	}
	return IPTablesLegacy, nil
}

// command prepares the program "BASE-VERB", or an error in its words.
func (p programs) command(ctx context.Context, verb string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.base+"-"+verb, args...)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: ambientFor(unix.CAP_NET_ADMIN, unix.CAP_NET_RAW)}
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if p.lock != nil {
		cmd.ExtraFiles = []*os.File{p.lock}
		cmd.Env = append(cmd.Env, "XTABLES_LOCKFILE=/proc/self/fd/3")
	}
	return cmd
}

// save lists one table that is there, with counters.
func (p programs) save(ctx context.Context, table string) (string, error) {
	cmd := p.command(ctx, "save", "-c", "-t", table)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", said(ctx, cmd, stderr.String(), "", err)
	}
	return string(out), nil
}

// restore is one run of the program that writes; it waits for its text.
type restore struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	text   string
	stderr bytes.Buffer
}

func (p programs) startRestore(ctx context.Context, wait time.Duration, text string) (*restore, error) {
	args := []string{"--noflush"}
	if wait > 0 {
		args = append(args, "-w", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	r := &restore{cmd: p.command(ctx, "restore", args...), text: text}
	r.cmd.Stderr = &r.stderr
	in, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r.in = in
	return r, r.cmd.Start()
}

// feed gives the program its text. A program that ended early says why itself.
func (r *restore) feed() {
	_, _ = io.WriteString(r.in, r.text)
	r.in.Close()
}

// drop ends the program before it got anything: without a COMMIT it writes
// nothing.
func (r *restore) drop() {
	r.in.Close()
	_ = r.cmd.Wait()
}

func (r *restore) wait(ctx context.Context) error {
	if err := r.cmd.Wait(); err != nil {
		return said(ctx, r.cmd, r.stderr.String(), r.text, err)
	}
	return nil
}

// said makes an error of what a program printed before it failed.
func said(ctx context.Context, cmd *exec.Cmd, stderr, text string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", cmd.Args[0], ctx.Err())
	}
	message := strings.Join(strings.Fields(stderr), " ")
	if message == "" {
		message = err.Error()
	}
	return &Error{Step: strings.Join(cmd.Args, " "), Rule: ruleAtLine(text, stderr), Class: classOfWords(message), Err: fmt.Errorf("%s", message)}
}

// classOfWords judges the words that iptables programs fail with; the exit
// status does not tell the cases apart.
func classOfWords(message string) Class {
	for _, known := range []struct {
		words string
		class Class
	}{
		{"xtables lock", TryAgain}, {"Resource temporarily unavailable", TryAgain},
		{"Permission denied", Permission}, {"Operation not permitted", Permission},
		{"Table does not exist", Unsupported}, {"No chain/target/match", Unsupported},
		{"not supported", Unsupported}, {"Protocol wrong type", Unsupported},
	} {
		if strings.Contains(message, known.words) {
			return known.class
		}
	}
	return Other
}

var lineNumber = regexp.MustCompile(`line:? (\d+)`)

// ruleAtLine is the ID of the rule on the line that the program complains of.
func ruleAtLine(text, stderr string) string {
	found := lineNumber.FindStringSubmatch(stderr)
	if found == nil {
		return ""
	}
	number, err := strconv.Atoi(found[1])
	lines := strings.Split(text, "\n")
	if err != nil || number < 1 || number > len(lines) {
		return ""
	}
	_, comment, _ := strings.Cut(lines[number-1], `--comment "`)
	id, _ := rules.ParseComment(strings.TrimSuffix(comment, `"`))
	return id
}
