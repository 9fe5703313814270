package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lastCase is the number of the last one of the list that the design was made against.
const lastCase = 48

var (
	caseRow  = regexp.MustCompile(`(?m)^\| (\d*) \| (.*) \| (.*) \| (\S+) \|$`)
	testName = regexp.MustCompile("`(Test\\w+)")
)

// TestEveryCaseHasATestThatIsThere reads docs/cases.md: a test that was renamed or deleted leaves a promise that nobody keeps.
func TestEveryCaseHasATestThatIsThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/cases.md")
	require.NoError(t, err)
	covered, last := map[int]bool{}, 0
	for _, row := range caseRow.FindAllStringSubmatch(string(text), -1) {
		dir := filepath.Join("..", row[4])
		if row[4] == "e2e" {
			dir = "."
		}
		if row[1] != "" {
			last, err = strconv.Atoi(row[1])
			require.NoError(t, err)
		}
		sources := testsOf(t, dir)
		for _, name := range testName.FindAllStringSubmatch(row[3], -1) {
			require.Contains(t, sources, "func "+name[1]+"(", "case %d: %s in %s", last, name[1], dir)
			covered[last] = true
		}
	}
	for n := 1; n <= lastCase; n++ {
		require.True(t, covered[n], "case %d has no test", n)
	}
}

// testsOf is the text of a directory's tests.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
