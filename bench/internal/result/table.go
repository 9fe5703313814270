package result

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print prints all results, and then the bars that they clear or do not.
func Print(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nscenario\tcontender\tpartitions\trecords/s\tto stock\tCPU s/100k\tpeak MB\tallocs/record\tp50 ms\tp99 ms\tp99.9 ms\tverified")
	for _, r := range results {
		verified := "yes"
		if !r.Verified {
			verified = "NO: " + strings.ReplaceAll(r.Error, "\n", "; ")
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Scenario, r.Contender, r.Partitions, r.Rate,
			show("%.2fx", r.RatioToStock), show("%.2f", r.CPU), show("%.0f", r.PeakRSS), show("%.1f", r.Allocs),
			show("%.2f", r.P50), show("%.2f", r.P99), show("%.2f", r.P999), verified)
	}
	fmt.Fprintln(t, "\nbar\twant\thave\tmet")
	for _, b := range Bars(results) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", b.Name, b.Want, b.Have, b.Met)
	}
	return t.Flush()
}

func show(format string, x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x)
}
