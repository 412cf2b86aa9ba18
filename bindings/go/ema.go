// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// EMA is running averages of a model's parameters, equal on all ranks.
type EMA struct {
	owner
	model *Model
}

// NewEMA starts an average for each decay, 1 to 16 of them, from 0 to below 1.
func NewEMA(model *Model, decays ...float64) (*EMA, error) {
	defer runtime.KeepAlive(model)
	if len(decays) == 0 {
		return nil, failure(InvalidArgument, "an average needs at least one decay")
	}
	var handle uintptr
	if err := low.Ddp_ema_create(model.id(), &decays[0], int32(len(decays)), &handle); err != nil {
		return nil, err
	}
	ema := &EMA{model: model}
	ema.handle.Store(handle)
	runtime.SetFinalizer(ema, (*EMA).Close)
	return ema, nil
}

// Close releases the averages. The parameters keep what they hold at the moment. A nil EMA is allowed.
func (e *EMA) Close() error {
	if e != nil {
		e.destroy(low.Ddp_ema_destroy)
	}
	return nil
}

// Update takes the current parameters into every average. Call it after each step.
func (e *EMA) Update() error {
	defer runtime.KeepAlive(e)
	return low.Ddp_ema_update(e.id(), e.model.stream)
}

// Swap exchanges the parameters with one of the averages, for evaluation; the same call again swaps back.
func (e *EMA) Swap(which int) error {
	defer runtime.KeepAlive(e)
	return low.Ddp_ema_swap(e.id(), int32(which), e.model.stream)
}
