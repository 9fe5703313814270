package audit

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// crashes begin the lines with which Go's runtime ends a process.
var crashes = []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"}

// Logs finds what must not be in the logs of a directory: secrets, under their names, and crashes of the runtime.
func Logs(dir string, secrets Secrets) (found []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		bad, err := scan(file, secrets)
		if err != nil {
			return nil, err
		}
		found = append(found, bad...)
	}
	return found, nil
}

func scan(file string, secrets Secrets) (found []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		found = append(found, secrets.Seen(fmt.Sprintf("%s:%d", filepath.Base(file), n), lines.Text())...)
		for _, crash := range crashes {
			if bytes.HasPrefix(lines.Bytes(), []byte(crash)) {
				found = append(found, fmt.Sprintf("%s:%d: %s", filepath.Base(file), n, lines.Text()))
			}
		}
	}
	return found, lines.Err()
}
