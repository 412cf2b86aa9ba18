// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// owner is an object of C. Close and the collector destroy it once; a call that comes at the same time, such as Group.Abort, or later
// meets a handle that C refuses.
type owner struct{ handle atomic.Uintptr }

func (o *owner) id() uintptr { return o.handle.Load() }

// What C is given for an object that the caller does not have is 0, as for one that is closed: libddp names it.

func (g *Group) id() uintptr {
	if g == nil {
		return 0
	}
	return g.owner.id()
}

func (g *Group) queue() uintptr {
	if g == nil {
		return 0
	}
	return g.stream
}

func (m *Model) id() uintptr {
	if m == nil {
		return 0
	}
	return m.owner.id()
}

func (o *owner) destroy(with func(uintptr)) {
	if handle := o.handle.Swap(0); handle != 0 {
		with(handle)
	}
}

// memory is what slices show of libddp's memory. A slice cannot tell when nobody has it any more. So what was shown stays mapped until the
// program closes the object that it came from; the collector, which closes what is forgotten, leaves the memory as it is.
type memory struct {
	mutex   sync.Mutex
	shown   map[uintptr]struct{} // each is held once by ddp_memory_retain
	library []bool               // of a model, by parameter: does libddp own the gradient?
}

func newMemory() *memory { return &memory{shown: map[uintptr]struct{}{}} }

// show is called before a slice of libddp's memory is made.
func (m *memory) show(data unsafe.Pointer) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if _, known := m.shown[uintptr(data)]; known {
		return nil
	}
	if err := low.Ddp_memory_retain(data); err != nil {
		return err
	}
	m.shown[uintptr(data)] = struct{}{}
	return nil
}

// forget lets one piece go.
func (m *memory) forget(data unsafe.Pointer) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if _, known := m.shown[uintptr(data)]; known {
		delete(m.shown, uintptr(data))
		_ = low.Ddp_memory_release(data)
	}
}

// end lets all of it go, because the program says that its slices are not used any more.
func (m *memory) end() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for address := range m.shown {
		_ = low.Ddp_memory_release(*(*unsafe.Pointer)(unsafe.Pointer(&address)))
	}
	m.shown = map[uintptr]struct{}{}
}

func (m *memory) grad(index int, own bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for len(m.library) <= index {
		m.library = append(m.library, false)
	}
	m.library[index] = own
}

// of gives the memory that a gradient is part of; nil for one that the program lent.
func (m *memory) of(index int) *memory {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if index >= 0 && index < len(m.library) && m.library[index] {
		return m
	}
	return nil
}
