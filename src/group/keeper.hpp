// SPDX-License-Identifier: Apache-2.0
// Peer checkpoints: the state of a group's models in the memory of its ranks, kept where the program asks for it, and taken
// by a recovery that would have to ask for a checkpoint otherwise: parts of an optimizer's state have died with their rank,
// or no rank has a whole model.
//
// A keep begins with an exchange. When it has ended, each rank has the generation before: its own part and those that it
// guards. Only then is the older buffer overwritten (kept_set.hpp). So a death at any moment leaves one generation of which
// every part is in memory, as long as no part dies with all ranks that hold it. A recovery takes the newest such generation:
// decided once for the group when all models are built again, loaded on all ranks before the group is confirmed, and kept
// again by the ranks that are there now. Nothing is given up before all of them have that. So a death in a recovery is one
// more death.
// Threads: as the group's collectives. Tested by unit/group/generation_test.cpp and capi/keep_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/gpu/transfer.hpp"
#include "group/generation.hpp"
#include "group/kept_set.hpp"

namespace ddp::group {

class Follower;
class Group;

class Keeper {
 public:
  using Followers = std::vector<std::shared_ptr<Follower>>;

  /// The state of these models, some of `all` that the group has. `refusal`: why this rank cannot; then all ranks throw the
  /// same. Collective.
  void keep(Group& group, const Followers& kept, const Followers& all, KeptNote note, const std::optional<Error>& refusal);
  /// What is kept is over: a load begins to change the state.
  void forget() noexcept;

  /// The group has broken, and its models are still as they were: the present state of all models is set aside if ranks
  /// hold parts of it. A recovery takes it where the ranks are others and none is lost, so that all stay at their step.
  void set_aside(const Group& group, const Followers& all) noexcept;
  /// The models have left the group. `steps` that this rank has made; -1: they are not counted.
  void leave(int64_t steps) noexcept;
  /// All models are built again. If some model is not whole, and a generation is left in which all such models are, all
  /// models of it go back to it. Collective over all ranks, also new ones.
  void restore(Group& group, const Followers& all);

  /// Of the recovery that ends now.
  struct Outcome {
    int64_t went_back = 0;  // steps
    int64_t epoch = -1;     // of the generation; -1: the group did not go back to one
    int64_t step = -1;
  };
  [[nodiscard]] Outcome end_recovery() noexcept;
  /// The program's own bytes of the generation to which the group went back last.
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  struct Set {
    std::unique_ptr<KeptSet> buffers;
    std::vector<std::weak_ptr<Follower>> followers;
  };
  /// The state that this rank had when the group broke.
  struct Present {
    HeldPart part;  // with a name that all ranks with the same state give it
    KeptTable table;
    std::string note;
    std::vector<std::byte> bytes;
  };
  /// What is written now.
  struct State {
    KeptTable table;
    std::vector<KeptTensor> tensors;
    std::string note;
  };
  [[nodiscard]] static State collect(const Followers& kept, const Followers& all, KeptNote note);
  [[nodiscard]] bool fits(const State& state) const noexcept;
  [[nodiscard]] gpu::Transfer& transfer(const std::vector<KeptTensor>& tensors);
  void write(Group& group, const State& state);
  void keep_anew(Group& group, const Followers& kept, State state, uint64_t checked);
  void find_places(const Followers& all);
  [[nodiscard]] Holdings holdings(const Followers& all) const;
  void copy_present(const Group& group, const Followers& all);
  /// A part of it here, or NULL.
  [[nodiscard]] const std::byte* find(const GenerationName& generation, int32_t part) const noexcept;
  /// What all ranks must know of a generation, on the rank that has its part 0.
  [[nodiscard]] std::string describe(const GenerationName& generation) const;
  void go_back(Group& group, const Followers& all, const Found& found, const std::vector<int32_t>& torn, int64_t steps);
  [[nodiscard]] uint64_t load_tensors(Group& group, const KeptTable& table, const Found& found,
                                      const std::vector<KeptTensor>& tensors);

  std::vector<Set> sets_;  // the last may be the one that is in use
  bool is_current_ = false;
  std::unique_ptr<Present> present_;  // NULL: nothing is set aside
  GenerationName newest_;
  std::unique_ptr<gpu::Transfer> transfer_;
  int64_t steps_ = -1;  // at the beginning of the recovery
  Outcome outcome_;
  std::string bytes_;
  bool warned_ = false;
};

}  // namespace ddp::group
