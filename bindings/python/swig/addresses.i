/* SPDX-License-Identifier: Apache-2.0 */
/* Plain memory. An address is an integer, or None for NULL; short lists of numbers are Python sequences. */
%{
/* Returns 0, or -1 with a Python error. */
static int ddp_as_address(PyObject *object, void **out) {
  *out = NULL;
  if (object == Py_None) return 0;
  if (SWIG_IsOK(SWIG_ConvertPtr(object, out, SWIGTYPE_p_ddp_powersgd_options, 0))) return 0; /* options behind a void * */
  PyObject *number = PyNumber_Index(object);
  if (number == NULL) return -1;
  *out = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return PyErr_Occurred() ? -1 : 0;
}

/* A new array of doubles from a sequence; NULL with a Python error. */
static double *ddp_as_doubles(PyObject *object, Py_ssize_t *count) {
  PyObject *items = PySequence_Fast(object, "a sequence of numbers is wanted");
  if (items == NULL) return NULL;
  *count = PySequence_Size(items);
  double *values = (double *)malloc(sizeof(double) * (size_t)(*count + 1));
  if (values == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; values != NULL && i < *count; ++i) {
    PyObject *item = PySequence_GetItem(items, i);
    values[i] = item == NULL ? -1 : PyFloat_AsDouble(item);
    Py_XDECREF(item);
    if (PyErr_Occurred()) {
      free(values);
      values = NULL;
    }
  }
  Py_DECREF(items);
  return values;
}

/* The same of whole numbers. */
static int32_t *ddp_as_numbers(PyObject *object, Py_ssize_t *count) {
  PyObject *items = PySequence_Fast(object, "a sequence of whole numbers is wanted");
  if (items == NULL) return NULL;
  *count = PySequence_Size(items);
  int32_t *values = (int32_t *)malloc(sizeof(int32_t) * (size_t)(*count + 1));
  if (values == NULL) PyErr_NoMemory();
  for (Py_ssize_t i = 0; values != NULL && i < *count; ++i) {
    PyObject *item = PySequence_GetItem(items, i);
    const long number = item == NULL ? -1 : PyLong_AsLong(item);
    Py_XDECREF(item);
    values[i] = (int32_t)number;
    if (!PyErr_Occurred() && values[i] != number) PyErr_SetString(PyExc_OverflowError, "a number does not fit into 32 bits");
    if (PyErr_Occurred()) {
      free(values);
      values = NULL;
    }
  }
  Py_DECREF(items);
  return values;
}

static PyObject *ddp_from_doubles(const double *values, int64_t count) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (int64_t i = 0; list != NULL && i < count; ++i) {
    PyObject *item = PyFloat_FromDouble(values[i]);
    if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) != 0) Py_CLEAR(list);
  }
  return list;
}
%}

%typemap(in, noblock=1) void * (void *address), const void * (void *address), float * (void *address), int64_t *out_indices (void *address),
    const int64_t *input_counts (void *address), const int64_t *output_counts (void *address), const int64_t *counts (void *address),
    const int64_t *ids (void *address), const int32_t *parameters (void *address), ddp_optimizer *const *optimizers (void *address) {
  if (ddp_as_address($input, &address) != 0) SWIG_fail;
  $1 = ($1_ltype)address;
}
%typemap(argout) int64_t *out_indices, const int64_t *input_counts, const int64_t *output_counts, const int64_t *counts, const int64_t *ids,
    const int32_t *parameters "";

%typemap(in, noblock=1) (double *values, int64_t count) (Py_ssize_t items = 0), (const double *decays, int32_t count) (Py_ssize_t items = 0) {
  $1 = ddp_as_doubles($input, &items);
  if ($1 == NULL) SWIG_fail;
  $2 = ($2_ltype)items;
}
%typemap(freearg, noblock=1) (double *values, int64_t count), (const double *decays, int32_t count) { free((void *)$1); }
%typemap(argout, noblock=1) (double *values, int64_t count) { $result = ddp_append($result, ddp_from_doubles($1, $2)); }
%typemap(argout) (const double *decays, int32_t count) "";

%typemap(in, noblock=1) (const int32_t *numbers, int32_t count) (Py_ssize_t items = 0) {
  $1 = ddp_as_numbers($input, &items);
  if ($1 == NULL) SWIG_fail;
  $2 = ($2_ltype)items;
}
%typemap(freearg, noblock=1) (const int32_t *numbers, int32_t count) { free((void *)$1); }
%typemap(argout) (const int32_t *numbers, int32_t count) "";

/* Numbers of all parts of this rank, as many of each. */
%typemap(in, noblock=1) (double *part_values, int64_t count) (Py_ssize_t items = 0) {
  $1 = ddp_as_doubles($input, &items);
  if ($1 == NULL) SWIG_fail;
  $2 = ($2_ltype)items;
}
%typemap(check, noblock=1) (double *part_values, int64_t count) {
  ddp_virtual_ranks parts = {0};
  parts.struct_size = (int64_t)sizeof parts;
  if (ddp_group_get_virtual_ranks(arg1, &parts) == DDP_OK && $2 % parts.count != 0) {
    PyErr_Format(PyExc_ValueError, "%lld numbers are not as many for each of this rank's %d parts", (long long)$2, (int)parts.count);
    SWIG_fail;
  }
  if (parts.count > 0) $2 /= parts.count;
}
%typemap(freearg, noblock=1) (double *part_values, int64_t count) { free((void *)$1); }
%typemap(argout, noblock=1) (double *part_values, int64_t count) { $result = ddp_append($result, ddp_from_doubles($1, $2)); }

/* A writable buffer of bytes (bytearray), or None to ask how much is needed. */
%typemap(in, noblock=1) (char *buffer, int64_t capacity) (Py_buffer lent) {
  memset(&lent, 0, sizeof lent);
  if ($input != Py_None && PyObject_GetBuffer($input, &lent, PyBUF_WRITABLE) != 0) SWIG_fail;
  $1 = ($1_ltype)lent.buf;
  $2 = ($2_ltype)lent.len;
}
%typemap(freearg, noblock=1) (char *buffer, int64_t capacity) { if (lent$argnum.obj != NULL) PyBuffer_Release(&lent$argnum); }

/* A list of states. */
%typemap(in) (const ddp_state *states, int32_t count) {
  const Py_ssize_t items = PySequence_Check($input) ? PySequence_Size($input) : -1;
  if (items < 1) { PyErr_SetString(PyExc_TypeError, "a list of states is needed"); SWIG_fail; }
  ddp_state *list = (ddp_state *)malloc(sizeof(ddp_state) * (size_t)items);
  $1 = list;
  $2 = (int32_t)items;
  if (list == NULL) { PyErr_NoMemory(); SWIG_fail; }
  for (Py_ssize_t k = 0; k < items; ++k) {
    void *each = NULL;
    PyObject *item = PySequence_GetItem($input, k);
    const int known = item == NULL ? -1 : SWIG_ConvertPtr(item, &each, $descriptor(ddp_state *), 0);
    if (SWIG_IsOK(known) && each != NULL) list[k] = *(const ddp_state *)each;
    Py_XDECREF(item);
    if (!SWIG_IsOK(known) || each == NULL) { PyErr_SetString(PyExc_TypeError, "an element of the list is no state"); SWIG_fail; }
  }
}
%typemap(freearg, noblock=1) (const ddp_state *states, int32_t count) { free((void *)$1); }
