// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Barrier returns when all ranks have called.
func (g *Group) Barrier() error {
	defer runtime.KeepAlive(g)
	return low.Ddp_group_barrier(g.id())
}

// AllReduce reduces a tensor over all ranks, in place: every rank then holds the same bits.
func (g *Group) AllReduce(tensor Tensor, op Op) error {
	return g.one(tensor, func(c low.Ddp_tensor) error {
		return low.Ddp_group_all_reduce(g.id(), c, int32(op), g.stream)
	})
}

// AllGather collects the input of each rank in everybody's output, which is Size() times as long.
func (g *Group) AllGather(input, output Tensor) error {
	return g.two(input, output, func(in, out low.Ddp_tensor) error { return low.Ddp_group_all_gather(g.id(), in, out, g.stream) })
}

// ReduceScatter reduces the inputs over all ranks and keeps the part of this rank; the input is Size() times as long as the output.
func (g *Group) ReduceScatter(input, output Tensor, op Op) error {
	return g.two(input, output, func(in, out low.Ddp_tensor) error {
		return low.Ddp_group_reduce_scatter(g.id(), in, out, int32(op), g.stream)
	})
}

// Broadcast copies root's tensor to all ranks, in place.
func (g *Group) Broadcast(tensor Tensor, root int) error {
	return g.one(tensor, func(c low.Ddp_tensor) error { return low.Ddp_group_broadcast(g.id(), c, int32(root), g.stream) })
}

// ReduceMetrics reduces up to 1024 numbers (sum of losses, number of samples) in one message, in place. Sum first and divide
// afterwards: with unequal counts an average of averages is wrong.
func (g *Group) ReduceMetrics(values []float64, op Op) error {
	defer runtime.KeepAlive(g)
	if len(values) == 0 {
		return failure(InvalidArgument, "there are no values to reduce")
	}
	return low.Ddp_group_reduce_metrics(g.id(), &values[0], int64(len(values)), int32(op))
}

func (g *Group) one(tensor Tensor, fn func(low.Ddp_tensor) error) error {
	defer runtime.KeepAlive(g)
	return lending(func(t ...low.Ddp_tensor) error { return fn(t[0]) }, tensor)
}

func (g *Group) two(input, output Tensor, fn func(in, out low.Ddp_tensor) error) error {
	defer runtime.KeepAlive(g)
	return lending(func(t ...low.Ddp_tensor) error { return fn(t[0], t[1]) }, input, output)
}
