// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"path/filepath"
	"testing"
)

func TestSeveralOptimizersChangeTheirOwnParameters(t *testing.T) {
	group := alone(t)
	model, err := NewModel(group, nil)
	check(t, err)
	defer model.Close()
	values := [3][]float32{{1, 2}, {3, 4}, {5, 6}}
	for k, name := range []string{"w", "b", "v"} {
		_, err := model.AddParameterWithGrad(name, Of(values[k]), Of([]float32{1, 1}))
		check(t, err)
	}
	first, err := NewSGD(model, &SGDOptions{Rate: 1, StepOptions: StepOptions{Parameters: []int{2, 0}}})
	check(t, err)
	defer first.Close()
	second, err := NewSGD(model, &SGDOptions{Rate: 0.5})
	check(t, err)
	defer second.Close()
	_, err = NewSGD(model, &SGDOptions{Rate: 1, StepOptions: StepOptions{Parameters: []int{1}}})
	is(t, err, InvalidState, "parameter \"b\", which optimizer 1 (sgd) has")
	check(t, model.Commit())
	check(t, first.Step())
	check(t, second.Step())
	if values[0][0] != 0 || values[1][0] != 2.5 || values[2][1] != 5 {
		t.Fatal("the updates gave", values)
	}
	path := filepath.Join(t.TempDir(), "state.safetensors")
	state := &State{Model: model, Optimizer: first, More: []*Optimizer{second}}
	check(t, state.SaveFile(path))
	check(t, second.SetRate(9))
	check(t, state.LoadFile(path))
	rate, err := second.Rate()
	check(t, err)
	if rate != 0.5 {
		t.Fatal("the rate is", rate)
	}
	is(t, (&State{Model: model, Optimizer: first}).LoadFile(path), Mismatch, "2 optimizers, but 1 were passed")
}
