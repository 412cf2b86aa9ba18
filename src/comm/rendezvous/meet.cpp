// Meet the other ranks, by whatever way the Meeting names.
#include "comm/control/local_hub.hpp"
#include "comm/control/solo.hpp"
#include "comm/rendezvous/rendezvous.hpp"

namespace ddp {

std::unique_ptr<Control> meet(const Meeting& meeting, const ddp_group_options& options) {
  if (meeting.size == 1) return make_solo_control();
  const int64_t limit_ms = options.rendezvous_timeout_ms;
  if (meeting.kind == Meeting::Kind::kLocal)
    return join_local_hub(meeting.place + "#" + meeting.group_name, meeting.rank, meeting.size, Deadline::in_ms(limit_ms),
                          limit_ms);
  throw make_error(DDP_ERROR_NOT_SUPPORTED, "only local:// can be met in this build");
}

}  // namespace ddp
