// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"fmt"
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Parts says which parts of the global batch a rank works on, one after the other: First to First+Count-1 of Total. With
// GroupOptions.VirtualRanks training has the same bits at any number of ranks up to that; without it a rank has one part, whose number is the
// rank. A part takes the samples of a Sampler whose Rank is its number and whose Size is Total, and random numbers from PartKey:
//
//	for part := parts.First; part < parts.First+parts.Count; part++ {
//		pass, err := model.Backward(parts.Kind(part))
//		...
//	}
type Parts struct{ Total, First, Count int }

// Kind is that of the pass of a part: Reduce for the last one of this rank, PartPass for the others.
func (p Parts) Kind(part int) PassKind {
	if part == p.First+p.Count-1 {
		return Reduce
	}
	return PartPass
}

// Parts are those of this rank. They change when Recover has returned.
func (g *Group) Parts() (Parts, error) {
	defer runtime.KeepAlive(g)
	c := low.NewDdp_virtual_ranks()
	defer low.DeleteDdp_virtual_ranks(c)
	c.SetStruct_size(low.SizeofVirtualRanks)
	if err := low.Ddp_group_get_virtual_ranks(g.id(), c); err != nil {
		return Parts{}, err
	}
	return Parts{int(c.GetTotal()), int(c.GetFirst()), int(c.GetCount())}, nil
}

// ReducePartMetrics is ReduceMetrics with as many numbers for each of this rank's parts, one part after the other. They are summed in the tree
// over all parts, so the result, which it returns and which takes the place of the first part's, has the same bits at any number of ranks.
func (g *Group) ReducePartMetrics(values []float64, op Op) ([]float64, error) {
	defer runtime.KeepAlive(g)
	parts, err := g.Parts()
	if err != nil {
		return nil, err
	}
	if len(values) == 0 || len(values)%parts.Count != 0 {
		return nil, failure(InvalidArgument, fmt.Sprintf("%d numbers are not as many for each of this rank's %d parts", len(values), parts.Count))
	}
	count := len(values) / parts.Count
	if err := low.Ddp_group_reduce_part_metrics(g.id(), &values[0], int64(count), int32(op)); err != nil {
		return nil, err
	}
	return values[:count], nil
}

// PartKey is a key for the random numbers (dropout, augmentation) of one part in one step, the same wherever the part runs. The sequence is
// frozen.
func PartKey(seed, step int64, part int) (int64, error) {
	var key int64
	err := low.Ddp_virtual_rank_key(seed, step, int32(part), &key)
	return key, err
}
