// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"reflect"
	"sync"
	"testing"
)

// An error has its numbers, a listener of the log is told of the group, and a gradient may come later.
func TestDetails(t *testing.T) {
	var mutex sync.Mutex
	var heard []LogMessage
	remove, err := AddLogListener(LogWarning, func(m LogMessage) {
		mutex.Lock()
		defer mutex.Unlock()
		heard = append(heard, m)
	})
	if err != nil {
		t.Fatal(err)
	}
	group, err := NewGroup("local://details", &GroupOptions{Rank: 0, WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	empty, err := NewModel(group, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if err := empty.Commit(); err != nil {
		t.Fatal(err)
	}
	remove()
	remove()
	if len(heard) != 1 || heard[0].Group != group.Number() || heard[0].Rank != 0 || heard[0].Level != LogWarning || heard[0].Code != 0 {
		t.Fatalf("heard %+v", heard)
	}

	model, err := NewModel(group, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	if _, err := model.AddParameterWithoutGrad("later", Of([]float32{0, 0})); err != nil {
		t.Fatal(err)
	}
	if err := model.Commit(); err != nil {
		t.Fatal(err)
	}
	for step := 0; step < 3; step++ {
		pass, err := model.Backward(Reduce)
		if err != nil {
			t.Fatal(err)
		}
		var failed *Error
		if err := pass.Ready(0); !errors.As(err, &failed) || failed.Status != InvalidState {
			t.Fatalf("a mark without a gradient: %v", err)
		}
		if d := failed.Details; !reflect.DeepEqual(d.Parameters, []int{0}) || d.ParameterCount != 1 || len(d.Ranks) != 0 || d.BytesGot != -1 {
			t.Fatalf("%+v", d)
		}
		if err := model.SetGrad(0, Of([]float32{float32(step), 1})); err != nil {
			t.Fatal(err)
		}
		if err := pass.Ready(0); err != nil {
			t.Fatal(err)
		}
		if pass.End(&err); err != nil {
			t.Fatal(err)
		}
		grad, err := Grad[float32](model, 0)
		if err != nil || grad[0] != float32(step) {
			t.Fatalf("%v %v", grad, err)
		}
		if err := model.TakeGradBack(0); err != nil {
			t.Fatal(err)
		}
	}
}
