#include "comm/choose.hpp"

#include "base/log.hpp"
#include "comm/rail/transport.hpp"
#include "comm/shm/mesh.hpp"
#include "comm/shm/transport.hpp"
#include "comm/single.hpp"

namespace ddp {
namespace {

[[nodiscard]] Error no_backend(const char* wanted, const std::string& why) {
  return make_error(DDP_ERROR_NOT_SUPPORTED, "the backend %s is not available: %s", wanted, why.c_str());
}

/// Shared memory, or Gloo with one line that says why. All ranks throw the same reason, so all choose alike.
std::unique_ptr<Transport> shared_or_gloo(const TransportContext& context, Deadline deadline) {
  if (!shm::on_one_host(*context.control)) return make_rail_transport(context);
  try {
    return shm::make_transport(context, false, deadline);
  } catch (const Error& error) {
    if (breaks_group(error.status())) throw;
    log(DDP_LOG_WARNING, "the ranks are on one host but cannot share memory, so they use Gloo, which is slower: %s", error.what());
    return make_rail_transport(context);
  }
}

}  // namespace

std::unique_ptr<Transport> choose_transport(const TransportContext& context, bool threads, Deadline deadline) {
  const ddp_backend wanted = context.options.backend;
  if (wanted == DDP_BACKEND_NCCL) throw no_backend("NCCL", "this build of libddp has no CUDA module");
  if (context.control->size() == 1) return make_single_transport();
  if (threads && wanted == DDP_BACKEND_GLOO) return make_rail_transport(context);
  if (threads) return shm::make_transport(context, true, deadline);
  if (wanted == DDP_BACKEND_LOCAL) throw no_backend("LOCAL", "ranks are processes; use the rendezvous local://name for ranks that are threads");
  if (wanted == DDP_BACKEND_GLOO) return make_rail_transport(context);
  if (wanted == DDP_BACKEND_AUTO) return shared_or_gloo(context, deadline);
  if (!shm::on_one_host(*context.control)) throw no_backend("SHM", "the ranks are not all on one host");
  return shm::make_transport(context, false, deadline);
}

}  // namespace ddp
