// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"context"
	"runtime"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Request is a call that was posted. Until it has ended its tensors belong to it. Close it; the collector closes what is forgotten.
type Request struct {
	owner owner
	group *Group
	lent  []*hold // Go memory that stays in its place until the request has ended
}

// A Context is looked at this often while a request is waited for, in milliseconds.
const lookAgain = 20

// post lends tensors until the request has ended.
func (g *Group) post(fn func(request *uintptr, t []low.Ddp_tensor) error, tensors ...Tensor) (*Request, error) {
	defer runtime.KeepAlive(g)
	r := &Request{group: g}
	given := make([]low.Ddp_tensor, len(tensors))
	for i, tensor := range tensors {
		if tensor.shape == nil && tensor.err == nil { // none: C takes NULL
			given[i] = low.SwigcptrDdp_tensor(0)
			continue
		}
		c, err := tensor.lend()
		if err != nil {
			r.drop()
			return nil, err
		}
		defer low.DeleteDdp_tensor(c.Ddp_tensor)
		r.lent, given[i] = append(r.lent, c.memory), c.Ddp_tensor
	}
	var handle uintptr
	if err := fn(&handle, given); err != nil {
		r.drop()
		return nil, err
	}
	r.owner.handle.Store(handle)
	runtime.SetFinalizer(r, (*Request).Close)
	return r, nil
}

func (r *Request) drop() {
	for _, memory := range r.lent {
		memory.drop()
	}
	r.lent = nil
}

// Close forgets a request that has ended. A receive for which nothing has come is withdrawn; any other request is waited for.
func (r *Request) Close() {
	runtime.SetFinalizer(r, nil)
	r.owner.destroy(low.Ddp_request_destroy)
	r.drop()
}

// Done tells whether the request has ended well, and never waits. The error is the one that the request has ended with.
func (r *Request) Done() (bool, error) {
	defer runtime.KeepAlive(r)
	var done int32
	err := low.Ddp_request_test(r.owner.id(), &done)
	return done != 0, err
}

// Wait waits until the request has ended, or the context is done: then it returns the context's error, and the request stays open.
func (r *Request) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(r)
	limit := int64(-1)
	if ctx.Done() != nil {
		limit = lookAgain
	}
	for {
		var done int32
		if err := low.Ddp_request_wait(r.owner.id(), limit, &done); err != nil || done != 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Source is the rank that sent what a receive got; -1 until it has ended, and for other requests.
func (r *Request) Source() int {
	defer runtime.KeepAlive(r)
	return int(low.Ddp_request_get_source(r.owner.id()))
}

// WaitAny waits until one of the requests has ended, and returns its place; the error is that of this request. When the context is done
// it returns -1 and the context's error.
func WaitAny(ctx context.Context, requests ...*Request) (int, error) {
	defer runtime.KeepAlive(requests)
	if len(requests) == 0 {
		return -1, failure(InvalidArgument, "there is no request to wait for")
	}
	ids := make([]int64, len(requests))
	for i, request := range requests {
		ids[i] = low.Ddp_request_get_id(request.owner.id())
	}
	limit := int64(-1)
	if ctx.Done() != nil {
		limit = lookAgain
	}
	for {
		index := int32(-1)
		if err := low.Ddp_request_wait_any(&ids[0], int32(len(ids)), limit, &index); err != nil || index >= 0 {
			return int(index), err
		}
		if err := ctx.Err(); err != nil {
			return -1, err
		}
	}
}

// PostBarrier posts Barrier. All ranks post the same collectives in the same order, whatever else they call meanwhile. The first one of a
// group waits for all ranks, and is posted while no pass is open, unless the group was made with Requests.
func (g *Group) PostBarrier() (*Request, error) {
	return g.post(func(r *uintptr, _ []low.Ddp_tensor) error { return low.Ddp_group_post_barrier(g.id(), r) })
}

// PostAllReduce posts AllReduce.
func (g *Group) PostAllReduce(tensor Tensor, op Op) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_all_reduce(g.id(), t[0], int32(op), r, g.queue())
	}, tensor)
}

// PostAllGather posts AllGather.
func (g *Group) PostAllGather(input, output Tensor) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_all_gather(g.id(), t[0], t[1], r, g.queue())
	}, input, output)
}

// PostReduceScatter posts ReduceScatter.
func (g *Group) PostReduceScatter(input, output Tensor, op Op) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_reduce_scatter(g.id(), t[0], t[1], int32(op), r, g.queue())
	}, input, output)
}

// PostBroadcast posts Broadcast.
func (g *Group) PostBroadcast(tensor Tensor, root int) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_broadcast(g.id(), t[0], int32(root), r, g.queue())
	}, tensor)
}

// PostReduce posts Reduce.
func (g *Group) PostReduce(tensor Tensor, op Op, root int) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_reduce(g.id(), t[0], int32(op), int32(root), r, g.queue())
	}, tensor)
}

// PostGather posts Gather. The ranks that are not root give the zero Tensor as output.
func (g *Group) PostGather(input, output Tensor, root int) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_gather(g.id(), t[0], t[1], int32(root), r, g.queue())
	}, input, output)
}

// PostScatter posts Scatter. The ranks that are not root give the zero Tensor as input.
func (g *Group) PostScatter(input, output Tensor, root int) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_scatter(g.id(), t[0], t[1], int32(root), r, g.queue())
	}, input, output)
}

// PostAllToAll posts AllToAll.
func (g *Group) PostAllToAll(input, output Tensor, inputCounts, outputCounts []int64) (*Request, error) {
	given, err := g.counts(inputCounts, true)
	if err != nil {
		return nil, err
	}
	taken, err := g.counts(outputCounts, true)
	if err != nil {
		return nil, err
	}
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_all_to_all(g.id(), t[0], t[1], given, taken, r, g.queue())
	}, input, output)
}

// PostAllGatherCounts posts AllGatherCounts.
func (g *Group) PostAllGatherCounts(input, output Tensor, counts []int64) (*Request, error) {
	given, err := g.counts(counts, false)
	if err != nil {
		return nil, err
	}
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_all_gather_counts(g.id(), t[0], t[1], given, r, g.queue())
	}, input, output)
}

// PostSend posts Send. Any goroutine, also while a pass is open.
func (g *Group) PostSend(tensor Tensor, peer, tag int) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_send(g.id(), t[0], int32(peer), int64(tag), r, g.queue())
	}, tensor)
}

// PostReceive posts Receive; Source tells then which rank sent. Any goroutine, also while a pass is open.
func (g *Group) PostReceive(tensor Tensor, source, tag int) (*Request, error) {
	return g.post(func(r *uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_post_receive(g.id(), t[0], int32(source), int64(tag), r, g.queue())
	}, tensor)
}
