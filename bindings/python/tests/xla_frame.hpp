// SPDX-License-Identifier: Apache-2.0
// A call of an XLA FFI handler without XLA: the frame that XLA would give it, on a stream of the test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {  // opaque to the handler
  std::string message;
};

namespace xla_frame {

inline XLA_FFI_Error* create(XLA_FFI_Error_Create_Args* args) { return new XLA_FFI_Error{args->message}; }
inline void destroy(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }
inline XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = *reinterpret_cast<void**>(args->ctx);
  return nullptr;
}

inline XLA_FFI_Api make_api() {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
  api.XLA_FFI_Error_Create = create;
  api.XLA_FFI_Error_Destroy = destroy;
  api.XLA_FFI_Stream_Get = get_stream;
  return api;
}

struct Memory {
  void* data;
  std::int64_t count;  // of F32
};

inline std::string run(XLA_FFI_Handler* handler, XLA_FFI_CallFrame& frame) {
  static const XLA_FFI_Api api = make_api();
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  XLA_FFI_Error* const error = handler(&frame);
  const std::string text = error == nullptr ? "" : error->message;
  delete error;
  return text;
}

/// The handler's traits; -1 if it does not tell them.
inline std::int64_t traits_of(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  metadata.traits = ~0U;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base = {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata, nullptr};
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame{};
  frame.extension_start = &extension.extension_base;
  return run(handler, frame).empty() ? std::int64_t{metadata.traits} : -1;
}

/// What the handler says of these gradients and means: the error's text, or none.
inline std::string call(XLA_FFI_Handler* handler, std::int64_t number, void* stream, std::vector<Memory> gradients,
                        std::vector<Memory> means) {
  const auto describe = [](std::vector<Memory>& all, std::vector<XLA_FFI_Buffer>& buffers, std::vector<void*>& places) {
    for (Memory& each : all)
      buffers.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, XLA_FFI_DataType_F32, each.data, 1, &each.count});
    for (XLA_FFI_Buffer& each : buffers) places.push_back(&each);
  };
  std::vector<XLA_FFI_Buffer> args, rets;
  std::vector<void*> arg_places, ret_places;
  describe(gradients, args, arg_places);
  describe(means, rets, ret_places);
  std::vector<XLA_FFI_ArgType> arg_types(args.size(), XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types(rets.size(), XLA_FFI_RetType_BUFFER);
  XLA_FFI_Scalar scalar{XLA_FFI_DataType_S64, &number};
  XLA_FFI_ByteSpan name{"number", 6};
  XLA_FFI_AttrType type = XLA_FFI_AttrType_SCALAR;
  XLA_FFI_ByteSpan* names = &name;
  void* value = &scalar;
  XLA_FFI_CallFrame frame{};
  frame.ctx = reinterpret_cast<decltype(frame.ctx)>(&stream);  // opaque to the handler; its name depends on the version
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<std::int64_t>(args.size()), arg_types.data(),
                arg_places.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<std::int64_t>(rets.size()), ret_types.data(),
                ret_places.data()};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, 1, &type, &names, &value};
  return run(handler, frame);
}

}  // namespace xla_frame
