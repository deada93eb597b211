package redirect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
	ipt "github.com/meshctl/meshctl/rules/iptables"
)

// ipTables writes by iptables programs, one restore a family. Each restore is
// all or nothing for a table; both families are written at the same moment and
// both or neither stay.
type ipTables struct {
	ns       *Namespace
	kind     Kind // IPTablesNFT or IPTablesLegacy
	wait     time.Duration
	needIPv6 bool // IPv6 that cannot be written is an error
	warnings *[]string
}

func (b ipTables) Name() string { return b.kind.String() }

func (b ipTables) fail(step string, err error) error {
	var inner *Error
	if !errors.As(err, &inner) {
		return &Error{Backend: b.Name(), Step: step, Err: err}
	}
	return &Error{Backend: b.Name(), Step: step + ": " + inner.Step, Rule: inner.Rule, Class: ClassOf(err), Err: inner.Err}
}

// familyState is what a family has of ours, and the programs that write it.
type familyState struct {
	programs
	before ipt.Found
}

// Read implements Backend.
func (b ipTables) Read(ctx context.Context) (State, error) {
	families, err := b.look(ctx, false)
	if err != nil {
		return State{}, b.fail("reading the rules", err)
	}
	state := State{Backend: b.Name(), expected: expectedIn(b.writable(families))}
	hashes := map[string]bool{}
	for _, f := range families {
		state.content = append(state.content, foundItems(f.family, f.before)...)
		for _, c := range f.before.Counters {
			state.Counters = append(state.Counters, RuleCount{Family: f.family, ID: c.Rule, Packets: c.Packets, Bytes: c.Bytes})
		}
		if !f.before.Empty() {
			state.Present = true
			hashes[f.before.Hash()] = true
			state.Hash = f.before.Hash()
		}
	}
	if len(hashes) > 1 {
		state.Hash = ""
	}
	state.readBack = func() (out []rules.Rule) {
		for _, f := range families {
			out = append(out, f.before.Read(f.family)...)
		}
		return out
	}
	return state, nil
}

// writable are the families that Apply would write: those that have something
// of ours, and those that can be had.
func (b ipTables) writable(found []familyState) []rules.Family {
	out := []rules.Family{rules.IPv4}
	has := slices.ContainsFunc(found, func(f familyState) bool { return f.family == rules.IPv6 && !f.before.Empty() })
	_, err := exec.LookPath("ip6tables")
	if has || err == nil && b.ns.Do(ipv6Present) == nil {
		out = append(out, rules.IPv6)
	}
	return out
}

// look lists what is there, family by family. For writing, the programs of the
// families must be there; for reading, only where there is something to read.
func (b ipTables) look(ctx context.Context, writing bool) (out []familyState, err error) {
	around, err := lookAround(b.ns)
	if err != nil {
		return nil, err
	}
	lock, err := b.lockFile()
	if err != nil {
		return nil, err
	}
	err = b.ns.Do(func() error {
		for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
			state, err := b.lookAt(ctx, around, programs{family: f, lock: lock}, writing)
			switch {
			case errors.Is(err, errFamilyOff):
			case err != nil:
				return err
			default:
				out = append(out, state)
			}
		}
		return nil
	})
	return out, err
}

var errFamilyOff = errors.New("the family is left out")

func (b ipTables) lookAt(ctx context.Context, around survey, want programs, writing bool) (familyState, error) {
	f := want.family
	tables := slices.DeleteFunc(around.tables(b.kind, f), func(t string) bool { return t != "nat" && t != "mangle" })
	if len(tables) == 0 && !writing {
		return familyState{}, errFamilyOff
	}
	if f == rules.IPv6 && !around.ipv6 && len(tables) == 0 {
		return familyState{}, b.without("IPv6 is off in this namespace")
	}
	programs, err := findPrograms(ctx, b.kind, f, want.lock)
	if errors.Is(err, exec.ErrNotFound) && f == rules.IPv6 {
		return familyState{}, b.without("there is no ip6tables")
	}
	if err != nil {
		return familyState{}, err
	}
	state := familyState{programs: programs}
	var listing strings.Builder
	for _, table := range tables {
		text, err := programs.save(ctx, table)
		if err != nil {
			return state, err
		}
		listing.WriteString(text)
	}
	state.before = ipt.Parse(listing.String())
	return state, nil
}

// without leaves IPv6 out with a warning, or refuses to.
func (b ipTables) without(why string) error {
	if b.needIPv6 {
		return &Error{Step: "writing IPv6 rules", Class: Unsupported, Err: errors.New(why)}
	}
	if b.warnings != nil {
		*b.warnings = append(*b.warnings, why+": IPv6 is not redirected")
	}
	return errFamilyOff
}

// xtablesLock is the file that iptables-legacy locks when nothing else is said.
const xtablesLock = "/run/xtables.lock"

// lockFile is what the programs lock instead of a file that cannot be written,
// as on a read-only root; nil where that is not so. Nobody else can lock that
// file either, so that it is enough if our own two programs see one another.
func (b ipTables) lockFile() (*os.File, error) {
	if b.kind != IPTablesLegacy || os.Getenv("XTABLES_LOCKFILE") != "" {
		return nil, nil
	}
	fd, err := unix.Open(xtablesLock, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return nil, unix.Close(fd)
	}
	if !isAny(err, unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOENT) {
		return nil, &Error{Step: "opening " + xtablesLock, Err: err}
	}
	memory, err := unix.MemfdCreate("xtables.lock", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, &Error{Step: "making a lock file", Err: err}
	}
	return os.NewFile(uintptr(memory), "xtables.lock"), nil
}

// Apply implements Backend.
func (b ipTables) Apply(ctx context.Context, plan rules.Plan) (changed bool, err error) {
	families, err := b.look(ctx, true)
	if err != nil {
		return false, b.fail("reading the rules", err)
	}
	var jobs []job
	for _, f := range families {
		if !f.before.Holds(plan, f.family) {
			jobs = append(jobs, job{f, ipt.Restore(plan, f.family, f.before)})
		}
	}
	return len(jobs) > 0, b.write(ctx, "writing the rules", jobs)
}

// Remove implements Backend.
func (b ipTables) Remove(ctx context.Context) (changed bool, err error) {
	families, err := b.look(ctx, false)
	if err != nil {
		return false, b.fail("reading the rules", err)
	}
	var jobs []job
	for _, f := range families {
		if text := ipt.Remove(f.before); text != "" {
			jobs = append(jobs, job{f, text})
		}
	}
	return len(jobs) > 0, b.write(ctx, "removing the rules", jobs)
}

// job is what one family's program is to write.
type job struct {
	familyState
	text string
}

// write does all jobs or none. All programs are started first, and each gets its
// text when the one before it is done: between the commits of two families
// nothing passes but a wake-up and a write. (Written at once, they would race for
// the order of their tables, and a listing would differ from run to run.)
func (b ipTables) write(ctx context.Context, step string, jobs []job) error {
	if len(jobs) == 0 {
		return nil
	}
	err := b.ns.Do(func() error {
		results := runAll(ctx, b.wait, jobs)
		if err := errors.Join(results...); err == nil {
			return nil
		}
		return b.undo(ctx, jobs, results)
	})
	if err != nil {
		return b.fail(step, err)
	}
	return nil
}

// runAll gives each job's error; after the first failure nothing more is written.
// It works on the calling thread, which is the one inside the namespace.
func runAll(ctx context.Context, wait time.Duration, jobs []job) []error {
	results := make([]error, len(jobs))
	started := make([]*restore, len(jobs))
	for i, j := range jobs {
		started[i], results[i] = j.startRestore(ctx, wait, j.text)
	}
	failed := errors.Join(results...)
	for i, r := range started {
		if results[i] != nil {
			continue // never started
		}
		if failed != nil {
			r.drop()
			results[i] = errNotWritten
			continue
		}
		r.feed()
		results[i] = r.wait(ctx)
		failed = results[i]
	}
	return results
}

var errNotWritten = errors.New("not written")

// undo puts the families that were written back to what they were and returns
// the failure, with what remains if even that fails.
func (b ipTables) undo(ctx context.Context, jobs []job, results []error) error {
	failure := firstFailure(results)
	for i, j := range jobs {
		if results[i] != nil {
			continue
		}
		if err := b.revert(ctx, j); err != nil {
			return fmt.Errorf("%w; the rules of %s remain: %w", failure, j.family, err)
		}
	}
	return failure
}

func firstFailure(results []error) error {
	for _, err := range results {
		if err != nil && !errors.Is(err, errNotWritten) {
			return err
		}
	}
	return errNotWritten
}

func (b ipTables) revert(ctx context.Context, j job) error {
	var listing strings.Builder
	for _, table := range []string{"mangle", "nat"} {
		text, err := j.save(ctx, table)
		if err != nil {
			return err
		}
		listing.WriteString(text)
	}
	text := revertText(j.before, ipt.Parse(listing.String()))
	return errors.Join(runAll(ctx, b.wait, []job{{j.familyState, text}})...)
}
