// SPDX-License-Identifier: Apache-2.0

//go:build go1.21

package ddp

import (
	"runtime"
	"unsafe"
)

// pins hold Go memory in its place while C uses it.
type pins struct{ pinner runtime.Pinner }

func (p *pins) pin(data unsafe.Pointer) { p.pinner.Pin(data) }
func (p *pins) unpin()                  { p.pinner.Unpin() }
