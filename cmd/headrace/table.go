package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// minLast is how narrow the last column may be: on a narrower terminal lines wrap, which beats an error that is cut away.
const minLast = 30

// table writes rows under a header, columns aligned, the last one cut so that a line fits into width, if that is not 0.
// Cells must be escaped: nothing in them may move the cursor.
type table struct {
	header []string
	// right says which columns are numbers.
	right map[string]bool
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer, width int) error {
	widths := t.widths()
	last := len(widths) - 1
	room := width
	for _, n := range widths[:last] {
		room -= n + len(gap)
	}
	room = max(room, minLast)
	var out strings.Builder
	for _, row := range append([][]string{t.header}, t.rows...) {
		var line strings.Builder
		for i, cell := range row[:last] {
			line.WriteString(t.pad(cell, i, widths[i]))
			line.WriteString(gap)
		}
		if width > 0 {
			row[last] = cut(row[last], room)
		}
		line.WriteString(row[last])
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

const gap = "  "

func (t *table) widths() []int {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func (t *table) pad(cell string, column, width int) string {
	fill := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
	if t.right[t.header[column]] {
		return fill + cell
	}
	return cell + fill
}

// cut shortens a text to n columns and marks where.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(n-1, 0)]) + "…"
}

// compact leaves out the columns that are empty in every row: on a narrow terminal each is one more word of the error.
func (t *table) compact() *table {
	out := &table{right: t.right, rows: make([][]string, len(t.rows))}
	for column, name := range t.header {
		if column < len(t.header)-1 && t.empty(column) {
			continue
		}
		out.header = append(out.header, name)
		for i, row := range t.rows {
			out.rows[i] = append(out.rows[i], row[column])
		}
	}
	return out
}

func (t *table) empty(column int) bool {
	for _, row := range t.rows {
		if row[column] != "" {
			return false
		}
	}
	return true
}
