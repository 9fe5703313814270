package audit

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Secrets are what nobody may see, by their names.
type Secrets map[string]string

// Seen finds them in a text, also as Go prints bytes, in hexadecimal and in base64.
func (s Secrets) Seen(where, text string) (found []string) {
	for name, secret := range s {
		for _, disguise := range disguises(secret) {
			if strings.Contains(text, disguise) {
				found = append(found, fmt.Sprintf("%s has a %s", where, name))
				break
			}
		}
	}
	return found
}

func disguises(secret string) []string {
	b := []byte(secret)
	all := []string{secret, strings.Trim(fmt.Sprintf("%d", b), "[]"), hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b))}
	// What stands before it decides how it is cut into groups of three bytes; what its neighbours share is left out.
	for before := range 3 {
		b64 := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), b...))
		cut := len(b64) - (before+len(b))%3 // a last digit that has bits of what follows
		if (before+len(b))%3 > 0 {
			cut = len(b64) - 1
		}
		all = append(all, b64[(before*8+5)/6:cut])
	}
	return all
}
