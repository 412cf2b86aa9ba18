// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"fmt"
	"strings"
	"testing"
)

func TestMessagesGoFromOneRankToAnother(t *testing.T) {
	ranks(t, 3, func(group *Group) error {
		rank, size := group.Rank(), group.Size()
		given, got := make([]float32, 50_000), make([]float32, 50_000)
		for i := range given {
			given[i] = float32(rank)
		}
		sent := make(chan error)
		go func() { sent <- group.Send(Of(given), (rank+1)%size, 3) }() // one sends while another receives
		before := (rank + size - 1) % size
		source, err := group.Receive(Of(got), before, 3)
		if err != nil {
			return err
		}
		if err := <-sent; err != nil {
			return err
		}
		if source != before || got[0] != float32(before) || got[49_999] != float32(before) {
			return fmt.Errorf("rank %d sent %v", source, got[0])
		}
		if rank > 0 {
			if err := group.Send(Of([]int64{int64(rank)}), 0, 1); err != nil {
				return err
			}
			return group.Barrier() // a rank that leaves ends what others still wait for
		}
		seen := map[int64]int{}
		for i := 0; i < 2; i++ {
			one := []int64{0}
			source, err := group.Receive(Of(one), AnySource, 1)
			if err != nil {
				return err
			}
			seen[one[0]] = source
		}
		if seen[1] != 1 || seen[2] != 2 {
			return fmt.Errorf("any source gave %v", seen)
		}
		return group.Barrier()
	})
}

func TestRanksExchangeParts(t *testing.T) {
	ranks(t, 3, func(group *Group) error {
		rank := group.Rank()
		var all Tensor
		gathered := []int64{-1, -1, -1}
		if rank == 1 {
			all = Of(gathered)
		}
		part := []int64{-1}
		if err := group.Gather(Of([]int64{int64(10 * rank)}), all, 1); err != nil {
			return err
		}
		if err := group.Scatter(all, Of(part), 1); err != nil {
			return err
		}
		if part[0] != int64(10*rank) {
			return fmt.Errorf("scatter gave %v of %v", part, gathered)
		}
		given, swapped := []int64{0, 0, 0}, []int64{-1, -1, -1}
		for other := range given {
			given[other] = int64(10*rank + other)
		}
		if err := group.AllToAll(Of(given), Of(swapped), nil, nil); err != nil {
			return err
		}
		if swapped[2] != int64(20+rank) {
			return fmt.Errorf("all-to-all gave %v", swapped)
		}
		joined := make([]int64, 6)
		if err := group.AllGatherCounts(Of(given[:rank+1]), Of(joined), []int64{1, 2, 3}); err != nil {
			return err
		}
		if joined[0] != 0 || joined[2] != 11 || joined[5] != 22 {
			return fmt.Errorf("all-gather with counts gave %v", joined)
		}
		if err := group.AllGatherCounts(Of(given[:1]), Of(joined), []int64{1}); err == nil || !strings.Contains(err.Error(), "one count for each rank") {
			return fmt.Errorf("too few counts gave %v", err)
		}
		number := []float64{float64(rank + 2)}
		if err := group.Reduce(Of(number), Product, 0); err != nil {
			return err
		}
		if rank == 0 && number[0] != 24 {
			return fmt.Errorf("the product is %v", number)
		}
		return nil
	})
}
