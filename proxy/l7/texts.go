package l7

import (
	"bytes"

	"github.com/meshctl/meshctl/proxy/hpack"
)

// texts decodes the header blocks of a client once more, with their texts, for
// those who want a Detail of each request.
type texts struct {
	dec     hpack.Decoder
	scratch [hpack.TableSize]byte
	lost    bool
}

func newTexts() *texts { return &texts{dec: hpack.NewDecoder()} }

// read returns the Detail of a header block; nil if it has none, as trailers, or
// once a block could not be read: a server may have allowed a table that is larger
// than the decoder's.
func (t *texts) read(block []byte) *Detail {
	if t.lost {
		return nil
	}
	var d *Detail
	t.dec.Begin(t.scratch[:])
	for {
		var f hpack.Field
		rest, found, err := t.dec.Next(block, &f)
		if err != nil {
			t.lost = true
			return nil
		}
		if !found {
			return d
		}
		block = rest
		switch {
		case f.ID == hpack.Path:
			d = detailed(d)
			d.Path = bytes.Clone(f.Value[:min(len(f.Value), maxKeep)])
		case string(f.Name) == "traceparent":
			d = detailed(d)
			d.TraceParent = bytes.Clone(f.Value[:min(len(f.Value), maxKeep)])
		}
	}
}

func detailed(d *Detail) *Detail {
	if d == nil {
		return new(Detail)
	}
	return d
}
