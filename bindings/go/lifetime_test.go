// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// shown makes a model, lets its slices escape, and forgets all but these.
func shown(group *Group) (grad, allocated []float32, bucket []float32, err error) {
	model, err := NewModel(group, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err = model.AddParameter("weight", Of(make([]float32, 1<<18))); err != nil {
		return nil, nil, nil, err
	}
	err = model.SetHook(func(b *Bucket) error {
		contents, err := b.Contents()
		if err == nil {
			bucket, err = Values[float32](contents)
		}
		return err
	})
	if err == nil {
		err = model.Commit()
	}
	if err == nil {
		grad, err = Grad[float32](model, 0)
	}
	if err == nil {
		allocated, err = Alloc[float32](group, 1<<18)
	}
	if err == nil {
		fill(grad, 3)
		fill(allocated, 4)
		err = pass(model, Reduce)
	}
	return grad, allocated, bucket, err
}

func fill(values []float32, with float32) {
	for i := range values {
		values[i] = with
	}
}

func all(values []float32, value float32) error {
	for i := range values {
		if values[i] != value {
			return fmt.Errorf("element %d of %d is %v, not %v", i, len(values), values[i], value)
		}
	}
	return nil
}

func TestTheCollectorTakesNoMemoryThatASliceShows(t *testing.T) {
	for _, size := range []int{1, 2} {
		var grads, allocated, buckets [2][]float32
		ranks(t, size, func(group *Group) (err error) {
			rank := group.Rank()
			grads[rank], allocated[rank], buckets[rank], err = shown(group)
			return err
		})
		collect()
		for rank := 0; rank < size; rank++ {
			check(t, all(grads[rank], 3))
			check(t, all(buckets[rank], 3))
			fill(grads[rank], 5)
			check(t, all(grads[rank], 5))
		}
		// `ranks` closed the groups, which ends what Alloc gave; what the collector closes does not.
		runtime.KeepAlive(allocated)
	}
}

func forgotten(t *testing.T) []float32 {
	group, err := NewGroup("local://forgotten", &GroupOptions{Rank: 0, WorldSize: 1})
	check(t, err)
	_, allocated, _, err := shown(group)
	check(t, err)
	return allocated
}

func TestAForgottenGroupLeavesWhatItAllocated(t *testing.T) {
	allocated := forgotten(t)
	collect()
	check(t, all(allocated, 4))
	fill(allocated, 6)
	check(t, all(allocated, 6))
}

// resident is the memory of this process in pages.
func resident(t *testing.T) (pages int) {
	text, err := os.ReadFile("/proc/self/statm")
	check(t, err)
	var all int
	_, err = fmt.Sscan(string(text), &all, &pages)
	check(t, err)
	return pages
}

func TestClosedModelsLeaveNoMemory(t *testing.T) {
	group := alone(t)
	const models, elements = 300, 1 << 18 // a MiB each
	var before int
	weight := make([]float32, elements)
	for i := 0; i < models; i++ {
		model, err := NewModel(group, nil)
		check(t, err)
		_, err = model.AddParameter("weight", Of(weight))
		check(t, err)
		check(t, model.Commit())
		grad, err := Grad[float32](model, 0)
		check(t, err)
		fill(grad, 1)
		allocated, err := Alloc[float32](group, elements)
		check(t, err)
		fill(allocated, 1)
		check(t, Free(group, allocated))
		check(t, model.Close())
		if i == 50 {
			before = resident(t)
		}
	}
	if grown := (resident(t) - before) * os.Getpagesize(); grown > 100<<20 {
		t.Fatalf("%d closed models left %d MiB", models-50, grown>>20)
	}
}

func TestMemoryThatCannotBeIsRefused(t *testing.T) {
	group := alone(t)
	_, err := Alloc[float64](group, math.MaxInt64/4)
	is(t, err, OutOfMemory, "8 bytes")
	_, err = Alloc[float64](group, -1)
	is(t, err, InvalidArgument)
	memory, err := Alloc[complex128](group, 3)
	check(t, err)
	check(t, Free(group, memory[:0]))
	is(t, Free(group, memory), InvalidArgument, "freed already")
	var none []float32
	check(t, Free(group, none))
}

func TestMemoryOfGoIsNotShared(t *testing.T) {
	group := alone(t)
	slice := make([]float32, 1<<20)
	is(t, Share(group, slice), NotSupported, "share no memory")
	is(t, Share(group, slice[:0]), InvalidArgument, "empty")
	is(t, Unshare(group, slice), InvalidArgument, "ddp_group_unshare")
	var none []float32
	check(t, Unshare(group, none))
}

func TestNilObjectsCanBeClosed(t *testing.T) {
	check(t, (*Group)(nil).Close())
	check(t, (*Model)(nil).Close())
	check(t, (*Optimizer)(nil).Close())
	check(t, (*EMA)(nil).Close())
	check(t, (&Group{}).Close())
	check(t, (&Model{}).Close())
	embedded := struct {
		name  string
		group Group
	}{name: "not at the beginning"}
	check(t, embedded.group.Close())
}

func TestAbortAndCloseMayMeet(t *testing.T) {
	for i := 0; i < 20; i++ {
		group, err := NewGroup("local://meet", &GroupOptions{Rank: 0, WorldSize: 1})
		check(t, err)
		var wait sync.WaitGroup
		for _, fn := range []func(){func() { _ = group.Abort("enough") }, func() { group.Close() }, func() { group.Close() }, func() { group.Rank() }} {
			wait.Add(1)
			go func(fn func()) {
				defer wait.Done()
				fn()
			}(fn)
		}
		wait.Wait()
	}
}

func TestStoppingTwiceIsStoppingOnce(t *testing.T) {
	group := alone(t)
	ctx, _ := cancelled()
	stop := group.AbortWhenDone(ctx)
	stop()
	stop()
	var wait sync.WaitGroup
	stop = group.AbortWhenDone(ctx)
	for i := 0; i < 8; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			stop()
		}()
	}
	wait.Wait()
}

func TestNamesWithANULAreRefused(t *testing.T) {
	group := alone(t)
	model, err := NewModel(group, nil)
	check(t, err)
	defer model.Close()
	_, err = model.AddParameter("a\x00b", Of(make([]float32, 1)))
	is(t, err, InvalidArgument, "NUL", `a\x00b`)
	_, err = model.AddBuffer("a\x00b", Of(make([]float32, 1)))
	is(t, err, InvalidArgument, "NUL")
	is(t, model.SetMetadata("a\x00", "b"), InvalidArgument, "NUL")
	is(t, model.SetMetadata("a", "b\x00"), InvalidArgument, "NUL")
	is(t, model.RemoveMetadata("a\x00"), InvalidArgument, "NUL")
	_, _, err = model.Metadata("a\x00")
	is(t, err, InvalidArgument, "NUL")
	is(t, (&State{Model: model}).SaveFile("/tmp/x\x00"), InvalidArgument, "NUL")
	is(t, (&State{Model: model}).LoadFile("/tmp/x\x00"), InvalidArgument, "NUL")
	_, err = NewGroup("local://a\x00", nil)
	is(t, err, InvalidArgument, "NUL")
	check(t, group.Abort("first\x00line\nsecond"))
	is(t, group.Barrier(), Aborted, "first line second")
}

func TestAPanicKeepsItsStackAndIsToldOnce(t *testing.T) {
	reason := errors.New("the codebook is empty")
	for name, fail := range map[string]func() error{"error": func() error { return reason }, "panic": func() error { panic(reason) }} {
		group := alone(t)
		model, _, err := hooked(group, func(model *Model) error { return model.SetHook(func(*Bucket) error { return fail() }) })
		check(t, err)
		err = pass(model, Reduce)
		is(t, err, Callback, reason.Error())
		if !errors.Is(err, reason) {
			t.Errorf("%s: %v does not unwrap", name, err)
		}
		line := strings.SplitN(err.Error(), "\n", 2)[0]
		if strings.Count(line, reason.Error()) != 1 {
			t.Errorf("%s: told more than once: %s", name, line)
		}
		var panicked *PanicError
		if errors.As(err, &panicked) != (name == "panic") {
			t.Errorf("%s: %v", name, err)
		}
		if panicked != nil && (!strings.Contains(err.Error(), "lifetime_test.go") || !strings.Contains(string(panicked.Stack), "lifetime_test.go")) {
			t.Errorf("no stack: %v", err)
		}
		check(t, model.Close())
	}
}

func TestALiteralOfOptionsMeansTheDefaults(t *testing.T) {
	train := func(options *AdamOptions) []float32 {
		weight := []float32{1, 2, 3}
		model, err := NewModel(alone(t), &ModelOptions{AllowUnused: true})
		check(t, err)
		defer model.Close()
		_, err = model.AddParameter("weight", Of(weight))
		check(t, err)
		check(t, model.Commit())
		grad, err := Grad[float32](model, 0)
		check(t, err)
		adam, err := NewAdam(model, options)
		check(t, err)
		for step := 0; step < 3; step++ {
			grad[0], grad[1] = float32(1+step), -2 // the third has none
			check(t, pass(model, Reduce))
			check(t, adam.Step())
		}
		return weight
	}
	given := DefaultAdamOptions()
	given.Rate, given.WeightDecay, given.Decoupled = 0.1, 0, false
	want, got := train(given), train(&AdamOptions{Rate: 0.1})
	for i := range want {
		if got[i] != want[i] || math.IsNaN(float64(got[i])) {
			t.Fatalf("%v, expected %v", got, want)
		}
	}
	zero := train(&AdamOptions{Rate: 0.1, Beta1: Zero})
	if zero[0] == want[0] || math.IsNaN(float64(zero[0])) {
		t.Fatalf("a real zero gave %v", zero)
	}
	model, err := NewModel(alone(t), nil)
	check(t, err)
	_, err = NewAdam(model, &AdamOptions{Epsilon: Zero})
	is(t, err, InvalidArgument, "epsilon is 0")
	sgd, err := NewSGD(model, &SGDOptions{Momentum: 0.5})
	check(t, err)
	if rate, _ := sgd.Rate(); rate != DefaultSGDOptions().Rate {
		t.Fatalf("the rate is %v", rate)
	}
	sgd.Close() // a parameter has one optimizer
	frozen, err := NewSGD(model, &SGDOptions{Rate: Zero})
	check(t, err)
	if rate, _ := frozen.Rate(); rate != 0 {
		t.Fatalf("the rate is %v", rate)
	}
	check(t, frozen.SetLossScale(&LossScale{Initial: 8}))
	if scale, _ := frozen.LossScale(); scale != 8 {
		t.Fatalf("the scale is %v", scale)
	}
	t.Setenv("WORLD_SIZE", "1")
	t.Setenv("RANK", "0")
	group, err := NewGroup("", &GroupOptions{Timeout: time.Microsecond})
	check(t, err)
	check(t, group.Close())
	_, err = NewGroup("", &GroupOptions{Timeout: Never, Heartbeat: -time.Second})
	is(t, err, InvalidArgument, "heartbeat_ms is -1")
}

func TestComplexNumbersAreTensors(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		values := []complex64{complex(float32(group.Rank()), 1), 2i}
		if err := group.AllReduce(Of(values), Sum); err != nil {
			return err
		}
		if values[0] != 1+2i || values[1] != 4i {
			return fmt.Errorf("the sum is %v", values)
		}
		weight := []complex128{complex(0, float64(group.Rank()))}
		model, err := NewModel(group, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		if _, err := model.AddParameter("z", Of(weight)); err != nil {
			return err
		}
		if err := model.Commit(); err != nil {
			return err
		}
		grad, err := Grad[complex128](model, 0)
		if err != nil {
			return err
		}
		grad[0] = complex(float64(2*group.Rank()), -1)
		if err := pass(model, Reduce); err != nil {
			return err
		}
		if grad[0] != 1-1i || weight[0] != 0 {
			return fmt.Errorf("the mean is %v, the value %v", grad, weight)
		}
		return nil
	})
}

type short struct{}

func (short) Write(data []byte) (int, error) { return len(data) / 2, nil }

type silent struct{ count int }

func (s *silent) Read([]byte) (int, error) { s.count++; return 0, nil }

type boastful struct{}

func (boastful) Read(data []byte) (int, error) { return len(data) + 1, nil }

func TestStreamsThatBreakTheirPromiseAreErrors(t *testing.T) {
	model, err := NewModel(alone(t), nil)
	check(t, err)
	defer model.Close()
	_, err = model.AddParameter("weight", Of(make([]float32, 4)))
	check(t, err)
	check(t, model.Commit())
	state := &State{Model: model}
	is(t, state.Save(short{}), Callback, "short write")
	is(t, state.Load(&silent{}), Callback, "multiple Read calls return no data")
	is(t, state.Load(boastful{}), Callback, "a reader says")
}
