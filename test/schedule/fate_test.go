package schedule

// end is what becomes of an id.
type end uint8

const (
	effects end = iota
	skips
	dies
)

// fate is what a route does with a record.
type fate struct {
	end     end
	reasons []string // of the dead letter
	most    int      // of the attempts that fail first; 0: none does
	weight  int      // how often it is drawn
	hangs   bool     // it takes a deadline to end an attempt
}

const garbage = "garbage"

// fates are of every route.
var fates = map[string]fate{
	"ok":                 {weight: 60},
	"transient":          {most: 2, weight: 6},
	"exhausts":           {end: dies, reasons: []string{"exhausted"}, weight: 1},
	"permanent":          {end: dies, reasons: []string{"permanent"}, weight: 3},
	"ambiguous":          {end: dies, reasons: []string{"unknown_outcome"}, weight: 1},
	"unavailable":        {most: 2, weight: 2},
	"busy":               {most: 3, weight: 3},
	"skip":               {end: skips, weight: 3},
	"panic":              {end: dies, reasons: []string{"panic"}, weight: 1},
	"goexit":             {end: dies, reasons: []string{"permanent"}, weight: 1},
	"hang":               {most: 1, weight: 1, hangs: true},
	"sql 23505":          {end: dies, reasons: []string{"permanent"}, weight: 2},
	"sql 40001":          {most: 1, weight: 1},
	"sql 55P03":          {most: 1, weight: 1},
	"sql 57014":          {most: 1, weight: 1},
	garbage:              {end: dies, reasons: []string{"undecodable"}, weight: 8},
	"decode transient":   {most: 2, weight: 2},
	"decode unavailable": {most: 1, weight: 1},
	"decode skip":        {end: skips, weight: 1},
	"decode panic":       {end: dies, reasons: []string{"undecodable"}, weight: 1},
}

// callFates are of routes that call, beside fates.
var callFates = map[string]fate{
	"call transient":   {most: 2, weight: 8},
	"call ambiguous":   {most: 2, weight: 4},
	"call permanent":   {end: dies, reasons: []string{"permanent"}, weight: 3},
	"call unavailable": {most: 2, weight: 2},
	"call busy":        {most: 3, weight: 4},
	"call skip":        {end: skips, weight: 2},
	"call panic":       {end: dies, reasons: []string{"panic"}, weight: 1},
	"call hang":        {most: 1, weight: 2, hangs: true},
	"call slow":        {weight: 6},
}

func fateOf(do string) fate {
	if f, ok := fates[do]; ok {
		return f
	}
	return callFates[do]
}
