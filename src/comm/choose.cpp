#include "comm/choose.hpp"

#include "base/log.hpp"
#include "comm/shm/transport.hpp"
#include "comm/single.hpp"

namespace ddp {
namespace {

[[nodiscard]] Error no_backend(const char* wanted, const std::string& why) {
  return make_error(DDP_ERROR_NOT_SUPPORTED, "the backend %s is not available: %s", wanted, why.c_str());
}

}  // namespace

std::unique_ptr<Transport> choose_transport(const TransportContext& context, bool threads, Deadline deadline) {
  const ddp_backend wanted = context.options.backend;
  if (wanted == DDP_BACKEND_NCCL) throw no_backend("NCCL", "this build of libddp has no CUDA module");
  if (context.control->size() == 1) return make_single_transport();
  if (threads) return shm::make_transport(context, true, deadline);
  return shm::make_transport(context, false, deadline);
}

}  // namespace ddp
