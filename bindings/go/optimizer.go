package ddp

import (
	"runtime"
	"runtime/cgo"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Optimizer updates the parameters of a model, the same bits on every rank.
type Optimizer struct {
	owner
	model   *Model
	updates *updates // of NewCustom
}

// Update changes one parameter in place; it must do the same on every rank. See Values for the elements of a tensor.
type Update func(index int, value, grad Tensor, rate float64) error

// NewCustom makes an optimizer of the caller's own update, which Step calls for every used parameter in index order. The learning
// rate starts at 0: call SetRate.
func NewCustom(model *Model, update Update) (*Optimizer, error) {
	calls := &updates{update: update, memory: model.memory}
	handle := cgo.NewHandle(low.Updater(calls)) // libddp releases it, also when it cannot make the optimizer
	optimizer, err := newOptimizer(model, func(out *uintptr) error {
		return low.Ddp_optimizer_create_custom(model.id(), low.UpdateFn, uintptr(handle), low.ReleaseFn, out)
	})
	if err == nil {
		optimizer.updates = calls
	}
	return optimizer, err
}

type updates struct {
	guard
	update Update
	memory *memory // of the model
}

func (u *updates) Update(index int32, value, grad low.Ddp_tensor, rate float64, _ uintptr) int32 {
	return flag(u.run(func() error {
		return u.update(int(index), borrowed(value, nil), borrowed(grad, u.memory.of(int(index))), rate)
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

// SetGroup gives one parameter its own weight decay and a factor on the learning rate; 0 freezes it.
func (o *Optimizer) SetGroup(index int, weightDecay, rateScale float64) error {
	defer runtime.KeepAlive(o)
	return low.Ddp_optimizer_set_group(o.id(), int32(index), weightDecay, rateScale)
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
