// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestPostedCollectivesEndInAnyOrder(t *testing.T) {
	ranks(t, 3, func(group *Group) error {
		rank := int64(group.Rank())
		sum, all, part, told := []int64{rank, 1}, make([]int64, 3), []int64{-1}, []int64{rank}
		largest, gathered, scattered, swapped, counted := []int64{rank}, make([]int64, 3), []int64{-1}, make([]int64, 3), make([]int64, 6)
		var root, values Tensor
		if rank == 1 {
			root = Of(gathered)
		}
		if rank == 0 {
			values = Of([]int64{4, 5, 6})
		}
		mine := make([]int64, rank+1)
		for i := range mine {
			mine[i] = rank
		}
		posts := []func() (*Request, error){
			group.PostBarrier,
			func() (*Request, error) { return group.PostAllReduce(Of(sum), Sum) },
			func() (*Request, error) { return group.PostAllGather(Of([]int64{rank}), Of(all)) },
			func() (*Request, error) { return group.PostReduceScatter(Of([]int64{0, 1, 2}), Of(part), Sum) },
			func() (*Request, error) { return group.PostBroadcast(Of(told), 2) },
			func() (*Request, error) { return group.PostReduce(Of(largest), Max, 0) },
			func() (*Request, error) { return group.PostGather(Of([]int64{rank}), root, 1) },
			func() (*Request, error) { return group.PostScatter(values, Of(scattered), 0) },
			func() (*Request, error) {
				return group.PostAllToAll(Of([]int64{rank, rank, rank}), Of(swapped), nil, nil)
			},
			func() (*Request, error) { return group.PostAllGatherCounts(Of(mine), Of(counted), []int64{1, 2, 3}) },
		}
		requests := make([]*Request, len(posts))
		for i, post := range posts {
			request, err := post()
			if err != nil {
				return err
			}
			defer request.Close()
			requests[i] = request
		}
		for i := range requests {
			if err := requests[len(requests)-1-i].Wait(context.Background()); err != nil {
				return err
			}
		}
		found := fmt.Sprint(sum, all, part, told, scattered, swapped, counted)
		wanted := fmt.Sprint([]int64{3, 3}, []int64{0, 1, 2}, []int64{3 * rank}, []int64{2}, []int64{4 + rank}, []int64{0, 1, 2}, []int64{0, 1, 1, 2, 2, 2})
		if done, err := requests[3].Done(); !done || err != nil || found != wanted {
			return fmt.Errorf("found %s, wanted %s (%v)", found, wanted, err)
		}
		return nil
	})
}

func TestPostedMessagesAndTheFirstOfSeveral(t *testing.T) {
	ranks(t, 2, func(group *Group) error {
		other, got := 1-group.Rank(), [][]int64{{0}, {0}}
		var receives []*Request
		for tag := range got {
			request, err := group.PostReceive(Of(got[tag]), AnySource, tag)
			if err != nil {
				return err
			}
			defer request.Close()
			receives = append(receives, request)
		}
		soon, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		if at, err := WaitAny(soon, receives...); at != -1 || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("nothing was sent, but %d has ended (%v)", at, err)
		}
		if err := receives[0].Wait(soon); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("nothing was sent: %v", err)
		}
		if err := group.Barrier(); err != nil {
			return err
		}
		for _, tag := range []int{1, 0} {
			sent, err := group.PostSend(Of([]int64{int64(7 + tag)}), other, tag)
			if err != nil {
				return err
			}
			defer sent.Close()
			if at, err := WaitAny(context.Background(), receives[tag]); at != 0 || err != nil {
				return fmt.Errorf("%d has ended (%v)", at, err)
			}
		}
		if got[0][0] != 7 || got[1][0] != 8 || receives[0].Source() != other {
			return fmt.Errorf("got %v of %d", got, receives[0].Source())
		}
		return group.Barrier()
	})
}
