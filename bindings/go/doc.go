// SPDX-License-Identifier: Apache-2.0

// Package ddp is distributed data parallel training for Go programs: gradients of many processes are averaged while
// backward still computes, and every rank takes the same step.
//
// The order of a program: [NewGroup], [NewModel], [Model.AddParameter] for each parameter, [Model.Commit], [NewAdam]; then in
// every step [Model.Backward], [Pass.Ready] for each parameter, [Pass.End], [Optimizer.Step]. Close what you made, in any order.
//
// Memory. A tensor is described by [Of]; it is lent, not copied. Slices that a model uses are kept alive and pinned until the
// model is closed, so the caller need not hold them. A gradient that the library owns is a slice from [Grad]: it is not
// Go's memory, stays when the collector finds the model forgotten, and ends with [Model.Close].
//
// Errors are of type [*Error]. They hold a [Status], which is an error too: errors.Is(err, ddp.PeerFailed).
//
// Threads. One object is used from one goroutine at a time; different objects at the same time. [Pass.Ready], [Pass.Unused] and
// [Group.Abort] may be called from any goroutine.
//
// Tested by ddp_test.go and its neighbours, and by tests/bindings.
package ddp
