package detect

// Name returns the protocol that b, the first bytes of one side of an opaque
// connection, belongs to: one of Names, or "" when unsure. It is for people
// (logs, /connections, the label "detected") and never decides anything.
// fromServer says whose bytes they are. It allocates nothing.
func Name(b []byte, fromServer bool) string {
	return ""
}
