// SPDX-License-Identifier: Apache-2.0
/** @file
 * Checkpoints in files, folders and functions of the program.
 */
#ifndef DDP_CPP_STATE_HPP
#define DDP_CPP_STATE_HPP

#include "ddp/cpp/ema.hpp"
#include "ddp/cpp/optimizer.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** How a checkpoint is loaded, with the defaults. */
using LoadOptions = Options<ddp_load_options, ddp_load_options_init>;

/** Takes the next bytes of a checkpoint, on rank 0. An exception fails the save. */
using Write = std::function<void(Span<const std::uint8_t>)>;
/** Fills memory with the next bytes of a checkpoint, on rank 0, and returns their number; 0 at the end. An exception fails
 * the load. */
using Read = std::function<std::int64_t(Span<std::uint8_t>)>;

/** What a load found. */
struct LoadReport {
  std::int64_t epoch = 0;              /**< as saved */
  std::int64_t step = 0;               /**< as saved */
  std::vector<std::string> missing;    /**< with `partial`: what the checkpoint lacks */
  std::vector<std::string> unexpected; /**< with `partial`: what the model lacks */
  std::vector<std::string> skipped;    /**< by load_latest: newer files that were not valid, and why */
  std::string file;                    /**< of load_latest: the file that was loaded */
};

/** The contents of a checkpoint: a model, and the objects added to it. All of these outlive the state. All but
 * metadata and save_local is collective. */
class State {
 public:
  explicit State(Model& model) : model_(model) {
    check(ddp_state_init(&state_, static_cast<std::int64_t>(sizeof state_)));
    state_.model = model.get();
  }
  /** Several of the model too; a load adds them in the order of the save. */
  State& add(const Optimizer& optimizer) { return optimizers_.push_back(optimizer.get()), *this; }
  State& add(const Ema& ema) { return state_.ema = ema.get(), *this; }
  State& add(const Outer& outer) { return state_.outer = outer.get(), *this; }
  /** Where the training is; saved. */
  State& at(std::int64_t epoch, std::int64_t step) { return state_.epoch = epoch, state_.step = step, *this; }

  /** Texts that are saved with the model. */
  void set_metadata(const std::string& key, const std::string& value) {
    model_.checked(ddp_model_set_metadata(model_.get(), key.c_str(), value.c_str()));
  }
  std::optional<std::string> metadata(const std::string& key) const {
    const char* found = nullptr;
    model_.checked(ddp_model_get_metadata(model_.get(), key.c_str(), &found));
    return found == nullptr ? std::nullopt : std::optional<std::string>(found);
  }

  /** Whole or not at all. */
  void save(const std::string& path) const { model_.checked(ddp_state_save_file(given(), path.c_str())); }
  LoadReport load(const std::string& path, const LoadOptions& options = {}) {
    auto found = sized<ddp_load_report>();
    model_.checked(ddp_state_load_file(given(), path.c_str(), &options, &found));
    return report(found);
  }
  /** A new file in a folder that keeps the newest `keep`. */
  void save_latest(const std::string& folder, std::int64_t keep = 3) const {
    model_.checked(ddp_state_save_latest(given(), folder.c_str(), keep));
  }
  /** The newest whole file of a folder; nothing if it has none, as before the first start. */
  std::optional<LoadReport> load_latest(const std::string& folder, const LoadOptions& options = {}) {
    auto found = sized<ddp_load_report>();
    const ddp_status status = ddp_state_load_latest(given(), folder.c_str(), &options, &found);
    if (status == DDP_ERROR_NO_CHECKPOINT) return std::nullopt;
    model_.checked(status);
    auto result = report(found);
    result.file = text(ddp_model_get_loaded_file(model_.get()));
    for (std::int64_t i = 0; i < found.skipped; ++i) result.skipped.push_back(text(ddp_model_get_skipped(model_.get(), i)));
    return result;
  }

  /** In the memory of the ranks, for Group::recover, with up to 65,536 bytes of the program's own, of rank 0. */
  void keep(Span<const std::uint8_t> own = {}) const {
    ddp_state state = given().state;
    state.own = own.data(), state.own_bytes = static_cast<std::int64_t>(own.size());
    model_.checked(ddp_state_keep(&state, 1, nullptr));
  }

  /** Through a function, which rank 0 calls. */
  void save(const Write& write) const {
    model_.checked(ddp_state_save(given(), call_of_write(), const_cast<Write*>(&write)));
  }
  /** The same on this rank alone, which calls the function; local. */
  void save_local(const Write& write) const {
    model_.checked(ddp_state_save_local(given(), call_of_write(), const_cast<Write*>(&write)));
  }
  LoadReport load(const Read& read, const LoadOptions& options = {}) {
    const ddp_read_fn call = [](void* user_data, void* data, std::int64_t capacity) -> std::int64_t {
      return (*static_cast<const Read*>(user_data))({static_cast<std::uint8_t*>(data), static_cast<std::size_t>(capacity)});
    };
    auto found = sized<ddp_load_report>();
    model_.checked(ddp_state_load(given(), call, const_cast<Read*>(&read), &options, &found));
    return report(found);
  }

 private:
  /** As the library takes it, until the end of the call. */
  struct Given {
    ddp_state state;
    operator const ddp_state*() const noexcept { return &state; }
  };
  Given given() const {
    Given given{state_};
    if (optimizers_.empty()) return given;
    given.state.optimizers = optimizers_.data();
    given.state.optimizer_count = static_cast<std::int64_t>(optimizers_.size());
    return given;
  }
  static ddp_write_fn call_of_write() {
    return [](void* user_data, const void* data, std::int64_t bytes) -> std::int32_t {
      (*static_cast<const Write*>(user_data))({static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(bytes)});
      return 0;
    };
  }
  static std::string text(const char* found) { return found == nullptr ? std::string() : std::string(found); }
  LoadReport report(const ddp_load_report& found) {
    state_.epoch = found.epoch, state_.step = found.step;
    LoadReport result;
    result.epoch = found.epoch, result.step = found.step;
    for (std::int64_t i = 0; i < found.missing; ++i) result.missing.push_back(text(ddp_model_get_missing(model_.get(), i)));
    for (std::int64_t i = 0; i < found.unexpected; ++i) {
      result.unexpected.push_back(text(ddp_model_get_unexpected(model_.get(), i)));
    }
    return result;
  }

  Model& model_;
  std::vector<ddp_optimizer*> optimizers_;
  ddp_state state_ = ddp_state();
};

}  // namespace cpp17_v1
}  // namespace ddp

#endif
