package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `{"id":"GO-2026-1","modified":"2026-03-01T00:00:00Z","aliases":["CVE-2026-1"],"details":"kept",
"affected":[{"package":{"name":"example.com/a"},"ranges":[{"events":[{"introduced":"0"},{"fixed":"1.2.0"}]}]},
{"package":{"name":"stdlib"},"ranges":[{"events":[{"introduced":"0"}]}]}]}`

const unpublished = `{"id":"GO-2026-2","modified":"0001-01-01T00:00:00Z","affected":[{"package":{"name":"example.com/a"}}]}`

func TestTheIndexListsEveryEntryUnderEachOfItsModules(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"GO-2026-1.json": sample, "GO-2026-2.json": unpublished, "other.json": "{"} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := build(src, dst); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"index/db.json": map[string]any{"modified": "2026-03-01T00:00:00Z"},
		"index/vulns.json": []any{
			map[string]any{"id": "GO-2026-1", "modified": "2026-03-01T00:00:00Z", "aliases": []any{"CVE-2026-1"}},
			map[string]any{"id": "GO-2026-2", "modified": "2021-01-01T00:00:00Z"},
		},
		"index/modules.json": []any{
			map[string]any{"path": "example.com/a", "vulns": []any{
				map[string]any{"id": "GO-2026-1", "modified": "2026-03-01T00:00:00Z", "fixed": "1.2.0"},
				map[string]any{"id": "GO-2026-2", "modified": "2021-01-01T00:00:00Z"},
			}},
			map[string]any{"path": "stdlib", "vulns": []any{
				map[string]any{"id": "GO-2026-1", "modified": "2026-03-01T00:00:00Z"},
			}},
		},
	}
	for name, v := range want {
		if diff := cmp.Diff(v, load(t, filepath.Join(dst, name))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	entry := load(t, filepath.Join(dst, "ID/GO-2026-1.json")).(map[string]any)
	if entry["details"] != "kept" {
		t.Errorf("the entry lost its text: %v", entry)
	}
}

func TestAFolderWithoutEntriesIsAnError(t *testing.T) {
	if _, err := build(t.TempDir(), t.TempDir()); err == nil {
		t.Error("an empty database was built: govulncheck would find nothing and say so")
	}
}

func load(t *testing.T, file string) any {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
