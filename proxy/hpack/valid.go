package hpack

// token has the bytes of a field name: tchar without upper case (RFC 9110,
// 5.6.2; RFC 9113, 8.2.1).
var token = bytesOf("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")

// control has the bytes that no field value has: controls other than a tab. RFC
// 9113, 8.2.1 only names NUL, CR and LF; RFC 9110, 5.5 allows none of them.
var control = controls()

func bytesOf(s string) (set [256]bool) {
	for i := range len(s) {
		set[s[i]] = true
	}
	return set
}

func controls() (set [256]bool) {
	for c := range 0x20 {
		set[c] = c != '\t'
	}
	set[0x7f] = true
	return set
}

// badName reports whether name is no field name, nor one of a pseudo-header.
func badName(name []byte) bool {
	if len(name) > 1 && name[0] == ':' {
		name = name[1:]
	}
	for _, c := range name {
		if !token[c] {
			return true
		}
	}
	return len(name) == 0
}

// badValue reports whether v has a byte that no field value has.
func badValue(v []byte) bool {
	for _, c := range v {
		if control[c] {
			return true
		}
	}
	return false
}
