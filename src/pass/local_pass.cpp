// Local SGD: passes whose gradients stay on their rank; ddp_model_average_parameters forms the mean of the parameters every
// few of them (Stich, "Local SGD Converges Fast and Communicates Little", 2019).
// Tested by conformance/local_sgd_threads_test.cpp, conformance/hook_optimizer_threads_test.cpp and capi/local_sgd_test.c.
#include <algorithm>

#include "pass/pass.hpp"

namespace ddp::pass {

void Pass::end_local() {
  std::string names;
  int32_t missing = 0;
  for (int32_t index = 0; index < table_.parameter_count(); ++index)
    if (is_partly_marked(index) || (!is_marked(index) && options_.unused == DDP_UNUSED_ERROR))
      if (++missing <= 5) names += (missing > 1 ? ", \"" : "\"") + missing_of(index) + "\"";
  if (missing > 5) names += " and " + std::to_string(missing - 5) + " more";
  if (missing > 0) {
    settle_marks(false);
    gradients_ = Gradients::kVoid;
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_end_backward: this rank did not mark " + names +
                    "; mark every parameter in every pass, or set the model option unused = DDP_UNUSED_ALLOW");
  }
  std::transform(contributes_.begin(), contributes_.end(), used_.begin(),
                 [](uint8_t each) { return static_cast<uint8_t>(each != 0); });
  std::fill(contributes_.begin(), contributes_.end(), 0);
  gradients_ = Gradients::kFinal;
  sliced_ = false;
  has_reduced_ = true;
  ++final_passes_;
}

}  // namespace ddp::pass
