package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Update puts the results into a file, a list: what the file has of the same scenario, contender and partitions is replaced,
// the rest of it stays, for a whole run takes an hour and a half and most runs are of one scenario. A file that is missing is
// made; one that holds something else is left alone, with an error. The day of the run is written beside each.
func Update(file string, day time.Time, results []Result) error {
	all, err := read(file)
	if err != nil {
		return err
	}
	at := map[row]int{}
	for i, r := range all {
		at[rowOf(r)] = i
	}
	for _, r := range results {
		r.Measured = day.UTC().Format(time.DateOnly)
		if i, known := at[rowOf(r)]; known {
			all[i] = r
			continue
		}
		at[rowOf(r)] = len(all)
		all = append(all, r)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

type row struct {
	scenario, contender string
	partitions          int32
}

func rowOf(r Result) row { return row{r.Scenario, r.Contender, r.Partitions} }

func read(file string) ([]Result, error) {
	all := []Result{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s holds no results (%w): move it away, or name another by BENCH_OUT", file, err)
	}
	return all, nil
}
