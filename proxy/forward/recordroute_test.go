package forward

import (
	"testing"

	"github.com/meshctl/meshctl/proxy/exchange"
)

func TestEveryFailureHasAWordOfItsOwn(t *testing.T) {
	seen := map[string]exchange.Failure{}
	for f := exchange.Failure(1); f.String() != ""; f++ {
		word := failureWord(f)
		if other, twice := seen[word]; twice || word == "" || word == "other" {
			t.Errorf("%q is the word for %q, and for %q", word, f, other)
		}
		seen[word] = f
	}
	if len(seen) < 9 {
		t.Errorf("only %d failures", len(seen))
	}
	if word := failureWord(0); word != "" {
		t.Errorf("no failure has the word %q", word)
	}
}
