// Running averages of the parameters, several decays in one pass over memory.
// Tested by unit/update/ema_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reduce/model.hpp"
#include "update/optimizer.hpp"

namespace ddp {

class Ema {
 public:
  Ema(std::shared_ptr<Model> model, std::vector<double> decays);

  void update();
  void swap(int32_t which);

  [[nodiscard]] const std::vector<double>& decays() const noexcept { return decays_; }
  /// Averages by name "<decay>.<parameter>", allocated if they were not yet. Refused (INVALID_STATE) while swapped.
  [[nodiscard]] std::vector<StateTensor> state_tensors();
  [[nodiscard]] std::map<std::string, std::string> state_fields() const;
  void load_fields(const std::map<std::string, std::string>& fields);

  [[nodiscard]] Model& model() const noexcept { return *model_; }

 private:
  std::shared_ptr<Model> model_;
  std::vector<double> decays_;
  std::vector<std::vector<std::vector<std::byte>>> averages_;  // [decay][parameter], empty before the first update
  int32_t swapped_ = -1;
  int64_t updates_ = 0;
};

}  // namespace ddp
