package ddp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/cgo"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// State is what a checkpoint holds: a safetensors file that any number of ranks can load. Optimizer and EMA may be nil.
type State struct {
	Model     *Model
	Optimizer *Optimizer
	EMA       *EMA
	Epoch     int64 // the caller's; written by a load
	Step      int64 // the caller's; written by a load
	Partial   bool  // a load takes what model and checkpoint both have, see Model.Missing and Model.Unexpected
	Local     bool  // a load is this rank's alone, before Model.Commit, which gives rank 0's state to everybody
}

// SaveFile saves a checkpoint: rank 0 writes, atomically and durably. Collective.
func (s *State) SaveFile(path string) error {
	if err := noNUL("the path", path); err != nil {
		return err
	}
	return s.with(func(c low.Ddp_state) error { return low.Ddp_state_save_file(c, path) })
}

// LoadFile loads a checkpoint: rank 0 reads, all ranks receive. Nothing is touched unless all of it fits. Collective.
func (s *State) LoadFile(path string) error {
	if err := noNUL("the path", path); err != nil {
		return err
	}
	return s.with(func(c low.Ddp_state) error { return low.Ddp_state_load_file(c, path) })
}

// Save is SaveFile through a writer, which is used on rank 0 alone; other ranks may pass nil. Collective.
func (s *State) Save(to io.Writer) error {
	stream := &writer{to: to}
	return s.through(low.Writer(stream), to != nil, &stream.guard, func(c low.Ddp_state, user uintptr) error {
		return low.Ddp_state_save(c, low.WriteFn, user)
	}, func(c low.Ddp_state) error { return low.Ddp_state_save(c, nil, 0) })
}

// Load is LoadFile through a reader, which is used on rank 0 alone; other ranks may pass nil. Collective.
func (s *State) Load(from io.Reader) error {
	stream := &reader{from: from}
	return s.through(low.Reader(stream), from != nil, &stream.guard, func(c low.Ddp_state, user uintptr) error {
		return low.Ddp_state_load(c, low.ReadFn, user)
	}, func(c low.Ddp_state) error { return low.Ddp_state_load(c, nil, 0) })
}

func (s *State) through(stream any, given bool, g *guard, call func(low.Ddp_state, uintptr) error, without func(low.Ddp_state) error) error {
	if !given {
		return s.with(without)
	}
	handle := cgo.NewHandle(stream)
	defer handle.Delete()
	return s.with(func(c low.Ddp_state) error { return caused(call(c, uintptr(handle)), g.take()) })
}

func (s *State) with(fn func(low.Ddp_state) error) error {
	defer runtime.KeepAlive(s)
	c := low.NewDdp_state()
	defer low.DeleteDdp_state(c)
	if err := low.Ddp_state_init(c, low.SizeofState); err != nil {
		return err
	}
	if s.Model != nil {
		c.SetModel(s.Model.id())
	}
	if s.Optimizer != nil {
		c.SetOptimizer(s.Optimizer.id())
	}
	if s.EMA != nil {
		c.SetEma(s.EMA.id())
	}
	c.SetPartial(flag(s.Partial))
	c.SetLocal(flag(s.Local))
	c.SetEpoch(s.Epoch)
	c.SetStep(s.Step)
	if err := fn(c); err != nil {
		return err
	}
	s.Epoch, s.Step = c.GetEpoch(), c.GetStep()
	return nil
}

// Missing are the tensors that the model, optimizer or averages have and the checkpoint of the last load had not.
func (m *Model) Missing() []string { return m.names(low.Ddp_model_get_missing) }

// Unexpected are the tensors that the checkpoint of the last load had and the model has not.
func (m *Model) Unexpected() []string { return m.names(low.Ddp_model_get_unexpected) }

func (m *Model) names(get func(uintptr, int64) string) (names []string) {
	defer runtime.KeepAlive(m)
	for {
		name := get(m.id(), int64(len(names)))
		if name == "" {
			return names
		}
		names = append(names, name)
	}
}

type writer struct {
	guard
	to io.Writer
}

func (w *writer) Write(data []byte) int32 {
	return flag(w.run(func() error {
		count, err := w.to.Write(data)
		if err == nil && count != len(data) {
			err = io.ErrShortWrite
		}
		return err
	}))
}

type reader struct {
	guard
	from io.Reader
}

func (r *reader) Read(data []byte) (count int64) {
	failed := r.run(func() error {
		for tries := 0; count == 0 && len(data) > 0; tries++ { // a reader may return nothing without being at its end
			if tries == 100 {
				return io.ErrNoProgress
			}
			got, err := r.from.Read(data)
			if got < 0 || got > len(data) {
				return fmt.Errorf("a reader says that it read %d bytes into %d", got, len(data))
			}
			count = int64(got)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if failed {
		return -1
	}
	return count
}
