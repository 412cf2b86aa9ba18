// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"
	"runtime/cgo"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Hook stands in the place of a bucket's plain reduction: it gets a flat copy of this rank's gradients, not divided, and leaves in it
// what they become, the same on every rank. An error, a panic or runtime.Goexit fails the pass on all ranks with its text; on this rank End
// unwraps to it. A hook must not use the model or its group: beside Model.Close, that is not noticed in every case.
type Hook func(bucket *Bucket) error

type hooks struct {
	guard
	hook   Hook
	memory *memory // of the model
}

func (h *hooks) Hook(handle uintptr) int32 {
	bucket := &Bucket{handle, h.memory}
	failed := h.run(func() error { return h.hook(bucket) })
	if failed {
		h.mutex.Lock()
		text := brief(h.cause)
		h.mutex.Unlock()
		_ = low.Ddp_bucket_set_error(handle, text)
	}
	bucket.handle = 0
	return flag(failed)
}

// SetHook gives the model a hook, before Commit; all ranks give the same kind. It runs on a thread of the library. What it refers to
// lives as long as the model does; a hook that refers to the model keeps it until Close.
func (m *Model) SetHook(hook Hook) error {
	defer runtime.KeepAlive(m)
	calls := &hooks{hook: hook, memory: m.memory}
	handle := cgo.NewHandle(low.Hooker(calls)) // libddp releases it, also when this fails
	if err := low.Ddp_model_set_hook(m.id(), low.HookFn, uintptr(handle), low.ReleaseFn); err != nil {
		return err
	}
	m.hook = calls
	return nil
}

// SetPulledHook lets the program itself reduce the buckets, on its own goroutine, with Pass.Pull. Before Commit.
func (m *Model) SetPulledHook() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_set_pulled_hook(m.id())
}

// Pull runs the hook for the buckets of a model with SetPulledHook: without rest for those of which all gradients are marked here, with rest,
// after the last mark, for all that are left. Every rank must come to the same buckets. Collective.
func (p *Pass) Pull(rest bool, hook Hook) error {
	defer runtime.KeepAlive(p.model)
	for {
		var handle uintptr
		if err := low.Ddp_model_next_bucket(p.model.id(), flag(rest), &handle); err != nil || handle == 0 {
			return err
		}
		if err := p.pulled(&Bucket{handle, p.model.memory}, hook); err != nil {
			return err
		}
	}
}

func (p *Pass) pulled(bucket *Bucket, hook Hook) error {
	var g guard
	failed := g.run(func() error { return hook(bucket) })
	bucket.handle = 0
	cause, text := g.take(), ""
	if failed {
		text = brief(cause)
	}
	return caused(low.Ddp_model_finish_bucket(p.model.id(), flag(failed), text), cause)
}

// Bucket is some gradients inside a hook. It is usable until the hook returns; what a slice of it shows afterwards is another bucket's.
type Bucket struct {
	handle uintptr
	memory *memory
}

// Index is the bucket's number in the order of the plan.
func (b *Bucket) Index() int { return int(low.Ddp_bucket_get_index(b.handle)) }

// IsLast tells whether it is the last bucket of the pass.
func (b *Bucket) IsLast() bool { return low.Ddp_bucket_is_last(b.handle) == 1 }

// Contents is all gradients as one flat tensor; each starts on a 64-byte boundary, with zeros between them. See Values.
func (b *Bucket) Contents() (Tensor, error) {
	c := low.NewDdp_tensor()
	defer low.DeleteDdp_tensor(c)
	if err := low.Ddp_bucket_get_contents(b.handle, c); err != nil {
		return Tensor{}, err
	}
	return borrowed(c, b.memory), nil
}

// ParameterCount is how many parameters have their gradient in the bucket.
func (b *Bucket) ParameterCount() int { return int(low.Ddp_bucket_get_parameter_count(b.handle)) }

// Parameter is one gradient of the bucket, and the index of its parameter in the model.
func (b *Bucket) Parameter(position int) (index int, grad Tensor, err error) {
	c := low.NewDdp_tensor()
	defer low.DeleteDdp_tensor(c)
	var number int32
	if err := low.Ddp_bucket_get_parameter(b.handle, int32(position), &number, c); err != nil {
		return -1, Tensor{}, err
	}
	return int(number), borrowed(c, b.memory), nil
}

// inGroup is a collective of the model's group, inside the hook.
func (b *Bucket) inGroup(collective func(group uintptr, t []low.Ddp_tensor) error, tensors ...Tensor) error {
	var group uintptr
	if err := low.Ddp_bucket_get_group(b.handle, &group); err != nil {
		return err
	}
	return lending(func(t ...low.Ddp_tensor) error { return collective(group, t) }, tensors...)
}

// AllReduce is Group.AllReduce inside a hook.
func (b *Bucket) AllReduce(tensor Tensor, op Op) error {
	return b.inGroup(func(group uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_all_reduce(group, t[0], int32(op), 0)
	}, tensor)
}

// AllGather is Group.AllGather inside a hook.
func (b *Bucket) AllGather(input, output Tensor) error {
	return b.inGroup(func(group uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_all_gather(group, t[0], t[1], 0)
	}, input, output)
}

// ReduceScatter is Group.ReduceScatter inside a hook.
func (b *Bucket) ReduceScatter(input, output Tensor, op Op) error {
	return b.inGroup(func(group uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_reduce_scatter(group, t[0], t[1], int32(op), 0)
	}, input, output)
}

// Broadcast is Group.Broadcast inside a hook.
func (b *Bucket) Broadcast(tensor Tensor, root int) error {
	return b.inGroup(func(group uintptr, t []low.Ddp_tensor) error {
		return low.Ddp_group_broadcast(group, t[0], int32(root), 0)
	}, tensor)
}
