// SPDX-License-Identifier: Apache-2.0
#include "group/select.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/attempt.hpp"
#include "core/differing_ranks.hpp"
#include "exchange/single.hpp"
#include "group/links.hpp"
#include "hosts/transport.hpp"
#include "nccl/transport.hpp"
#include "os/log.hpp"
#include "shm/mesh.hpp"
#include "shm/transport.hpp"
#include "socket/transport.hpp"

namespace ddp::group {
namespace {

constexpr double kNotableTraffic = 1.5;

[[nodiscard]] Error no_backend(const char* wanted, const std::string& why) {
  return make_error(DDP_ERROR_NOT_SUPPORTED, "the backend %s is not available: %s", wanted, why.c_str());
}

/// One rank decides for all.
void say(const collective::TransportContext& context, const std::string& what) {
  if (context.control->rank() == 0) os::log(DDP_LOG_INFO, "%d ranks: %s", context.control->size(), what.c_str());
}

/// Each rank announces how it reaches the others.
void say_ways(const collective::TransportContext& context, const char* inside_hosts, const char* between_hosts) {
  constexpr int32_t kMostSaid = 64;
  if (!os::log_enabled(DDP_LOG_DEBUG)) return;
  const bootstrap::Control& control = *context.control;
  const bootstrap::Member& self = control.member(control.rank());
  for (int32_t rank = 0; rank < std::min(control.size(), kMostSaid); ++rank)
    if (const bootstrap::Member& other = control.member(rank); rank != control.rank())
      os::log(DDP_LOG_DEBUG, "%s sends to %s over %s", self.name().c_str(), other.name().c_str(),
              other.boot_id == self.boot_id ? inside_hosts : between_hosts);
}

std::unique_ptr<collective::Transport> sockets(const collective::TransportContext& context, const std::string& why) {
  std::unique_ptr<collective::Transport> transport = socket::make_socket_transport(context);
  say(context, "Gloo between all ranks, " + why + ", " + links_between(*context.control, context.options));
  say_ways(context, "Gloo", "Gloo");
  return transport;
}

/// False, with the reason in one line, without shared memory. All ranks throw the same reason, so all make the same choice.
/// A new rank that cannot share memory does not slow the others down.
template <class Body>
bool share_memory(const char* who, const std::vector<int32_t>& newcomers, Body&& body) {
  const std::optional<Error> error = try_to(body);
  if (!error) return true;
  if (breaks_group(error->status()) || !error->is_agreed() ||
      std::find(newcomers.begin(), newcomers.end(), error->culprit()) != newcomers.end())
    throw Error(*error);
  os::log_of(*error, DDP_LOG_WARNING, "%s cannot share memory, so they use Gloo, which is slower: %s", who, error->what());
  return false;
}

/// Shared memory, or Gloo with the reason in one line.
std::unique_ptr<collective::Transport> on_one_host(const collective::TransportContext& context,
                                                   const std::vector<int32_t>& newcomers, os::Deadline deadline) {
  std::unique_ptr<collective::Transport> transport;
  const auto connect = [&] { transport = shm::make_transport(context, false, deadline); };
  if (!share_memory("the ranks are on one host but", newcomers, connect)) return sockets(context, "all on one host");
  say(context, "shared memory, all on one host");
  say_ways(context, "shared memory", "shared memory");
  return transport;
}

/// Shared memory inside the hosts, rails between them; or Gloo between all ranks, with the reason in one line.
std::unique_ptr<collective::Transport> on_many_hosts(const collective::TransportContext& context, const Choice& choice,
                                                     os::Deadline deadline) {
  if (context.control->rank() == 0 && context.options.links == DDP_LINKS_AUTO &&
      std::string_view(links_between(*context.control, context.options)) == "plain")
    os::log(
        DDP_LOG_WARNING,
        "without a token nothing is encrypted between the hosts: who can read or change packets there can read or change "
        "gradients");
  const hierarchy::Layout layout = hierarchy::lay_out(*context.control, context.options);
  const std::string hosts = std::to_string(layout.host_count()) + " hosts";
  if (!layout.shares()) return sockets(context, hosts + " with one rank each");
  const hierarchy::Carrier carrier = hierarchy::open_carrier(context);
  hierarchy::HostMemory memory;
  const auto connect = [&] { memory = hierarchy::connect_host(context, layout, carrier, deadline); };
  if (!share_memory("the ranks of a host", choice.newcomers, connect)) return sockets(context, hosts);
  std::unique_ptr<collective::Transport> transport = hierarchy::make_transport(context, layout, carrier, std::move(memory));
  say(context, "shared memory inside " + hosts + ", " + std::to_string(layout.rails) +
                   (layout.rails == 1 ? " rail" : " rails") + " over Gloo between them, " +
                   links_between(*context.control, context.options));
  say_ways(context, "shared memory", "Gloo");
  if (context.control->rank() == 0 && layout.traffic() >= kNotableTraffic)
    os::log(DDP_LOG_WARNING,
            "the busiest host sends %.1f times as many bytes as it has to, because its ranks are not one aligned block of a "
            "power of two; place the ranks host by host%s",
            layout.traffic(), context.options.virtual_ranks == 0 ? ", or set sum_order to DDP_SUM_ORDER_BY_HOST" : "");
  return transport;
}

/// Throws NOT_SUPPORTED, on all ranks, if sums on GPUs cannot be as the options say.
void require_gpu_sums(const bootstrap::Control& control, const ddp_group_options& options) {
  if (options.reproducible == 0 || shm::on_one_host(control)) return;
  throw make_error(DDP_ERROR_NOT_SUPPORTED,
                   "the group option reproducible is for tensors on GPUs of one host, but the %d ranks are on %d hosts, and "
                   "between hosts NCCL adds, in an order of its own; set reproducible to 0, or keep the tensors in host "
                   "memory, whose sums have the same bits anyway",
                   control.size(), hierarchy::lay_out(control).host_count())
      .as_agreed();
}

/// Of tensors in host memory, and of headers.
std::unique_ptr<collective::Transport> choose_for_host(const collective::TransportContext& context, const Choice& choice,
                                                       os::Deadline deadline) {
  // A group for NCCL talks over what AUTO chooses: words about buckets, tensors in host memory.
  const ddp_backend wanted = context.options.backend == DDP_BACKEND_NCCL ? DDP_BACKEND_AUTO : context.options.backend;
  if (context.control->size() == 1) return collective::make_single_transport(context.arena);
  const char* const chosen = wanted == DDP_BACKEND_GLOO ? "Gloo" : wanted == DDP_BACKEND_SHM ? "shared memory" : nullptr;
  if (chosen != nullptr) say_ways(context, chosen, chosen);
  if (wanted == DDP_BACKEND_GLOO) return socket::make_socket_transport(context);
  if (choice.threads) return shm::make_transport(context, true, deadline);
  if (wanted == DDP_BACKEND_LOCAL)
    throw no_backend("LOCAL", "ranks are processes; use the rendezvous local://name for ranks that are threads");
  if (wanted == DDP_BACKEND_AUTO)
    return shm::on_one_host(*context.control) ? on_one_host(context, choice.newcomers, deadline)
                                              : on_many_hosts(context, choice, deadline);
  if (!shm::on_one_host(*context.control)) throw no_backend("SHM", "the ranks are not all on one host");
  return shm::make_transport(context, false, deadline);
}

}  // namespace

bootstrap::Opening opening_of(const ddp_group_options& options) {
  const std::string mine =
      std::to_string(static_cast<int>(options.backend)) + " with sum_order " +
      std::to_string(static_cast<int>(options.sum_order)) + ", virtual_ranks " + std::to_string(options.virtual_ranks) +
      ", reproducible " + std::to_string(options.reproducible) + ", nccl_max_ctas " + std::to_string(options.nccl_max_ctas) +
      ", recoverable " + std::to_string(options.recoverable) + ", connect_all " + std::to_string(options.connect_all) +
      ", links " + std::to_string(static_cast<int>(options.links)) + ", requests " + std::to_string(options.requests) +
      (options.nccl_comm != nullptr ? " and a communicator of its own (nccl_comm)" : "");
  return {"group options", mine};
}

void agree_on_options(bootstrap::Control& control, const ddp_group_options& options, const char* function,
                      os::Deadline deadline) {
  const bootstrap::Opening mine = opening_of(options);
  const std::vector<std::string> all = control.gather(mine.what, mine.blob, deadline);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw make_error(
          DDP_ERROR_MISMATCH,
          "%s: the ranks ask for different backends, orders or communicators: %s for backend %s, %s for backend %s",
          function, control.member(0).name().c_str(), all[0].c_str(),
          control.member(static_cast<int32_t>(rank)).name().c_str(), all[rank].c_str())
          .about(static_cast<int32_t>(rank))
          .with(ranks_that_differ(all.size(), [&](size_t other) { return all[other] != all[0]; }));
}

std::unique_ptr<collective::Transport> choose_transport(const collective::TransportContext& context, const Choice& choice,
                                                        std::shared_ptr<gpu::OwnGpu> own, os::Deadline deadline) {
  return nccl::make_transport(context, choose_for_host(context, choice, deadline), std::move(own),
                              [control = context.control, options = context.options] {
                                require_gpu_sums(*control, options);
                                require_gpu_links(*control, options);
                              });
}

}  // namespace ddp::group
