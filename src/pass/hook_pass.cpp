// The part of a pass in which the program pulls its buckets.
#include "group/consensus.hpp"
#include "pass/pass.hpp"

namespace ddp::pass {

std::shared_ptr<HookBucket> Pass::next_bucket(bool rest) {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; call ddp_model_begin_backward first");
  if (hooked_ == nullptr || mode_ != DDP_PASS_REDUCE) return nullptr;
  if (rest) start_rest();
  return group::or_break(group_, group::Part::kExchange, [this] { return hooked_->next(); });
}

void Pass::finish_bucket(const std::optional<Error>& problem) {
  if (hooked_ == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_finish_bucket: the model's buckets are not pulled");
  on_error([&] { hooked_->finish(problem); },
           [this](const Error& error) {
             if (breaks_group(error.status())) group_.fail(error);
           });
}

}  // namespace ddp::pass
