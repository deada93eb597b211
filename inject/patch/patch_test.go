package patch

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOperationsDoWhatRFC6902Says(t *testing.T) {
	for _, tt := range []struct{ name, object, ops, want string }{
		{"add a key", `{"a":1}`, `[{"op":"add","path":"/b","value":{"c":[]}}]`, `{"a":1,"b":{"c":[]}}`},
		{"replace by add", `{"a":1}`, `[{"op":"add","path":"/a","value":2}]`, `{"a":2}`},
		{"add before an item", `{"a":[1,2]}`, `[{"op":"add","path":"/a/1","value":9}]`, `{"a":[1,9,2]}`},
		{"add behind the last", `{"a":[1,2]}`, `[{"op":"add","path":"/a/-","value":9},{"op":"add","path":"/a/3","value":8}]`, `{"a":[1,2,9,8]}`},
		{"remove", `{"a":[1,{"b":2,"c":3}]}`, `[{"op":"remove","path":"/a/1/b"},{"op":"remove","path":"/a/0"}]`, `{"a":[{"c":3}]}`},
		{"escapes", `{"a/b":{"~1":1}}`, `[{"op":"add","path":"/a~1b/x~0y","value":2},{"op":"remove","path":"/a~1b/~01"}]`, `{"a/b":{"x~y":2}}`},
		{"no such key", `{}`, `[{"op":"remove","path":"/a"}]`, ""},
		{"no such parent", `{}`, `[{"op":"add","path":"/a/b","value":1}]`, ""},
		{"behind the end", `{"a":[]}`, `[{"op":"add","path":"/a/1","value":1}]`, ""},
		{"no item at the end", `{"a":[1]}`, `[{"op":"remove","path":"/a/-"}]`, ""},
		{"inside a number", `{"a":1}`, `[{"op":"add","path":"/a/b","value":1}]`, ""},
		{"the whole", `{"a":1}`, `[{"op":"remove","path":""}]`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var ops []Op
			if err := json.Unmarshal([]byte(tt.ops), &ops); err != nil {
				t.Fatal(err)
			}
			before, err := Decode([]byte(tt.object))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Apply(Clone(before), ops)
			if tt.want == "" {
				if err == nil {
					t.Errorf("%v, want an error", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := Decode([]byte(tt.want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if again, _ := Decode([]byte(tt.object)); !cmp.Equal(before, again) {
				t.Errorf("the original was changed: %v", before)
			}
		})
	}
}
