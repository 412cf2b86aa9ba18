/* SPDX-License-Identifier: Apache-2.0 */
/* A ddp_tensor is a tuple (address, dtype, device, device_index, shape); None is NULL. */
%{
static int ddp_as_tensor(PyObject *object, ddp_tensor *tensor) {
  PyObject *address = NULL, *shape = NULL;
  int dtype = 0, device = 0, device_index = 0;
  memset(tensor, 0, sizeof *tensor);
  if (!PyTuple_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "a tensor is a tuple (address, dtype, device, device_index, shape)");
    return -1;
  }
  if (!PyArg_ParseTuple(object, "OiiiO!", &address, &dtype, &device, &device_index, &PyTuple_Type, &shape)) return -1;
  if (ddp_as_address(address, &tensor->data) != 0) return -1;
  tensor->dtype = (ddp_dtype)dtype;
  tensor->device = (ddp_device_kind)device;
  tensor->device_index = device_index;
  tensor->ndim = (int32_t)PyTuple_Size(shape);
  if (tensor->ndim > DDP_MAX_DIMENSIONS) {
    PyErr_Format(PyExc_ValueError, "a tensor has at most %d dimensions, this one has %d", DDP_MAX_DIMENSIONS, (int)tensor->ndim);
    return -1;
  }
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    tensor->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (PyErr_Occurred()) return -1;
  }
  return 0;
}

static PyObject *ddp_from_tensor(const ddp_tensor *tensor) {
  PyObject *shape = PyTuple_New(tensor->ndim);
  for (int32_t i = 0; shape != NULL && i < tensor->ndim; ++i) {
    PyObject *extent = PyLong_FromLongLong(tensor->shape[i]);
    if (extent == NULL || PyTuple_SetItem(shape, i, extent) != 0) Py_CLEAR(shape);
  }
  PyObject *address = shape == NULL ? NULL : PyLong_FromVoidPtr(tensor->data);
  if (address == NULL) {
    Py_XDECREF(shape);
    return NULL;
  }
  return Py_BuildValue("(NiiiN)", address, (int)tensor->dtype, (int)tensor->device, (int)tensor->device_index, shape);
}
%}

%typemap(in, noblock=1) const ddp_tensor * (ddp_tensor given) {
  $1 = NULL;
  if ($input != Py_None) {
    if (ddp_as_tensor($input, &given) != 0) SWIG_fail;
    $1 = &given;
  }
}

/* Filled by the call: ddp_tensor_init's `tensor` and every `out_` one. */
%typemap(in, numinputs=0, noblock=1) ddp_tensor * (ddp_tensor made) { memset(&made, 0, sizeof made); $1 = &made; }
%typemap(argout, noblock=1) ddp_tensor * { $result = ddp_append($result, ddp_from_tensor($1)); }
%typemap(argout) const ddp_tensor * "";

/* ddp_tensor_init: the shape says the number of dimensions. */
%typemap(in, noblock=1) (int32_t ndim, const int64_t *shape) (int64_t extents[DDP_MAX_DIMENSIONS]) {
  if (!PyTuple_Check($input) || PyTuple_Size($input) > DDP_MAX_DIMENSIONS) {
    PyErr_Format(PyExc_ValueError, "a shape is a tuple of at most %d numbers", DDP_MAX_DIMENSIONS);
    SWIG_fail;
  }
  $1 = (int32_t)PyTuple_Size($input);
  for (int32_t i = 0; i < $1; ++i) {
    extents[i] = PyLong_AsLongLong(PyTuple_GetItem($input, i));
    if (PyErr_Occurred()) SWIG_fail;
  }
  $2 = extents;
}
%typemap(argout) (int32_t ndim, const int64_t *shape) "";
%ignore ddp_tensor; /* the struct: tuples stand for it */
