// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"fmt"
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// PassKind is what a pass does.
type PassKind int32

// Reduce averages gradients over the ranks. Accumulate sends nothing: the caller adds to its gradients, and a later Reduce pass
// sends the whole. Of a LocalPass nothing is sent either, and its gradients are final on this rank: Model.AverageParameters every few
// steps brings the ranks together. A PartPass ends a part of the global batch, see Parts.
const (
	Reduce     PassKind = 0
	Accumulate PassKind = 1
	LocalPass  PassKind = 2
	PartPass   PassKind = 3
)

// Pass is one backward pass, open until End.
//
//	pass, err := model.Backward(ddp.Reduce)
//	if err != nil {
//		return err
//	}
//	defer pass.End(&err)
type Pass struct{ model *Model }

// Backward opens a pass. While it is open other collectives on the group are refused.
func (m *Model) Backward(kind PassKind) (*Pass, error) {
	defer runtime.KeepAlive(m)
	if err := low.Ddp_model_begin_backward(m.id(), int32(kind)); err != nil {
		return nil, err
	}
	return &Pass{m}, nil
}

// Ready says that the gradient of a parameter is complete. Its bucket is reduced while the program goes on; until End neither read
// nor write the gradient. Any goroutine.
func (p *Pass) Ready(index int) error {
	return low.Ddp_model_mark_ready(p.model.id(), int32(index), p.model.stream)
}

// RangeReady says that count elements from first on of a flattened gradient are complete: one tensor that holds many layers. The gradient is
// complete when each of its elements is, once. Any goroutine.
func (p *Pass) RangeReady(index int, first, count int64) error {
	return low.Ddp_model_mark_range_ready(p.model.id(), int32(index), first, count, p.model.stream)
}

// Unused says that the gradient of a parameter will not come in this pass on this rank. Needs ModelOptions.AllowUnused. Any goroutine.
func (p *Pass) Unused(index int) error {
	return low.Ddp_model_mark_unused(p.model.id(), int32(index))
}

// End closes the pass; afterwards the gradients are the mean over all ranks, the same bits everywhere. Collective in a Reduce
// pass. It is meant for defer: an error that *err holds already, or a panic on its way, abandons the pass instead, so that the other
// ranks hear of it; otherwise the error of End is stored there. A nil pointer is allowed.
func (p *Pass) End(err *error) error {
	if reason := recover(); reason != nil {
		_ = p.Abandon(fmt.Sprint("panic: ", reason))
		panic(reason)
	}
	if err != nil && *err != nil {
		_ = p.Abandon(brief(*err))
		return *err
	}
	ended := low.Ddp_model_end_backward(p.model.id(), p.model.stream)
	if p.model.hook != nil {
		ended = caused(ended, p.model.hook.take())
	}
	if p.model.updates != nil {
		ended = caused(ended, p.model.updates.take())
	}
	if err != nil {
		*err = ended
	}
	return ended
}

// Abandon leaves the pass because this rank failed in it: End fails on the other ranks, with this reason, and the group goes on.
// Collective in a Reduce pass, as the End that it replaces.
func (p *Pass) Abandon(reason string) error {
	defer runtime.KeepAlive(p.model)
	return low.Ddp_model_abandon_backward(p.model.id(), oneLine(reason), p.model.stream)
}

// WasUsed tells whether any rank contributed to a parameter in the last Reduce pass; known is false if no pass has ended.
func (m *Model) WasUsed(index int) (used, known bool) {
	defer runtime.KeepAlive(m)
	answer := low.Ddp_model_was_used(m.id(), int32(index))
	return answer == 1, answer >= 0
}

// AverageParameters makes every parameter its mean over the ranks, the same bits on all of them. Collective.
func (m *Model) AverageParameters() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_average_parameters(m.id(), m.stream)
}

// ZeroGrad sets all gradients to zero.
func (m *Model) ZeroGrad() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_zero_grad(m.id(), m.stream)
}

// MarkReduced says that the program has reduced all gradients over the ranks itself, and not in a pass: they are good for one step, as those
// of a Reduce pass. They must have the same bits on all ranks. Call it on all ranks, before each such step.
func (m *Model) MarkReduced() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_mark_reduced(m.id())
}

// GradNorm is the norm over all gradients as one vector: p is 1, 2 or math.Inf(1).
func (m *Model) GradNorm(p float64) (float64, error) {
	defer runtime.KeepAlive(m)
	var norm float64
	err := low.Ddp_model_get_grad_norm(m.id(), p, &norm, m.stream)
	return norm, err
}

// ClipGradNorm scales all gradients down together so that their norm is at most maxNorm, and gives the norm before. For an optimizer of
// your own; the built-in ones clip within their step (StepOptions).
func (m *Model) ClipGradNorm(maxNorm, p float64) (norm float64, err error) {
	defer runtime.KeepAlive(m)
	err = low.Ddp_model_clip_grad_norm(m.id(), maxNorm, p, &norm, m.stream)
	return norm, err
}

// ClipGradValue limits the magnitude of every element of the gradients.
func (m *Model) ClipGradValue(limit float64) error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_clip_grad_value(m.id(), limit, m.stream)
}

// ScaleGrad multiplies all gradients by a factor.
func (m *Model) ScaleGrad(factor float64) error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_scale_grad(m.id(), factor, m.stream)
}
