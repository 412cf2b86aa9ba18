/* SPDX-License-Identifier: Apache-2.0 */
/* A status that is not DDP_OK becomes a Python exception with its text, in the same crossing: a second call could run on another thread.
 * The package sets the factory, so the classes of the exceptions are Python's.
 */
%{
static PyObject *ddp_error_factory = NULL; /* called with (status, text, details), returns an exception */

/* The numbers of a list that the last error is about. */
static PyObject *ddp_list_of_error(ddp_status (*get)(int32_t *, int32_t, int32_t *)) {
  int32_t numbers[DDP_MAX_ERROR_LIST], count = 0;
  (void)get(numbers, DDP_MAX_ERROR_LIST, &count);
  const Py_ssize_t kept = count < DDP_MAX_ERROR_LIST ? count : DDP_MAX_ERROR_LIST;
  PyObject *tuple = PyTuple_New(kept);
  for (Py_ssize_t i = 0; tuple != NULL && i < kept; ++i) {
    PyObject *number = PyLong_FromLong(numbers[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) != 0) Py_CLEAR(tuple);
  }
  return tuple;
}

/* (ranks, how many, parameters, how many, call, other call, bytes expected, bytes got) */
static PyObject *ddp_details_of_error(void) {
  ddp_error_details found;
  memset(&found, 0, sizeof found);
  found.struct_size = (int64_t)sizeof found;
  (void)ddp_get_error_details(&found);
  return Py_BuildValue("(NiNissLL)", ddp_list_of_error(ddp_get_error_ranks), (int)found.rank_count,
                       ddp_list_of_error(ddp_get_error_parameters), (int)found.parameter_count, ddp_call_name(found.call),
                       ddp_call_name(found.other_call), (long long)found.bytes_expected, (long long)found.bytes_got);
}

/* Keep another object in a place of ours. */
static void ddp_keep(PyObject **place, PyObject *object) {
  PyObject *former = *place;
  Py_XINCREF(object);
  *place = object;
  Py_XDECREF(former);
}

static void ddp_raise(ddp_status status) {
  const char *text = ddp_last_error();
  if (PyErr_Occurred()) return; /* the conversion of an argument failed already */
  if (ddp_error_factory == NULL) {
    PyErr_SetString(PyExc_RuntimeError, text);
    return;
  }
  PyObject *error = PyObject_CallFunction(ddp_error_factory, "isN", (int)status, text, ddp_details_of_error());
  if (error == NULL) return;
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
}
%}

%typemap(out) ddp_status {
  if ($1 != DDP_OK) {
    ddp_raise($1);
    SWIG_fail;
  }
  $result = SWIG_Py_Void();
}

%nothread set_error_factory;
%inline %{
/** Choose what a failed status becomes: a callable of (status, text, details) that returns an exception. */
void set_error_factory(PyObject *factory) {
  ddp_keep(&ddp_error_factory, factory);
}
%}
