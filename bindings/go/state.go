// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/cgo"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// State is what a checkpoint holds: a safetensors file that any number of ranks can load. Optimizer and EMA may be nil.
type State struct {
	Model     *Model
	Optimizer *Optimizer
	More      []*Optimizer // further optimizers of the model, in the same order for saves and loads
	EMA       *EMA
	Outer     *Outer
	Epoch     int64 // the caller's; written by a load
	Step      int64 // the caller's; written by a load
	Partial   bool  // a load takes what model and checkpoint both have, see Missing and Unexpected
	Local     bool  // a load is this rank's alone, before Model.Commit, which gives rank 0's state to everybody

	// Written by a load with Partial: the tensors that the model, optimizer or averages have and the checkpoint has not, and the other way round.
	Missing, Unexpected []string

	// Written by a load: the file, "" after a reader; and for LoadLatest the newer files that were not valid, with the reason.
	File    string
	Skipped []string
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
	return s.loading(func(c low.Ddp_state, o low.Ddp_load_options, r low.Ddp_load_report) error {
		return low.Ddp_state_load_file(c, path, o, r)
	})
}

// SaveLatest saves step-000000001200.safetensors, with the number in Step, into a folder that is there, and keeps the newest files: so many as keep
// says, or all if it is 0. Collective.
func (s *State) SaveLatest(folder string, keep int) error {
	if err := noNUL("the folder", folder); err != nil {
		return err
	}
	return s.with(func(c low.Ddp_state) error { return low.Ddp_state_save_latest(c, folder, int64(keep)) })
}

// LoadLatest loads the newest valid checkpoint of a folder that SaveLatest has filled; see File and Skipped. The error is NoCheckpoint where there is
// none yet. Collective.
func (s *State) LoadLatest(folder string) error {
	if err := noNUL("the folder", folder); err != nil {
		return err
	}
	return s.loading(func(c low.Ddp_state, o low.Ddp_load_options, r low.Ddp_load_report) error {
		return low.Ddp_state_load_latest(c, folder, o, r)
	})
}

// Keep keeps the state in the memory of the ranks: Group.Recover goes back to it where it would need a checkpoint otherwise, with up to 65,536 bytes of the
// program's own, of rank 0. The model is kept with all its optimizers and averages. Needs GroupOptions.Recoverable. Collective.
func (s *State) Keep(own []byte) error {
	return s.with(func(c low.Ddp_state) error {
		if len(own) > 0 {
			copied := low.CText(string(own))
			defer low.FreeText(copied)
			c.SetOwn(copied)
			c.SetOwn_bytes(int64(len(own)))
		}
		return low.Ddp_state_keep(c, 1, 0)
	})
}

// Save is SaveFile through a writer, which is used on rank 0 alone; other ranks may pass nil. Collective.
func (s *State) Save(to io.Writer) error {
	if to == nil {
		return s.with(func(c low.Ddp_state) error { return low.Ddp_state_save(c, nil, 0) })
	}
	stream := &writer{to: to}
	handle := cgo.NewHandle(low.Writer(stream))
	defer handle.Delete()
	return s.with(func(c low.Ddp_state) error {
		return caused(low.Ddp_state_save(c, low.WriteFn, uintptr(handle)), stream.guard.take())
	})
}

// SaveLocal saves what this rank has, without the others: the bytes are those of Save. It is refused where the optimizer is sharded over several ranks.
func (s *State) SaveLocal(to io.Writer) error {
	stream := &writer{to: to}
	handle := cgo.NewHandle(low.Writer(stream))
	defer handle.Delete()
	return s.with(func(c low.Ddp_state) error {
		return caused(low.Ddp_state_save_local(c, low.WriteFn, uintptr(handle)), stream.guard.take())
	})
}

// Load is LoadFile through a reader, which is used on rank 0 alone; other ranks may pass nil. Collective.
func (s *State) Load(from io.Reader) error {
	stream := &reader{from: from}
	if from == nil {
		return s.loading(func(c low.Ddp_state, o low.Ddp_load_options, r low.Ddp_load_report) error {
			return low.Ddp_state_load(c, nil, 0, o, r)
		})
	}
	handle := cgo.NewHandle(low.Reader(stream))
	defer handle.Delete()
	return s.loading(func(c low.Ddp_state, o low.Ddp_load_options, r low.Ddp_load_report) error {
		return caused(low.Ddp_state_load(c, low.ReadFn, uintptr(handle), o, r), stream.guard.take())
	})
}

func (s *State) loading(fn func(low.Ddp_state, low.Ddp_load_options, low.Ddp_load_report) error) error {
	options, report := low.NewDdp_load_options(), low.NewDdp_load_report()
	defer low.DeleteDdp_load_options(options)
	defer low.DeleteDdp_load_report(report)
	if err := low.Ddp_load_options_init(options, low.SizeofLoadOptions); err != nil {
		return err
	}
	options.SetPartial(flag(s.Partial))
	options.SetLocal(flag(s.Local))
	report.SetStruct_size(low.SizeofLoadReport)
	if err := s.with(func(c low.Ddp_state) error { return fn(c, options, report) }); err != nil {
		return err
	}
	s.Epoch, s.Step = report.GetEpoch(), report.GetStep()
	s.Missing = s.Model.names(report.GetMissing(), low.Ddp_model_get_missing)
	s.Unexpected = s.Model.names(report.GetUnexpected(), low.Ddp_model_get_unexpected)
	s.Skipped = s.Model.names(report.GetSkipped(), low.Ddp_model_get_skipped)
	s.File = low.Ddp_model_get_loaded_file(s.Model.id())
	return nil
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
	if s.Optimizer != nil && len(s.More) == 0 {
		c.SetOptimizer(s.Optimizer.id())
	}
	if len(s.More) > 0 {
		all := append([]*Optimizer{s.Optimizer}, s.More...)
		copied := low.CText(string(make([]byte, 8*len(all))))
		defer low.FreeText(copied)
		for k, optimizer := range all {
			unsafe.Slice((*uintptr)(copied), len(all))[k] = optimizer.id()
		}
		c.SetOptimizers((*uintptr)(copied))
		c.SetOptimizer_count(int64(1 + len(s.More)))
	}
	if s.EMA != nil {
		c.SetEma(s.EMA.id())
	}
	if s.Outer != nil {
		c.SetOuter(s.Outer.id())
	}
	c.SetEpoch(s.Epoch)
	c.SetStep(s.Step)
	return fn(c)
}

func (m *Model) names(count int64, get func(uintptr, int64) string) (names []string) {
	defer runtime.KeepAlive(m)
	for index := int64(0); index < count; index++ {
		names = append(names, get(m.id(), index))
	}
	return names
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
