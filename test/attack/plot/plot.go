// Package plot says whether series rise over time, and draws them as an SVG, a panel each.
package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Point is a value at a second.
type Point struct{ T, V float64 }

// Series is a panel.
type Series struct {
	Name, Unit string
	// Log has an axis of powers of ten, for what a fault lifts far beyond what else there is. Values below 1 are 1 there.
	Log bool
	// Samples are in order of time.
	Samples []Point
	// Cycles and Trend are set by Judge. A series without is drawn only.
	Cycles []Point
	Trend  *Trend
}

// Judge says whether the series rises by bound, from a moment on: in seconds, as a cycle is, which is what the things that are
// done to the members take to come round again.
func (s *Series) Judge(from, cycle float64, bound Bound) Trend {
	s.Cycles = cyclesOf(s.Samples, from, cycle)
	trend := trendOf(s.Cycles, bound)
	s.Trend = &trend
	return trend
}

// Mark is something that was done to what is measured.
type Mark struct {
	From, To float64 // seconds
	Name     string
	// Minor ones are drawn lighter, and without their names.
	Minor bool
}

// Figure is a whole drawing.
type Figure struct {
	Title string
	// Notes are lines below the title.
	Notes  []string
	Series []Series
	Marks  []Mark
}

// All in pixels. The names of the marks stand upright above the first panel.
const (
	width, panel     = 960, 110
	left, right      = 80, 20
	line, names, gap = 16, 160, 32
	foot             = 36
)

// SVG draws the series below each other, with the marks through all of them.
func (f Figure) SVG(w io.Writer) error {
	head := 2*line + line*len(f.Notes) + names
	d := drawing{end: f.end()}
	height := head + len(f.Series)*(panel+gap) + foot
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`, width, height)
	d.add(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	d.add(`<text x="%d" y="%.1f" font-size="15">%s</text>`, left, 1.5*line, html.EscapeString(f.Title))
	for i, note := range f.Notes {
		d.add(`<text x="%d" y="%.1f" fill="#666">%s</text>`, left, (float64(i)+2.6)*line, html.EscapeString(note))
	}
	for _, m := range f.Marks {
		if !m.Minor {
			d.add(`<text transform="translate(%.1f %d) rotate(-90)" font-size="9" fill="#b22">%s</text>`, d.x(m.From)+3, head-gap+10, html.EscapeString(m.Name))
		}
	}
	for i, s := range f.Series {
		d.panel(s, f.Marks, float64(head+i*(panel+gap)))
	}
	for minute := 0.0; minute*60 <= d.end; minute += step(d.end / 60) {
		d.add(`<text x="%.1f" y="%d" text-anchor="middle">%.0f min</text>`, d.x(minute*60), height-foot/2, minute)
	}
	d.add("</svg>")
	_, err := io.WriteString(w, d.String())
	return err
}

// end is the last second that anything is known of.
func (f Figure) end() float64 {
	end := 60.0
	for _, s := range f.Series {
		if n := len(s.Samples); n > 0 {
			end = max(end, s.Samples[n-1].T)
		}
	}
	for _, m := range f.Marks {
		end = max(end, m.To)
	}
	return end
}

// drawing is what has been drawn, and how wide it is in seconds.
type drawing struct {
	strings.Builder
	end float64
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) x(t float64) float64 { return left + t/d.end*(width-left-right) }

func (d *drawing) panel(s Series, marks []Mark, y0 float64) {
	for _, m := range marks {
		colour := "#f5b5b5"
		if m.Minor {
			colour = "#e2e2e2"
		}
		d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`,
			d.x(m.From), y0, max(1, d.x(m.To)-d.x(m.From)), panel, colour, html.EscapeString(m.Name))
	}
	axis := axisOf(s, y0)
	for _, v := range axis.ticks() {
		d.add(`<path d="M%d %.1fh%d" stroke="#ccc"/>`, left, axis.y(v), width-left-right)
		d.add(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`, left-6, axis.y(v)+4, number(v))
	}
	d.add(`<rect x="%d" y="%.1f" width="%d" height="%d" fill="none" stroke="#999"/>`, left, y0, width-left-right, panel)
	d.add(`<text x="%d" y="%.1f" font-size="12">%s</text>`, left, y0-6, html.EscapeString(s.caption()))
	var points []string
	for _, p := range s.Samples {
		points = append(points, fmt.Sprintf("%.1f,%.1f", d.x(p.T), axis.y(p.V)))
	}
	d.add(`<polyline points="%s" fill="none" stroke="#57a"/>`, strings.Join(points, " "))
	for _, p := range s.Cycles {
		d.add(`<circle cx="%.1f" cy="%.1f" r="2.5" fill="#024"/>`, d.x(p.T), axis.y(p.V))
	}
}

// caption is a panel's name, and what is to be said of it.
func (s Series) caption() string {
	name := s.Name
	if s.Unit != "" {
		name += ", " + s.Unit
	}
	if s.Trend == nil {
		return name
	}
	t := s.Trend
	if t.Cycles < fewest {
		return name + ": too short to be judged"
	}
	return fmt.Sprintf("%s: %s (level %s, rise %s, between %s and %s)", name, t.Verdict, number(t.Level), number(t.Rise), number(t.Least), number(t.Most))
}

func number(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	if math.Abs(v) < 10 && math.Abs(v-math.Trunc(v)) >= 0.05 {
		text = fmt.Sprintf("%.1f", v)
	}
	if text == "-0" {
		text = "0"
	}
	return text
}

// step is between two labels of so many minutes.
func step(minutes float64) float64 {
	for _, s := range []float64{1, 2, 5, 10, 30} {
		if minutes/s <= 12 {
			return s
		}
	}
	return 60
}
