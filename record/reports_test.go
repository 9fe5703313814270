package record_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestReportKinds(t *testing.T) {
	t.Parallel()

	t.Run("AreEveryConstantOnceAndInOrder", func(t *testing.T) {
		t.Parallel()
		var kinds []string
		for _, decl := range parse(t, "reports.go").Decls {
			for _, spec := range decl.(*ast.GenDecl).Specs {
				if s := spec.(*ast.ValueSpec); strings.HasPrefix(s.Names[0].Name, "Report") && len(s.Values) == 1 {
					if lit, ok := s.Values[0].(*ast.BasicLit); ok {
						kind, err := strconv.Unquote(lit.Value)
						require.NoError(t, err)
						kinds = append(kinds, kind)
					}
				}
			}
		}
		require.Equal(t, kinds, record.ReportKinds[:])
		require.True(t, slices.IsSorted(kinds))
		require.Len(t, slices.Compact(kinds), len(record.ReportKinds))
	})

	t.Run("AreExplainedToWhoeverIsPaged", func(t *testing.T) {
		t.Parallel()
		page, err := os.ReadFile("../docs/operations.md")
		require.NoError(t, err)
		for _, kind := range record.ReportKinds {
			require.Contains(t, string(page), "`"+kind+"`")
		}
	})

	// A kind that is written down where the report is made would be missing in the list, and with it in the metrics.
	t.Run("AreNamedByTheirConstantsWhereverAReportIsMade", func(t *testing.T) {
		t.Parallel()
		found := 0
		for _, dir := range packages(t) {
			u := usage{taking: map[string]int{}}
			files := sources(t, dir)
			for _, f := range files {
				ast.Inspect(f, u.declared)
			}
			for _, f := range files {
				ast.Inspect(f, u.used)
			}
			require.Empty(t, u.wrong, "package %s: not a constant record.Report…", dir)
			found += u.right
		}
		require.GreaterOrEqual(t, found, len(record.ReportKinds)-1, "the test has lost sight of the reports")
	})
}

// usage looks at one package: what is given to the field Kind of a Report, and to whatever is called kind and ends there.
type usage struct {
	taking map[string]int // functions with a parameter kind, and which it is
	right  int
	wrong  []string
}

func (u *usage) declared(n ast.Node) bool {
	f, ok := n.(*ast.FuncDecl)
	if !ok {
		return true
	}
	i := 0
	for _, field := range f.Type.Params.List {
		for _, name := range field.Names {
			if name.Name == "kind" {
				u.taking[f.Name.Name] = i
			}
			i++
		}
	}
	return true
}

// ofRoute says that a Kind is a route's, which package dedup has.
func ofRoute(e ast.Expr) bool {
	if c, ok := e.(*ast.CallExpr); ok {
		e = c.Fun
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "dedup"
}

func (u *usage) used(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "kind") && !ofRoute(n.Value) {
			u.judge(n.Value)
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "kind" && i < len(n.Rhs) {
				u.judge(n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		if i, ok := u.taking[called(n)]; ok && i < len(n.Args) {
			u.judge(n.Args[i])
		}
	}
	return true
}

// judge lets pass a constant of the list, and what was judged where it came from.
func (u *usage) judge(value ast.Expr) {
	switch v := value.(type) {
	case *ast.SelectorExpr:
		if x, ok := v.X.(*ast.Ident); ok && x.Name == "record" && strings.HasPrefix(v.Sel.Name, "Report") {
			u.right++
			return
		}
		if v.Sel.Name == "kind" {
			return
		}
		u.wrong = append(u.wrong, v.Sel.Name)
	case *ast.Ident:
		if v.Name != "kind" {
			u.wrong = append(u.wrong, v.Name)
		}
	case *ast.BasicLit:
		u.wrong = append(u.wrong, v.Value)
	default:
		u.wrong = append(u.wrong, "an expression")
	}
}

func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// packages are the directories whose code may report.
func packages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	root := ".."
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case slices.Contains([]string{".git", "bench", "cmd", "docs", "internal", "test", "testdata"}, d.Name()):
			return filepath.SkipDir
		}
		dirs = append(dirs, path)
		return nil
	}))
	return dirs
}

func sources(t *testing.T, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, parse(t, name))
		}
	}
	return files
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	require.NoError(t, err)
	return f
}
