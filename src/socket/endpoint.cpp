// SPDX-License-Identifier: Apache-2.0
#include "socket/endpoint.hpp"

#include "core/error.hpp"

namespace ddp::socket {
namespace {

LinkResult to_result(int32_t code) noexcept {
  switch (code) {
    case DDP_SOCKET_DONE: return LinkResult::kDone;
    case DDP_SOCKET_TIMED_OUT: return LinkResult::kTimedOut;
    case DDP_SOCKET_ABORTED: return LinkResult::kAborted;
    case DDP_SOCKET_EXHAUSTED: return LinkResult::kExhausted;
    default: return LinkResult::kFailed;
  }
}

}  // namespace

Endpoint::Endpoint(const ddp_socket_table& table, int32_t index, int32_t size, const std::string& set, bool one_host)
    : table_(table), index_(index), size_(size) {
  if (table.version != DDP_SOCKET_VERSION || table.struct_size < static_cast<int64_t>(sizeof(ddp_socket_table)))
    throw make_error(
        DDP_ERROR_NOT_SUPPORTED,
        "the transport module has version %d but this libddp needs version %d; install both from the same release",
        table.version, DDP_SOCKET_VERSION);
  const int32_t made = table_.create(index, size, set.c_str(), one_host ? 1 : 0, &endpoint_, error_, sizeof error_);
  if (made != DDP_SOCKET_DONE)
    throw make_error(made == DDP_SOCKET_EXHAUSTED ? DDP_ERROR_OUT_OF_MEMORY : DDP_ERROR_IO, "%s cannot be opened: %s%s",
                     table_.name, error_, advice_in(error_));
}

Endpoint::~Endpoint() { table_.destroy(endpoint_); }

std::string Endpoint::address() const {
  int64_t bytes = 0;
  const void* told = table_.address(endpoint_, &bytes);
  return bytes > 0 ? std::string(static_cast<const char*>(told), static_cast<size_t>(bytes)) : std::string();
}

LinkResult Endpoint::attach(int32_t peer, std::vector<Connection> connections, const std::string& address) {
  std::vector<int32_t> descriptors(connections.size());
  std::vector<ddp_socket_seal*> seals(connections.size());
  for (size_t at = 0; at < connections.size(); ++at) {
    seals[at] = connections[at].seal != nullptr ? connections[at].seal->release() : nullptr;
    descriptors[at] = connections[at].socket.release();
  }
  return to_result(table_.attach(endpoint_, peer, descriptors.data(), seals.data(), address.data(),
                                 static_cast<int64_t>(address.size()), error_, sizeof error_));
}

LinkResult Endpoint::send(int32_t peer, uint64_t slot, const void* data, int64_t bytes, Ticket& ticket) noexcept {
  return to_result(table_.post_send(endpoint_, peer, slot, data, bytes, &ticket, error_, sizeof error_));
}

LinkResult Endpoint::receive(int32_t peer, uint64_t slot, void* data, int64_t bytes, Ticket& ticket) noexcept {
  return to_result(table_.post_receive(endpoint_, peer, slot, data, bytes, &ticket, error_, sizeof error_));
}

LinkResult Endpoint::wait(Ticket ticket, int64_t timeout_ms) noexcept {
  return to_result(table_.wait(endpoint_, ticket, timeout_ms, error_, sizeof error_));
}

uint64_t Endpoint::moved() noexcept { return table_.moved(endpoint_); }

int64_t Endpoint::gaps() noexcept { return table_.gaps(endpoint_); }

int32_t Endpoint::changed() noexcept {
  return table_.changed != nullptr ? table_.changed(endpoint_, error_, sizeof error_) : -1;
}

void Endpoint::abort() noexcept { table_.abort(endpoint_); }

void Endpoint::close() noexcept { table_.close(endpoint_); }

}  // namespace ddp::socket
