package accesslog

import "unicode/utf8"

const hex = "0123456789abcdef"

// word appends s for a field of the Apache format, quoted or not: whatever could
// end the field or the line, or is not ASCII, is \xhh. Nothing is "-".
func word(b, s []byte, most int) []byte {
	if len(s) == 0 {
		return append(b, '-')
	}
	for _, c := range s[:min(len(s), most)] {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c <= ' ' || c >= 0x7f:
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}

// text appends s as a string of JSON (RFC 8259, 7). What is not UTF-8 becomes
// U+FFFD; U+2028 and U+2029, which end a line in JavaScript, and DEL are escaped.
func text(b, s []byte, most int) []byte {
	b = append(b, '"')
	s = s[:min(len(s), most)]
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ' || c == 0x7f:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		i += size
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, `\ufffd`...)
		case r == '\u2028' || r == '\u2029' || r < 0xa0: // the last: C1 controls
			b = append(b, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
