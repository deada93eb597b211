package hpack

// Encoder writes header blocks. It adds nothing to the peer's dynamic table:
// fields cost some bytes more on the wire and less time on both sides, and
// blocks can be written before it is known in which order they leave. The zero
// value is ready.
type Encoder struct{ owes bool }

// Limit is called for the peer's SETTINGS_HEADER_TABLE_SIZE. A size below the
// one in force has to be acknowledged by the next block (RFC 7541, 4.2); zero
// does for all later sizes.
func (e *Encoder) Limit(n uint32) { e.owes = e.owes || n < TableSize }

// Begin begins a block.
func (e *Encoder) Begin(dst []byte) []byte {
	if e.owes {
		e.owes = false
		dst = append(dst, 0x20)
	}
	return dst
}

// Bound is how many bytes a field takes at most.
func Bound(name, value []byte) int { return len(name) + len(value) + 12 }

// AppendMethod writes :method.
func AppendMethod(dst, v []byte) []byte { return pair(dst, Method, v) }

// AppendScheme writes :scheme.
func AppendScheme(dst, v []byte) []byte { return pair(dst, Scheme, v) }

// AppendPath writes :path.
func AppendPath(dst, v []byte) []byte { return pair(dst, Path, v) }

// AppendAuthority writes :authority.
func AppendAuthority(dst, v []byte) []byte { return appendText(append(dst, byte(Authority)), v) }

// pair writes a field of a name that stands in the static table with two values.
func pair(dst []byte, n Name, v []byte) []byte {
	for i := n; i <= n+1; i++ {
		if string(v) == static[i].value {
			return append(dst, 0x80|byte(i))
		}
	}
	return appendText(append(dst, byte(n)), v)
}

// AppendStatus writes :status of three digits.
func AppendStatus(dst []byte, code int) []byte {
	switch code {
	case 200:
		return append(dst, 0x88)
	case 204:
		return append(dst, 0x89)
	case 206:
		return append(dst, 0x8a)
	case 304:
		return append(dst, 0x8b)
	case 400:
		return append(dst, 0x8c)
	case 404:
		return append(dst, 0x8d)
	case 500:
		return append(dst, 0x8e)
	default:
		return append(dst, byte(Status), 3, byte('0'+code/100%10), byte('0'+code/10%10), byte('0'+code%10))
	}
}

// AppendLength writes content-length.
func AppendLength(dst []byte, n int64) []byte {
	var digits [20]byte
	i := len(digits)
	for {
		i--
		digits[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			break
		}
	}
	return appendText(appendInteger(dst, 0, 4, int(ContentLength)), digits[i:])
}

// AppendField writes a field, its name in lower case. A secret one, and one
// that carries credentials, asks every hop never to index it (RFC 7541, 7.1.3).
func AppendField(dst, name, value []byte, secret bool) []byte {
	var low [64]byte
	if hasUpper(name) {
		name = lower(low[:0], name)
	}
	n := NameOf(name)
	first := byte(0)
	if secret || n == Authorization || n == ProxyAuthorize || n == Cookie || n == SetCookie {
		first = 0x10
	}
	if n > 0 && n <= staticSize {
		dst = appendInteger(dst, first, 4, int(n))
	} else {
		dst = appendText(append(dst, first), name)
	}
	return appendText(dst, value)
}

func hasUpper(name []byte) bool {
	for _, c := range name {
		if c-'A' < 26 {
			return true
		}
	}
	return false
}

func lower(dst, name []byte) []byte {
	for _, c := range name {
		if c-'A' < 26 {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// appendText writes a string without Huffman coding.
func appendText(dst, s []byte) []byte {
	return append(appendInteger(dst, 0, 7, len(s)), s...)
}
