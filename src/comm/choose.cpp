#include "comm/choose.hpp"

#include "base/log.hpp"
#include "comm/hierarchy/transport.hpp"
#include "comm/rail/transport.hpp"
#include "comm/shm/mesh.hpp"
#include "comm/shm/transport.hpp"
#include "comm/single.hpp"

namespace ddp {
namespace {

[[nodiscard]] Error no_backend(const char* wanted, const std::string& why) {
  return make_error(DDP_ERROR_NOT_SUPPORTED, "the backend %s is not available: %s", wanted, why.c_str());
}

/// One rank says what all do.
void say(const TransportContext& context, const std::string& what) {
  if (context.control->rank() == 0) log(DDP_LOG_INFO, "%d ranks: %s", context.control->size(), what.c_str());
}

std::unique_ptr<Transport> chain(const TransportContext& context, const std::string& why) {
  std::unique_ptr<Transport> transport = make_rail_transport(context);
  say(context, "one chain over Gloo, " + why);
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
    log(DDP_LOG_WARNING, "the ranks are on one host but cannot share memory, so they use Gloo, which is slower: %s", error.what());
  }
  return chain(context, "all on one host");
}

/// Shared memory inside the hosts, rails between them; or one chain over all ranks, with one line that says why.
std::unique_ptr<Transport> on_many_hosts(const TransportContext& context, Deadline deadline) {
  const hierarchy::Layout layout = hierarchy::lay_out(*context.control);
  const std::string hosts = std::to_string(layout.host_count()) + " hosts";
  if (!layout.shares()) return chain(context, hosts + " with one rank each");
  if (const std::string reason = layout.interleaved(); !reason.empty())
    return chain(context, hosts + ", no shared memory inside them because " + reason + "; start the ranks host by host");
  hierarchy::HostMemory memory;
  try {
    memory = hierarchy::connect_host(context, layout, deadline);
  } catch (const Error& error) {
    if (breaks_group(error.status()) || !error.is_agreed()) throw;
    log(DDP_LOG_WARNING, "the ranks of a host cannot share memory, so they use Gloo, which is slower: %s", error.what());
    return chain(context, hosts);
  }
  std::unique_ptr<Transport> transport = hierarchy::make_transport(context, layout, std::move(memory));
  say(context, "shared memory inside " + hosts + ", " + std::to_string(layout.rails) +
                   (layout.rails == 1 ? " rail" : " rails") + " over Gloo between them");
  return transport;
}

}  // namespace

std::unique_ptr<Transport> choose_transport(const TransportContext& context, bool threads, Deadline deadline) {
  // A group for NCCL talks over what AUTO chooses: words about buckets, tensors in host memory.
  const ddp_backend wanted = context.options.backend == DDP_BACKEND_NCCL ? DDP_BACKEND_AUTO : context.options.backend;
  if (context.control->size() == 1) return make_single_transport();
  if (threads && wanted == DDP_BACKEND_GLOO) return make_rail_transport(context);
  if (threads) return shm::make_transport(context, true, deadline);
  if (wanted == DDP_BACKEND_LOCAL) throw no_backend("LOCAL", "ranks are processes; use the rendezvous local://name for ranks that are threads");
  if (wanted == DDP_BACKEND_GLOO) return make_rail_transport(context);
  if (wanted == DDP_BACKEND_AUTO)
    return shm::on_one_host(*context.control) ? on_one_host(context, deadline) : on_many_hosts(context, deadline);
  if (!shm::on_one_host(*context.control)) throw no_backend("SHM", "the ranks are not all on one host");
  return shm::make_transport(context, false, deadline);
}

}  // namespace ddp
