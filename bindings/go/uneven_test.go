// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func single(group *Group, options *ModelOptions) (*Model, []float32, error) {
	model, err := NewModel(group, options)
	if err != nil {
		return nil, nil, err
	}
	if _, err := model.AddParameter("weight", Of(make([]float32, 1))); err != nil {
		return nil, nil, err
	}
	if err := model.Commit(); err != nil {
		return nil, nil, err
	}
	grad, err := Grad[float32](model, 0)
	return model, grad, err
}

func TestRanksCountByWeightOrNotAtAll(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		options := DefaultModelOptions()
		options.Divisor = DivisorWeights
		model, grad, err := single(group, options)
		if err != nil {
			return err
		}
		defer model.Close()
		rank := float64(group.Rank())
		if err := model.SetWeight(1 + 2*rank); err != nil {
			return err
		}
		grad[0] = float32(4 * rank)
		if err := pass(model, Reduce); err != nil {
			return err
		}
		if grad[0] != 3 { // (1*0 + 3*4) / 4
			return fmt.Errorf("the weighted mean is %v", grad)
		}
		if err := model.SetLastPass(); err != nil {
			return err
		}
		if group.Rank() == 0 {
			err = model.SkipBackward()
		} else {
			grad[0] = 7
			err = pass(model, Reduce)
		}
		report, wrong := model.PassReport()
		if err != nil || wrong != nil || grad[0] != 7 || !reflect.DeepEqual(report, PassReport{Contributors: 1, Weight: 3, Last: true, Absent: []int{0}}) {
			return fmt.Errorf("%v %v %v %v", err, wrong, grad, report)
		}
		return nil
	})
}

func TestARankWithoutDataJoins(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		options := DefaultModelOptions()
		options.UnevenInputs, options.Divisor = true, DivisorWeights
		model, grad, err := single(group, options)
		if err != nil {
			return err
		}
		defer model.Close()
		for i := 0; i < 2*group.Rank(); i++ {
			grad[0] = 5
			if err := pass(model, Reduce); err != nil {
				return err
			}
			if grad[0] != 5 {
				return fmt.Errorf("a joined rank changed the mean to %v", grad)
			}
		}
		if err := model.Join(); err != nil {
			return err
		}
		return model.CheckReplicas()
	})
}

func TestARankThatFailsInAPassTellsTheOthers(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		model, _, err := single(group, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		for _, fail := range []func() error{func() error { return errors.New("no more samples") }, func() error { panic("no more samples") }} {
			err := half(model, group.Rank() == 1, fail)
			if err == nil || !strings.Contains(err.Error(), "no more samples") {
				return fmt.Errorf("rank %d was told %v", group.Rank(), err)
			}
		}
		return pass(model, Reduce) // the group goes on
	})
}

// half opens a pass in which a rank may fail.
func half(model *Model, failing bool, fail func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	open, err := model.Backward(Reduce)
	if err != nil {
		return err
	}
	defer open.End(&err)
	if failing {
		return fail()
	}
	return open.Ready(0)
}

func TestAPartialLoadSaysWhatWasMissing(t *testing.T) {
	group, path := alone(t), filepath.Join(t.TempDir(), "state")
	save := func(names ...string) *Model {
		model, err := NewModel(group, nil)
		check(t, err)
		t.Cleanup(func() { model.Close() })
		for _, name := range names {
			_, err := model.AddParameter(name, Of([]float32{1}))
			check(t, err)
		}
		return model
	}
	check(t, (&State{Model: save("both", "old")}).SaveFile(path))
	model := save("both", "new")
	state := &State{Model: model, Partial: true, Local: true}
	check(t, state.LoadFile(path))
	if !reflect.DeepEqual(state.Missing, []string{"new"}) || !reflect.DeepEqual(state.Unexpected, []string{"old"}) {
		t.Fatal(state.Missing, state.Unexpected)
	}
	state.Partial = false
	is(t, state.LoadFile(path), Mismatch, "new")
}
