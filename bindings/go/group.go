// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Group is ranks that act together.
type Group struct {
	owner
	stream     uintptr
	memory     *memory      // of Alloc
	recovering sync.RWMutex // Abort stays out of a recovery
	stop       func()       // of NewGroupContext: the context does not matter any more
}

// NewGroup meets the other ranks. An empty rendezvous means "env://": what ddprun, torchrun, Open MPI, MPICH, Slurm or Kubernetes
// set. Others are tcp://host:port, file:///path, local://name (ranks are goroutines) and store:// (options.Store).
// Options may be nil. Collective. In a group of one rank every collective does nothing.
func NewGroup(rendezvous string, options *GroupOptions) (*Group, error) {
	if rendezvous == "" {
		rendezvous = "env://"
	}
	if err := noNUL("the rendezvous", rendezvous); err != nil {
		return nil, err
	}
	var handle uintptr
	err := options.with(func(c low.Ddp_group_options, store *storeState) error {
		return caused(low.Ddp_group_create(rendezvous, c, &handle), store.take())
	})
	if err != nil {
		return nil, err
	}
	return owned(handle), nil
}

// NewGroupContext is NewGroup that a context can end: while ranks are met it returns the context's error at once, and afterwards the context
// breaks the group, as with AbortWhenDone, until the group is closed. A rank that has left in this way while ranks are met counts as one that
// did not come: for the others RendezvousTimeout runs out. Close the group: the collector does not while the context lasts.
func NewGroupContext(ctx context.Context, rendezvous string, options *GroupOptions) (*Group, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type made struct {
		group *Group
		err   error
	}
	arrived := make(chan made, 1)
	go func() {
		group, err := NewGroup(rendezvous, options)
		arrived <- made{group, err}
	}()
	select {
	case found := <-arrived:
		if found.err == nil {
			found.group.stop = found.group.AbortWhenDone(ctx)
		}
		return found.group, found.err
	case <-ctx.Done():
		go func() { _ = (<-arrived).group.Close() }() // nobody has it
		return nil, ctx.Err()
	}
}

// NoColor is given to Split by a rank that gets no group.
const NoColor = -1

// Split divides a group: ranks of one color become a group of their own, numbered by key, then by rank. With NoColor it gives nil. Options
// may be nil: those of this group; Rank, WorldSize and Store are not used. Collective.
func (g *Group) Split(color, key int, options *GroupOptions) (*Group, error) {
	defer runtime.KeepAlive(g)
	var handle uintptr
	if options != nil {
		given := *options
		given.Rank, given.WorldSize, given.Store = -1, 0, nil
		options = &given
	}
	err := options.with(func(c low.Ddp_group_options, _ *storeState) error {
		return low.Ddp_group_split(g.id(), int32(color), int32(key), c, &handle)
	})
	if err != nil || handle == 0 {
		return nil, err
	}
	return owned(handle), nil
}

func owned(handle uintptr) *Group {
	group := &Group{memory: newMemory()}
	group.handle.Store(handle)
	runtime.SetFinalizer(group, func(g *Group) { g.destroy(low.Ddp_group_destroy) })
	return group
}

// Close leaves the group; pending work is dropped and the other ranks are told. It takes at most 2 seconds, also when peers are
// dead. Slices from Alloc must not be touched afterwards. A group that is never closed leaves when the collector finds it, but for the
// memory of Alloc. A nil group is allowed.
func (g *Group) Close() error {
	if g == nil || g.id() == 0 {
		return nil
	}
	if g.stop != nil {
		g.stop()
	}
	g.destroy(low.Ddp_group_destroy)
	g.memory.end()
	return nil
}

// SetStream chooses the CUDA stream, a cudaStream_t, on which the tensors of later collectives are ready.
func (g *Group) SetStream(stream uintptr) { g.stream = stream }

// Abort breaks the group on purpose: everything pending or later on it fails with Aborted, on all ranks. Any goroutine, also while
// another one closes the group.
func (g *Group) Abort(reason string) error {
	defer runtime.KeepAlive(g)
	g.recovering.RLock()
	defer g.recovering.RUnlock()
	return low.Ddp_group_abort(g.id(), oneLine(reason))
}

// AbortWhenDone breaks the group when the context ends, so that a cancelled context ends every waiting call. Call stop when the
// context does not matter any more; it may be called several times.
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
	var once sync.Once
	return func() {
		once.Do(func() { close(stopped) })
		<-finished
	}
}

// Err is nil, or the first cause that broke the group.
func (g *Group) Err() error {
	defer runtime.KeepAlive(g)
	return low.Ddp_group_status(g.id())
}

// Rank is this rank's number, 0 to Size()-1; -1 after Close.
func (g *Group) Rank() int {
	defer runtime.KeepAlive(g)
	return int(low.Ddp_group_get_rank(g.id()))
}

// Number is the number of this group in this process, from 1, as in LogMessage; 0 after Close.
func (g *Group) Number() int64 {
	defer runtime.KeepAlive(g)
	return low.Ddp_group_get_number(g.id())
}

// Size is the number of ranks; -1 after Close.
func (g *Group) Size() int {
	defer runtime.KeepAlive(g)
	return int(low.Ddp_group_get_size(g.id()))
}

// Backend is what the group really uses.
func (g *Group) Backend() Backend {
	defer runtime.KeepAlive(g)
	return Backend(low.Ddp_group_get_backend(g.id()))
}

// Alloc gives memory within reach of the other ranks of this host: parameters and gradients in it are reduced without a copy.
// It is zeroed and not Go's: it stays until Free or Close, and for ever if the collector finds the group first, because a slice of it may be
// left anywhere. Free it after the models that use it.
func Alloc[T Element](g *Group, count int) ([]T, error) {
	defer runtime.KeepAlive(g)
	size := int64(unsafe.Sizeof(*new(T)))
	if int64(count) > math.MaxInt64/size {
		return nil, failure(OutOfMemory, fmt.Sprintf("%d elements of %d bytes are more than there can be", count, size))
	}
	var data unsafe.Pointer
	if err := low.Ddp_group_alloc(g.id(), int64(count)*size, &data); err != nil {
		return nil, err
	}
	if err := g.memory.show(data); err != nil { // it is on a GPU
		_ = low.Ddp_group_free(g.id(), data)
		return nil, failure(NotSupported, "this group gives memory of its GPU, of which Go can make no slice")
	}
	return unsafe.Slice((*T)(data), count), nil
}

// Share lets the other ranks of this host reach memory of the program where it is: what lies in it is reduced without a copy. It must be memory of
// C, as of C.malloc; a slice of Go's heap stays private, which is an error of the status NotSupported. It must stay until Unshare or Close.
func Share[T Element](g *Group, slice []T) error {
	defer runtime.KeepAlive(g)
	if len(slice) == 0 {
		return failure(InvalidArgument, "an empty slice cannot be shared")
	}
	return low.Ddp_group_share(g.id(), unsafe.Pointer(&slice[0]), int64(len(slice))*int64(unsafe.Sizeof(*new(T))))
}

// Unshare makes memory of Share private again, with its contents. Close the models that use it before.
func Unshare[T Element](g *Group, slice []T) error {
	defer runtime.KeepAlive(g)
	if cap(slice) == 0 {
		return nil
	}
	return low.Ddp_group_unshare(g.id(), unsafe.Pointer(&slice[:1][0]))
}

// Free gives back what Alloc gave. No slice of it must be touched afterwards.
func Free[T Element](g *Group, slice []T) error {
	defer runtime.KeepAlive(g)
	if cap(slice) == 0 {
		return nil
	}
	data := unsafe.Pointer(&slice[:1][0])
	if err := low.Ddp_group_free(g.id(), data); err != nil {
		return err
	}
	g.memory.forget(data)
	return nil
}
