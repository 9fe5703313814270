package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instructions are the lines of the demo's Dockerfile, each as an instruction and its words.
func instructions(t *testing.T) [][]string {
	t.Helper()
	build := service(t, "demo").Build
	require.Equal(t, root(t), filepath.Clean(build.Context))
	text, err := os.ReadFile(filepath.Join(build.Context, build.Dockerfile))
	require.NoError(t, err)
	var lines [][]string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(line, "#") {
			lines = append(lines, words)
		}
	}
	return lines
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	var user string
	stages := map[string]bool{}
	for _, words := range instructions(t) {
		switch words[0] {
		case "FROM":
			requirePinned(t, words[1])
			if len(words) == 4 {
				stages["--from="+words[3]] = true
			}
			user = "root"
		case "COPY":
			requireSources(t, stages, words[1:len(words)-1])
		case "USER":
			user = words[1]
		case "ENTRYPOINT":
			require.Contains(t, words[1], "demo-consumer")
		}
	}
	require.Equal(t, "65534:65534", user, "nobody")
}

// requireSources: what COPY takes is in the repository, or comes from a stage above.
func requireSources(t *testing.T, stages map[string]bool, sources []string) {
	t.Helper()
	if strings.HasPrefix(sources[0], "--from=") {
		require.True(t, stages[sources[0]], sources[0])
		return
	}
	for _, source := range sources {
		_, err := os.Stat(filepath.Join(root(t), source))
		require.NoError(t, err)
	}
}

// TestDockerfile_CompilesBothCommandsWithoutC: the image that they are copied to may have another C library than the one
// that they are compiled in, and golang's Alpine has no C compiler.
func TestDockerfile_CompilesBothCommandsWithoutC(t *testing.T) {
	t.Parallel()
	var packages []string
	for _, words := range instructions(t) {
		if !strings.HasPrefix(strings.Join(words, " "), "RUN CGO_ENABLED=0 go build ") {
			continue
		}
		packages = slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, "./") })
	}
	require.Equal(t, []string{"./cmd/demo-consumer", "./cmd/headrace"}, packages)
	// It fails where a package is nothing without C, and is done in a second; to compile all anew takes minutes.
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-f", "{{.CgoFiles}}"}, packages...)...)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Empty(t, strings.Trim(string(said), "[]\n"), "files that need C")
}
