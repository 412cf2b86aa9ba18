// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// pass marks every parameter and ends.
func pass(model *Model, kind PassKind) (err error) {
	open, err := model.Backward(kind)
	if err != nil {
		return err
	}
	defer open.End(&err)
	for i := model.ParameterCount() - 1; i >= 0; i-- {
		if err = open.Ready(i); err != nil {
			return err
		}
	}
	return nil
}

func TestGradientsBecomeTheMeanWhereverTheyLive(t *testing.T) {
	ranks(t, 3, func(group *Group) error {
		rank := float32(group.Rank())
		model, err := NewModel(group, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		shared, err := Alloc[float32](group, 4)
		if err != nil {
			return err
		}
		own, values := make([]float32, 4), []float32{rank, rank, rank, rank}
		var indices [3]int
		var failed [3]error
		indices[0], failed[0] = model.AddParameter("library", Of(values, 2, 2))
		indices[1], failed[1] = model.AddParameterWithGrad("go", Of(make([]float32, 4), 4, 1), Of(own, 4, 1))
		indices[2], failed[2] = model.AddParameterWithGrad("group", Of(make([]float32, 4)), Of(shared))
		for _, err := range append(failed[:], model.Commit()) {
			if err != nil {
				return err
			}
		}
		if values[0] != 0 {
			return fmt.Errorf("commit left %v instead of rank 0's values", values)
		}
		library, err := Grad[float32](model, indices[0])
		if err != nil {
			return err
		}
		for _, grad := range [][]float32{library, own, shared} {
			for i := range grad {
				grad[i] = rank * float32(i)
			}
		}
		if err := pass(model, Reduce); err != nil {
			return err
		}
		for _, grad := range [][]float32{library, own, shared} {
			for i := range grad {
				if grad[i] != float32(i) {
					return fmt.Errorf("the mean is %v", grad)
				}
			}
		}
		moved := []float32{3 * rank, 0, 0, 0}
		if err := model.SetGrad(indices[1], Of(moved)); err != nil {
			return err
		}
		if err := model.SetGrad(indices[1], Of(make([]float32, 3))); !errors.Is(err, InvalidArgument) {
			return fmt.Errorf("a shorter gradient gave %v", err)
		}
		if err := pass(model, Reduce); err != nil {
			return err
		}
		if moved[0] != 3 || own[1] != 1 {
			return fmt.Errorf("the moved gradient is %v, the former %v", moved, own)
		}
		return model.CheckReplicas()
	})
}

func TestWhatAModelUsesOutlivesTheCollector(t *testing.T) {
	var freed, others atomic.Int32
	big := func(value float32, count *atomic.Int32) []float32 {
		memory := &[1 << 16]float32{}
		runtime.SetFinalizer(memory, func(*[1 << 16]float32) { count.Add(1) })
		for i := range memory {
			memory[i] = value
		}
		return memory[:]
	}
	model, err := NewModel(alone(t), nil)
	check(t, err)
	_, err = model.AddParameterWithGrad("weight", Of(big(1, &freed)), Of(big(2, &freed)))
	check(t, err)
	check(t, model.Commit())
	optimizer, err := NewSGD(model, &SGDOptions{Rate: 0.5})
	check(t, err)
	for i := 0; i < 3; i++ {
		collect()
		_ = big(float32(7+i), &others) // what was freed by mistake would be written over
		check(t, pass(model, Reduce))
		check(t, optimizer.Step())
	}
	if tensor, err := model.GradTensor(0); err != nil || freed.Load() > 0 {
		t.Fatal("lent memory was collected", freed.Load(), err)
	} else if grad, _ := Values[float32](tensor); grad[0] != 2 || grad[1<<16-1] != 2 {
		t.Fatal("the gradient was written over", grad[0])
	}
	check(t, optimizer.Close())
	check(t, model.Close())
	for i := 0; i < 100 && freed.Load() < 2; i++ {
		collect()
	}
	if freed.Load() < 2 {
		t.Fatal("memory is held after Close")
	}
}

func TestForgottenObjectsAreClosedByTheCollector(t *testing.T) {
	group := alone(t)
	var closed atomic.Bool
	func() {
		model, err := NewModel(group, nil)
		check(t, err)
		memory := &[1 << 12]float32{}
		runtime.SetFinalizer(memory, func(*[1 << 12]float32) { closed.Store(true) })
		_, err = model.AddParameter("weight", Of(memory[:]))
		check(t, err)
	}()
	for i := 0; i < 100 && !closed.Load(); i++ {
		collect()
	}
	if !closed.Load() {
		t.Fatal("a forgotten model holds its memory")
	}
}

func TestAForgottenParameterIsNamed(t *testing.T) {
	model, err := NewModel(alone(t), nil)
	check(t, err)
	defer model.Close()
	_, err = model.AddParameter("forgotten", Of(make([]float32, 2)))
	check(t, err)
	check(t, model.Commit())
	open, err := model.Backward(Reduce)
	check(t, err)
	is(t, open.End(nil), InvalidState, "forgotten")
	is(t, open.Ready(0), InvalidState)
	open, err = model.Backward(Accumulate)
	check(t, err)
	is(t, open.Unused(0), InvalidState)
	err = errors.New("earlier")
	open.End(&err)
	if err.Error() != "earlier" {
		t.Fatal("End replaced the first error")
	}
	norm, err := model.GradNorm(math.Inf(1))
	if err != nil || norm != 0 {
		t.Fatal(norm, err)
	}
}

func TestSomeUnusedParametersAreAllowed(t *testing.T) {
	options := DefaultModelOptions()
	options.AllowUnused, options.BucketBytes, options.FirstBucketBytes = true, 1<<20, 1<<10
	model, err := NewModel(alone(t), options)
	check(t, err)
	defer model.Close()
	for _, name := range []string{"used", "unused"} {
		_, err = model.AddParameter(name, Of(make([]float64, 2)))
		check(t, err)
	}
	_, err = model.AddBuffer("table", Of([]int64{1, 2, 3}))
	check(t, err)
	check(t, model.Commit())
	check(t, model.SyncBuffers(0))
	if _, known := model.WasUsed(0); known {
		t.Fatal("use is known before a pass")
	}
	open, err := model.Backward(Reduce)
	check(t, err)
	check(t, open.Ready(0))
	check(t, open.Unused(1))
	check(t, open.End(nil))
	if used, known := model.WasUsed(0); !used || !known {
		t.Fatal("a used parameter counts as unused")
	}
	if used, known := model.WasUsed(1); used || !known {
		t.Fatal("an unused parameter counts as used")
	}
	grad, err := Grad[float64](model, 0)
	check(t, err)
	grad[0], grad[1] = 3, 4
	norm, err := model.GradNorm(2)
	check(t, err)
	check(t, model.ScaleGrad(2))
	if norm != 5 || grad[1] != 8 {
		t.Fatal(norm, grad)
	}
	check(t, model.ZeroGrad())
	if grad[1] != 0 {
		t.Fatal("zero_grad left", grad)
	}
	stats, err := model.Stats()
	if err != nil || stats.Parameters != 2 || stats.Elements != 4 || stats.Passes != 1 {
		t.Fatal(stats, err)
	}
	plan, err := model.DescribePlan()
	if err != nil || !bytes.Contains([]byte(plan), []byte("unused")) {
		t.Fatal(plan, err)
	}
}

func TestStepWithoutPass(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		model, err := NewModel(group, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		value, grad := make([]float32, 2), []float32{float32(1 + group.Rank()), 0}
		if _, err := model.AddParameterWithGrad("w", Of(value), Of(grad)); err != nil {
			return err
		}
		if err := model.Commit(); err != nil {
			return err
		}
		sgd, err := NewSGD(model, &SGDOptions{Rate: 1})
		if err != nil {
			return err
		}
		defer sgd.Close()
		if err := sgd.Step(); !errors.Is(err, InvalidState) {
			return fmt.Errorf("%v instead of InvalidState", err)
		}
		if err := group.AllReduce(Of(grad), Sum); err != nil {
			return err
		}
		if err := model.MarkReduced(); err != nil {
			return err
		}
		if err := sgd.Step(); err != nil || value[0] != -3 {
			return fmt.Errorf("%v, %v", err, value)
		}
		return nil
	})
}

func trained(t *testing.T, group *Group, step func(*Model) (*Optimizer, error)) (*Model, *Optimizer, []float32) {
	t.Helper()
	values := []float32{1, 2}
	model, err := NewModel(group, nil)
	check(t, err)
	t.Cleanup(func() { model.Close() })
	_, err = model.AddParameter("weight", Of(values))
	check(t, err)
	check(t, model.Commit())
	optimizer, err := step(model)
	check(t, err)
	t.Cleanup(func() { optimizer.Close() })
	grad, err := Grad[float32](model, 0)
	check(t, err)
	grad[0], grad[1] = 1, 1
	return model, optimizer, values
}

func TestACustomOptimizerIsCalledAndItsErrorsComeBack(t *testing.T) {
	reason, calls := errors.New("the loss is not a number"), 0
	answer := error(nil)
	_, optimizer, values := trained(t, alone(t), func(model *Model) (*Optimizer, error) {
		return NewCustom(model, &CustomOptions{States: []string{"seen"}}, func(slice Slice) error {
			calls++
			if answer != nil {
				if answer.Error() == "panic" {
					panic("on purpose")
				}
				return answer
			}
			runtime.GC()
			weight, err := Values[float32](slice.Value)
			slope, _ := Values[float32](slice.Grad)
			seen, _ := Values[float32](slice.State[0])
			for i := range weight {
				weight[i] -= float32(slice.Rate) * slope[i]
				seen[i]++
				if int64(seen[i]) != slice.Step || slice.First != 0 || slice.Count != 2 {
					return errors.New("the state is another")
				}
			}
			return err
		})
	})
	check(t, optimizer.SetRate(0.5))
	check(t, optimizer.Step())
	if values[0] != 0.5 || values[1] != 1.5 {
		t.Fatal("the update gave", values)
	}
	answer = reason
	err := optimizer.Step()
	is(t, err, Callback, reason.Error())
	if !errors.Is(err, reason) {
		t.Fatal("the user's own error is lost")
	}
	answer = errors.New("panic")
	is(t, optimizer.Step(), Callback, "on purpose")
	answer = nil
	check(t, optimizer.Step())
	if calls != 4 {
		t.Fatal("called", calls, "times")
	}
}

func TestACheckpointRestoresEverything(t *testing.T) {
	group := alone(t)
	model, optimizer, values := trained(t, group, func(model *Model) (*Optimizer, error) { return NewAdam(model, nil) })
	ema, err := NewEMA(model, 0.9, 0.99)
	check(t, err)
	defer ema.Close()
	check(t, optimizer.SetRate(0.25))
	check(t, optimizer.SetParameterOptions(0, 0, 1))
	check(t, optimizer.Step())
	check(t, ema.Update())
	check(t, model.SetMetadata("note", "grüße"))
	state := &State{Model: model, Optimizer: optimizer, EMA: ema, Epoch: 3, Step: 41}
	path := filepath.Join(t.TempDir(), "state.safetensors")
	check(t, state.SaveFile(path))
	var buffer bytes.Buffer
	check(t, state.Save(&buffer))
	before, err := model.Hash()
	check(t, err)
	check(t, optimizer.Step())
	check(t, model.RemoveMetadata("note"))
	for _, load := range []func() error{func() error { return state.LoadFile(path) }, func() error { return state.Load(&buffer) }} {
		values[0] = 77
		state.Epoch, state.Step = 0, 0
		check(t, load())
		after, err := model.Hash()
		rate, _ := optimizer.Rate()
		steps, _ := optimizer.StepCount()
		note, found, _ := model.Metadata("note")
		if err != nil || after != before || rate != 0.25 || steps != 1 || state.Epoch != 3 || state.Step != 41 || note != "grüße" || !found {
			t.Fatal(err, after == before, rate, steps, state.Epoch, state.Step, note, found)
		}
	}
	check(t, ema.Swap(1))
	check(t, ema.Swap(1))
	is(t, state.LoadFile(filepath.Join(t.TempDir(), "missing")), IO, "missing")
	folder := t.TempDir()
	is(t, state.LoadLatest(folder), NoCheckpoint, "has no checkpoint")
	for step := int64(1); step <= 3; step++ {
		state.Step = step
		check(t, state.SaveLatest(folder, 2))
	}
	check(t, os.WriteFile(filepath.Join(folder, "step-000000000003.safetensors"), []byte("damaged"), 0o600))
	check(t, state.LoadLatest(folder))
	if state.Step != 2 || state.File != filepath.Join(folder, "step-000000000002.safetensors") || len(state.Skipped) != 1 ||
		!strings.Contains(state.Skipped[0], "step-000000000003") {
		t.Fatal(state.Step, state.File, state.Skipped)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "step-*")); len(left) != 2 {
		t.Fatal(left)
	}
	broken := errors.New("the disk is gone")
	if err := state.Save(failing{broken}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if err := state.Load(failing{broken}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
func (f failing) Read([]byte) (int, error)  { return 0, f.err }

var _ io.ReadWriter = failing{}
