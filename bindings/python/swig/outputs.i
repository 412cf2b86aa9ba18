/* SPDX-License-Identifier: Apache-2.0 */
/* Results through trailing out_ pointers become the call's value; a tuple when there are several.
 * SWIG's own append treats a None that is already there differently in its versions, so the append is ours.
 */
%{
static PyObject *ddp_append(PyObject *list, PyObject *item) {
  if (list == NULL || item == NULL) return NULL;
  if (list == Py_None) {
    Py_DECREF(list);
    return item;
  }
  PyObject *joined = NULL;
  if (PyTuple_Check(list)) {
    PyObject *tail = PyTuple_Pack(1, item);
    joined = tail == NULL ? NULL : PySequence_Concat(list, tail);
    Py_XDECREF(tail);
  } else {
    joined = PyTuple_Pack(2, list, item);
  }
  Py_DECREF(list);
  Py_DECREF(item);
  return joined;
}

static PyObject *ddp_from_ranks(const int32_t *ranks, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple != NULL && i < count; ++i) {
    PyObject *rank = PyLong_FromLong(ranks[i]);
    if (rank == NULL || PyTuple_SetItem(tuple, i, rank) != 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *ddp_from_seconds(const double *seconds, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple != NULL && i < count; ++i) {
    PyObject *each = PyFloat_FromDouble(seconds[i]);
    if (each == NULL || PyTuple_SetItem(tuple, i, each) != 0) Py_CLEAR(tuple);
  }
  return tuple;
}
%}

%define DDP_OUTPUT(TYPE, TO_PYTHON)
%typemap(in, numinputs=0, noblock=1) TYPE * ($*1_ltype made = 0) { $1 = &made; }
%typemap(argout, noblock=1) TYPE * { $result = ddp_append($result, TO_PYTHON(*$1)); }
%enddef

DDP_OUTPUT(int32_t, PyLong_FromLong)
DDP_OUTPUT(int64_t, PyLong_FromLongLong)
DDP_OUTPUT(double, PyFloat_FromDouble)
DDP_OUTPUT(void *, PyLong_FromVoidPtr)

/* Text of the library's own, or None. */
%typemap(in, numinputs=0, noblock=1) const char ** (char *made = NULL) { $1 = ($1_ltype)&made; }
%typemap(argout, noblock=1) const char ** { $result = ddp_append($result, SWIG_FromCharPtr(*$1)); }

/* A handle belongs to the package, which destroys it. */
%define DDP_HANDLE_OUTPUT(TYPE)
%typemap(in, numinputs=0, noblock=1) TYPE ** (TYPE *made = NULL) { $1 = &made; }
%typemap(argout, noblock=1) TYPE ** { $result = ddp_append($result, SWIG_NewPointerObj(*$1, $*1_descriptor, 0)); }
%enddef
DDP_FOR_EACH_HANDLE(DDP_HANDLE_OUTPUT)
DDP_HANDLE_OUTPUT(ddp_bucket) /* the library's own; NULL is None */

/* struct_size is what this module was compiled with; nobody else may set it. */
%rename("$ignore", regextarget=1, fullname=1) ".*::struct_size$";
%typemap(in, numinputs=0, noblock=1) int64_t struct_size { $1 = (int64_t)sizeof *arg1; }

/* A report comes back as an object. */
%define DDP_REPORT_OUTPUT(REPORT)
%typemap(in, numinputs=0, noblock=1) REPORT {
  $1 = ($1_ltype)calloc(1, sizeof *$1);
  if ($1 == NULL) { PyErr_NoMemory(); SWIG_fail; }
  $1->struct_size = (int64_t)sizeof *$1;
}
%typemap(argout, noblock=1) REPORT {
  $result = ddp_append($result, SWIG_NewPointerObj($1, $1_descriptor, SWIG_POINTER_OWN));
  $1 = NULL;
}
%typemap(freearg, noblock=1) REPORT { free($1); }
%enddef
DDP_REPORT_OUTPUT(ddp_model_stats *out_stats)
DDP_REPORT_OUTPUT(ddp_outer_stats *out_stats)
DDP_REPORT_OUTPUT(ddp_pass_report *out_report)
DDP_REPORT_OUTPUT(ddp_load_report *out_report)
DDP_REPORT_OUTPUT(ddp_error_details *out_details)
DDP_REPORT_OUTPUT(ddp_recovery *out_recovery)
DDP_REPORT_OUTPUT(ddp_rank_progress *out_progress)
DDP_REPORT_OUTPUT(ddp_virtual_ranks *out_ranks)

%typemap(in, numinputs=0, noblock=1) (int32_t *indices, int32_t capacity, int32_t *out_count) (int32_t room[DDP_MAX_ERROR_LIST], int32_t found = 0) {
  $1 = room;
  $2 = DDP_MAX_ERROR_LIST;
  $3 = &found;
}
%typemap(argout, noblock=1) (int32_t *indices, int32_t capacity, int32_t *out_count) {
  $result = ddp_append($result, ddp_from_ranks($1, found$argnum < $2 ? found$argnum : $2));
}

/* Ranks of a group come back as a tuple: it has, or had, at most 65,536. */
%typemap(in, numinputs=0, noblock=1) (int32_t *ranks, int32_t capacity, int32_t *out_count) (int32_t found = 0) {
  $2 = 65536;
  $3 = &found;
  $1 = (int32_t *)malloc(sizeof(int32_t) * (size_t)$2);
  if ($1 == NULL) { PyErr_NoMemory(); SWIG_fail; }
}
%typemap(argout, noblock=1) (int32_t *ranks, int32_t capacity, int32_t *out_count) {
  $result = ddp_append($result, ddp_from_ranks($1, found$argnum));
}
%typemap(freearg, noblock=1) (int32_t *ranks, int32_t capacity, int32_t *out_count) { free($1); }

/* A number for each rank of a group. */
%typemap(in, numinputs=0, noblock=1) (double *seconds, int32_t capacity, int32_t *out_count) (int32_t found = 0) {
  $2 = 65536;
  $3 = &found;
  $1 = (double *)malloc(sizeof(double) * (size_t)$2);
  if ($1 == NULL) { PyErr_NoMemory(); SWIG_fail; }
}
%typemap(argout, noblock=1) (double *seconds, int32_t capacity, int32_t *out_count) {
  $result = ddp_append($result, ddp_from_seconds($1, found$argnum));
}
%typemap(freearg, noblock=1) (double *seconds, int32_t capacity, int32_t *out_count) { free($1); }

/* The bytes that a program has kept: 65,536 at most. */
%typemap(in, numinputs=0, noblock=1) (void *data, int64_t capacity, int64_t *out_bytes) (int64_t found = 0) {
  $2 = 65536;
  $3 = &found;
  $1 = malloc((size_t)$2);
  if ($1 == NULL) { PyErr_NoMemory(); SWIG_fail; }
}
%typemap(argout, noblock=1) (void *data, int64_t capacity, int64_t *out_bytes) {
  $result = ddp_append($result, PyBytes_FromStringAndSize((const char *)$1, (Py_ssize_t)found$argnum));
}
%typemap(freearg, noblock=1) (void *data, int64_t capacity, int64_t *out_bytes) { free($1); }
