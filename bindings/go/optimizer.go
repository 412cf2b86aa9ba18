// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"
	"runtime/cgo"
	"strings"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Optimizer updates the parameters of a model, the same bits on every rank.
type Optimizer struct {
	owner
	model   *Model
	updates *updates // of NewCustom
}

// Slice is a stretch of a parameter that a rule changes. Its tensors are flat and valid during the call; see Values.
type Slice struct {
	Index             int
	Value, Grad       Tensor   // Value is to be changed
	State             []Tensor // as many as CustomOptions.States, to be changed
	First, Count      int64    // its place in the flattened parameter
	Step              int64    // of this parameter, from 1
	Rate, WeightDecay float64
	Stream            uintptr // of the step, where the tensors lie on a GPU
}

// Update changes one slice in place, the same on every rank. It runs on a goroutine of its own and must not use the model or its group.
type Update func(slice Slice) error

// CustomOptions are the options of an optimizer with the caller's own rule.
type CustomOptions struct {
	Rate, WeightDecay float64  // the rule applies the decay
	States            []string // names of the arrays that libddp keeps for each parameter, zero at first
	WholeTensors      bool     // a slice is a whole parameter; with Shard one rank has it
	StepOptions
}

// NewCustom makes an optimizer of the caller's own rule; options may be nil. An element of a parameter must depend on nothing but its own
// gradient and state, because slices begin and end anywhere, unless WholeTensors is set.
func NewCustom(model *Model, options *CustomOptions, update Update) (*Optimizer, error) {
	if options == nil {
		options = &CustomOptions{}
	}
	c := low.NewDdp_custom_options()
	defer low.DeleteDdp_custom_options(c)
	if err := low.Ddp_custom_options_init(c, low.SizeofCustomOptions); err != nil {
		return nil, err
	}
	c.SetRate(options.Rate)
	c.SetWeight_decay(options.WeightDecay)
	c.SetWhole_tensors(flag(options.WholeTensors))
	shared, err := options.StepOptions.fill()
	if err != nil {
		return nil, err
	}
	defer freeOptions(shared)
	calls := &updates{update: update}
	handle := cgo.NewHandle(low.Updater(calls)) // libddp releases it, also when it cannot make the optimizer
	optimizer, err := newOptimizer(model, func(out *uintptr) error {
		return low.Ddp_optimizer_create_custom(model.id(), c, shared, strings.Join(options.States, ","), low.UpdateFn, uintptr(handle), low.ReleaseFn, out)
	})
	if err != nil {
		return nil, err
	}
	optimizer.updates = calls
	if options.InBackward {
		model.updates = calls
	}
	return optimizer, nil
}

type updates struct {
	guard
	update Update
}

func (u *updates) Update(c low.Ddp_update_slice) int32 {
	return flag(u.run(func() error {
		flat := func(data unsafe.Pointer, dtype DType) Tensor {
			return Tensor{data: data, dtype: dtype, device: Device(c.GetDevice()), deviceIndex: c.GetDevice_index(), shape: []int64{c.GetCount()}}
		}
		dtype, ofState := DType(c.GetDtype()), F32
		if dtype == F64 {
			ofState = F64
		}
		slice := Slice{Index: int(c.GetIndex()), Value: flat(c.GetValue(), dtype), Grad: flat(c.GetGrad(), dtype), First: c.GetFirst(),
			Count: c.GetCount(), Step: c.GetStep(), Rate: c.GetRate(), WeightDecay: c.GetWeight_decay(), Stream: c.GetStream()}
		for _, state := range unsafe.Slice(c.GetState(), int(c.GetState_count())) {
			slice.State = append(slice.State, flat(state, ofState))
		}
		return u.update(slice)
	}))
}

func newOptimizer(model *Model, create func(out *uintptr) error) (*Optimizer, error) {
	defer runtime.KeepAlive(model)
	var handle uintptr // not in a struct: C must not see Go's pointers around it
	if err := create(&handle); err != nil {
		return nil, err
	}
	optimizer := &Optimizer{model: model}
	optimizer.handle.Store(handle)
	runtime.SetFinalizer(optimizer, (*Optimizer).Close)
	return optimizer, nil
}

// Close releases the optimizer. A nil optimizer is allowed.
func (o *Optimizer) Close() error {
	if o != nil {
		o.destroy(low.Ddp_optimizer_destroy)
	}
	return nil
}

// SetRate sets the learning rate for the steps that follow; every rank must set the same.
func (o *Optimizer) SetRate(rate float64) error {
	defer runtime.KeepAlive(o)
	return low.Ddp_optimizer_set_rate(o.id(), rate)
}

// Rate is the learning rate in use.
func (o *Optimizer) Rate() (rate float64, err error) {
	defer runtime.KeepAlive(o)
	err = low.Ddp_optimizer_get_rate(o.id(), &rate)
	return rate, err
}

// StepCount is the number of steps taken so far, those before a load included.
func (o *Optimizer) StepCount() (count int64, err error) {
	defer runtime.KeepAlive(o)
	err = low.Ddp_optimizer_get_step_count(o.id(), &count)
	return count, err
}

// SetParameterOptions gives one parameter its own weight decay and a factor on the learning rate; 0 freezes it.
func (o *Optimizer) SetParameterOptions(index int, weightDecay, rateScale float64) error {
	defer runtime.KeepAlive(o)
	return low.Ddp_optimizer_set_parameter_options(o.id(), int32(index), weightDecay, rateScale)
}

// Step updates every parameter that was used in the last Reduce pass.
func (o *Optimizer) Step() error {
	defer runtime.KeepAlive(o)
	err := low.Ddp_optimizer_step(o.id(), o.model.stream)
	if o.updates != nil {
		err = caused(err, o.updates.take())
	}
	return err
}
