// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"fmt"
	"math"
	"reflect"
	"testing"
)

func TestRowsOfAllRanksAreJoined(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		indices, values := []int64{7}, []float32{1, 2}
		if group.Rank() == 1 {
			indices, values = []int64{7, 3}, []float32{10, 20, 5, 6}
		}
		union, rows, err := AllReduceRows(group, indices, values, 2, Sum)
		if err != nil || !reflect.DeepEqual(union, []int64{3, 7}) || !reflect.DeepEqual(rows, []float32{5, 6, 11, 22}) {
			return fmt.Errorf("%v %v %v", union, rows, err)
		}
		return nil
	})
	_, _, err := AllReduceRows(alone(t), []int64{1}, []float32{1}, 2, Sum)
	is(t, err, InvalidArgument, "need 2 values")
}

func TestTheLibraryMayKeepValues(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		model, err := NewModel(group, &ModelOptions{OwnValues: true})
		if err != nil {
			return err
		}
		defer model.Close()
		weight := []float32{1, 2, 3}
		if _, err := model.AddParameter("weight", Of(weight)); err != nil {
			return err
		}
		if err := model.Commit(); err != nil {
			return err
		}
		weight[0] = 9
		kept, err := Value[float32](model, 0)
		if err != nil || !reflect.DeepEqual(kept, []float32{1, 2, 3}) {
			return fmt.Errorf("%v %v", kept, err)
		}
		return nil
	})
}

func TestPowerSGDIsExactForMatricesOfItsRank(t *testing.T) {
	options := DefaultPowerSGD()
	options.StartPass, options.MinCompressionRate = 0, 1
	for name, set := range map[string]func(*Model) error{
		"given": func(model *Model) error { return model.SetPowerSGD(options) },
		"called": func(model *Model) error {
			return model.SetHook(func(bucket *Bucket) error {
				if !bucket.IsUsed(0) {
					return fmt.Errorf("the gradient counts as unused")
				}
				return bucket.AllReducePowerSGD(options)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, func(group *Group) error {
				model, err := NewModel(group, nil)
				if err != nil {
					return err
				}
				defer model.Close()
				if _, err := model.AddParameter("weight", Of(make([]float32, 64), 8, 8)); err != nil {
					return err
				}
				if err := set(model); err != nil {
					return err
				}
				if err := model.Commit(); err != nil {
					return err
				}
				grad, err := Grad[float32](model, 0)
				if err != nil {
					return err
				}
				for i := range grad {
					grad[i] = float32((i/8 + 1) * (i%8 + 1) * 2 * group.Rank())
				}
				if err := pass(model, Reduce); err != nil {
					return err
				}
				for i := range grad {
					if want := float64((i/8 + 1) * (i%8 + 1)); math.Abs(float64(grad[i])-want) > 1e-3*want {
						return fmt.Errorf("element %d is %v, not %v", i, grad[i], want)
					}
				}
				return nil
			})
		})
	}
}

func TestStepsClipSkipAndScale(t *testing.T) {
	model, optimizer, values := trained(t, alone(t), func(model *Model) (*Optimizer, error) {
		options := DefaultSGDOptions()
		options.Rate, options.MaxNorm, options.NonFinite = 1, 1, NonFiniteSkip
		return NewSGD(model, options)
	})
	grad, err := Grad[float32](model, 0)
	check(t, err)
	grad[0], grad[1] = 3, 4
	check(t, optimizer.Step())
	norm, err := optimizer.GradNorm()
	if err != nil || norm != 5 || math.Abs(float64(values[0])-0.4) > 1e-5 {
		t.Fatal(norm, values, err)
	}
	before := values[0]
	grad[0] = float32(math.Inf(1))
	check(t, optimizer.Step())
	skipped, err := optimizer.SkippedCount()
	if err != nil || skipped != 1 || values[0] != before {
		t.Fatal(skipped, values, err)
	}
	scale := DefaultLossScale()
	scale.Initial = 1024
	check(t, optimizer.SetLossScale(scale))
	if now, err := optimizer.LossScale(); err != nil || now != 1024 {
		t.Fatal(now, err)
	}
	check(t, optimizer.SetLossScale(nil))
	grad[0], grad[1] = 3, 4
	norm, err = model.ClipGradNorm(1, 2)
	if err != nil || norm != 5 || math.Abs(float64(grad[0])-0.6) > 1e-5 {
		t.Fatal(norm, grad, err)
	}
	check(t, model.ClipGradValue(0.5))
	if grad[0] != 0.5 || grad[1] != 0.5 {
		t.Fatal(grad)
	}
}

func TestShardedAndFusedStepsAreThePlainOnes(t *testing.T) {
	for name, with := range map[string]StepOptions{"plain": {}, "sharded": {Shard: true}, "fused": {InBackward: true},
		"both": {Shard: true, InBackward: true, NoUndo: true}} {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, func(group *Group) error {
				values := make([]float32, 100)
				model, err := NewModel(group, nil)
				if err != nil {
					return err
				}
				defer model.Close()
				if _, err := model.AddParameter("weight", Of(values)); err != nil {
					return err
				}
				if err := model.Commit(); err != nil {
					return err
				}
				options := DefaultSGDOptions()
				options.Rate, options.StepOptions = 0.5, with
				optimizer, err := NewSGD(model, options)
				if err != nil {
					return err
				}
				defer optimizer.Close()
				grad, err := Grad[float32](model, 0)
				if err != nil {
					return err
				}
				for i := range grad {
					grad[i] = float32(4 * i * group.Rank())
				}
				if err := pass(model, Reduce); err != nil {
					return err
				}
				if err := optimizer.Step(); err != nil {
					return err
				}
				for i := range values {
					if values[i] != -float32(i) {
						return fmt.Errorf("parameter %d is %v", i, values[i])
					}
				}
				return model.CheckReplicas()
			})
		})
	}
}

func TestARuleGetsWholeTensorsWithShardToo(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		model, _, err := hooked(group, func(*Model) error { return nil })
		if err != nil {
			return err
		}
		defer model.Close()
		var counts []int64
		rule, err := NewCustom(model, &CustomOptions{WholeTensors: true, StepOptions: StepOptions{Shard: true}}, func(slice Slice) error {
			counts = append(counts, slice.First, slice.Count)
			return nil
		})
		if err != nil {
			return err
		}
		if err := pass(model, Reduce); err != nil {
			return err
		}
		if err := rule.Step(); err != nil {
			return err
		}
		total := []float64{float64(len(counts))}
		if err := group.ReduceMetrics(total, Sum); err != nil {
			return err
		}
		if total[0] != 2 || len(counts) == 2 && counts[1] != 3 {
			return fmt.Errorf("slices %v on this rank, %v numbers on both", counts, total)
		}
		return nil
	})
}
