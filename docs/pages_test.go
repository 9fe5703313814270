package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
	caseRow = regexp.MustCompile(`(?m)^\| (\d*) \| (.*) \| (.*) \| (\S+) \|$`)
	// aTest is a test and the path of a part of it; … stands for the path of the one before it.
	aTest = regexp.MustCompile("`((?:Test\\w+|…)(?:/[\\w*]+)*)`")
)

// TestEveryCaseHasATestThatIsThere reads cases.md: a test that was renamed or deleted leaves a promise that nobody keeps.
func TestEveryCaseHasATestThatIsThere(t *testing.T) {
	t.Parallel()
	covered, last, packages := map[int]bool{}, 0, map[string]*tests{}
	for _, row := range caseRow.FindAllStringSubmatch(read(t, "cases.md"), -1) {
		if row[1] != "" {
			var err error
			last, err = strconv.Atoi(row[1])
			require.NoError(t, err)
		}
		if row[4] == "attack" {
			require.Contains(t, row[3], "`make attack", "case %d", last)
			continue
		}
		if packages[row[4]] == nil {
			dir := filepath.Join("..", row[4])
			if row[4] == "e2e" {
				dir = filepath.Join("..", "test")
			}
			packages[row[4]] = testsOf(t, dir)
			require.NotEmpty(t, packages[row[4]].functions, "case %d: package %s has no tests", last, row[4])
		}
		names := mentioned(row[3])
		require.NotEmpty(t, names, "case %d in %s: %s", last, row[4], row[3])
		for _, name := range names {
			require.Empty(t, packages[row[4]].lacks(name), "case %d: %s in %s", last, name, row[4])
			covered[last] = true
		}
	}
	for n := 1; n <= lastCase; n++ {
		require.True(t, covered[n], "case %d has no test", n)
	}
}

// TestEveryTestThatAPageNamesIsThere reads the other pages, which do not say where a test is.
func TestEveryTestThatAPageNamesIsThere(t *testing.T) {
	t.Parallel()
	var dirs []string
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	}))
	all, named := testsOf(t, dirs...), 0
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, page := range append(pages, filepath.Join("..", "README.md")) {
		if page == "cases.md" {
			continue
		}
		for _, name := range mentioned(read(t, page)) {
			require.Empty(t, all.lacks(name), "%s: %s", page, name)
			named++
		}
	}
	require.NotZero(t, named)
}

// mentioned are the tests of a text, with what … stands for.
func mentioned(text string) (names []string) {
	before := ""
	for _, m := range aTest.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if rest, ok := strings.CutPrefix(name, "…"); ok {
			name = before[:strings.LastIndex(before, "/")] + rest
		}
		names, before = append(names, name), name
	}
	return names
}

// tests are the tests of some directories, and the words that their parts may be named by.
type tests struct {
	functions map[string]bool
	segments  map[string]bool // of string literals
}

func testsOf(t *testing.T, dirs ...string) *tests {
	t.Helper()
	all := &tests{map[string]bool{}, map[string]bool{}}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			all.add(t, file)
		}
	}
	return all
}

func (a *tests) add(t *testing.T, file string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
				a.functions[n.Name.Name] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				for segment := range strings.SplitSeq(text, "/") {
					a.segments[segment] = true
				}
			}
		}
		return true
	})
}

// lacks is what of a test's path is not there, "" if all of it is.
func (a *tests) lacks(name string) string {
	function, path, _ := strings.Cut(name, "/")
	if !a.functions[function] {
		return function
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment != "" && segment != "*" && !a.has(segment) {
			return segment
		}
	}
	return ""
}

// has also finds a part whose name is put together, by its end: name+"MembersComeAndGo".
func (a *tests) has(segment string) bool {
	const distinct = 12 // letters that are nobody else's
	for n := 0; n == 0 || n <= len(segment)-distinct; n++ {
		if a.segments[segment[n:]] {
			return true
		}
	}
	return false
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}
