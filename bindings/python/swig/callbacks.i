/* SPDX-License-Identifier: Apache-2.0 */
/* Python callables as callbacks: the compiler checks each trampoline against the header. A trampoline takes the interpreter lock, on
 * whatever thread it runs. The package hands over callables that do not raise (they keep the exception for the caller); if one does
 * raise, the exception is printed and the callback fails.
 */
%{
/* Call and drop the arguments. -1 where the callable raised. */
static int64_t ddp_call(PyObject *callable, PyObject *arguments) {
  PyObject *answer = arguments == NULL ? NULL : PyObject_CallObject(callable, arguments);
  Py_XDECREF(arguments);
  const int64_t number = answer == NULL ? -1 : (answer == Py_None ? 0 : PyLong_AsLongLong(answer));
  Py_XDECREF(answer);
  if (PyErr_Occurred()) {
    PyErr_WriteUnraisable(callable);
    return -1;
  }
  return number;
}

/* The same with memory that is lent for the length of the call. */
static int64_t ddp_call_with_memory(PyObject *callable, void *data, int64_t bytes, int flags) {
  char nothing = 0;
  PyObject *view = PyMemoryView_FromMemory(data == NULL ? &nothing : (char *)data, (Py_ssize_t)bytes, flags);
  const int64_t number = view == NULL ? -1 : ddp_call(callable, PyTuple_Pack(1, view));
  PyObject *released = view == NULL ? NULL : PyObject_CallMethod(view, "release", NULL);
  if (released == NULL) PyErr_Clear(); /* somebody keeps a slice of it */
  Py_XDECREF(released);
  Py_XDECREF(view);
  return number;
}

static void ddp_on_log(void *user_data, ddp_log_level level, const char *text) {
  const PyGILState_STATE state = PyGILState_Ensure();
  ddp_call((PyObject *)user_data, Py_BuildValue("(is)", (int)level, text));
  PyGILState_Release(state);
}

static void ddp_on_message(void *user_data, const ddp_log_message *message, const char *text) {
  const PyGILState_STATE state = PyGILState_Ensure();
  ddp_call((PyObject *)user_data, Py_BuildValue("(iiLis)", (int)message->level, (int)message->code, (long long)message->group, (int)message->rank, text));
  PyGILState_Release(state);
}

/* The callable gets one tuple, of which libddp._optimizer makes a Slice. */
static int32_t ddp_on_update(void *user_data, const ddp_update_slice *slice) {
  const PyGILState_STATE lock = PyGILState_Ensure();
  PyObject *state = PyTuple_New(slice->state_count);
  for (int32_t k = 0; state != NULL && k < slice->state_count; ++k) {
    PyObject *address = PyLong_FromVoidPtr(slice->state[k]);
    if (address == NULL || PyTuple_SetItem(state, k, address) != 0) Py_CLEAR(state);
  }
  PyObject *arguments = Py_BuildValue("((iiNNNiiLLLddN))", (int)slice->index, (int)slice->dtype, PyLong_FromVoidPtr(slice->value),
                                      PyLong_FromVoidPtr((void *)slice->grad), state, (int)slice->device, (int)slice->device_index,
                                      (long long)slice->first, (long long)slice->count, (long long)slice->step, slice->rate,
                                      slice->weight_decay, PyLong_FromVoidPtr(slice->stream));
  const int64_t answer = ddp_call((PyObject *)user_data, arguments);
  PyGILState_Release(lock);
  return (int32_t)answer;
}

static int32_t ddp_on_hook(void *user_data, ddp_bucket *bucket) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const int64_t answer = ddp_call((PyObject *)user_data, Py_BuildValue("(N)", SWIG_NewPointerObj(bucket, SWIGTYPE_p_ddp_bucket, 0)));
  PyGILState_Release(state);
  return (int32_t)answer;
}

static int32_t ddp_on_write(void *user_data, const void *data, int64_t bytes) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const int64_t answer = ddp_call_with_memory((PyObject *)user_data, (void *)data, bytes, PyBUF_READ);
  PyGILState_Release(state);
  return (int32_t)answer;
}

static int64_t ddp_on_read(void *user_data, void *data, int64_t capacity) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const int64_t answer = ddp_call_with_memory((PyObject *)user_data, data, capacity, PyBUF_WRITE);
  PyGILState_Release(state);
  return answer;
}

static int32_t ddp_on_store_set(void *user_data, const char *key, const void *value, int64_t bytes) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const int64_t answer = ddp_call(PyTuple_GetItem((PyObject *)user_data, 0), Py_BuildValue("(sy#)", key, (const char *)value, (Py_ssize_t)bytes));
  PyGILState_Release(state);
  return (int32_t)answer;
}

/* get(key, memory, timeout_ms) writes to the memory and returns the value's length; -2 where the time is over, -1 on failure. */
static int32_t ddp_on_store_get(void *user_data, const char *key, void *value, int64_t capacity, int64_t timeout_ms, int64_t *out_bytes) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *view = PyMemoryView_FromMemory((char *)value, (Py_ssize_t)capacity, PyBUF_WRITE);
  const int64_t answer = view == NULL ? -1 : ddp_call(PyTuple_GetItem((PyObject *)user_data, 1), Py_BuildValue("(sNL)", key, view, (long long)timeout_ms));
  PyGILState_Release(state);
  if (answer >= 0) *out_bytes = answer;
  return answer >= 0 ? 0 : (answer == -2 ? 1 : -1);
}

static void ddp_on_release(void *user_data) {
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject *)user_data);
  PyGILState_Release(state);
}

static PyObject *ddp_log_receiver = NULL;
%}

/* A callable that libddp keeps until it releases it. */
%define DDP_KEPT_CALLBACK(TYPE, TRAMPOLINE)
%typemap(in, noblock=1) (TYPE fn, void *user_data, ddp_release_fn release) {
  if (!PyCallable_Check($input)) { PyErr_SetString(PyExc_TypeError, "a callable is wanted"); SWIG_fail; }
  Py_INCREF($input);
  $1 = TRAMPOLINE;
  $2 = $input;
  $3 = ddp_on_release;
}
%enddef
DDP_KEPT_CALLBACK(ddp_update_fn, ddp_on_update)

/* A hook may also be the options of PowerSGD, or None for the plain reduction. */
%typemap(in, noblock=1) (ddp_hook_fn fn, void *user_data, ddp_release_fn release) {
  $1 = NULL;
  $2 = NULL;
  $3 = NULL;
  if ($input == Py_None) {
    $1 = NULL;
  } else if (SWIG_IsOK(SWIG_ConvertPtr($input, &$2, SWIGTYPE_p_ddp_powersgd_options, 0))) {
    $1 = ddp_hook_powersgd; /* it copies the options */
  } else if (PyCallable_Check($input)) {
    Py_INCREF($input);
    $1 = ddp_on_hook;
    $2 = $input;
    $3 = ddp_on_release;
  } else {
    PyErr_SetString(PyExc_TypeError, "a hook is a callable, the options of PowerSGD, or None");
    SWIG_fail;
  }
}

/* A callable for the length of the call; None on the ranks that need none. */
%define DDP_CALLBACK(TYPE, TRAMPOLINE)
%typemap(in, noblock=1) (TYPE fn, void *user_data) {
  if ($input != Py_None && !PyCallable_Check($input)) { PyErr_SetString(PyExc_TypeError, "a callable is wanted"); SWIG_fail; }
  $1 = $input == Py_None ? NULL : TRAMPOLINE;
  $2 = $input;
}
%enddef
DDP_CALLBACK(ddp_write_fn, ddp_on_write)
DDP_CALLBACK(ddp_read_fn, ddp_on_read)
DDP_CALLBACK(ddp_log_fn, ddp_on_log)
DDP_CALLBACK(ddp_log_listener_fn, ddp_on_message) /* the package keeps it until it is removed */

/* The receiver of the log lives until the next one is set: then libddp uses the former no more. */
%typemap(argout, noblock=1) (ddp_log_fn fn, void *user_data) {
  ddp_keep(&ddp_log_receiver, (PyObject *)$2);
}

/* ddp_store((set, get)): the pair and the store must live until the group is made. */
%ignore ddp_store::set;
%ignore ddp_store::get;
%ignore ddp_store::user_data;
%nodefaultctor ddp_store;
%extend ddp_store {
  ddp_store(PyObject *pair) {
    ddp_store *store = (ddp_store *)calloc(1, sizeof *store);
    if (store != NULL) {
      store->struct_size = (int64_t)sizeof *store;
      store->set = ddp_on_store_set;
      store->get = ddp_on_store_get;
      store->user_data = pair;
    }
    return store;
  }
}
