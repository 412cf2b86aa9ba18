// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// AnySource stands in the place of a rank for Receive: the first message with the tag, whichever rank it is from.
const AnySource = -1

// Send sends a tensor to one other rank, which receives it with the same tag. Up to 64 KiB are copied, and Send returns at once;
// a larger tensor waits for its Receive. Any goroutine: one may send while another receives.
func (g *Group) Send(tensor Tensor, peer, tag int) error {
	return g.one(tensor, func(c low.Ddp_tensor) error {
		return low.Ddp_group_send(g.id(), c, int32(peer), int64(tag), g.stream)
	})
}

// Receive receives a tensor of the same type and number of elements from one other rank, or from AnySource, and returns the rank
// that sent it.
func (g *Group) Receive(tensor Tensor, source, tag int) (int, error) {
	from := int32(-1)
	err := g.one(tensor, func(c low.Ddp_tensor) error {
		return low.Ddp_group_receive(g.id(), c, int32(source), int64(tag), &from, g.stream)
	})
	return int(from), err
}

// Reduce reduces a tensor over all ranks to root, which gets the bits of AllReduce; what the others have then is undefined.
func (g *Group) Reduce(tensor Tensor, op Op, root int) error {
	return g.one(tensor, func(c low.Ddp_tensor) error {
		return low.Ddp_group_reduce(g.id(), c, int32(op), int32(root), g.stream)
	})
}

// Gather collects the input of each rank in root's output, which is Size() times as long. The others give nil as output.
func (g *Group) Gather(input, output Tensor, root int) error {
	if g.Rank() != root {
		return g.one(input, func(in low.Ddp_tensor) error {
			return low.Ddp_group_gather(g.id(), in, low.SwigcptrDdp_tensor(0), int32(root), g.stream)
		})
	}
	return g.two(input, output, func(in, out low.Ddp_tensor) error {
		return low.Ddp_group_gather(g.id(), in, out, int32(root), g.stream)
	})
}

// Scatter gives each rank its part of root's input, which is Size() times as long as the output. The others give nil as input.
func (g *Group) Scatter(input, output Tensor, root int) error {
	if g.Rank() != root {
		return g.one(output, func(out low.Ddp_tensor) error {
			return low.Ddp_group_scatter(g.id(), low.SwigcptrDdp_tensor(0), out, int32(root), g.stream)
		})
	}
	return g.two(input, output, func(in, out low.Ddp_tensor) error {
		return low.Ddp_group_scatter(g.id(), in, out, int32(root), g.stream)
	})
}

// AllToAll gives each rank a part of the input, and gets one of each, by rank one behind the other. The counts say how many
// elements each rank gets, and how many come from each; nil: equal parts.
func (g *Group) AllToAll(input, output Tensor, inputCounts, outputCounts []int64) error {
	given, err := g.counts(inputCounts, true)
	if err != nil {
		return err
	}
	taken, err := g.counts(outputCounts, true)
	if err != nil {
		return err
	}
	return g.two(input, output, func(in, out low.Ddp_tensor) error {
		return low.Ddp_group_all_to_all(g.id(), in, out, given, taken, g.stream)
	})
}

// AllGatherCounts collects the inputs of all ranks on every rank; rank r gives counts[r] elements.
func (g *Group) AllGatherCounts(input, output Tensor, counts []int64) error {
	given, err := g.counts(counts, false)
	if err != nil {
		return err
	}
	return g.two(input, output, func(in, out low.Ddp_tensor) error {
		return low.Ddp_group_all_gather_counts(g.id(), in, out, given, g.stream)
	})
}

func (g *Group) counts(counts []int64, mayBeNone bool) (*int64, error) {
	defer runtime.KeepAlive(g)
	if counts == nil && mayBeNone {
		return nil, nil
	}
	if len(counts) != g.Size() || len(counts) == 0 {
		return nil, failure(InvalidArgument, "one count for each rank is needed")
	}
	return &counts[0], nil
}
