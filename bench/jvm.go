package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// jvmDir is where the peers in Java are, from the directory that the bench runs in.
const jvmDir = "peers/jvm"

// jvm runs the peers in Java; nil cannot.
type jvm struct {
	options []string
}

// findJVM builds the peers in Java, if any of them is to run. A machine without Java or Maven goes without them, and is
// told so; in CI that is an error.
func findJVM(ctx context.Context, s settings) (*jvm, error) {
	if !slices.ContainsFunc(jvmPeers(), func(c contender) bool { return s.joins(c.name) }) {
		return nil, nil
	}
	err := buildJVM(ctx)
	if err != nil && os.Getenv("CI") == "true" {
		return nil, fmt.Errorf("the peers in Java: %w", err)
	}
	if err != nil {
		fmt.Printf("WITHOUT THE PEERS IN JAVA: %v\n", err)
		return nil, nil
	}
	j := &jvm{}
	if file := filepath.Join(jvmDir, "jvm.options"); exists(file) {
		j.options = []string{"@" + file}
	}
	return j, nil
}

func (j *jvm) usable() bool { return j != nil }

// command is a module's program without its argument.
func (j *jvm) command(module string) []string {
	target := filepath.Join(jvmDir, module, "target")
	path := filepath.Join(target, "*") + string(os.PathListSeparator) + filepath.Join(target, "lib", "*")
	return append(append([]string{"java"}, j.options...), "-cp", path, "bench."+module+".Main")
}

// buildJVM packages the peers, unless their jars are newer than all that they are made of.
func buildJVM(ctx context.Context) error {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	if !exists(filepath.Join(jvmDir, "pom.xml")) {
		return fmt.Errorf("%s is not here: run the bench in its own directory", jvmDir)
	}
	if fresh, err := jarsAreFresh(jvmDir); fresh || err != nil {
		return err
	}
	fmt.Println("building the peers in Java")
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-DskipTests", "package")
	mvn.Dir = jvmDir
	if out, err := mvn.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn package: %w: %s", err, out)
	}
	return nil
}

// jarsAreFresh says whether each module has a jar, and none is older than any source or pom.
func jarsAreFresh(dir string) (bool, error) {
	var source, jar time.Time
	built := map[string]bool{}
	modules := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && d.Name() == "lib" {
				return filepath.SkipDir
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		inTarget := strings.Contains(path, string(filepath.Separator)+"target"+string(filepath.Separator))
		switch at := info.ModTime(); {
		case inTarget && strings.HasSuffix(path, ".jar"):
			built[filepath.Dir(path)] = true
			if jar.IsZero() || at.Before(jar) {
				jar = at
			}
		case inTarget:
		case d.Name() == "pom.xml" || strings.HasSuffix(path, ".java"):
			if d.Name() == "pom.xml" && filepath.Dir(path) != filepath.Clean(dir) {
				modules++
			}
			if at.After(source) {
				source = at
			}
		}
		return nil
	})
	return len(built) == modules && modules > 0 && !jar.Before(source), err
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
