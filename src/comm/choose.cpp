#include "comm/choose.hpp"

#include "base/log.hpp"
#include "comm/hierarchy/transport.hpp"
#include "comm/rail/transport.hpp"
#include "comm/shm/mesh.hpp"
#include "comm/shm/transport.hpp"
#include "comm/single.hpp"

namespace ddp {
namespace {

constexpr double kNotableTraffic = 1.5;

[[nodiscard]] Error no_backend(const char* wanted, const std::string& why) {
  return make_error(DDP_ERROR_NOT_SUPPORTED, "the backend %s is not available: %s", wanted, why.c_str());
}

/// One rank says what all do.
void say(const TransportContext& context, const std::string& what) {
  if (context.control->rank() == 0) log(DDP_LOG_INFO, "%d ranks: %s", context.control->size(), what.c_str());
}

std::unique_ptr<Transport> sockets(const TransportContext& context, const std::string& why) {
  std::unique_ptr<Transport> transport = make_rail_transport(context);
  say(context, "Gloo between all ranks, " + why);
  return transport;
}

/// Shared memory, or Gloo with one line that says why. All ranks throw the same reason, so all choose alike.
std::unique_ptr<Transport> on_one_host(const TransportContext& context, Deadline deadline) {
  try {
    std::unique_ptr<Transport> transport = shm::make_transport(context, false, deadline);
    say(context, "shared memory, all on one host");
    return transport;
  } catch (const Error& error) {
    if (breaks_group(error.status()) || !error.is_agreed()) throw;
    log(DDP_LOG_WARNING, "the ranks are on one host but cannot share memory, so they use Gloo, which is slower: %s",
        error.what());
  }
  return sockets(context, "all on one host");
}

/// Shared memory inside the hosts, rails between them; or Gloo between all ranks, with one line that says why.
std::unique_ptr<Transport> on_many_hosts(const TransportContext& context, Deadline deadline) {
  const hierarchy::Layout layout = hierarchy::lay_out(*context.control, context.options.sum_order);
  const std::string hosts = std::to_string(layout.host_count()) + " hosts";
  if (!layout.shares()) return sockets(context, hosts + " with one rank each");
  hierarchy::HostMemory memory;
  try {
    memory = hierarchy::connect_host(context, layout, deadline);
  } catch (const Error& error) {
    if (breaks_group(error.status()) || !error.is_agreed()) throw;
    log(DDP_LOG_WARNING, "the ranks of a host cannot share memory, so they use Gloo, which is slower: %s", error.what());
    return sockets(context, hosts);
  }
  std::unique_ptr<Transport> transport = hierarchy::make_transport(context, layout, std::move(memory));
  say(context, "shared memory inside " + hosts + ", " + std::to_string(layout.rails) +
                   (layout.rails == 1 ? " rail" : " rails") + " over Gloo between them");
  if (context.control->rank() == 0 && layout.traffic() >= kNotableTraffic)
    log(DDP_LOG_WARNING,
        "the busiest host sends %.1f times as many bytes as it has to, because its ranks are not one aligned block of a "
        "power of "
        "two; place the ranks host by host, or set sum_order to DDP_SUM_ORDER_BY_HOST",
        layout.traffic());
  return transport;
}

}  // namespace

std::unique_ptr<Transport> choose_transport(const TransportContext& context, bool threads, Deadline deadline) {
  // A group for NCCL talks over what AUTO chooses: words about buckets, tensors in host memory.
  const ddp_backend wanted = context.options.backend == DDP_BACKEND_NCCL ? DDP_BACKEND_AUTO : context.options.backend;
  if (context.control->size() == 1) return make_single_transport();
  if (threads && wanted == DDP_BACKEND_GLOO) return make_rail_transport(context);
  if (threads) return shm::make_transport(context, true, deadline);
  if (wanted == DDP_BACKEND_LOCAL)
    throw no_backend("LOCAL", "ranks are processes; use the rendezvous local://name for ranks that are threads");
  if (wanted == DDP_BACKEND_GLOO) return make_rail_transport(context);
  if (wanted == DDP_BACKEND_AUTO)
    return shm::on_one_host(*context.control) ? on_one_host(context, deadline) : on_many_hosts(context, deadline);
  if (!shm::on_one_host(*context.control)) throw no_backend("SHM", "the ranks are not all on one host");
  return shm::make_transport(context, false, deadline);
}

}  // namespace ddp
