// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Model is the parameters and buffers that a program lends to libddp, and their gradients. It is building until Commit, ready
// afterwards, and open between Backward and Pass.End.
type Model struct {
	owner
	stream  uintptr
	memory  *memory  // of the gradients that libddp owns
	group   *Group   // a model outlives no group that the collector could find first
	values  []*hold  // parameters: memory lent for as long as the model exists, or with OwnValues until Commit
	buffers []*hold  // memory lent for as long as the model exists
	grads   []*hold  // by index; nil where libddp owns the gradient
	hook    *hooks   // of SetHook
	updates *updates // of NewCustom with InBackward
	own     bool     // ModelOptions.OwnValues
}

// NewModel makes an empty model; options may be nil.
func NewModel(group *Group, options *ModelOptions) (*Model, error) {
	defer runtime.KeepAlive(group)
	var handle uintptr
	err := options.with(func(c low.Ddp_model_options) error { return low.Ddp_model_create(group.id(), c, &handle) })
	if err != nil {
		return nil, err
	}
	model := &Model{memory: newMemory(), group: group, own: options != nil && options.OwnValues}
	model.handle.Store(handle)
	runtime.SetFinalizer(model, (*Model).drop)
	return model, nil
}

// Close ends the use of all that was lent. Slices from Grad and Value must not be touched afterwards: their memory goes with the model and its
// optimizers. In an open pass the group is aborted, because the other ranks wait for this one. A nil model is allowed.
//
// What the collector finds forgotten is closed, too, but leaves the memory of slices from Grad where it is, for as long as the process
// lives: so close models that a program makes again and again.
func (m *Model) Close() error {
	if m == nil || m.id() == 0 {
		return nil
	}
	if m.hook != nil && m.hook.isHere() {
		return failure(InvalidState, "Model.Close: this is inside the hook of the model, which libddp waits for; close the model after the hook has returned")
	}
	m.drop()
	m.memory.end()
	return nil
}

// drop destroys the model; slices of its gradients stay.
func (m *Model) drop() {
	m.destroy(low.Ddp_model_destroy)
	for _, lent := range [][]*hold{m.values, m.buffers, m.grads} {
		dropAll(lent)
	}
	m.values, m.buffers, m.grads = nil, nil, nil
}

func dropAll(lent []*hold) {
	for _, held := range lent {
		if held != nil {
			held.drop()
		}
	}
}

// SetStream chooses the CUDA stream, a cudaStream_t, of later calls on this model.
func (m *Model) SetStream(stream uintptr) { m.stream = stream }

// AddParameter lends a parameter, in the order of the forward computation. libddp owns its gradient, inside the bucket, where it is
// reduced without a copy: ask Grad for it after Commit.
func (m *Model) AddParameter(name string, value Tensor) (index int, err error) {
	return m.add(name, value, nil)
}

// AddParameterWithGrad lends a parameter and the memory of its gradient, which has the same shape and type.
func (m *Model) AddParameterWithGrad(name string, value, grad Tensor) (index int, err error) {
	c, err := grad.lend()
	if err != nil {
		return -1, err
	}
	index, err = m.add(name, value, c.Ddp_tensor)
	if err != nil {
		c.release()
		return -1, err
	}
	m.grads[index] = c.keep()
	m.memory.grad(index, false)
	return index, nil
}

// AddParameterWithoutGrad lends a parameter whose gradient comes later: SetGrad gives it in each pass, before its mark.
func (m *Model) AddParameterWithoutGrad(name string, value Tensor) (index int, err error) {
	index, err = m.addBy(name, value, func(c low.Ddp_tensor, index *int32) error {
		return low.Ddp_model_add_parameter_without_grad(m.id(), name, c, index)
	})
	if err == nil {
		m.memory.grad(index, false)
	}
	return index, err
}

func (m *Model) add(name string, value Tensor, grad low.Ddp_tensor) (int, error) {
	return m.addBy(name, value, func(c low.Ddp_tensor, index *int32) error {
		return low.Ddp_model_add_parameter(m.id(), name, c, grad, index)
	})
}

func (m *Model) addBy(name string, value Tensor, call func(c low.Ddp_tensor, index *int32) error) (int, error) {
	defer runtime.KeepAlive(m)
	if err := noNUL("the name", name); err != nil {
		return -1, err
	}
	c, err := value.lend()
	if err != nil {
		return -1, err
	}
	index := int32(-1)
	if err := call(c.Ddp_tensor, &index); err != nil {
		c.release()
		return -1, err
	}
	m.values = append(m.values, c.keep())
	m.grads = append(m.grads, nil)
	m.memory.grad(int(index), true)
	return int(index), nil
}

// AddBuffer lends a tensor that is not trained but belongs to the model (running statistics, tables).
func (m *Model) AddBuffer(name string, value Tensor) (index int, err error) {
	defer runtime.KeepAlive(m)
	if err := noNUL("the name", name); err != nil {
		return -1, err
	}
	c, err := value.lend()
	if err != nil {
		return -1, err
	}
	number := int32(-1)
	if err := low.Ddp_model_add_buffer(m.id(), name, c.Ddp_tensor, &number); err != nil {
		c.release()
		return -1, err
	}
	m.buffers = append(m.buffers, c.keep())
	return int(number), nil
}

// Commit agrees with all ranks on the model; afterwards every rank has rank 0's values. Collective.
func (m *Model) Commit() error {
	defer runtime.KeepAlive(m)
	if err := low.Ddp_model_commit(m.id(), m.stream); err != nil {
		return err
	}
	if m.own && m.stream == 0 {
		dropAll(m.values)
		m.values = make([]*hold, len(m.values))
	}
	return nil
}

// Reopen leads the committed model back to building, with what it has learnt: parameters and buffers are added and removed, then Commit
// takes it into use again. What stays keeps its index, its value and its gradient, the state of optimizers and averages. Collective.
// Experimental.
func (m *Model) Reopen() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_reopen(m.id(), m.stream)
}

// RemoveParameter takes a parameter out of a model that is building; its index is not used again. Experimental.
func (m *Model) RemoveParameter(index int) error {
	defer runtime.KeepAlive(m)
	if err := low.Ddp_model_remove_parameter(m.id(), int32(index)); err != nil {
		return err
	}
	m.dropGrad(index)
	if m.values[index] != nil {
		m.values[index].drop()
		m.values[index] = nil
	}
	return nil
}

// RemoveBuffer takes a buffer out of a model that is building, by the number that AddBuffer gave. Experimental.
func (m *Model) RemoveBuffer(index int) error {
	defer runtime.KeepAlive(m)
	if err := low.Ddp_model_remove_buffer(m.id(), int32(index)); err != nil {
		return err
	}
	m.buffers[index].drop()
	m.buffers[index] = nil
	return nil
}

// ValueTensor describes where the value of a parameter lives: what was lent, or with OwnValues, from Commit on, memory of libddp.
func (m *Model) ValueTensor(index int) (Tensor, error) {
	defer runtime.KeepAlive(m)
	c := low.NewDdp_tensor()
	defer low.DeleteDdp_tensor(c)
	if err := low.Ddp_model_get_value(m.id(), int32(index), c); err != nil {
		return Tensor{}, err
	}
	if !m.own {
		return borrowed(c, nil), nil
	}
	return borrowed(c, m.memory), nil
}

// Value is the value of a parameter as a slice: of what was lent, or with OwnValues, from Commit on, of libddp's memory. That holds as
// slices from Grad do.
func Value[T Element](m *Model, index int) ([]T, error) {
	tensor, err := m.ValueTensor(index)
	if err != nil {
		return nil, err
	}
	return Values[T](tensor)
}

// ParameterCount is the number of parameters registered so far.
func (m *Model) ParameterCount() int {
	defer runtime.KeepAlive(m)
	return int(low.Ddp_model_get_parameter_count(m.id()))
}

// GradTensor describes where the gradient of a parameter lives.
func (m *Model) GradTensor(index int) (Tensor, error) {
	defer runtime.KeepAlive(m)
	c := low.NewDdp_tensor()
	defer low.DeleteDdp_tensor(c)
	if err := low.Ddp_model_get_grad(m.id(), int32(index), c); err != nil {
		return Tensor{}, err
	}
	return borrowed(c, m.memory.of(index)), nil
}

// Grad is the gradient of a parameter as a slice of the memory that libddp reduces. It holds until the program calls Model.Close; the
// collector never takes it away.
func Grad[T Element](m *Model, index int) ([]T, error) {
	tensor, err := m.GradTensor(index)
	if err != nil {
		return nil, err
	}
	return Values[T](tensor)
}

// SetBuckets says which gradients share a bucket, and the order of buckets and of the gradients in each: the numbers of all parameters, each
// once. Before Commit, after the last parameter. Experimental.
func (m *Model) SetBuckets(buckets ...[]int) error {
	defer runtime.KeepAlive(m)
	var numbers []int32
	for i, bucket := range buckets {
		if i > 0 {
			numbers = append(numbers, -1)
		}
		for _, index := range bucket {
			numbers = append(numbers, int32(index))
		}
	}
	var first *int32
	if len(numbers) > 0 {
		first = &numbers[0]
	}
	return low.Ddp_model_set_buckets(m.id(), first, int32(len(numbers)))
}

// SetGrad gives this pass's gradient of a parameter that was lent with one or without, for programs whose gradients move. Call it before
// Pass.Ready of that parameter.
func (m *Model) SetGrad(index int, grad Tensor) error {
	defer runtime.KeepAlive(m)
	c, err := grad.lend()
	if err != nil {
		return err
	}
	if err := low.Ddp_model_set_grad(m.id(), int32(index), c.Ddp_tensor); err != nil {
		c.release()
		return err
	}
	m.dropGrad(index)
	m.grads[index] = c.keep()
	return nil
}

// TakeGradBack ends the use of the gradient of a parameter that was lent without one: libddp does not use its memory again, and the next
// pass needs another SetGrad.
func (m *Model) TakeGradBack(index int) error {
	defer runtime.KeepAlive(m)
	if err := low.Ddp_model_set_grad(m.id(), int32(index), nil); err != nil {
		return err
	}
	m.dropGrad(index)
	return nil
}

func (m *Model) dropGrad(index int) {
	if m.grads[index] != nil {
		m.grads[index].drop()
	}
	m.grads[index] = nil
}

// SyncBuffers copies all buffers from one rank to the others. Collective.
func (m *Model) SyncBuffers(root int) error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_sync_buffers(m.id(), int32(root), m.stream)
}

// CheckReplicas tells whether parameters and buffers are bitwise equal on all ranks; Mismatch names the first that differs. Collective.
func (m *Model) CheckReplicas() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_check_replicas(m.id(), m.stream)
}

// WaitValue returns when a parameter has its value of the last step (LateValues).
func (m *Model) WaitValue(index int) error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_wait_value(m.id(), int32(index), m.stream)
}

// WaitValues returns when all parameters have their values of the last steps.
func (m *Model) WaitValues() error {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_wait_values(m.id())
}

// ValueReady tells whether a parameter has its value of the last step. It never waits.
func (m *Model) ValueReady(index int) bool {
	defer runtime.KeepAlive(m)
	return low.Ddp_model_value_ready(m.id(), int32(index)) == 1
}

// Hash is one number over names and contents of all parameters on this rank.
func (m *Model) Hash() (uint64, error) {
	defer runtime.KeepAlive(m)
	var hash int64
	err := low.Ddp_model_get_hash(m.id(), &hash)
	return uint64(hash), err
}

// DescribePlan is the bucket plan as text, one line a bucket.
func (m *Model) DescribePlan() (string, error) {
	defer runtime.KeepAlive(m)
	var needed int64
	if err := low.Ddp_model_describe_plan(m.id(), nil, 0, &needed); err != nil {
		return "", err
	}
	text := make([]byte, needed)
	if err := low.Ddp_model_describe_plan(m.id(), unsafe.Pointer(&text[0]), needed, &needed); err != nil {
		return "", err
	}
	return string(text[:needed-1]), nil
}

// SetMetadata remembers a text under a key; it is saved and loaded with the model.
func (m *Model) SetMetadata(key, value string) error {
	defer runtime.KeepAlive(m)
	for _, each := range []string{key, value} {
		if err := noNUL("the metadata", each); err != nil {
			return err
		}
	}
	text := low.CText(value)
	defer low.FreeText(text)
	return low.Ddp_model_set_metadata(m.id(), key, text)
}

// RemoveMetadata forgets a key.
func (m *Model) RemoveMetadata(key string) error {
	defer runtime.KeepAlive(m)
	if err := noNUL("the metadata", key); err != nil {
		return err
	}
	return low.Ddp_model_set_metadata(m.id(), key, nil)
}

// Metadata fetches a text; found is false if there is none.
func (m *Model) Metadata(key string) (value string, found bool, err error) {
	defer runtime.KeepAlive(m)
	if err := noNUL("the metadata", key); err != nil {
		return "", false, err
	}
	var text unsafe.Pointer
	err = low.Ddp_model_get_metadata(m.id(), key, &text)
	return low.Text(text), text != nil, err
}
