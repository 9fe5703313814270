//go:build !unix

package consumer

import "time"

// processCPU is not known here.
func processCPU() time.Duration { return 0 }
