// SPDX-License-Identifier: Apache-2.0
// The option keep_copy: when a rank dies, its part of a sharded optimizer's state is not lost, and all ranks continue from
// the same step.
//
// State arrays, and the undo data of the last step, are in shared memory. The other ranks of the host map it, so it stays
// unchanged when its rank is killed, and the ledger (ledger.hpp) records which part belongs to which step. So at each moment
// two steps can be read: the last complete one, and the one before it or the one in progress. Values that a rank has not
// changed in the step in progress are on all other ranks.
//
// A recovery takes the newest step that all ranks have made and of which every part is left (deal.hpp). The rank that has a
// part sends it, with its values, and every rank takes what it owns now; so values that were sent only in part are complete
// again. Until all have theirs, every rank keeps what it had. Between hosts the memory of a rank dies with its host. There
// each rank's part also goes to a rank of another one before a step counts (FarCopies), which holds the last two. Cost:
// values are saved before they change, as with undo; state arrays change sides (optimizer_state.hpp), but where parts go to
// other hosts. Memory: values and state of the own part once more. Threads: as the optimizer. Tested by
// capi/kept_copy_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ownership.hpp"
#include "model/kept_parts.hpp"
#include "model/model.hpp"
#include "optim/deal.hpp"
#include "optim/far_copies.hpp"
#include "optim/masters.hpp"
#include "optim/optimizer_state.hpp"
#include "optim/part_arrays.hpp"
#include "optim/undo.hpp"

namespace ddp::collective {
class Outliving;
}  // namespace ddp::collective
namespace ddp::optim {

class KeptCopy final : public model::KeptParts {
 public:
  /// What the optimizer has of it; all of it outlives this.
  struct Of {
    model::Model& model;
    OptimizerState& store;
    Masters& masters;
    Undo& undo;
    bool has_masters = false;
    std::function<const Ownership&()> ownership;  // the division that holds now
    std::function<void()> allocate;               // arrays for them
    std::function<void()> go_back;                // counts, by one step
    std::function<int64_t()> steps;               // that are counted
    [[nodiscard]] PartLayout layout() const noexcept {
      return {model.table(), store.arrays(), has_masters, store.has_two_sides()};
    }
  };
  explicit KeptCopy(Of of);
  ~KeptCopy() override;

  /// Arrays that are allocated from now on are in memory that the other ranks reach.
  void place_arrays();
  /// All blocks of a step have changed on all ranks: what other hosts are to keep goes there. Collective.
  void send_copy();
  /// A step is whole.
  void count() noexcept;
  /// Ends the keeping of copies, and frees the arrays.
  void forget() noexcept;

  void leave() noexcept override;
  [[nodiscard]] std::string tell() const override;
  void agree(const std::vector<std::string>& told) override;
  [[nodiscard]] bool is_whole() const noexcept override { return deal_.kind != Deal::Kind::kLost; }
  void deal() override;
  /// All ranks have arrays: they exchange the places of these, if they have not done so yet.
  void meet() override;
  void begin_load() noexcept override;
  void end_load() override;

 private:
  struct Hand;  // what this rank has of a deal

  [[nodiscard]] Holdings::Hand holdings_of(const Hand& hand, const Versions& own) const;
  [[nodiscard]] Versions own_versions() const noexcept;
  [[nodiscard]] std::string describe_areas() const;
  [[nodiscard]] std::unique_ptr<PartArrays> find_slice(int32_t rank, const Ownership& ownership,
                                                       std::string_view areas) const;
  void exchange_areas(Hand& hand, uint64_t hash);
  [[nodiscard]] std::unique_ptr<FarCopies> make_far_copies(const Ownership& ownership) const;
  void lend_arrays(Hand& hand, const std::vector<std::string>& areas) const;
  void send_copy(int64_t version);
  [[nodiscard]] Versions versions_of(const Hand& hand, int32_t rank) const noexcept;
  void put_aside();
  void take_hand(uint64_t hash);
  void clear() noexcept;
  void start_ledger(int64_t version) noexcept;

  struct Area {
    std::shared_ptr<std::byte> memory;
    int64_t bytes = 0;
  };

  [[nodiscard]] collective::Outliving* outliving() const noexcept;

  const Of of_;
  std::array<Area, PartArrays::kKinds> areas_;  // of the optimizer's arrays
  std::unique_ptr<Hand> hand_;                  // its arrays are the optimizer's; NULL: the ranks have not met
  std::unique_ptr<Hand> aside_;                 // that before it, until all have theirs
  Deal deal_;                                   // the current one
  bool deals_ = false;
  bool has_loaded_ = false;
};

}  // namespace ddp::optim
