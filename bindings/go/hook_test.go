// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// average is the plain reduction, as a hook.
func average(bucket *Bucket) error {
	contents, err := bucket.Contents()
	if err != nil {
		return err
	}
	return bucket.AllReduce(contents, Average)
}

func hooked(group *Group, set func(*Model) error) (*Model, []float32, error) {
	model, err := NewModel(group, nil)
	if err != nil {
		return nil, nil, err
	}
	if _, err := model.AddParameter("weight", Of(make([]float32, 3), 3, 1)); err != nil {
		return nil, nil, err
	}
	if err := set(model); err != nil {
		return nil, nil, err
	}
	if err := model.Commit(); err != nil {
		return nil, nil, err
	}
	grad, err := Grad[float32](model, 0)
	return model, grad, err
}

func TestHooksReduceBuckets(t *testing.T) {
	everything := func(bucket *Bucket) error {
		runtime.GC()
		index, grad, err := bucket.Parameter(0)
		if err != nil || index != 0 || len(grad.Shape()) != 2 || bucket.ParameterCount() != 1 || bucket.Index() != 0 || !bucket.IsLast() {
			return fmt.Errorf("a strange bucket: %v %v %v", index, grad.Shape(), err)
		}
		values, err := Values[float32](grad)
		if err != nil {
			return err
		}
		gathered, part := make([]float32, 6), make([]float32, 3)
		if err := bucket.AllGather(Of(values), Of(gathered)); err != nil {
			return err
		}
		for i := range values {
			values[i] = (gathered[i] + gathered[3+i]) / 2
		}
		if err := bucket.ReduceScatter(Of(gathered), Of(part), Max); err != nil {
			return err
		}
		return bucket.Broadcast(Of(part), 1)
	}
	kinds := map[string]func(*Model) error{
		"plain":   func(*Model) error { return nil },
		"average": func(model *Model) error { return model.SetHook(average) },
		"all":     func(model *Model) error { return model.SetHook(everything) },
	}
	for name, set := range kinds {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, func(group *Group) error {
				model, grad, err := hooked(group, set)
				if err != nil {
					return err
				}
				defer model.Close()
				for step := 0; step < 3; step++ {
					for i := range grad {
						grad[i] = float32(2 * i * (group.Rank() + 1))
					}
					if err := pass(model, Reduce); err != nil {
						return err
					}
					if grad[0] != 0 || grad[1] != 3 || grad[2] != 6 {
						return fmt.Errorf("the mean is %v", grad)
					}
				}
				return nil
			})
		})
	}
}

func TestGradientsTravelWith16Bits(t *testing.T) {
	for _, wire := range []DType{F16, BF16} {
		ranks(t, 2, func(group *Group) error {
			options := DefaultModelOptions()
			options.Wire = wire
			model, err := NewModel(group, options)
			if err != nil {
				return err
			}
			defer model.Close()
			if _, err := model.AddParameter("weight", Of(make([]float32, 3))); err != nil {
				return err
			}
			if err := model.Commit(); err != nil {
				return err
			}
			grad, err := Grad[float32](model, 0)
			if err != nil {
				return err
			}
			grad[0], grad[1], grad[2] = 1, 2*float32(group.Rank()), 1+1./1024
			if err := pass(model, Reduce); err != nil {
				return err
			}
			if grad[0] != 1 || grad[1] != 1 || (grad[2] == 1) != (wire == BF16) {
				return fmt.Errorf("the mean is %v", grad)
			}
			return nil
		})
	}
}

func TestSubGroups(t *testing.T) {
	ranks(t, 4, func(group *Group) error {
		half, err := group.Split(group.Rank()/2, -group.Rank(), nil)
		if err != nil {
			return err
		}
		defer half.Close()
		sum := []float32{float32(int(1) << group.Rank())}
		if err := half.AllReduce(Of(sum), Sum); err != nil {
			return err
		}
		color := NoColor
		if group.Rank() == 2 {
			color = 0
		}
		alone, err := group.Split(color, 0, DefaultGroupOptions())
		if err != nil || (alone != nil) != (group.Rank() == 2) {
			return fmt.Errorf("alone: %v %v", alone, err)
		}
		defer alone.Close()
		if half.Size() != 2 || half.Rank() != 1-group.Rank()%2 || sum[0] != []float32{3, 3, 12, 12}[group.Rank()] {
			return fmt.Errorf("rank %d of %d, sum %v", half.Rank(), half.Size(), sum)
		}
		return nil
	})
}

func TestAHookThatFailsTellsAllRanks(t *testing.T) {
	reason := errors.New("the codebook is empty")
	for name, fail := range map[string]func() error{"error": func() error { return reason }, "panic": func() error { panic(reason) }} {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, func(group *Group) error {
				failing := group.Rank() == 1
				model, _, err := hooked(group, func(model *Model) error {
					return model.SetHook(func(bucket *Bucket) error {
						if failing {
							return fail()
						}
						return average(bucket)
					})
				})
				if err != nil {
					return err
				}
				defer model.Close()
				err = pass(model, Reduce)
				if !errors.Is(err, Callback) || !strings.Contains(err.Error(), reason.Error()) || (name == "error" && errors.Is(err, reason) != failing) {
					return fmt.Errorf("the pass ended with %v", err)
				}
				failing = false
				return pass(model, Reduce) // the group stays whole
			})
		})
	}
}

func TestBucketsArePulled(t *testing.T) {
	ranks(t, 2, func(group *Group) (err error) {
		model, grad, err := hooked(group, func(model *Model) error { return model.SetPulledHook() })
		if err != nil {
			return err
		}
		defer model.Close()
		reason, failing := errors.New("not now"), false
		step := func() (err error) {
			grad[2] = float32(4 * group.Rank())
			open, err := model.Backward(Reduce)
			if err != nil {
				return err
			}
			defer open.End(&err)
			if err := open.Ready(0); err != nil {
				return err
			}
			return open.Pull(true, func(bucket *Bucket) error {
				if failing && group.Rank() == 0 {
					return reason
				}
				return average(bucket)
			})
		}
		if err := step(); err != nil || grad[2] != 2 {
			return fmt.Errorf("%v %v", grad, err)
		}
		failing = true
		if err := step(); !errors.Is(err, Callback) || !strings.Contains(err.Error(), "not now") {
			return fmt.Errorf("a failed hook gave %v", err)
		}
		failing = false
		return step()
	})
}

func TestLocalStepsAreAveraged(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		values := []float32{0}
		model, err := NewModel(group, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		if _, err = model.AddParameter("weight", Of(values)); err != nil {
			return err
		}
		if err := model.Commit(); err != nil {
			return err
		}
		if err := pass(model, LocalPass); err != nil {
			return err
		}
		values[0] = float32(2 * group.Rank())
		if err := model.AverageParameters(); err != nil {
			return err
		}
		if values[0] != 1 {
			return fmt.Errorf("the mean of the parameters is %v", values)
		}
		return model.CheckReplicas()
	})
}
