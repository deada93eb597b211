package main

import (
	"strings"
	"testing"
)

func TestTheSummaryShowsFailuresAndSkipsAndCounts(t *testing.T) {
	tests := map[string]struct {
		lines []string
		good  bool
		want  []string
		not   []string
	}{
		"all passed": {
			lines: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Elapsed":1.5}`,
			},
			good: true, want: []string{"1 passed, 0 failed, 0 skipped", "pass p"}, not: []string{"noise"},
		},
		"a failure prints what the test said": {
			lines: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:7: wrong\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
			},
			want: []string{"a_test.go:7: wrong", "FAILED: p TestA", "0 passed, 1 failed"},
		},
		"a skip is named with its reason": {
			lines: []string{
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: needs root\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
			},
			good: true, want: []string{"skipped: p TestA: a_test.go:3: needs root", "1 skipped"},
		},
		"a package that panics fails": {
			lines: []string{
				`{"Action":"output","Package":"p","Output":"panic: oh\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: []string{"panic: oh", "FAILED: p"},
		},
		"a package that does not build fails": {
			lines: []string{
				`{"ImportPath":"p","Action":"build-output","Output":"x.go:1: undefined\n"}`,
				`{"ImportPath":"p","Action":"build-fail"}`,
			},
			want: []string{"x.go:1: undefined", "FAILED: p (does not build)"},
		},
		"no tests at all is no success": {lines: []string{`go: no packages`}, want: []string{"go: no packages", "0 passed"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			s := newSummary(&out)
			if err := s.read(strings.NewReader(strings.Join(tt.lines, "\n"))); err != nil {
				t.Fatal(err)
			}
			if good := s.print(); good != tt.good {
				t.Errorf("good = %v, want %v", good, tt.good)
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("output lacks %q:\n%s", w, out.String())
				}
			}
			for _, n := range tt.not {
				if strings.Contains(out.String(), n) {
					t.Errorf("output has %q:\n%s", n, out.String())
				}
			}
		})
	}
}
