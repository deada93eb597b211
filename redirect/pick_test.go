package redirect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
)

func TestAutoFollowsTheRulesAndThenTheKernel(t *testing.T) {
	ours := func(table string) []chainRef {
		return []chainRef{{rules.IPv4, table, ""}, {rules.IPv4, table, "MESHCTL_OUTBOUND"}}
	}
	for name, c := range map[string]struct {
		around survey
		want   Kind
		class  Class // of the error, if there is to be one
	}{
		"an empty namespace":                 {survey{}, NFTables, 0},
		"others' legacy rules":               {survey{legacy: []chainRef{{rules.IPv4, "nat", "DOCKER"}}}, NFTables, 0},
		"our table":                          {survey{nft: []chainRef{{0, "meshctl", ""}}}, NFTables, 0},
		"somebody's table of our name":       {survey{nft: []chainRef{{rules.IPv4, "meshctl", ""}}}, NFTables, 0},
		"our chains by iptables-nft":         {survey{nft: ours("nat")}, IPTablesNFT, 0},
		"our chains by iptables-legacy":      {survey{legacy: ours("nat")}, IPTablesLegacy, 0},
		"our names in another table":         {survey{legacy: ours("filter")}, NFTables, 0},
		"both":                               {survey{nft: []chainRef{{0, "meshctl", ""}}, legacy: ours("nat")}, NFTables, 0},
		"no nf_tables: protocol":             {survey{nfTables: unix.EPROTONOSUPPORT}, IPTablesLegacy, 0},
		"no nf_tables: operation":            {survey{nfTables: fmt.Errorf("netlink: %w", unix.EOPNOTSUPP)}, IPTablesLegacy, 0},
		"no nf_tables: message":              {survey{nfTables: unix.EINVAL}, IPTablesLegacy, 0},
		"a kernel that fails in another way": {survey{nfTables: unix.ENOMEM}, 0, Other},
	} {
		t.Run(name, func(t *testing.T) {
			kind, _, err := chooseAuto(c.around)
			if kind != c.want || ClassOf(err) != c.class {
				t.Errorf("chose %s, %v", kind, err)
			}
		})
	}
}

func TestWithoutNFTablesAndWithoutProgramsNothingIsChosen(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, _, err := chooseAuto(survey{nfTables: unix.EPROTONOSUPPORT}); ClassOf(err) != Unsupported {
		t.Errorf("%v (%v)", err, ClassOf(err))
	}
	for _, kind := range []Kind{NFTables, IPTablesNFT} {
		if err := checkKind(survey{nfTables: unix.EPROTONOSUPPORT}, kind); ClassOf(err) != Unsupported {
			t.Errorf("%s was asked for: %v", kind, err)
		}
	}
}

func TestErrorsAreJudgedByTheirCause(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Class
	}{
		"nil":                   {nil, 0},
		"plain":                 {errors.New("x"), Other},
		"not permitted":         {fmt.Errorf("x: %w", unix.EPERM), Permission},
		"no access":             {&fs.PathError{Err: unix.EACCES}, Permission},
		"busy":                  {unix.EBUSY, TryAgain},
		"out of time":           {context.DeadlineExceeded, TryAgain},
		"a port taken":          {unix.EADDRINUSE, TryAgain},
		"no program":            {&exec.Error{Name: "x", Err: exec.ErrNotFound}, Unsupported},
		"no such family":        {unix.EAFNOSUPPORT, Unsupported},
		"said":                  {&Error{Class: TryAgain, Err: unix.EPERM}, TryAgain},
		"said further in":       {fmt.Errorf("x: %w", &Error{Class: Usage, Err: unix.EPERM}), Usage},
		"not said":              {&Error{Step: "x", Err: unix.EPERM}, Permission},
		"no namespace":          {&NamespaceError{Ref: "x", Reason: "a file"}, Usage},
		"a namespace forbidden": {&NamespaceError{Ref: "x", Reason: "x", Err: unix.EACCES}, Permission},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClassOf(c.err); got != c.want {
				t.Errorf("class %s, want %s", got, c.want)
			}
		})
	}
}

func TestWordsOfIPTablesAreJudged(t *testing.T) {
	for words, want := range map[string]Class{
		"Another app is currently holding the xtables lock; still 4s 0us time ahead":  TryAgain,
		"can't initialize iptables table `nat': Permission denied (you must be root)": Permission,
		"can't initialize ip6tables table `nat': Table does not exist":                Unsupported,
		"iptables-restore: line 7 failed":                                             Other,
	} {
		if got := classOfWords(words); got != want {
			t.Errorf("%q: %s, want %s", words, got, want)
		}
	}
}

func TestAnErrorNamesWhatIsKnown(t *testing.T) {
	err := &Error{Backend: "nftables", Step: "writing the rules", Rule: "proxy-uid", Err: unix.EPERM}
	if got, want := err.Error(), "nftables: writing the rules: proxy-uid: operation not permitted: CAP_NET_ADMIN is needed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKindsAreReadAsTheyAreWritten(t *testing.T) {
	for kind := Auto; kind <= IPTables; kind++ {
		if got, err := ParseKind(kind.String()); err != nil || got != kind {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
	}
	if _, err := ParseKind("not said"); err == nil {
		t.Error("the zero value can be asked for")
	}
}
