// SPDX-License-Identifier: Apache-2.0
// The average as XLA runs it on a GPU (xla/average.cpp), on the fake one: two ranks, gradients in XLA's memory, XLA's
// stream.
#include <ddp/experimental.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "support/check.h"
}
#include "support/fake_gpu/fake_gpu_control.h"
#include "xla_frame.hpp"

extern "C" XLA_FFI_Error* ddp_xla_average(XLA_FFI_CallFrame*);
extern "C" XLA_FFI_Error* ddp_xla_average_cuda(XLA_FFI_CallFrame*);
extern "C" std::int64_t ddp_xla_open(void* model, std::int32_t on_gpu);
extern "C" void ddp_xla_close(std::int64_t number);

namespace {

constexpr std::int64_t kCounts[] = {1000, 0, 300};  // one parameter has no element
constexpr int kRanks = 2;

const ddp_gpu_table& gpu() { return *ddp_gpu_query(DDP_GPU_VERSION); }

struct Arrays {  // of all parameters, on a device
  explicit Arrays(int device) {
    check_int(gpu().set_device(device), 0);
    for (const std::int64_t count : kCounts) {
      void* data = nullptr;
      if (count > 0) check_int(gpu().alloc(&data, count * 4), 0);
      all.push_back({data, count});
    }
  }
  ~Arrays() {
    check_int(gpu().synchronize(), 0);
    for (const xla_frame::Memory& each : all)
      if (each.data != nullptr) check_int(gpu().free(each.data), 0);
  }
  void poke(float value) const {
    for (const xla_frame::Memory& each : all) {
      const std::vector<float> values(static_cast<std::size_t>(each.count), value);
      if (each.count > 0) check_int(ddp_fake_gpu_poke(each.data, values.data(), each.count * 4), 1);
    }
  }
  void expect(float value) const {
    for (const xla_frame::Memory& each : all) {
      std::vector<float> values(static_cast<std::size_t>(each.count));
      if (each.count > 0) check_int(ddp_fake_gpu_peek(values.data(), each.data, each.count * 4), 1);
      for (const float found : values) {
        check_number(found, value);
        if (found != value) return;
      }
    }
  }
  std::vector<xla_frame::Memory> all;
};

// A kernel of XLA's: `to` becomes `from` in the order of the stream.
void write(void* stream, const Arrays& from, const Arrays& to) {
  for (std::size_t i = 0; i < to.all.size(); ++i) {
    const ddp_gpu_span span{from.all[i].data, to.all[i].data, to.all[i].count};
    if (span.count > 0)
      check_int(gpu().move(&span, 1, DDP_F32, DDP_F32, 1, std::numeric_limits<double>::infinity(), nullptr, stream), 0);
  }
}

ddp_tensor tensor_of(const xla_frame::Memory& memory, int device) {
  return ddp_tensor{memory.data, DDP_F32, DDP_CUDA, device, 1, {memory.count}};
}

// What libddp.jax makes of parameters on a GPU.
class Rank {
 public:
  Rank(const std::string& place, int rank) : rank(rank), values_(rank), home_(rank) {
    ddp_group_options options;
    check_ok(ddp_group_options_init(&options, sizeof options));
    options.rank = options.device_index = rank;
    options.world_size = kRanks;
    options.timeout_ms = options.rendezvous_timeout_ms = 20000;
    check_ok(ddp_group_create(place.c_str(), &options, &group));
    check_ok(ddp_model_create(group, nullptr, &model));
    {
      const Arrays first(rank);
      for (std::size_t i = 0; i < first.all.size(); ++i) {
        const ddp_tensor value = tensor_of(values_.all[i], rank), grad = tensor_of(first.all[i], rank);
        check_ok(ddp_model_add_parameter(model, std::to_string(i).c_str(), &value, &grad, nullptr));
      }
      check_ok(ddp_model_commit(model, nullptr));
      for (std::size_t i = 0; i < first.all.size(); ++i) {
        const ddp_tensor home = tensor_of(home_.all[i], rank);
        check_ok(ddp_model_set_grad(model, static_cast<std::int32_t>(i), &home));
      }
    }
    number = ddp_xla_open(model, 1);
    check_int(gpu().stream_create(&stream, 0), 0);
  }
  ~Rank() {
    ddp_xla_close(number);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
    check_int(gpu().stream_destroy(stream), 0);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  [[nodiscard]] std::string average(const Arrays& gradients) const {
    return xla_frame::call(ddp_xla_average_cuda, number, stream, gradients.all, gradients.all);
  }
  void average_well(const Arrays& gradients) const {
    const std::string text = average(gradients);
    if (!text.empty()) check_text(text.c_str(), "no error");
  }
  void expect_home() const {  // no address of XLA's is left
    for (std::size_t i = 0; i < values_.all.size(); ++i) {
      ddp_tensor grad;
      check_ok(ddp_model_get_grad(model, static_cast<std::int32_t>(i), &grad));
      check_true(grad.data == home_.all[i].data);
    }
  }

  int rank;
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  std::int64_t number = 0;
  void* stream = nullptr;

 private:
  Arrays values_;
  Arrays home_;  // of gradients between passes
};

void run_ranks(const char* place, void (*body)(Rank& rank)) {
  ddp_fake_gpu_reset(kRanks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([=] {
      Rank self(std::string("local://xla-") + place, rank);
      body(self);
    });
  for (std::thread& thread : threads) thread.join();
  char text[400];
  ddp_fake_gpu_violation(0, text, sizeof text);
  check_int(ddp_fake_gpu_violations(), 0);
  if (text[0] != '\0') check_text(text, "no violation");
  check_int(ddp_fake_gpu_live(), 0);
}

std::atomic<int> arrived{0};

void meet() {  // all ranks
  const int turn = arrived++ / kRanks;
  while (arrived < (turn + 1) * kRanks) std::this_thread::yield();
}

void means_are_there_in_the_order_of_the_stream(void**) {
  run_ranks("means", [](Rank& self) {
    const Arrays given(self.rank), other(self.rank), gradients(self.rank), moved(self.rank), used(self.rank);
    for (int step = 0; step < 4; ++step) {
      const Arrays& place = step % 2 == 0 ? gradients : moved;  // XLA's memory is elsewhere in each step
      given.poke(static_cast<float>(10 * step + 2 * self.rank));
      other.poke(static_cast<float>(-step));
      write(self.stream, given, place);
      self.average_well(place);
      write(self.stream, place, used);
      check_int(gpu().stream_synchronize(self.stream), 0);
      used.expect(static_cast<float>(10 * step + 1));
      place.expect(static_cast<float>(10 * step + 1));
      write(self.stream, other, place);  // XLA uses the memory for something else
    }
    self.expect_home();
  });
}

void nobody_waits_for_the_device(void**) {
  run_ranks("waits", [](Rank& self) {
    const Arrays given(self.rank), gradients(self.rank), used(self.rank);
    given.poke(0);
    write(self.stream, given, gradients);
    self.average_well(gradients);  // the first pass makes what it needs
    check_int(gpu().stream_synchronize(self.stream), 0);
    given.poke(static_cast<float>(2 * self.rank));
    used.poke(7);
    meet();
    ddp_fake_gpu_pause_device(self.rank);
    meet();
    const std::int64_t waits = ddp_fake_gpu_host_waits();
    meet();
    write(self.stream, given, gradients);
    self.average_well(gradients);
    self.average_well(gradients);  // a second one, of what the first one has made
    write(self.stream, gradients, used);
    self.expect_home();
    used.expect(7);
    meet();
    check_int(ddp_fake_gpu_host_waits(), waits);
    meet();
    ddp_fake_gpu_resume_device(self.rank);
    check_int(gpu().stream_synchronize(self.stream), 0);
    used.expect(1);
  });
}

void errors_have_a_text_and_leave_no_address(void**) {
  run_ranks("errors", [](Rank& self) {
    const Arrays gradients(self.rank), others(self.rank);
    gradients.poke(1);
    XLA_FFI_Handler* const handler = ddp_xla_average_cuda;
    auto shorter = gradients.all;
    shorter[0].count = 999;
    check_text(xla_frame::call(handler, self.number, self.stream, shorter, shorter).c_str(), "of another libddp.jax");
    check_text(xla_frame::call(handler, self.number, self.stream, gradients.all, others.all).c_str(), "in the place of");
    check_text(xla_frame::call(handler, 12345, self.stream, gradients.all, gradients.all).c_str(), "is gone");
    check_text(xla_frame::call(ddp_xla_average, self.number, nullptr, gradients.all, gradients.all).c_str(),
               "runs on the CPU");
    self.average_well(gradients);
    meet();
    if (self.rank == 0) ddp_group_abort(self.group, "enough of it");
    check_text(self.average(gradients).c_str(), "enough of it");
    self.expect_home();
    check_text(self.average(gradients).c_str(), "enough of it");
  });
}

void a_rank_that_fails_ends_the_pass_of_the_others(void**) {
  run_ranks("fails", [](Rank& self) {
    const Arrays gradients(self.rank);
    gradients.poke(1);
    self.average_well(gradients);
    auto wrong = gradients.all;
    float on_host[1000];
    if (self.rank == 1) wrong[0].data = on_host;  // found when the other gradient is marked already
    const std::string text = xla_frame::call(ddp_xla_average_cuda, self.number, self.stream, wrong, wrong);
    check_text(text.c_str(), self.rank == 1 ? "the gradient of parameter" : "an average inside jit failed");
    self.expect_home();
  });
}

void it_is_never_recorded_into_a_graph(void**) {
  check_int(xla_frame::traits_of(ddp_xla_average_cuda), 0);
  check_int(xla_frame::traits_of(ddp_xla_average), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      {"means_are_there_in_the_order_of_the_stream", means_are_there_in_the_order_of_the_stream, check_setup, check_teardown,
       nullptr},
      {"nobody_waits_for_the_device", nobody_waits_for_the_device, check_setup, check_teardown, nullptr},
      {"errors_have_a_text_and_leave_no_address", errors_have_a_text_and_leave_no_address, check_setup, check_teardown,
       nullptr},
      {"a_rank_that_fails_ends_the_pass_of_the_others", a_rank_that_fails_ends_the_pass_of_the_others, check_setup,
       check_teardown, nullptr},
      {"it_is_never_recorded_into_a_graph", it_is_never_recorded_into_a_graph, check_setup, check_teardown, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
