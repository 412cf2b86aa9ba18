// SPDX-License-Identifier: Apache-2.0
// The ranks of a job that survives deaths, on other machines: a ddprun is led on each, starts ranks on order, and reports
// how they end. A machine whose connection is lost has lost its ranks; it is connected again when they shall start.
#pragma once

#include <functional>
#include <map>

#include "ddprun/lead.hpp"
#include "ddprun/local_crew.hpp"

namespace ddp::ddprun {

class HostCrew final : public Crew {
 public:
  /// `hosts`: starts the ddpruns, one process a machine, with the stdin that `leads` gives. `take_seen`: gets what a host
  /// has seen of its ranks.
  HostCrew(const Machines& machines, const std::string& mark, Leads& leads, Relay& relay, LocalCrew& hosts,
           std::function<void(int32_t, const Report&)> take_seen);

  void start(const std::vector<int32_t>& ranks, Start how) override;
  [[nodiscard]] std::vector<Outcome> collect() override;
  void let_go() noexcept override { hosts_.let_go(); }
  void finish() override { leads_.give_all({}); }
  void end() noexcept override { hosts_.end(); }
  [[nodiscard]] std::deque<std::string> last_lines(int32_t rank) const override;

 private:
  struct State {
    size_t host = 0;
    bool runs = false;
    std::deque<std::string> last_lines{};
  };
  void take(int32_t host, const Report& report);
  void lose(int32_t host, int status);

  Leads& leads_;
  Relay& relay_;
  LocalCrew& hosts_;
  std::function<void(int32_t, const Report&)> take_seen_;  // kLook, kPiece
  std::vector<std::string> names_;
  std::vector<State> ranks_;
  std::map<std::string, std::string> files_;  // where ranks that join find the others
  std::vector<Outcome> ends_;                 // since the last collect()
};

}  // namespace ddp::ddprun
