package ddp

import (
	"context"
	"runtime"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Group is ranks that act together.
type Group struct {
	handle uintptr
	stream uintptr
}

// NewGroup meets the other ranks. An empty rendezvous means "env://": what ddprun, torchrun, Open MPI, MPICH, Slurm or Kubernetes
// set. Others are tcp://host:port, file:///path, local://name (ranks are goroutines) and store:// (options.Store).
// Options may be nil. Collective. In a group of one rank every collective does nothing.
func NewGroup(rendezvous string, options *GroupOptions) (*Group, error) {
	if rendezvous == "" {
		rendezvous = "env://"
	}
	var handle uintptr
	err := options.with(func(c low.Ddp_group_options, store *storeState) error {
		return caused(low.Ddp_group_create(rendezvous, c, &handle), store.take())
	})
	if err != nil {
		return nil, err
	}
	group := &Group{handle: handle}
	runtime.SetFinalizer(group, (*Group).Close)
	return group, nil
}

// Close leaves the group; pending work is dropped and the other ranks are told. It takes at most 2 seconds, also when peers are
// dead. A group that is never closed leaves when the collector finds it.
func (g *Group) Close() error {
	runtime.SetFinalizer(g, nil)
	handle := g.handle
	g.handle = 0
	low.Ddp_group_destroy(handle)
	return nil
}

// SetStream chooses the CUDA stream, a cudaStream_t, on which the tensors of later collectives are ready.
func (g *Group) SetStream(stream uintptr) { g.stream = stream }

// Abort breaks the group on purpose: everything pending or later on it fails with Aborted, on all ranks. Any goroutine.
func (g *Group) Abort(reason string) error {
	defer runtime.KeepAlive(g)
	return low.Ddp_group_abort(g.handle, reason)
}

// AbortWhenDone breaks the group when the context ends, so that a cancelled context ends every waiting call. Call stop when the
// context does not matter any more.
func (g *Group) AbortWhenDone(ctx context.Context) (stop func()) {
	stopped, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-ctx.Done():
			_ = g.Abort(ctx.Err().Error())
		case <-stopped:
		}
	}()
	return func() {
		close(stopped)
		<-finished
	}
}

// Err is nil, or the first cause that broke the group.
func (g *Group) Err() error {
	defer runtime.KeepAlive(g)
	return low.Ddp_group_status(g.handle)
}

// Rank is this rank's number, 0 to Size()-1; -1 after Close.
func (g *Group) Rank() int {
	defer runtime.KeepAlive(g)
	return int(low.Ddp_group_rank(g.handle))
}

// Size is the number of ranks; -1 after Close.
func (g *Group) Size() int {
	defer runtime.KeepAlive(g)
	return int(low.Ddp_group_size(g.handle))
}

// Backend is what the group really uses.
func (g *Group) Backend() Backend {
	defer runtime.KeepAlive(g)
	return Backend(low.Ddp_group_backend(g.handle))
}

// Alloc gives memory within reach of the other ranks of this host: parameters and gradients in it are reduced without a copy.
// It is zeroed and not Go's: Free it after the models that use it and before the group is closed.
func Alloc[T Element](g *Group, count int) ([]T, error) {
	defer runtime.KeepAlive(g)
	var data unsafe.Pointer
	if err := low.Ddp_group_alloc(g.handle, int64(count)*int64(unsafe.Sizeof(*new(T))), &data); err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(data), count), nil
}

// Free gives back what Alloc gave.
func Free[T Element](g *Group, memory []T) error {
	defer runtime.KeepAlive(g)
	if len(memory) == 0 {
		return nil
	}
	return low.Ddp_group_free(g.handle, unsafe.Pointer(&memory[0]))
}
