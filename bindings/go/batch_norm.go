// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// BatchNorm is a batch normalisation over the samples of all ranks. Start from NewBatchNorm. All ranks must agree.
type BatchNorm struct {
	Epsilon    float64 // added to the variance
	Momentum   float64 // share of a batch in the running statistics
	Training   bool    // statistics of the batch; otherwise the running ones, and nothing is sent
	Accumulate bool    // Backward adds to the gradients of weight and bias; otherwise it writes them

	Weight, Bias            Tensor // [C]; zero Tensor: 1 and 0
	RunningMean, RunningVar Tensor // [C], both or neither
	SavedMean, SavedInvStd  Tensor // float64 [C], written by Forward for Backward
	Count                   int64  // values per channel over all ranks, written by Forward for Backward
}

func (b *BatchNorm) fields(c low.Ddp_batch_norm_options) []field {
	return []field{
		fraction(&b.Epsilon, c.GetEpsilon, c.SetEpsilon), fraction(&b.Momentum, c.GetMomentum, c.SetMomentum),
		truth(&b.Training, c.GetTraining, c.SetTraining), truth(&b.Accumulate, c.GetAccumulate, c.SetAccumulate),
	}
}

// NewBatchNorm has libddp's defaults, and memory for the saved statistics of so many channels.
func NewBatchNorm(channels int) *BatchNorm {
	c := low.NewDdp_batch_norm_options()
	defer low.DeleteDdp_batch_norm_options(c)
	_ = low.Ddp_batch_norm_options_init(c, low.SizeofBatchNormOptions)
	b := &BatchNorm{SavedMean: Of(make([]float64, channels)), SavedInvStd: Of(make([]float64, channels))}
	readFields(b.fields(c))
	return b
}

// Forward normalises x, of the shape [N, C, ...], into y, which may be x itself when no Backward follows. Collective when training.
func (b *BatchNorm) Forward(group *Group, x, y Tensor) error {
	defer runtime.KeepAlive(group)
	tensors := []Tensor{x, b.Weight, b.Bias, b.RunningMean, b.RunningVar, y, b.SavedMean, b.SavedInvStd}
	return b.with(tensors, func(c low.Ddp_batch_norm_options, t []low.Ddp_tensor) error {
		var count int64
		err := low.Ddp_batch_norm_forward(group.id(), c, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], &count, group.queue())
		if err == nil {
			b.Count = count
		}
		return err
	})
}

// Backward gives the gradients of x over the samples of all ranks, and this rank's share of those of weight and bias. A zero Tensor
// is not wanted; dx may be dy itself. Collective when training.
func (b *BatchNorm) Backward(group *Group, dy, x, dx, dweight, dbias Tensor) error {
	defer runtime.KeepAlive(group)
	tensors := []Tensor{dy, x, b.Weight, b.SavedMean, b.SavedInvStd, dx, dweight, dbias}
	return b.with(tensors, func(c low.Ddp_batch_norm_options, t []low.Ddp_tensor) error {
		return low.Ddp_batch_norm_backward(group.id(), c, t[0], t[1], t[2], t[3], t[4], b.Count, t[5], t[6], t[7], group.queue())
	})
}

func (b *BatchNorm) with(tensors []Tensor, fn func(low.Ddp_batch_norm_options, []low.Ddp_tensor) error) error {
	c := low.NewDdp_batch_norm_options()
	defer low.DeleteDdp_batch_norm_options(c)
	if err := low.Ddp_batch_norm_options_init(c, low.SizeofBatchNormOptions); err != nil {
		return err
	}
	writeFields(b.fields(c))
	lents := make([]low.Ddp_tensor, len(tensors))
	for i, tensor := range tensors {
		if tensor.shape == nil && tensor.err == nil {
			continue // not given
		}
		lent, err := tensor.lend()
		if err != nil {
			return err
		}
		defer lent.release()
		lents[i] = lent.Ddp_tensor
	}
	return fn(c, lents)
}
