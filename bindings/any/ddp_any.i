/* SPDX-License-Identifier: Apache-2.0 */
/* One interface for the languages without a layer by hand: Perl, Tcl, Java, and what else SWIG speaks. A failed status becomes the language's
 * exception with its text; helpers stand in for results through pointers and for tensors of floats in C's memory.
 */
%module ddp
#pragma SWIG nowarn=314 // members named like words of Perl are harmless in swig_<member>_get
%{
#include <stdlib.h>
#include <string.h>
%}
%include "exception.i"
%include "carrays.i"

#if defined(SWIGJAVA)
%typemap(out) ddp_status %{
  if ($1 != DDP_OK) {
    SWIG_JavaThrowException(jenv, SWIG_JavaRuntimeException, ddp_last_error());
    return $null;
  }
  $result = (jint)$1;
%}
#else
%typemap(out) ddp_status %{ if ($1 != DDP_OK) SWIG_exception_fail(SWIG_RuntimeError, ddp_last_error()); %}
#endif

%include "ddp_common.i"

/* A long has 32 bits in Java, C# and R, whatever it has in C. */
%apply long long { int64_t };

/* Sizes of structs are known here: ddp_adam_options_init(options) alone, and reports that are filled need nothing. */
%typemap(in, numinputs=0) int64_t struct_size { $1 = (int64_t)sizeof *arg1; }
%typemap(check) ddp_model_stats *out_stats, ddp_pass_report *out_report, ddp_load_report *out_report { if ($1 != NULL) $1->struct_size = (int64_t)sizeof *$1; }
%immutable struct_size;
%array_functions(float, floats); /* new_floats(count), floats_setitem(a, i, value), floats_getitem(a, i), delete_floats(a) */

/* A NULL answer is an error. */
%define DDP_OPENS(FUNCTION)
%exception FUNCTION {
  $action
  if (result == NULL) {
    SWIG_exception(SWIG_RuntimeError, ddp_last_error());
  }
}
%enddef
DDP_OPENS(open_group)
DDP_OPENS(open_model)
DDP_OPENS(open_sgd)
DDP_OPENS(gradient_of)

%newobject tensor_of;
%inline %{
ddp_group *open_group(const char *rendezvous, int32_t rank, int32_t size) {
  ddp_group_options options;
  ddp_group *group = NULL;
  ddp_group_options_init(&options, sizeof options);
  options.rank = rank;
  options.world_size = size;
  ddp_group_create(rendezvous, &options, &group);
  return group;
}

ddp_model *open_model(ddp_group *group) {
  ddp_model *model = NULL;
  ddp_model_create(group, NULL, &model);
  return model;
}

ddp_optimizer *open_sgd(ddp_model *model, double rate) {
  ddp_sgd_options options;
  ddp_optimizer *sgd = NULL;
  ddp_sgd_options_init(&options, sizeof options);
  options.rate = rate;
  ddp_optimizer_create_sgd(model, &options, NULL, &sgd);
  return sgd;
}

ddp_tensor *tensor_of(float *data, int32_t count) {
  ddp_tensor *tensor = (ddp_tensor *)malloc(sizeof *tensor);
  const int64_t shape[1] = {count};
  if (tensor != NULL) ddp_tensor_init(tensor, data, DDP_F32, 1, shape);
  return tensor;
}

float *gradient_of(ddp_model *model, int32_t index) {
  ddp_tensor grad;
  memset(&grad, 0, sizeof grad);
  ddp_model_get_grad(model, index, &grad);
  return (float *)grad.data;
}
%}

%include <ddp/experimental.h>
