// SPDX-License-Identifier: Apache-2.0

//go:build !go1.21

package ddp

import "unsafe"

// pins hold Go memory while C uses it. Collectors before Go 1.21 do not move what is on the heap, so a reference is enough.
type pins struct{ held []unsafe.Pointer }

func (p *pins) pin(data unsafe.Pointer) { p.held = append(p.held, data) }
func (p *pins) unpin()                  { p.held = nil }
