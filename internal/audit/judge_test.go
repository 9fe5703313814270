package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// All that may be known of a record, and what it comes to.
func TestJudge(t *testing.T) {
	t.Parallel()
	const here, elsewhere = 7, 8
	at := func(state int16, coordinates int64, original ...int64) *row {
		r := &row{state: state, coordinates: coordinates, value: 1, created: time.Unix(1, 0)}
		if len(original) > 0 {
			r.original = &original[0]
		}
		return r
	}
	for name, c := range map[string]struct {
		facts facts
		want  verdict
	}{
		"effected":                          {facts{mine: at(rowEffected, here)}, is(Effected)},
		"effected, without an id":           {facts{place: at(rowEffected, here)}, is(Effected)},
		"effected by a replay":              {facts{mine: at(rowEffected, elsewhere, here), letters: 1}, is(Effected)},
		"skipped":                           {facts{mine: at(rowSkipped, here)}, is(Skipped)},
		"a duplicate":                       {facts{mine: at(rowEffected, elsewhere), committed: true}, is(Duplicate)},
		"a duplicate to come":               {facts{mine: at(rowEffected, elsewhere)}, is(Pending)},
		"dealt with under another id":       {facts{place: at(rowMoved, here), letters: 1}, is(Duplicate)},
		"dead":                              {facts{mine: at(rowDead, here), letters: 1, committed: true}, is(Dead)},
		"dead under its place":              {facts{mine: at(rowEffected, elsewhere), place: at(rowDead, here), letters: 1}, is(Dead)},
		"dead again":                        {facts{mine: at(rowDead, elsewhere, here), letters: 2}, is(Dead)},
		"dead, the letter to come":          {facts{mine: at(rowDead, here)}, is(Pending)},
		"dead, the letter past retention":   {facts{mine: at(rowDead, here), committed: true, lettersGone: true}, is(Dead)},
		"parked":                            {facts{parked: true, committed: true}, is(Parked)},
		"parked, and said to be dead":       {facts{mine: at(rowDead, here), parked: true, committed: true}, is(Parked)},
		"parked, its effect just committed": {facts{mine: at(rowEffected, here), parked: true, inHand: true}, is(Effected)},
		"not come to":                       {facts{}, is(Pending)},
		"too old to know":                   {facts{committed: true, old: true}, is(Forgotten)},
		"too old, of which a letter is left": {
			facts{committed: true, old: true, letters: 1}, is(Dead),
		},

		"lost":                        {facts{committed: true}, none("it has no row, is not parked and has no letter")},
		"dead without a letter":       {facts{mine: at(rowDead, here), committed: true}, none("its row says that it is dead, and there is no letter")},
		"a letter without a row":      {facts{letters: 1, committed: true}, none("it has a dead letter, and no dead row")},
		"another's id, another value": {facts{mine: at(rowEffected, elsewhere), value: 2, committed: true}, none("it has the id of another record with another value, and is not dead for it")},
		"parked and effected":         {facts{mine: at(rowEffected, here), parked: true}, two("it is effected, and parked")},
		"effected and dead":           {facts{mine: at(rowEffected, here), letters: 1}, two("it is effected, and has a dead letter that was not replayed")},
		"effected, and dead in place": {facts{mine: at(rowEffected, here), place: at(rowDead, here), letters: 1}, two("its row says effected, and the row of its place that it is dead")},
		"dead and parked":             {facts{mine: at(rowDead, here), letters: 1, parked: true}, two("it is dead, with its letter, and parked")},
		"parked with a letter":        {facts{parked: true, letters: 1}, two("it is parked, and has a dead letter without a dead row")},
	} {
		c.facts.coordinates = here
		if c.facts.value == 0 {
			c.facts.value = 1
		}
		require.Equal(t, c.want, judge(&c.facts), name)
	}
}

func TestJudgeByOffset(t *testing.T) {
	t.Parallel()
	dead := &row{state: rowDead, coordinates: 7}
	for name, c := range map[string]struct {
		facts facts
		want  verdict
	}{
		"done":                   {facts{done: true}, is(Effected)},
		"committed":              {facts{committed: true}, is(Effected)},
		"not come to":            {facts{}, is(Pending)},
		"dead":                   {facts{place: dead, letters: 1, done: true}, is(Dead)},
		"dead without a letter":  {facts{place: dead, committed: true}, none("its row says that it is dead, and there is no letter")},
		"a letter without a row": {facts{letters: 1, committed: true}, none("it has a dead letter, and no dead row")},
	} {
		c.facts.coordinates = 7
		require.Equal(t, c.want, judgeByOffset(&c.facts), name)
	}
}
