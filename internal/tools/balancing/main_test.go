package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheDrawingInDocsIsWhatTheSimulationSays(t *testing.T) {
	want, err := os.ReadFile("../../../docs/balancing.svg")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := draw(&got, curves()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("docs/balancing.svg is another drawing: run make bench, and look at it")
	}
}
