// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// LossScale says how the loss is scaled, for 16-bit gradients. All ranks must set the same. Fields of floats that are 0 have their default.
type LossScale struct {
	Initial          float64
	Growth, Backoff  float64 // factors after Interval good steps, and after one that was not finite
	Minimum, Maximum float64
	Interval         int64 // 0: the scale stays as it is
}

func (s *LossScale) fields(c low.Ddp_loss_scale_options) []field {
	return []field{
		setting(&s.Initial, c.GetInitial, c.SetInitial), setting(&s.Growth, c.GetGrowth, c.SetGrowth), setting(&s.Backoff, c.GetBackoff, c.SetBackoff),
		setting(&s.Minimum, c.GetMinimum, c.SetMinimum), setting(&s.Maximum, c.GetMaximum, c.SetMaximum),
		number(&s.Interval, c.GetInterval, c.SetInterval),
	}
}

// DefaultLossScale is a dynamic scale.
func DefaultLossScale() *LossScale {
	c := low.NewDdp_loss_scale_options()
	defer low.DeleteDdp_loss_scale_options(c)
	_ = low.Ddp_loss_scale_options_init(c, low.SizeofLossScaleOptions)
	s := &LossScale{}
	readFields(s.fields(c))
	return s
}

// SetLossScale uses a loss scale from the next step on; nil is DefaultLossScale. It is saved with the optimizer.
func (o *Optimizer) SetLossScale(scale *LossScale) error {
	defer runtime.KeepAlive(o)
	if scale == nil {
		return low.Ddp_optimizer_set_loss_scale(o.id(), nil)
	}
	c := low.NewDdp_loss_scale_options()
	defer low.DeleteDdp_loss_scale_options(c)
	if err := low.Ddp_loss_scale_options_init(c, low.SizeofLossScaleOptions); err != nil {
		return err
	}
	writeFields(scale.fields(c))
	return low.Ddp_optimizer_set_loss_scale(o.id(), c)
}

// LossScale is what to multiply the next loss with; 1 without a loss scale.
func (o *Optimizer) LossScale() (scale float64, err error) {
	defer runtime.KeepAlive(o)
	err = low.Ddp_optimizer_get_loss_scale(o.id(), &scale)
	return scale, err
}

// CopyLossScale writes what to multiply the next loss with into one element, F32 or F64. On a GPU it is written in the order of the model's
// stream, and the host does not wait.
func (o *Optimizer) CopyLossScale(to Tensor) error {
	defer runtime.KeepAlive(o)
	return lending(func(t ...low.Ddp_tensor) error {
		return low.Ddp_optimizer_copy_loss_scale(o.id(), t[0], o.model.stream)
	}, to)
}

// SkippedCount is the number of steps left out because of gradients that were not finite.
func (o *Optimizer) SkippedCount() (count int64, err error) {
	defer runtime.KeepAlive(o)
	err = low.Ddp_optimizer_get_skipped_count(o.id(), &count)
	return count, err
}

// GradNorm is the 2-norm of the gradients at the last step, before clipping; -1 if the step did not look at it.
func (o *Optimizer) GradNorm() (norm float64, err error) {
	defer runtime.KeepAlive(o)
	err = low.Ddp_optimizer_get_grad_norm(o.id(), &norm)
	return norm, err
}
