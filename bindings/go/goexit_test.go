// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A callback that ends its goroutine, as t.FailNow does, ends in an error of the call that it belongs to. C's frames are not unwound: the same
// group goes on, and so does another one.

func goexit() error {
	runtime.Goexit()
	return nil
}

type goexitStore struct{}

func (goexitStore) Set(string, []byte) error                  { return goexit() }
func (goexitStore) Get(string, time.Duration) ([]byte, error) { return nil, goexit() }

type goexitStream struct{}

func (goexitStream) Write([]byte) (int, error) { return 0, goexit() }
func (goexitStream) Read([]byte) (int, error)  { return 0, goexit() }

// comesBack calls fn on a goroutine of its own, which must come back from it.
func comesBack(t *testing.T, fn func() error) (err error) {
	t.Helper()
	came, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		err = fn()
		came = true
	}()
	<-ended
	if !came {
		t.Fatal("the call did not return: its goroutine ended inside it")
	}
	return err
}

// trains shows that the group is whole, and that other groups can be made and used.
func trains(t *testing.T, group *Group) {
	t.Helper()
	check(t, group.Err())
	for _, each := range []*Group{group, alone(t)} {
		model, _, err := hooked(each, func(*Model) error { return nil })
		check(t, err)
		sgd, err := NewSGD(model, nil)
		check(t, err)
		check(t, pass(model, Reduce))
		check(t, sgd.Step())
		check(t, model.Close())
	}
}

func TestGoexitInACallbackIsAnError(t *testing.T) {
	shard := &CustomOptions{StepOptions: StepOptions{Shard: true}}
	inBackward := &CustomOptions{StepOptions: StepOptions{InBackward: true}}
	steps := func(options *CustomOptions) func(*Group) error {
		return func(group *Group) error {
			model, _, err := hooked(group, func(*Model) error { return nil })
			if err != nil {
				return err
			}
			defer model.Close()
			rule, err := NewCustom(model, options, func(Slice) error { return goexit() })
			if err != nil {
				return err
			}
			defer rule.Close()
			if err := pass(model, Reduce); err != nil {
				return err
			}
			return rule.Step()
		}
	}
	checkpoint := func(use func(*State) error) func(*Group) error {
		return func(group *Group) error {
			model, _, err := hooked(group, func(*Model) error { return nil })
			if err != nil {
				return err
			}
			defer model.Close()
			return use(&State{Model: model})
		}
	}
	for name, fn := range map[string]func(*Group) error{
		"rule": steps(nil), "rule, sharded": steps(shard), "rule in backward": steps(inBackward),
		"writer": checkpoint(func(s *State) error { return s.Save(goexitStream{}) }),
		"reader": checkpoint(func(s *State) error { return s.Load(goexitStream{}) }),
		"local":  checkpoint(func(s *State) error { return s.SaveLocal(goexitStream{}) }),
	} {
		t.Run(name, func(t *testing.T) {
			group := alone(t)
			err := comesBack(t, func() error { return fn(group) })
			is(t, err, Callback, "runtime.Goexit")
			if !errors.Is(err, ErrGoexit) {
				t.Fatalf("%v is not ErrGoexit", err)
			}
			trains(t, group)
		})
	}
	t.Run("store", func(t *testing.T) {
		err := comesBack(t, func() error {
			_, err := NewGroup("store://", &GroupOptions{Rank: 0, WorldSize: 2, Store: goexitStore{}})
			return err
		})
		is(t, err, Callback, "runtime.Goexit")
		trains(t, alone(t))
	})
	t.Run("log", func(t *testing.T) {
		check(t, SetLog(LogDebug, func(LogLevel, string) { runtime.Goexit() }))
		defer SetLog(LogWarning, nil)
		group := alone(t)
		check(t, comesBack(t, func() error {
			_, _, err := hooked(group, func(*Model) error { return nil })
			return err
		}))
		trains(t, group)
	})
}

func TestGoexitInAHookTellsAllRanks(t *testing.T) {
	for _, way := range []string{"called", "pulled"} {
		t.Run(way, func(t *testing.T) {
			ranks(t, 2, func(group *Group) error {
				failing := group.Rank() == 1
				hook := func(bucket *Bucket) error {
					if failing {
						return goexit()
					}
					return average(bucket)
				}
				model, _, err := hooked(group, func(model *Model) error {
					if way == "pulled" {
						return model.SetPulledHook()
					}
					return model.SetHook(hook)
				})
				if err != nil {
					return err
				}
				defer model.Close()
				step := func() (err error) {
					if way == "called" {
						return pass(model, Reduce)
					}
					open, err := model.Backward(Reduce)
					if err != nil {
						return err
					}
					defer open.End(&err)
					if err := open.Ready(0); err != nil {
						return err
					}
					return open.Pull(true, hook)
				}
				err = comesBack(t, step)
				if !errors.Is(err, Callback) || !strings.Contains(err.Error(), "runtime.Goexit") || errors.Is(err, ErrGoexit) != failing {
					t.Errorf("rank %d: the pass ended with %v", group.Rank(), err)
				}
				failing = false
				return step()
			})
		})
	}
}

// What the caller did not make, or has closed, is named.
func TestWhatIsClosedIsNamed(t *testing.T) {
	_, err := NewModel(nil, nil)
	is(t, err, InvalidArgument, "the group is closed, or was never made")
	for _, fn := range []func() error{
		func() error { _, err := NewSGD(nil, nil); return err },
		func() error { _, err := NewAdam(nil, nil); return err },
		func() error { _, err := NewCustom(nil, nil, func(Slice) error { return nil }); return err },
		func() error { _, err := NewEMA(nil, 0.5); return err },
		func() error { _, err := NewOuter(nil, nil); return err },
		func() error { return (&State{}).Save(&bytes.Buffer{}) },
	} {
		is(t, fn(), InvalidArgument, "model")
	}
	for _, fn := range []func() error{
		func() error { _, err := Alloc[float32](nil, 3); return err },
		func() error { _, _, err := AllReduceRows(nil, []int64{1}, []float32{1}, 1, Sum); return err },
		func() error { return NewBatchNorm(1).Forward(nil, Of([]float32{1}, 1, 1), Of([]float32{1}, 1, 1)) },
		func() error { return new(Group).Barrier() },
	} {
		is(t, fn(), InvalidArgument, "the group is closed, or was never made")
	}
	group := alone(t)
	model, _, err := hooked(group, func(*Model) error { return nil })
	check(t, err)
	sgd, err := NewSGD(model, nil)
	check(t, err)
	check(t, sgd.Close())
	is(t, sgd.Step(), InvalidArgument, "ddp_optimizer_step", "the optimizer is closed")
	check(t, model.Close())
	is(t, pass(model, Reduce), InvalidArgument, "the model is closed")
	check(t, group.Close())
	is(t, group.Barrier(), InvalidArgument, "the group is closed")
}
