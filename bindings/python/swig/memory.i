/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that crosses without a copy: where a buffer or a DLPack capsule of somebody else lies, and a capsule of our own. */
%{
typedef struct { int32_t device_type, device_id; } ddp_dl_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } ddp_dl_dtype;
typedef struct {
  void *data;
  ddp_dl_device device;
  int32_t ndim;
  ddp_dl_dtype dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} ddp_dl_tensor;
typedef struct ddp_dl_managed {
  ddp_dl_tensor tensor;
  void *context;
  void (*deleter)(struct ddp_dl_managed *);
} ddp_dl_managed;
typedef struct ddp_dl_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct ddp_dl_versioned *);
  uint64_t flags; /* bit 0: read-only */
  ddp_dl_tensor tensor;
} ddp_dl_versioned;

/* What a capsule of ours is made of; `managed` comes first, so one address names both. */
typedef struct ddp_dl_lent {
  ddp_dl_managed managed;
  PyObject *owner;
  int64_t shape[DDP_MAX_DIMENSIONS], strides[DDP_MAX_DIMENSIONS];
} ddp_dl_lent;

static void ddp_dl_delete(ddp_dl_managed *managed) {
  ddp_dl_lent *lent = (ddp_dl_lent *)managed;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(lent->owner);
  PyGILState_Release(state);
  free(lent);
}

/* A consumer renames the capsule and calls the deleter itself. */
static void ddp_dl_drop_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) ddp_dl_delete((ddp_dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"));
}

static PyObject *ddp_dl_numbers(const int64_t *numbers, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple != NULL && i < count; ++i) {
    PyObject *number = PyLong_FromLongLong(numbers[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) != 0) Py_CLEAR(tuple);
  }
  return tuple;
}
%}

%nothread buffer_address;
%nothread read_dlpack;
%nothread make_dlpack;
%inline %{
/** Where the memory of a memoryview begins. */
PyObject *buffer_address(PyObject *view) {
  if (!PyMemoryView_Check(view)) return PyErr_Format(PyExc_TypeError, "a memoryview is wanted");
  Py_buffer buffer;
  if (PyObject_GetBuffer(view, &buffer, PyBUF_FULL_RO) != 0) return NULL;
  PyObject *address = PyLong_FromVoidPtr(buffer.buf);
  PyBuffer_Release(&buffer);
  return address;
}

/** (address, code, bits, lanes, device type, device index, shape, strides or None, read-only) of a DLPack capsule, which stays valid. */
PyObject *read_dlpack(PyObject *capsule) {
  const ddp_dl_tensor *tensor = NULL;
  int read_only = 0;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const ddp_dl_versioned *managed = (ddp_dl_versioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->major != 1) return PyErr_Format(PyExc_BufferError, "DLPack version %u is not known", (unsigned)managed->major);
    tensor = &managed->tensor;
    read_only = (int)(managed->flags & 1U);
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    tensor = &((ddp_dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
  } else {
    return PyErr_Format(PyExc_BufferError, "this is no DLPack capsule, or somebody consumed it");
  }
  PyObject *strides = Py_None;
  if (tensor->strides != NULL) strides = ddp_dl_numbers(tensor->strides, tensor->ndim);
  else Py_INCREF(strides);
  char *address = tensor->data == NULL ? NULL : (char *)tensor->data + tensor->byte_offset;
  return Py_BuildValue("(NiiiiiNNi)", PyLong_FromVoidPtr(address), (int)tensor->dtype.code, (int)tensor->dtype.bits,
                       (int)tensor->dtype.lanes, (int)tensor->device.device_type, (int)tensor->device.device_id,
                       ddp_dl_numbers(tensor->shape, tensor->ndim), strides, read_only);
}

/** A DLPack capsule of memory that `owner` keeps alive. */
PyObject *make_dlpack(PyObject *owner, PyObject *tensor, int code, int bits) {
  ddp_tensor given;
  if (ddp_as_tensor(tensor, &given) != 0) return NULL;
  ddp_dl_lent *lent = (ddp_dl_lent *)calloc(1, sizeof *lent);
  if (lent == NULL) return PyErr_NoMemory();
  int64_t stride = 1;
  for (int32_t i = given.ndim; i-- > 0;) {
    lent->shape[i] = given.shape[i];
    lent->strides[i] = stride;
    stride *= given.shape[i];
  }
  ddp_dl_tensor *view = &lent->managed.tensor;
  view->data = given.data;
  view->device.device_type = (int32_t)given.device;
  view->device.device_id = given.device_index;
  view->ndim = given.ndim;
  view->dtype.code = (uint8_t)code;
  view->dtype.bits = (uint8_t)bits;
  view->dtype.lanes = 1;
  view->shape = lent->shape;
  view->strides = lent->strides;
  lent->managed.deleter = ddp_dl_delete;
  lent->owner = owner;
  Py_INCREF(owner);
  PyObject *capsule = PyCapsule_New(lent, "dltensor", ddp_dl_drop_capsule);
  if (capsule == NULL) ddp_dl_delete(&lent->managed);
  return capsule;
}
%}
