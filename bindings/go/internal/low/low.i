/* How SWIG gives the public header to Go: package low, which only package ddp uses.
 *
 *   go generate ./internal/low
 *
 * Three ideas, everything else is SWIG's own:
 *  - a status and its text leave C in one crossing: a goroutine may go on in another thread, where the text of
 *    ddp_last_error() is another's;
 *  - 32-bit outputs are 32 bits wide (SWIG would give Go's int, of which C would write a half);
 *  - handles, streams and user data are numbers, never Go pointers; memory is an unsafe.Pointer, which cgo checks and keeps.
 */
%module low

%begin %{
/* SPDX-License-Identifier: Apache-2.0 */
%}
%insert(go_begin) %{
// SPDX-License-Identifier: Apache-2.0
%}

%{
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%}

/* ---- A status becomes an error: SWIG passes its numbers and its text as one string, result.go takes it apart:
 * "<status> <call> <other call> <bytes expected> <bytes got> <rank count> <ranks> <parameter count> <parameters> <text>", with
 * "-" for a list or a name that is empty. ---- */

%fragment("ddp_go_result", "header", fragment="AllocateString") %{
/* "3 1,2,7 ": at most 12 characters a number. */
static int ddp_go_list(char *to, size_t room, ddp_status (*get)(int32_t *, int32_t, int32_t *)) {
  int32_t numbers[DDP_MAX_ERROR_LIST], count = 0;
  (void)get(numbers, DDP_MAX_ERROR_LIST, &count);
  int used = snprintf(to, room, "%d ", (int)count);
  for (int32_t i = 0; i < count && i < DDP_MAX_ERROR_LIST; ++i)
    used += snprintf(to + used, room - (size_t)used, "%s%d", i > 0 ? "," : "", (int)numbers[i]);
  return used + snprintf(to + used, room - (size_t)used, "%s", count > 0 ? " " : "- ");
}

static _gostring_ ddp_go_result(ddp_status status) {
  _gostring_ none = {NULL, 0};
  if (status == DDP_OK) return none;
  const char *text = ddp_last_error();
  const size_t length = strlen(text) + 256 + 2 * 12 * (DDP_MAX_ERROR_LIST + 1);
  char *packed = malloc(length);
  if (packed == NULL) return Swig_AllocateString("4 - - -1 -1 0 - 0 - ", 20);
  ddp_error_details found;
  memset(&found, 0, sizeof found);
  found.struct_size = (int64_t)sizeof found;
  (void)ddp_get_error_details(&found);
  const char *call = ddp_call_name(found.call), *other = ddp_call_name(found.other_call);
  int used = snprintf(packed, length, "%d %s %s %lld %lld ", (int)status, *call == 0 ? "-" : call, *other == 0 ? "-" : other,
                      (long long)found.bytes_expected, (long long)found.bytes_got);
  used += ddp_go_list(packed + used, length - (size_t)used, ddp_get_error_ranks);
  used += ddp_go_list(packed + used, length - (size_t)used, ddp_get_error_parameters);
  used += snprintf(packed + used, length - (size_t)used, "%s", text);
  const _gostring_ result = Swig_AllocateString(packed, (size_t)used);
  free(packed);
  return result;
}
%}
%typemap(gotype) ddp_status "error"
%typemap(imtype) ddp_status "string"
%typemap(out, fragment="ddp_go_result") ddp_status "$result = ddp_go_result($1);"
%typemap(goout) ddp_status "$result = result($1)"
/* One that is an argument, or a field of a struct, is a number. */
%typemap(gotype) ddp_status status, ddp_status code "int32"
%typemap(imtype) ddp_status status, ddp_status code "int32"
%typemap(in) ddp_status status, ddp_status code "$1 = (ddp_status)$input;"
%typemap(out) ddp_status status, ddp_status code "$result = (int)$1;"
%typemap(goout) ddp_status status, ddp_status code ""

/* ---- Numbers. Not by stdint.i, which would write "long long" into the C file: int64_t is another type on Linux. ---- */

%apply int { int32_t }
%apply long long { int64_t }
%typemap(gotype) int32_t "int32"
%typemap(gotype) int32_t * "*int32"
%typemap(gotype) int64_t *, int64_t [ANY] "*int64"

/* ---- Enumerators are numbers: SWIG names their types differently from version to version, and a library may answer with a new one. ---- */

%typemap(gotype) enum SWIGTYPE "int32"
%typemap(imtype) enum SWIGTYPE "int32"
%typemap(in) enum SWIGTYPE "$1 = ($1_ltype)$input;"
%typemap(out) enum SWIGTYPE "$result = (int)$1;"
%typemap(goout) enum SWIGTYPE ""

/* ---- Handles ---- */

%define DDP_GO_HANDLE(name)
%typemap(gotype) name * "uintptr"
%typemap(gotype) name **, name *const * "*uintptr"
%enddef

/* ---- Memory ---- */

%typemap(gotype) void *, float *data, float *grad "unsafe.Pointer"
%typemap(gotype) void *stream, void *user_data "uintptr"
%typemap(gotype) char *buffer "unsafe.Pointer"
%typemap(imtype) char *buffer "unsafe.Pointer"
%typemap(in) char *buffer "$1 = (char *)$input;"
%typemap(freearg) char *buffer ""

/* ---- Texts: what may be NULL is given as C memory; what the library owns comes as an address, see Text() in cgo.go. ---- */

%typemap(gotype) const char *value "unsafe.Pointer"
%typemap(imtype) const char *value "unsafe.Pointer"
%typemap(in) const char *value "$1 = (char *)$input;"
%typemap(freearg) const char *value ""
%typemap(gotype) const char **out_value "*unsafe.Pointer"

/* ---- Callbacks: the address of a C function, see callbacks.go. ---- */

%typemap(gotype) ddp_log_fn, ddp_log_listener_fn, ddp_store_set_fn, ddp_store_get_fn, ddp_update_fn, ddp_release_fn, ddp_hook_fn,
               ddp_write_fn, ddp_read_fn
  "unsafe.Pointer"

%insert(cgo_comment_typedefs) %{
#include <ddp/experimental.h>
%}

%include "ddp_common.i"
DDP_FOR_EACH_HANDLE(DDP_GO_HANDLE)
DDP_GO_HANDLE(ddp_bucket)
%apply ddp_status { int32_t ddp_hook_powersgd }; /* called on a bucket they answer a status */
%include <ddp/experimental.h>
