package consumer

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

type (
	order struct {
		ID       int           `json:"id"`
		Name     string        `json:"name,omitempty"`
		Total    float64       `json:"total,string"`
		At       time.Time     `json:"at"`
		After    time.Duration `json:"after"`
		Raw      json.RawMessage
		Lines    []line         `json:"lines"`
		Tags     map[string]any `json:"tags"`
		By       map[int]bool
		Any      any
		Optional *int8
		Bytes    []byte
		Fixed    [2]uint16
		Shouted  shouted
		*base
	}
	line    struct{ Count uint8 }
	base    struct{ Kind string }
	shouted string
	tree    struct {
		Left, Right *tree
		Value       any
	}
	priced  struct{ Price json.Number }
	wrapped struct{ In map[string][]*priced }
)

func (s *shouted) UnmarshalText(text []byte) error { *s = shouted("!" + string(text)); return nil }

var documents = []string{
	``, ` `, `null`, `{}`, `[]`, `1`, `"x"`, `{"id":1}`, `{"ID":1,"iD":2}`, `{"id":1.0}`, `{"id":1e2}`, `{"id":"1"}`, `{"id":1}x`, `{"id":1}{}`,
	`{"id":null,"name":null,"at":null,"lines":null,"tags":null,"Optional":null,"Kind":null}`,
	`{"name":"a\u0000\ud800b","total":"1.5","after":5,"Raw": { "a" : [1, 2] },"By":{"1":true,"x":false}}`,
	`{"total":1.5}`, `{"total":""}`, `{"at":"2026-01-02T03:04:05Z"}`, `{"at":"x"}`, `{"after":"5s"}`, `{"after":1.5}`,
	`{"lines":[{"Count":255},{"count":256}]}`, `{"lines":[{"Count":1},null]}`, `{"lines":{}}`,
	`{"tags":{"a":1,"a":{"b":[null,true,1e400]}}}`, `{"tags":{"a":1e308,"b":-0,"c":"\ud83d\ude00"}}`, `{"tags":{"a":{"b":1},"a":2}}`,
	`{"Any":{"b":1,"b":{"c":2}}}`, `{"Optional":127}`, `{"Optional":128}`, `{"Bytes":"aGk="}`, `{"Bytes":"aGk"}`, `{"Bytes":"aG\nk="}`, `{"Bytes":[104]}`,
	`{"Fixed":[1,2,3]}`, `{"Fixed":[1]}`, `{"Shouted":"x"}`, `{"Shouted":1}`, `{"Kind":"k"}`, "{\"name\":\"a\xff\"}", "{\"name\":\"a\tb\"}", "\ufeff{}",
	`{"Left":{"Left":null,"Right":{"Value":[{}]}}}`, `{"Price":1.50}`, `{"Price":"1.50"}`, `{"Price":"x"}`, `{"In":{"a":[{"Price":1},null]}}`,
	`{"id":01}`, `{"id":+1}`, `{"id":1,}`, `{"id" 1}`, `{'id':1}`, `{"id":NaN}`, `{"id":true}`, `{"unknown":{"deep":[1,{"x":"y"}]},"id":7}`,
}

// kinds are what events are decoded into.
var kinds = []func() any{
	func() any { return new(order) }, func() any { return new(tree) }, func() any { return new(priced) }, func() any { return new(wrapped) },
	func() any { return new(any) }, func() any { return new(map[string]any) }, func() any { return new(*order) }, func() any { return new([]order) },
	func() any { return new(string) }, func() any { return new(float32) }, func() any { return new(json.Number) },
}

func sameAsEncodingJSON(t *testing.T, data []byte) {
	t.Helper()
	for _, fresh := range kinds {
		want, have := fresh(), fresh()
		wantErr := json.Unmarshal(data, want)
		haveErr := JSON(&record.Record{Value: data}, have)
		require.Equal(t, wantErr, haveErr, "%T of %q", want, data)
		require.Truef(t, reflect.DeepEqual(want, have), "%T of %q: %#v, not %#v", want, data, have, want)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	t.Run("GivesWhatEncodingJSONGives", func(t *testing.T) {
		t.Parallel()
		for _, doc := range documents {
			sameAsEncodingJSON(t, []byte(doc))
		}
	})
	t.Run("ATombstoneIsUndecodable", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, JSON(&record.Record{}, new(order)), errTombstone)
	})
	t.Run("ANumberAsWrittenIsEncodingJSONsToDecode", func(t *testing.T) {
		t.Parallel()
		require.True(t, ofNext(reflect.TypeFor[*order]()))
		require.True(t, ofNext(reflect.TypeFor[*tree]()))
		require.False(t, ofNext(reflect.TypeFor[*priced]()))
		require.False(t, ofNext(reflect.TypeFor[*wrapped]()))
	})
}
