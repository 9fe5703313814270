// Package routename says which names a route may have: the inbox remembers by them for ever, and commands take and print
// them as group/route.
package routename

import (
	"fmt"
	"strings"
	"unicode"
)

// Check gives what is wrong with a name, and a name that is not; "" for nothing. Names that are empty or no UTF-8 are not its
// business.
func Check(name string) (wrong, instead string) {
	i := strings.IndexFunc(name, apart)
	if i < 0 {
		return "", ""
	}
	first := []rune(name[i:])[0]
	return fmt.Sprintf("has %q in it: '/', spaces and control characters cannot be told apart where group/route is written", first),
		strings.Join(strings.FieldsFunc(name, apart), "-")
}

func apart(r rune) bool { return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
