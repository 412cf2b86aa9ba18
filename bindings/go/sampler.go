// SPDX-License-Identifier: Apache-2.0

package ddp

import "github.com/libddp/libddp/bindings/go/internal/low"

// Sampler is the partition of a data set over the ranks: a pure function of its fields. All ranks get the same number of indices.
type Sampler struct {
	DatasetSize int64
	Seed        int64
	Rank, Size  int  // of the group
	InOrder     bool // do not shuffle
	DropLast    bool // drop the tail; otherwise the order is padded by starting over

	// Seen is how many samples of the epoch all ranks together have seen before the number of ranks changed; see Resume.
	Seen int64
}

// NewSampler shares a data set between the ranks of a group.
func NewSampler(group *Group, datasetSize int) *Sampler {
	return &Sampler{DatasetSize: int64(datasetSize), Rank: group.Rank(), Size: group.Size()}
}

// Resume goes on in the middle of an epoch with another number of ranks: all ranks have used the first done positions of their shares. What is
// left is dealt out over the ranks of the group as it is now, from position 0 on, and no sample is repeated or left out. Set Seen to 0 for the
// next epoch.
func (s *Sampler) Resume(group *Group, done int) {
	s.Seen += int64(done) * int64(s.Size)
	if s.Seen > s.DatasetSize { // the last step was padded
		s.Seen = s.DatasetSize
	}
	s.Rank, s.Size = group.Rank(), group.Size()
}

// Count is how many indices each rank gets per epoch.
func (s *Sampler) Count() (int, error) {
	var count int64
	err := s.with(func(c low.Ddp_sampler) error { return low.Ddp_sampler_get_count(c, &count) })
	return int(count), err
}

// Fill writes the indices of this rank's share of an epoch from position first on. Without the epoch every epoch has the same order.
func (s *Sampler) Fill(epoch int64, first int, indices []int64) error {
	if len(indices) == 0 {
		return nil
	}
	return s.with(func(c low.Ddp_sampler) error {
		return low.Ddp_sampler_fill(c, epoch, int64(first), int64(len(indices)), &indices[0])
	})
}

// Indices is this rank's whole share of an epoch.
func (s *Sampler) Indices(epoch int64) ([]int64, error) {
	count, err := s.Count()
	if err != nil {
		return nil, err
	}
	indices := make([]int64, count)
	return indices, s.Fill(epoch, 0, indices)
}

func (s *Sampler) with(fn func(low.Ddp_sampler) error) error {
	c := low.NewDdp_sampler()
	defer low.DeleteDdp_sampler(c)
	if err := low.Ddp_sampler_init(c, low.SizeofSampler); err != nil {
		return err
	}
	c.SetDataset_size(s.DatasetSize)
	c.SetSeed(s.Seed)
	c.SetRank(int32(s.Rank))
	c.SetSize(int32(s.Size))
	c.SetShuffle(flag(!s.InOrder))
	c.SetDrop_last(flag(s.DropLast))
	c.SetSeen(s.Seen)
	return fn(c)
}
