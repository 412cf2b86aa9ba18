// SPDX-License-Identifier: Apache-2.0
#include "socket/connection.hpp"

#include "core/error.hpp"
#include "socket/address.hpp"

namespace ddp::socket {

bool Sealing::seals(std::string_view listener, const auth::Key& group) const noexcept {
  if (table == nullptr || wanted == DDP_LINKS_PLAIN || group == auth::Key{}) return false;
  return wanted == DDP_LINKS_ENCRYPTED || !is_loopback(listener);
}

Seal::Seal(const ddp_socket_table& table, const net::Socket& socket, End end, const auth::Key& key) : table_(table) {
  static_assert(sizeof(auth::Key) == DDP_SOCKET_KEY_BYTES);
  if (table.seal_create == nullptr)
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "the module of %s cannot encrypt links", table.name);
  const int32_t made =
      table.seal_create(socket.get(), end == End::kListens ? 1 : 0, key.data(), &seal_, trouble_, sizeof trouble_);
  if (made != DDP_SOCKET_DONE)
    throw make_error(made == DDP_SOCKET_EXHAUSTED ? DDP_ERROR_OUT_OF_MEMORY : DDP_ERROR_NOT_SUPPORTED,
                     "a link cannot be encrypted: %s%s", trouble_, advice_in(trouble_));
}

Seal::~Seal() {
  if (seal_ != nullptr) table_.seal_destroy(seal_);
}

Seal::Step Seal::shake_hands() {
  switch (table_.seal_handshake(seal_, trouble_, sizeof trouble_)) {
    case DDP_SOCKET_SEAL_DONE: return Step::kDone;
    case DDP_SOCKET_SEAL_READS: return Step::kReads;
    case DDP_SOCKET_SEAL_WRITES: return Step::kWrites;
    case DDP_SOCKET_SEAL_EXHAUSTED:
      throw make_error(DDP_ERROR_OUT_OF_MEMORY, "a link cannot be encrypted: %s%s", trouble_, advice_in(trouble_));
    default: return Step::kFailed;
  }
}

int64_t Seal::read(void* data, size_t bytes) noexcept {
  return table_.seal_read(seal_, data, static_cast<int64_t>(bytes), trouble_, sizeof trouble_);
}

int64_t Seal::write(const void* first, size_t first_bytes, const void* second, size_t second_bytes) noexcept {
  return table_.seal_write(seal_, first, static_cast<int64_t>(first_bytes), second, static_cast<int64_t>(second_bytes),
                           trouble_, sizeof trouble_);
}

}  // namespace ddp::socket
