// SPDX-License-Identifier: Apache-2.0
#include "model/requirements.hpp"

#include <algorithm>
#include <string>

#include "device/gpu/device.hpp"
#include "group/gpu.hpp"
#include "model/model.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {

void require_everybody(Model& model, const char* function) {
  if (!model.is_committed() || model.options().uneven_inputs == 0) return;
  model.group().check_idle(function);
  (void)model.passes().call_roll(parts::Call::kRefused, 0, false);
  model.group().check_idle(function);  // refuses while a rank only answers
}

bool is_between_steps(const Model& model) { return model.passes().parts().is_first(); }

bool has_gpu_tensors(const Parameters& table) noexcept {
  const auto has_streams = [](const auto& lent) { return !device::of(lent.value).is_immediate(); };
  return std::any_of(table.parameters().begin(), table.parameters().end(), has_streams) ||
         std::any_of(table.buffers().begin(), table.buffers().end(), has_streams);
}

void refuse_capture(const Model& model, const char* function, void* stream) {
  if (has_gpu_tensors(model.table()))
    model.group().gpu().device().refuse_capture(stream, function, "its working memory is shared with other calls");
}

void refuse_virtual_ranks(const Model& model) {
  const auto refuse = [](const std::string& what) {
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_model_commit: the group has virtual_ranks, which work on models in host memory whose gradients are "
                "summed by libddp; this one has " +
                    what);
  };
  if (model.hook().copies()) refuse("the hook \"" + model.hook().name + "\"");
  if (model.options().uneven_inputs != 0)
    refuse("uneven_inputs = 1; skip parts that have no data (ddp_model_skip_backward)");
  if (has_gpu_tensors(model.table())) refuse("tensors on a GPU");
}

}  // namespace ddp::model
