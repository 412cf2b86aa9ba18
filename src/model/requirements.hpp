// SPDX-License-Identifier: Apache-2.0
// What must hold before a call of which every rank of a model is a part, so that none does nothing, or half of something,
// without a word. What concerns gradients and values alone is in gradients.hpp and values.hpp.
// Tested by conformance/uneven_test.cpp and gpu_host/capture_test.cpp.
#pragma once

namespace ddp {
class Parameters;
}  // namespace ddp

namespace ddp::model {

class Model;

/// The first line of what a joined rank has no part in: throws INVALID_STATE on all others while there is one. Collective
/// with uneven_inputs once committed, else nothing.
void require_everybody(Model& model, const char* function);
/// Throws INVALID_STATE while the stream is captured into a graph.
void refuse_capture(const Model& model, const char* function, void* stream);
/// Throws NOT_SUPPORTED if the model has what depends on the number of ranks, or does not know parts of a batch.
void refuse_virtual_ranks(const Model& model);
/// Is no part of a step done? Of a model that is committed.
[[nodiscard]] bool is_between_steps(const Model& model);
/// Is a parameter or a buffer on a GPU?
[[nodiscard]] bool has_gpu_tensors(const Parameters& table) noexcept;

}  // namespace ddp::model
