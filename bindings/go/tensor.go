// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Float16 and BFloat16 hold the bits of a half-precision number; Go has no arithmetic for them, libddp reduces them.
type (
	Float16  uint16
	BFloat16 uint16
)

// Element is what a tensor may hold.
type Element interface {
	float32 | float64 | int32 | int64 | uint8 | Float16 | BFloat16 | complex64 | complex128
}

// Tensor describes dense, row-major memory that is lent to libddp. The zero value stands for no tensor.
type Tensor struct {
	data        unsafe.Pointer
	owner       any // keeps Go memory alive; nil for foreign memory
	dtype       DType
	device      Device
	deviceIndex int32
	shape       []int64
	memory      *memory // that it is part of, if it is libddp's
	err         error   // found while describing, told by the call that gets the tensor
}

// Of describes a slice. Without a shape it has one dimension. The slice is not copied: its elements are what libddp reads and
// writes, so it must not be reallocated by append.
func Of[T Element](values []T, shape ...int) Tensor {
	t := Tensor{owner: values, dtype: dtypeOf[T](), device: CPU, shape: []int64{int64(len(values))}}
	if len(values) > 0 {
		t.data = unsafe.Pointer(&values[0])
	}
	if len(shape) > 0 {
		t.shape = wide(shape)
		if count := elements(t.shape); count != int64(len(values)) {
			t.err = failure(InvalidArgument, fmt.Sprintf("a slice of %d elements was given the shape %v, which has %d", len(values), shape, count))
		}
	}
	return t
}

// Foreign describes memory that is not Go's: of a C library, or of a GPU. The caller keeps it alive.
func Foreign(data unsafe.Pointer, dtype DType, device Device, deviceIndex int, shape ...int) Tensor {
	return Tensor{data: data, dtype: dtype, device: device, deviceIndex: int32(deviceIndex), shape: wide(shape)}
}

// DType is the type of the elements.
func (t Tensor) DType() DType { return t.dtype }

// Shape is the number of elements in each dimension.
func (t Tensor) Shape() []int {
	shape := make([]int, len(t.shape))
	for i, n := range t.shape {
		shape[i] = int(n)
	}
	return shape
}

// Values gives the elements of a CPU tensor as a slice of the same memory.
func Values[T Element](t Tensor) ([]T, error) {
	if t.dtype != dtypeOf[T]() || t.device != CPU {
		return nil, failure(InvalidArgument, fmt.Sprintf("the tensor has dtype %d on device %d and cannot be read as %T", t.dtype, t.device, *new(T)))
	}
	if t.data == nil {
		return nil, nil
	}
	if t.memory != nil {
		if err := t.memory.show(t.data); err != nil {
			return nil, err
		}
	}
	return unsafe.Slice((*T)(t.data), int(elements(t.shape))), nil
}

func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case int32:
		return I32
	case int64:
		return I64
	case complex64:
		return C64
	case complex128:
		return C128
	}
	return U8
}

func wide(shape []int) []int64 {
	result := make([]int64, len(shape))
	for i, n := range shape {
		result[i] = int64(n)
	}
	return result
}

func elements(shape []int64) int64 {
	count := int64(1)
	for _, n := range shape {
		count *= n
	}
	return count
}

// hold keeps lent memory alive and in its place.
type hold struct {
	pins  pins
	owner any
}

func (h *hold) drop() {
	h.pins.unpin()
	runtime.KeepAlive(h.owner)
	h.owner = nil
}

// lent is a tensor in C's form, with the memory that it describes.
type lent struct {
	low.Ddp_tensor
	memory *hold
}

// lend gives C's form of a tensor; the caller releases it.
func (t Tensor) lend() (*lent, error) {
	if t.err != nil {
		return nil, t.err
	}
	if t.shape == nil {
		return nil, failure(InvalidArgument, "a zero ddp.Tensor was given: describe the memory with ddp.Of")
	}
	if len(t.shape) > low.MaxDimensions {
		return nil, failure(InvalidArgument, fmt.Sprintf("a tensor has at most %d dimensions, this one %d", low.MaxDimensions, len(t.shape)))
	}
	l := &lent{Ddp_tensor: low.NewDdp_tensor(), memory: &hold{owner: t.owner}}
	if t.owner != nil && t.data != nil {
		l.memory.pins.pin(t.data)
	}
	var shape *int64
	if len(t.shape) > 0 {
		shape = &t.shape[0]
	}
	if err := low.Ddp_tensor_init(l.Ddp_tensor, t.data, int32(t.dtype), int32(len(t.shape)), shape); err != nil {
		l.release()
		return nil, err
	}
	l.SetDevice(int32(t.device))
	l.SetDevice_index(t.deviceIndex)
	return l, nil
}

func (l *lent) release() {
	l.keep().drop()
}

// lending gives C's form of some tensors to fn.
func lending(fn func(...low.Ddp_tensor) error, tensors ...Tensor) error {
	given := make([]low.Ddp_tensor, len(tensors))
	for i, tensor := range tensors {
		c, err := tensor.lend()
		if err != nil {
			return err
		}
		defer c.release()
		given[i] = c.Ddp_tensor
	}
	return fn(given...)
}

// keep ends C's form, while the memory goes on being held.
func (l *lent) keep() *hold {
	low.DeleteDdp_tensor(l.Ddp_tensor)
	return l.memory
}

// borrowed is the Go form of a tensor that libddp described; its memory is part of what is given here, or that of whoever lent it.
func borrowed(c low.Ddp_tensor, of *memory) Tensor {
	shape := unsafe.Slice(c.GetShape(), low.MaxDimensions)[:c.GetNdim()]
	return Tensor{data: c.GetData(), dtype: DType(c.GetDtype()), device: Device(c.GetDevice()), deviceIndex: c.GetDevice_index(),
		shape: append([]int64{}, shape...), memory: of}
}
