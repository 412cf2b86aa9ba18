// SPDX-License-Identifier: Apache-2.0

package ddp

import "testing"

func TestAModelIsReopened(t *testing.T) {
	group := alone(t)
	model, err := NewModel(group, nil)
	check(t, err)
	defer model.Close()
	stays, gone, added := []float32{1, 2}, []float32{3, 4}, []float32{5, 6}
	first, err := model.AddParameterWithGrad("gone", Of(gone), Of([]float32{1, 1}))
	check(t, err)
	second, err := model.AddParameterWithGrad("stays", Of(stays), Of([]float32{1, 1}))
	check(t, err)
	buffer, err := model.AddBuffer("buffer", Of([]float32{7}))
	check(t, err)
	optimizer, err := NewSGD(model, &SGDOptions{Rate: 1})
	check(t, err)
	defer optimizer.Close()
	check(t, model.Commit())
	check(t, optimizer.Step())
	check(t, model.Reopen())
	check(t, model.RemoveParameter(first))
	is(t, model.RemoveParameter(first), InvalidArgument, "there is no parameter 0")
	check(t, model.RemoveBuffer(buffer))
	third, err := model.AddParameterWithGrad("gone", Of(added), Of([]float32{2, 2}))
	check(t, err)
	check(t, model.Commit())
	check(t, model.MarkReduced())
	check(t, optimizer.Step())
	if second != 1 || third != 2 || stays[0] != -1 || added[1] != 4 || gone[0] != 2 {
		t.Fatal("the updates gave", second, third, stays, added, gone)
	}
}
