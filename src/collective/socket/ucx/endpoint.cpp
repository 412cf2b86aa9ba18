// SPDX-License-Identifier: Apache-2.0
#include "collective/socket/ucx/endpoint.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace ddp::ucx {
namespace {

constexpr std::chrono::milliseconds kFlush{200};  // for what was sent to leave this process
constexpr std::chrono::milliseconds kEnd{2'000};  // for UCX to let go of memory
constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};
constexpr int kSlotBits = 16;

uint64_t random_bits() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits))
    throw std::system_error(errno, std::generic_category(), "no random numbers");
  return bits;
}

ucp_tag_t tag_of(uint64_t secret, int32_t sender, uint64_t slot) noexcept {
  return secret ^ (static_cast<uint64_t>(sender) << kSlotBits | slot);
}

ucp_request_param_t plain() noexcept {
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  how.memory_type = UCS_MEMORY_TYPE_HOST;
  return how;
}

}  // namespace

Endpoint::Endpoint(int32_t index, int32_t size, bool one_host)
    : index_(index), secret_(random_bits()), engine_(size - 1, one_host), peers_(static_cast<size_t>(size)) {
  address_.assign(reinterpret_cast<const char*>(&secret_), sizeof secret_);
  const auto lock = engine_.lock();
  address_ += engine_.worker().address();
}

Endpoint::~Endpoint() { close(); }

ddp_socket_result Endpoint::attach(int32_t peer, std::string_view address) {
  if (address.size() <= sizeof(uint64_t)) throw UcxError(UCS_ERR_INVALID_ADDR);
  const auto lock = engine_.lock();
  Peer& made = peers_.at(static_cast<size_t>(peer));
  std::memcpy(&made.secret, address.data(), sizeof made.secret);
  ucp_ep_params_t wanted{};
  wanted.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  wanted.address = reinterpret_cast<const ucp_address_t*>(address.data() + sizeof made.secret);
  wanted.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  wanted.err_handler = {&Endpoint::on_broken, &made};
  check(ucp_ep_create(engine_.worker().handle(), &wanted, &made.link));
  engine_.settle();
  return engine_.is_aborted() ? DDP_SOCKET_ABORTED : DDP_SOCKET_DONE;
}

void Endpoint::on_broken(void* peer, ucp_ep_h, ucs_status_t status) noexcept { static_cast<Peer*>(peer)->broken = status; }

void Endpoint::on_sent(void* request, ucs_status_t status, void* message) noexcept {
  auto& over = *static_cast<Message*>(message);
  over.request = nullptr;
  over.status = status;
  ucp_request_free(request);
}

void Endpoint::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t*, void* message) noexcept {
  on_sent(request, status, message);
}

Endpoint::Peer& Endpoint::usable(int32_t peer, size_t bytes) {
  Peer& wanted = peers_.at(static_cast<size_t>(peer));
  if (wanted.broken != UCS_OK) throw UcxError(wanted.broken);
  if (wanted.link == nullptr || bytes == 0) throw UcxError(UCS_ERR_NOT_CONNECTED);
  return wanted;
}

// Before a message is posted, which cannot be taken back when memory runs out.
int64_t Endpoint::take_ticket() {
  if (unused_.empty()) {
    unused_.reserve(messages_.size() + 1);  // so that giving a ticket back never fails
    messages_.push_back(std::make_unique<Message>());
    return static_cast<int64_t>(messages_.size());
  }
  const int64_t ticket = unused_.back();
  unused_.pop_back();
  return ticket;
}

ddp_socket_result Endpoint::posted(int64_t ticket, int32_t peer, ucs_status_ptr_t request, int64_t& out) {
  Message& made = message(ticket);
  if (UCS_PTR_IS_ERR(request)) {
    unused_.push_back(ticket);
    throw UcxError(UCS_PTR_STATUS(request));
  }
  made = Message{request, peer, UCS_OK};
  out = ticket;
  if (request != nullptr) engine_.settle();
  return DDP_SOCKET_DONE;
}

ddp_socket_result Endpoint::post_send(int32_t peer, uint64_t slot, const void* data, size_t bytes, int64_t& ticket) {
  if (closed_) throw UcxError(UCS_ERR_NOT_CONNECTED);
  if (engine_.is_aborted()) return DDP_SOCKET_ABORTED;
  const auto lock = engine_.lock();
  const Peer& to = usable(peer, bytes);
  const int64_t mine = take_ticket();
  ucp_request_param_t how = plain();
  how.cb.send = &Endpoint::on_sent;
  how.user_data = &message(mine);
  return posted(mine, peer, ucp_tag_send_nbx(to.link, data, bytes, tag_of(to.secret, index_, slot), &how), ticket);
}

ddp_socket_result Endpoint::post_receive(int32_t peer, uint64_t slot, void* data, size_t bytes, int64_t& ticket) {
  if (closed_) throw UcxError(UCS_ERR_NOT_CONNECTED);
  if (engine_.is_aborted()) return DDP_SOCKET_ABORTED;
  const auto lock = engine_.lock();
  static_cast<void>(usable(peer, bytes));
  const int64_t mine = take_ticket();
  ucp_request_param_t how = plain();
  how.cb.recv = &Endpoint::on_received;
  how.user_data = &message(mine);
  ucp_worker_h worker = engine_.worker().handle();
  return posted(mine, peer, ucp_tag_recv_nbx(worker, data, bytes, tag_of(secret_, peer, slot), kWholeTag, &how), ticket);
}

ddp_socket_result Endpoint::wait(int64_t ticket, std::chrono::milliseconds timeout) {
  if (closed_ || ticket < 1 || ticket > static_cast<int64_t>(messages_.size()) || message(ticket).peer < 0)
    throw UcxError(UCS_ERR_NOT_CONNECTED);
  Message& awaited = message(ticket);
  const Peer& peer = peers_[static_cast<size_t>(awaited.peer)];
  auto lock = engine_.lock();
  const auto over = [&] { return awaited.request == nullptr || peer.broken != UCS_OK; };
  const bool is_over = engine_.drive(lock, over, timeout);
  if (engine_.is_aborted()) return DDP_SOCKET_ABORTED;
  if (!is_over) check(engine_.trouble());
  if (!is_over) return DDP_SOCKET_TIMED_OUT;
  if (awaited.request != nullptr) throw UcxError(peer.broken);
  const ucs_status_t status = awaited.status;
  awaited.peer = -1;
  unused_.push_back(ticket);
  check(status);
  return DDP_SOCKET_DONE;
}

uint64_t Endpoint::moved() {
  if (closed_) return 0;
  const auto lock = engine_.lock();
  return engine_.moved();
}

// What UCX still has to do with the program's memory is ended first: then the worker can go.
void Endpoint::close_links(std::unique_lock<std::mutex>& lock) noexcept {
  ucp_worker_h worker = engine_.worker().handle();
  const auto is_over = [this] {
    for (ucs_status_ptr_t& request : ending_)
      if (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) != UCS_INPROGRESS) {
        ucp_request_free(request);
        request = nullptr;
      }
    return std::none_of(ending_.begin(), ending_.end(), [](ucs_status_ptr_t request) { return UCS_PTR_IS_PTR(request); });
  };
  ucp_request_param_t how{};
  const bool whole = !engine_.is_aborted() &&
                     std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.broken == UCS_OK; });
  if (whole) {
    ending_.push_back(ucp_worker_flush_nbx(worker, &how));
    static_cast<void>(engine_.drive(lock, is_over, kFlush));
  }
  for (const auto& message : messages_)
    if (message->request != nullptr) ucp_request_cancel(worker, message->request);
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  how.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (Peer& peer : peers_)
    if (peer.link != nullptr) ending_.push_back(ucp_ep_close_nbx(peer.link, &how));
  static_cast<void>(engine_.drive(
      lock,
      [&] {
        return is_over() && std::all_of(messages_.begin(), messages_.end(),
                                        [](const auto& message) { return message->request == nullptr; });
      },
      kEnd));
}

void Endpoint::close() noexcept {
  if (closed_) return;
  closed_ = true;
  engine_.stop();
  auto lock = engine_.lock();
  close_links(lock);
  for (const auto& message : messages_)
    if (message->request != nullptr) ucp_request_free(message->request);
  engine_.end();
  messages_.clear();
  unused_.clear();
}

}  // namespace ddp::ucx
