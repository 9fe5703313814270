// Package plot draws series over time as an SVG, a panel each, and says whether they rise.
package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Series is a panel.
type Series struct {
	Name, Unit string
	// T are seconds, Y a value at each.
	T, Y []float64
	// From is the first second that Trend looks at.
	From  float64
	Trend Trend
}

// Mark is something that was done to what is measured.
type Mark struct {
	At   float64 // seconds
	Name string
	// Minor ones are drawn lighter, and without their names.
	Minor bool
}

const (
	width, panel   = 900, 130
	left, right    = 70, 20
	top, gap, foot = 60, 34, 40
)

// SVG draws the series below each other, with the marks through all of them.
func SVG(w io.Writer, title string, all []Series, marks []Mark) error {
	var b strings.Builder
	height := top + len(all)*(panel+gap) + foot
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="15">%s</text>`+"\n", left, html.EscapeString(title))
	fmt.Fprintf(&b, `<text x="%d" y="42" fill="#777">red: a fault; grey: a member more or less; dotted: what the trend does not look at</text>`+"\n", left)
	end := 1.0
	for _, s := range all {
		end = max(end, slices.Max(append([]float64{1}, s.T...)))
	}
	for i, s := range all {
		draw(&b, s, marks, end, float64(top+i*(panel+gap)+gap/2))
	}
	for minute := 0.0; minute*60 <= end; minute += step(end / 60) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f min</text>`+"\n", across(minute*60, end), height-foot/2, minute)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func across(t, end float64) float64 { return left + t/end*(width-left-right) }

func draw(b *strings.Builder, s Series, marks []Mark, end, y0 float64) {
	most := ceiling(slices.Max(append([]float64{0}, s.Y...)))
	at := func(i int) string {
		return fmt.Sprintf("%.1f,%.1f", across(s.T[i], end), y0+panel*(1-s.Y[i]/most))
	}
	verdict := "flat"
	if !s.Trend.Flat {
		verdict = "NOT FLAT"
	}
	fmt.Fprintf(b, `<text x="%d" y="%.1f">%s: %s, median %s, rise %s</text>`+"\n", left, y0-4,
		html.EscapeString(s.Name), verdict, number(s.Trend.Level, s.Unit), number(s.Trend.Rise, s.Unit))
	for _, m := range marks {
		colour := "#d33"
		if m.Minor {
			colour = "#ccc"
		}
		x := across(m.At, end)
		fmt.Fprintf(b, `<path d="M%.1f %.1fv%d" stroke="%s"><title>%s</title></path>`+"\n", x, y0, panel, colour, html.EscapeString(m.Name))
	}
	fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%d" height="%d" fill="none" stroke="#999"/>`+"\n", left, y0, width-left-right, panel)
	fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-6, y0+10, number(most, ""))
	fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">0</text>`+"\n", left-6, y0+panel)
	var early, late []string
	for i := range s.T {
		if s.T[i] <= s.From {
			early = append(early, at(i))
		} else {
			late = append(late, at(i))
		}
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="#246" stroke-dasharray="2 3"/>`+"\n", strings.Join(early, " "))
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="#246"/>`+"\n", strings.Join(late, " "))
}

func number(v float64, unit string) string {
	text := fmt.Sprintf("%.0f", v)
	if math.Abs(v) < 10 && v != math.Trunc(v) {
		text = fmt.Sprintf("%.1f", v)
	}
	return strings.TrimSpace(text + " " + html.EscapeString(unit))
}

// ceiling is a round number above v.
func ceiling(v float64) float64 {
	if v <= 0 {
		return 1
	}
	scale := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 3, 5, 7, 10} {
		if v <= m*scale {
			return m * scale
		}
	}
	return 10 * scale
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
