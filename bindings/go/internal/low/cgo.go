// SPDX-License-Identifier: Apache-2.0

// Package low is the C header of libddp as SWIG gives it to Go: see low.i. Only package ddp uses it.
package low

//go:generate swig -go -cgo -intgosize 64 -includeall -Wall -I../../../../include -I../../../swig -o low_wrap.c low.i

/*
#cgo pkg-config: ddp
#include <stdlib.h>
#include <ddp/experimental.h>
*/
import "C"

import "unsafe"

// What a caller of the _init functions has to say: the size of a struct as this package was built with it.
const (
	SizeofGroupOptions     = C.sizeof_ddp_group_options
	SizeofModelOptions     = C.sizeof_ddp_model_options
	SizeofBatchNormOptions = C.sizeof_ddp_batch_norm_options
	SizeofPassReport       = C.sizeof_ddp_pass_report
	SizeofLossScaleOptions = C.sizeof_ddp_loss_scale_options
	SizeofPowerSGDOptions  = C.sizeof_ddp_powersgd_options
	SizeofModelStats       = C.sizeof_ddp_model_stats
	SizeofOptimizerOptions = C.sizeof_ddp_optimizer_options
	SizeofCustomOptions    = C.sizeof_ddp_custom_options
	SizeofSGDOptions       = C.sizeof_ddp_sgd_options
	SizeofAdamOptions      = C.sizeof_ddp_adam_options
	SizeofState            = C.sizeof_ddp_state
	SizeofOuterOptions     = C.sizeof_ddp_outer_options
	SizeofOuterStats       = C.sizeof_ddp_outer_stats
	SizeofSampler          = C.sizeof_ddp_sampler
	SizeofLoadOptions      = C.sizeof_ddp_load_options
	SizeofLoadReport       = C.sizeof_ddp_load_report
	SizeofStore            = C.sizeof_ddp_store
	SizeofRecoverOptions   = C.sizeof_ddp_recover_options
	SizeofTraceOptions     = C.sizeof_ddp_trace_options
	SizeofRecovery         = C.sizeof_ddp_recovery
	SizeofRankProgress     = C.sizeof_ddp_rank_progress
	SizeofVirtualRanks     = C.sizeof_ddp_virtual_ranks
)

// MaxDimensions is DDP_MAX_DIMENSIONS.
const MaxDimensions = C.DDP_MAX_DIMENSIONS

// Version is DDP_VERSION of the headers that this package was built with.
const Version = C.DDP_VERSION

// The built-in hooks, to be given to a model.
var (
	HookPowerSGD = unsafe.Pointer(C.ddp_hook_powersgd)
)

// Text copies a text that the library owns; "" for NULL.
func Text(address unsafe.Pointer) string { return C.GoString((*C.char)(address)) }

// CText makes a C text; give it to FreeText.
func CText(text string) unsafe.Pointer { return unsafe.Pointer(C.CString(text)) }

// FreeText frees what CText made.
func FreeText(text unsafe.Pointer) { C.free(text) }
