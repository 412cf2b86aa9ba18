/* SPDX-License-Identifier: Apache-2.0 */
/* What every language's interface file ends with. The public header is the only source: not one declaration is copied here.
 *
 * A language's own file names its module, sets its typemaps (what a failed status becomes, how a handle comes back), and then
 * includes this one and ends in %include <ddp/experimental.h>. Call SWIG with -includeall, so that it follows that header into the others:
 * a new header or function needs no edit here.
 *
 *   swig -python -includeall -Iinclude -Ibindings/swig ...
 */
%{
#include <ddp/experimental.h>
%}

#ifndef SWIGGO /* which maps these types by itself, see go/internal/low/low.i */
#define SWIGWORDSIZE64 /* int64_t is long where libddp runs; otherwise pointers to it would be pointers to long long, another type */
%include <stdint.i>
#endif

/* The handles that a `ddp_x **out_x` gives out, for the typemaps of a language: define a macro of one name and hand it over. */
%define DDP_FOR_EACH_HANDLE(macro)
macro(ddp_group)
macro(ddp_model)
macro(ddp_optimizer)
macro(ddp_ema)
macro(ddp_outer)
macro(ddp_request)
%enddef
