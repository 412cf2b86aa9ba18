/* SPDX-License-Identifier: Apache-2.0 */
/* The private module libddp.low: every public function, one to one, with Python's errors and numbers. The package around it is by hand.
 *
 * The module releases the interpreter lock in every call, so that other Python threads run and callbacks from library threads can come
 * in. Only calls that read one number keep it.
 */
%module(threads="1") low

%{
#include <string.h>
%}

%nothread ddp_group_get_rank;
%nothread ddp_group_get_size;
%nothread ddp_group_get_backend;
%nothread ddp_group_get_number;
%nothread ddp_model_get_parameter_count;
%nothread ddp_model_was_used;
%nothread ddp_version;
%nothread ddp_version_string;
%nothread ddp_status_name;
%nothread ddp_request_get_id;
%nothread ddp_request_get_source;
%nothread ddp_get_error_details; /* otherwise another thread could run in between */
%nothread ddp_get_error_ranks;
%nothread ddp_get_error_parameters;
%nothread ddp_last_error; /* otherwise another thread could run in between */

%include "ddp_common.i"
%include "swig/errors.i"
%include "swig/outputs.i"
%include "swig/addresses.i"
%include "swig/tensors.i"
%include "swig/callbacks.i"
%include "swig/memory.i"
%include <ddp/experimental.h>
%include "swig/marks.i"
