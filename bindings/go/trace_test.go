// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	ranks(t, 2, func(group *Group) error {
		if err := group.StartTrace(path, 128); err != nil {
			return err
		}
		if err := group.Barrier(); err != nil {
			return err
		}
		if err := group.LogMetric("go/loss", 0.5); err != nil {
			return err
		}
		if err := group.LogMetric("my loss", 0.5); !errors.Is(err, InvalidArgument) || !strings.Contains(err.Error(), "my loss") {
			t.Errorf("a wrong name: %v", err)
		}
		if err := group.StopTrace(); err != nil {
			return err
		}
		if err := group.StopTrace(); !errors.Is(err, InvalidState) {
			t.Errorf("a second StopTrace: %v", err)
		}
		return nil
	})
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), "ddp_group_barrier") != 2 {
		t.Errorf("%v, %s", err, text)
	}
}
