// Running averages of the parameters, several decays in one pass over memory.
// Threads: one at a time.
// Tested by ranks/optimizer_test.cpp.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.hpp"
#include "reduce/model.hpp"
#include "update/fields.hpp"
#include "update/optimizer.hpp"

namespace ddp {

class Ema {
 public:
  /// Throws INVALID_ARGUMENT.
  Ema(std::shared_ptr<Model> model, std::vector<double> decays);

  void update();
  void swap(int32_t which);

  [[nodiscard]] const std::vector<double>& decays() const noexcept { return decays_; }
  /// Averages by name "<decay>.<parameter>", allocated if they were not yet. Refused (INVALID_STATE) while swapped.
  [[nodiscard]] std::vector<StateTensor> state_tensors();
  [[nodiscard]] Fields state_fields() const;
  void load_fields(const Fields& fields);

  [[nodiscard]] Model& model() const noexcept { return *model_; }

 private:
  void allocate();
  void exchange(const Tensor& value, Array& average);
  [[nodiscard]] Array& average(size_t decay, size_t parameter) { return averages_[parameter * decays_.size() + decay]; }

  std::shared_ptr<Model> model_;
  std::vector<double> decays_;
  std::vector<Array> averages_;  // [parameter][decay]
  int32_t swapped_ = -1;         // which average is in the parameters' place
  std::list<Array> live_;        // 16-bit parameters while an average is in their place, in order
  int64_t updates_ = 0;          // 0: the averages hold nothing yet
};

}  // namespace ddp
