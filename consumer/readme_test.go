package consumer_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README's program is compiled as it stands there.
func TestReadme_ProgramCompiles(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok, "the README shows a program")
	program, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)

	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "readme_program", "main.go"): source,
	}})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))

	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-o", os.DevNull, "./readme_program")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
}
