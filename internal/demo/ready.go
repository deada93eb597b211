package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// ready waits until the proxy serves, or has ended instead.
func (d *demo) ready(ctx context.Context) error {
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); {
		select {
		case <-d.proxy.ended:
			return fmt.Errorf("the proxy did not start: %w\n%s", d.proxy.err, d.proxy.said.String())
		default:
		}
		if d.admin.get(ctx, "/ready", nil) == nil {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the proxy is not ready after %s\n%s", inWords(2*patience), d.proxy.said.String())
}

// introduce shows what the command wrote, how it proved it, and whom it became.
func (d *demo) introduce(ctx context.Context) error {
	k, err := readKernel(ctx, d.pair.pod)
	if err != nil {
		return err
	}
	said := d.proxy.said.String()
	verified := regexp.MustCompile(`msg="rules verified" checks=(\d+)`).FindStringSubmatch(said)
	if verified == nil || strings.Contains(said, "checks could not be made") {
		return fmt.Errorf("the rules were not verified in full:\n%s", said)
	}
	whom, err := privileges(d.proxy.cmd.Process.Pid)
	if err != nil {
		return err
	}
	d.print.line("  %d rules in the place of the old ones, in one transaction; proved by %s real connections", k.rules, verified[1])
	d.print.line("  proxy: %s", whom)
	return nil
}

// privileges reads whom a process runs as and what it may (proc_pid_status(5)).
func privileges(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	uid, _, _ := strings.Cut(fields["Uid"], "\t")
	if strings.Trim(fields["CapPrm"]+fields["CapEff"], "0") != "" || fields["NoNewPrivs"] != "1" || uid == "0" {
		return "", errors.New("the proxy has more rights than an ordinary user")
	}
	return fmt.Sprintf("user %s, no capabilities, no new privileges", uid), nil
}
