// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// ranks runs fn on goroutines that are the ranks of one group; fn returns an error instead of ending the test.
func ranks(t *testing.T, size int, fn func(group *Group) error) {
	t.Helper()
	ranksWith(t, size, func(*GroupOptions) {}, fn)
}

func ranksWith(t *testing.T, size int, change func(*GroupOptions), fn func(group *Group) error) {
	t.Helper()
	var wait sync.WaitGroup
	failures := make([]error, size)
	for rank := 0; rank < size; rank++ {
		wait.Add(1)
		go func(rank int) {
			defer wait.Done()
			options := DefaultGroupOptions()
			options.Rank, options.WorldSize, options.RendezvousTimeout, options.Timeout = rank, size, 20*time.Second, 20*time.Second
			change(options)
			group, err := NewGroup("local://"+strings.ReplaceAll(t.Name(), "/", "."), options)
			if err != nil {
				failures[rank] = err
				return
			}
			defer group.Close()
			failures[rank] = fn(group)
		}(rank)
	}
	wait.Wait()
	for rank, err := range failures {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func alone(t *testing.T) *Group {
	t.Helper()
	options := DefaultGroupOptions()
	options.Rank, options.WorldSize = 0, 1
	group, err := NewGroup("local://alone", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { group.Close() })
	return group
}

// is fails the test unless err has the status and its text contains each word.
func is(t *testing.T, err error, status Status, words ...string) {
	t.Helper()
	var failed *Error
	if !errors.Is(err, status) || !errors.As(err, &failed) {
		t.Fatalf("%v, expected %v", err, status)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("%q does not say %q", err, word)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func collect() {
	for i := 0; i < 5; i++ {
		runtime.GC()
		time.Sleep(time.Millisecond) // lets finalizers run; nothing depends on how long that takes
	}
}

func TestCollectivesGiveTheSumsOfAllRanks(t *testing.T) {
	for size := 1; size <= 3; size++ {
		ranks(t, size, func(group *Group) error {
			rank, sum := group.Rank(), 0
			for r := 0; r < size; r++ {
				sum += r + 1
			}
			values := []float32{float32(rank + 1), 10 * float32(rank+1)}
			if err := group.AllReduce(Of(values), Sum); err != nil {
				return err
			}
			if values[0] != float32(sum) || values[1] != 10*float32(sum) {
				return fmt.Errorf("all-reduce gave %v", values)
			}
			gathered := make([]int64, size)
			if err := group.AllGather(Of([]int64{int64(rank * rank)}), Of(gathered)); err != nil {
				return err
			}
			part, whole := make([]float64, 1), make([]float64, size)
			for r := range whole {
				if gathered[r] != int64(r*r) {
					return fmt.Errorf("all-gather gave %v", gathered)
				}
				whole[r] = float64(r * (rank + 1))
			}
			if err := group.ReduceScatter(Of(whole), Of(part), Sum); err != nil {
				return err
			}
			if part[0] != float64(rank*sum) {
				return fmt.Errorf("reduce-scatter gave %v", part)
			}
			bytes := []uint8{uint8(rank)}
			if err := group.Broadcast(Of(bytes), size-1); err != nil {
				return err
			}
			if bytes[0] != uint8(size-1) {
				return fmt.Errorf("broadcast gave %v", bytes)
			}
			metrics := []float64{1, float64(rank)}
			if err := group.ReduceMetrics(metrics, Max); err != nil {
				return err
			}
			if metrics[1] != float64(size-1) {
				return fmt.Errorf("metrics are %v", metrics)
			}
			return group.Barrier()
		})
	}
}

func TestRanksWithDifferentTypesAreTold(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		tensor := Of(make([]float32, 4))
		if group.Rank() == 1 {
			tensor = Of(make([]float64, 4))
		}
		if err := group.AllReduce(tensor, Sum); !errors.Is(err, DifferentCalls) {
			return fmt.Errorf("%v is another status", err)
		}
		if err := group.Err(); !errors.Is(err, DifferentCalls) {
			return fmt.Errorf("%v is the fate of the group", err)
		}
		return nil
	})
}

func TestAWrongTypeOfParameterIsRefused(t *testing.T) {
	model, err := NewModel(alone(t), nil)
	check(t, err)
	defer model.Close()
	_, err = model.AddParameter("table", Of(make([]int32, 3)))
	is(t, err, NotSupported, "table")
	_, err = model.AddParameterWithGrad("weight", Of(make([]float32, 3)), Of(make([]float64, 3)))
	is(t, err, InvalidArgument, "weight")
	_, err = model.AddParameter("weight", Of(make([]float32, 3), 2, 2))
	is(t, err, InvalidArgument, "3 elements", "[2 2]")
	_, err = model.AddParameter("weight", Tensor{})
	is(t, err, InvalidArgument, "ddp.Of")
	index, err := model.AddParameter("weight", Of(make([]float32, 3)))
	check(t, err)
	check(t, model.Commit())
	_, err = Grad[float64](model, index)
	is(t, err, InvalidArgument)
}

func TestAClosedGroupAnswersWithAnError(t *testing.T) {
	group := alone(t)
	model, err := NewModel(group, nil)
	check(t, err)
	check(t, group.Close())
	check(t, group.Close())
	is(t, group.Barrier(), InvalidArgument)
	is(t, group.AllReduce(Of([]float32{1}), Sum), InvalidArgument)
	if group.Rank() != -1 {
		t.Fatal("a closed group has a rank")
	}
	is(t, model.Commit(), InvalidState)
	check(t, model.Close())
	is(t, model.Commit(), InvalidArgument)
	_, err = NewModel(group, nil)
	is(t, err, InvalidArgument)
}

func TestTheTextOfAnErrorIsItsOwnGoroutines(t *testing.T) {
	group := alone(t)
	var wait sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		wait.Add(1)
		go func(worker int) {
			defer wait.Done()
			model, err := NewModel(group, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer model.Close()
			name := fmt.Sprintf("name-of-worker-%d-", worker)
			_, _ = model.AddParameter(name, Of([]float32{1}))
			for i := 0; i < 2000; i++ {
				if _, err := model.AddParameter(name, Of([]float32{1})); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("worker %d got %v", worker, err)
					return
				}
			}
		}(worker)
	}
	wait.Wait()
}

func TestAContextEndsAWaitingCall(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		if group.Rank() == 1 { // comes only after the other rank has given up
			err := group.Barrier()
			for deadline := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(deadline); {
				err = group.Err()
			}
			if !errors.Is(err, Aborted) || !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%v is no abort by a context", err)
			}
			return nil
		}
		ctx, cancel := cancelled()
		defer cancel()
		stop := group.AbortWhenDone(ctx)
		defer stop()
		var err error
		for err == nil {
			err = group.Barrier()
		}
		if !errors.Is(err, Aborted) || !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%v does not tell the context's end", err)
		}
		return nil
	})
}

func TestAContextEndsTheMeeting(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	options := &GroupOptions{Rank: 0, WorldSize: 2, RendezvousTimeout: 2 * time.Second} // the other rank does not come
	began := time.Now()
	group, err := NewGroupContext(ctx, "local://nobody", options)
	if group != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", group, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if _, err := NewGroupContext(ctx, "local://nobody", options); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestAContextGoesOnWithTheGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	group, err := NewGroupContext(ctx, "local://with-a-context", &GroupOptions{Rank: 0, WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	if err := group.Barrier(); err != nil {
		t.Fatal(err)
	}
	cancel()
	for deadline := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(deadline); {
		err = group.Err()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestErrorsAreThoseOfGo(t *testing.T) {
	group := alone(t)
	model, err := NewModel(group, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	if _, err := model.AddParameter("w", Of([]float32{1})); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := (&State{Model: model}).LoadFile(folder + "/none"); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if err := (&State{Model: model}).LoadLatest(folder); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, NoCheckpoint) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(folder+"/bad", []byte("no checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&State{Model: model}).LoadFile(folder + "/bad"); !errors.Is(err, IO) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
