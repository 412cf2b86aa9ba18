/* SPDX-License-Identifier: Apache-2.0 */
/* A status that is not DDP_OK becomes a Python exception with its text, in the same crossing: a second call could run on another thread.
 * The package sets the factory, so the classes of the exceptions are Python's.
 */
%{
static PyObject *ddp_error_factory = NULL; /* called with (status, text), returns an exception */

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
  PyObject *error = PyObject_CallFunction(ddp_error_factory, "is", (int)status, text);
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
/** Choose what a failed status becomes: a callable of (status, text) that returns an exception. */
void set_error_factory(PyObject *factory) {
  ddp_keep(&ddp_error_factory, factory);
}
%}
