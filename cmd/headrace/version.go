package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this build",
		Example: "  headrace version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			fmt.Fprintln(s.out, versionLine(info))
			return nil
		},
	}
}

// versionLine is what a build knows of itself; nil where it was built without modules.
func versionLine(info *debug.BuildInfo) string {
	if info == nil {
		return "headrace (unknown build)"
	}
	line := "headrace " + info.Main.Version
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		line += " " + revision[:min(len(revision), 12)]
		if settings["vcs.modified"] == "true" {
			line += "+changes"
		}
	}
	return line + " " + info.GoVersion
}
