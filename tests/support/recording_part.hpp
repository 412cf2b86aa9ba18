// SPDX-License-Identifier: Apache-2.0
// A pass without a group: a part that writes down what it is asked, and other ranks that are a script.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/ranks.hpp"
#include "exchange/single.hpp"
#include "pass/part.hpp"

namespace ddp::test {

/// "a begin": the part, and the call.
using Calls = std::vector<std::string>;

/// An exchange whose result is this rank's header, with another rank that contributes or not; or an error.
class ScriptedExchange final : public collective::BucketOperation {
 public:
  ScriptedExchange(const std::optional<Error>& failure, const bool& other_trains)
      : failure_(failure), other_trains_(other_trains) {}
  void start(const collective::BucketHeader& mine) override {
    header_ = mine;
    if (other_trains_) header_.participation.add(collective::Participation::of(1));
  }
  [[nodiscard]] collective::Progress advance(int64_t) override {
    return failure_ ? collective::Progress::kWaiting : collective::Progress::kDone;
  }
  void finish() override {
    if (failure_) throw Error(*failure_);
  }
  [[nodiscard]] bool local_done() const noexcept override { return !failure_; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return "scripted"; }

 private:
  const std::optional<Error>& failure_;
  const bool& other_trains_;
  collective::BucketHeader header_;
};

/// Two ranks, of which the other one is a script.
class ScriptedRanks final : public collective::Ranks {
 public:
  [[nodiscard]] int32_t rank() const noexcept override { return 0; }
  [[nodiscard]] int32_t size() const noexcept override { return 2; }
  [[nodiscard]] std::string name_of(int32_t rank) const override { return "rank " + std::to_string(rank); }
  [[nodiscard]] Place place() const noexcept override { return {queues_, nullptr, 0}; }
  [[nodiscard]] std::vector<std::string> gather(std::string_view, std::string_view mine) const override {
    return {std::string(mine), std::string(mine)};
  }
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::ExchangeSpec&) const override {
    return std::make_unique<ScriptedExchange>(failure, other_trains);
  }
  [[nodiscard]] collective::Transport& transport() const noexcept override { return *transport_; }
  void check_usable() const override {
    if (broken) throw Error(*broken);
  }
  void fail(const Error& error) const override {
    if (!breaks_group(error.status())) return;
    broken = error;
    throw Error(error);
  }
  void give_up(const char*, const Error&) const noexcept override {}
  void open_pass(collective::ProgressQueue&) const override { ++open; }
  void close_pass(collective::ProgressQueue&) const noexcept override { --open; }

  std::optional<Error> failure;  // of the exchanges
  bool other_trains = false;
  mutable std::optional<Error> broken;
  mutable int32_t open = 0;

 private:
  mutable collective::OpenQueues queues_;
  const std::unique_ptr<collective::Transport> transport_ = collective::make_single_transport();
};

/// What a recording part does in addition to recording.
struct PartAnswers {
  bool traces = false;
  bool refuses = false;      // in require
  bool fails_begin = false;  // lacks memory
  bool votes_void = false;
  bool sliced = false;
  bool whole = true;        // result of conclude
  bool others_step = true;  // result of answer
  bool reports = false;
};

class RecordingPart final : public pass::PassPart {
 public:
  RecordingPart(std::string name, Calls& calls) : name_(std::move(name)), calls_(calls) {}

  [[nodiscard]] pass::Traits traits() const noexcept override { return {}; }
  void describe(collective::BucketSpec& spec) const override { note("describe " + std::to_string(spec.index)); }
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::BucketSpec& spec) override {
    note("prepare " + std::to_string(spec.index));
    return nullptr;
  }
  void require(ddp_pass, pass::Role) const override {
    note("require");
    if (answers.refuses) throw Error(DDP_ERROR_INVALID_STATE, "refused by " + name_);
  }
  void begin(pass::Opening& opening) override {
    note("begin");
    if (answers.fails_begin) throw Error(DDP_ERROR_OUT_OF_MEMORY, "no memory in " + name_);
    if (answers.traces) opening.tracer = this;
  }
  [[nodiscard]] collective::BucketOperation& choose(size_t bucket, collective::BucketOperation& usual) noexcept override {
    note("choose " + std::to_string(bucket));
    return usual;
  }
  void opened(const pass::Opening&) override { note("opened"); }
  void marked(int32_t index, std::span<const PiecePlace>) noexcept override { note("marked " + std::to_string(index)); }
  void fill(size_t bucket, collective::BucketHeader& mine) noexcept override {
    note("fill " + std::to_string(bucket) + (mine.incomplete ? " incomplete" : "") +
         (mine.participation.contributors == 0 ? " nobody" : ""));
    started_on = std::this_thread::get_id();
  }
  [[nodiscard]] const trace::Event* starting(size_t bucket) noexcept override {
    note("starting " + std::to_string(bucket));
    return nullptr;
  }
  void started(size_t bucket, collective::BucketOperation&, collective::ProgressQueue&) override {
    note("started " + std::to_string(bucket));
  }
  [[nodiscard]] bool is_void() const noexcept override {
    note("is_void");
    return answers.votes_void;
  }
  [[nodiscard]] pass::Left left(size_t bucket) const noexcept override {
    note("left " + std::to_string(bucket));
    return {answers.sliced, false};
  }
  void order() override { note("order"); }
  [[nodiscard]] bool conclude(const pass::Verdict& verdict) override {
    note(std::string("conclude") + (verdict.is_void ? " void" : ""));
    if (on_conclude) on_conclude();
    return answers.whole;
  }
  [[nodiscard]] bool answer(const pass::Verdict&) override {
    note("answer");
    return answers.others_step;
  }
  void report() override {
    note("report");
    if (answers.reports) throw Error(DDP_ERROR_CALLBACK, "reported by " + name_);
  }
  void add_missing(pass::MissingGradients&) const override { note("add_missing"); }
  void end_part(const pass::Marks&, pass::MissingGradients missing) override {
    note("end_part, " + std::to_string(missing.missing) + " missing");
  }
  void broken() override { note("broken"); }
  void closed(const pass::Closing& closing) noexcept override {
    static constexpr const char* kNames[] = {"good", "void", "step failed", "broken"};
    note(std::string("closed ") + kNames[static_cast<size_t>(closing.outcome)]);
  }
  void left_open() noexcept override { note("left_open"); }
  void await_values() override { note("await_values"); }
  void changed(pass::Change) noexcept override { note("changed"); }
  [[nodiscard]] bool set_address(size_t, int32_t, std::byte*) noexcept override {
    note("set_address");
    return true;
  }

  PartAnswers answers;
  std::function<void()> on_conclude;
  std::thread::id started_on;

 private:
  void note(const std::string& call) const { calls_.push_back(name_ + " " + call); }
  const std::string name_;
  Calls& calls_;
};

}  // namespace ddp::test
