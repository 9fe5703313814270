package consumer

import (
	"encoding/json"
	"reflect"
	"sync"

	next "github.com/go-json-experiment/json/v1"
)

// unmarshal is json.Unmarshal in less than half of its time: by the encoding/json of Go 1.27, which the module mirrors for
// the Go before. From there on it is that very package. What that refuses is encoding/json's to judge, so that nothing is
// dead by the word of another decoder, and every error is the one that is documented.
func unmarshal(data []byte, into any) error {
	if ofNext(reflect.TypeOf(into)) {
		if err := next.Unmarshal(data, into); err == nil {
			return nil
		}
		reflect.ValueOf(into).Elem().SetZero()
	}
	return json.Unmarshal(data, into)
}

// judged has the types that ofNext was asked about: true for those that the mirror decodes.
var judged sync.Map

// ofNext says whether what t points to has the same value by both. It has not where there is a json.Number: the mirror has
// a type of its own for that.
func ofNext(t reflect.Type) bool {
	if same, ok := judged.Load(t); ok {
		return same.(bool)
	}
	same := t != nil && t.Kind() == reflect.Pointer && !holdsNumber(t, map[reflect.Type]bool{})
	judged.Store(t, same)
	return same
}

func holdsNumber(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holdsNumber(t.Elem(), seen)
	case reflect.Map:
		return holdsNumber(t.Key(), seen) || holdsNumber(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsNumber(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return t == reflect.TypeFor[json.Number]()
}
