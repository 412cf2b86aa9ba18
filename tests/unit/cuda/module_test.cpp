// SPDX-License-Identifier: Apache-2.0
// The module that was built, on any machine: its table, its one export, its codes; and that it answers cleanly where there
// is no driver.
#include "unit/cuda/module.hpp"

#include "support/check.hpp"

const ddp_gpu_table* table = nullptr;
constexpr int kSkipped = 77;

int32_t kind_of(int32_t code) { return table->error_kind(code); }

bool has_driver() {
  int32_t version = -1;
  return table->driver_version(&version) == 0 && version > 0;
}

ddp_case(every_function_of_the_table_is_there) {
  assert_int_equal(table->struct_size, static_cast<int64_t>(sizeof(ddp_gpu_table)));
  assert_int_equal(table->version, DDP_GPU_VERSION);
  assert_memory_equal(table->name, "CUDA ", 5);
  std::vector<void*> words((sizeof *table - offsetof(ddp_gpu_table, name)) / sizeof(void*));
  std::memcpy(words.data(), &table->name, words.size() * sizeof(void*));
  for (const void* word : words) assert_non_null(word);
}

ddp_case(another_version_is_refused) {
  void* const module = dlopen(module_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto query = reinterpret_cast<ddp_gpu_query_fn>(dlsym(module, DDP_GPU_QUERY_NAME));
  assert_null(query(DDP_GPU_VERSION + 1));
  assert_ptr_equal(query(DDP_GPU_VERSION), table);
}

ddp_case(the_runtime_of_the_module_is_its_own) {
  void* const module = dlopen(module_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  assert_null(dlsym(module, "cudaMalloc"));
  assert_null(dlsym(RTLD_DEFAULT, "cudaMalloc"));
}

ddp_case(codes_say_what_to_do) {
  assert_int_equal(kind_of(0), DDP_GPU_OK);
  assert_int_equal(kind_of(2), DDP_GPU_OUT_OF_MEMORY);
  assert_int_equal(kind_of(1), DDP_GPU_BAD_ARGUMENT);
  assert_int_equal(kind_of(400), DDP_GPU_BAD_ARGUMENT);
  assert_int_equal(kind_of(35), DDP_GPU_NO_DRIVER);
  assert_int_equal(kind_of(803), DDP_GPU_NO_DRIVER);
  assert_int_equal(kind_of(802), DDP_GPU_NOT_READY);
  assert_int_equal(kind_of(209), DDP_GPU_NO_CODE);
  assert_int_equal(kind_of(222), DDP_GPU_NO_CODE);
  assert_int_equal(kind_of(100), DDP_GPU_NO_DEVICE);
  for (const int32_t code : {900, 901, 904, 905, 906, 907, 908}) assert_int_equal(kind_of(code), DDP_GPU_CAPTURE);
  for (const int32_t code : {46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
    assert_int_equal(kind_of(code), DDP_GPU_LOST);
  assert_int_equal(kind_of(999), DDP_GPU_OTHER);
  assert_int_equal(kind_of(123456), DDP_GPU_OTHER);
}

ddp_case(codes_have_names_and_texts) {
  assert_string_equal(table->error_name(35), "cudaErrorInsufficientDriver");
  assert_non_null(std::strstr(table->error_text(2), "memory"));
  assert_non_null(table->error_name(123456));
  assert_non_null(table->error_text(123456));
}

ddp_case(without_a_driver_there_are_no_devices) {
  if (has_driver()) skip();
  int32_t version = -1;
  assert_int_equal(table->driver_version(&version), 0);
  assert_int_equal(version, 0);
  int32_t count = -1;
  assert_int_equal(kind_of(table->device_count(&count)), DDP_GPU_NO_DRIVER);
  assert_int_equal(count, 0);
}

ddp_case(without_a_driver_all_memory_is_the_hosts) {
  if (has_driver()) skip();
  int here = 0;
  int32_t device = 7;
  int32_t host_reads = 0;
  assert_int_equal(table->pointer_device(&here, &device, &host_reads), 0);
  assert_int_equal(device, -1);
  assert_int_equal(host_reads, 1);
}

ddp_case(without_a_driver_every_call_says_so) {
  if (has_driver()) skip();
  void* out = &out;
  void* other = &out;
  int32_t number = 0;
  char name[8] = "none";
  std::vector<int32_t> codes{table->alloc(&out, 16),
                             table->host_alloc(&out, &other, 16),
                             table->stream_create(&out, 1),
                             table->event_create(&out, 0),
                             table->synchronize(),
                             table->load_kernels(),
                             table->set_device(0),
                             table->device_name(0, name, 8),
                             table->stream_synchronize(nullptr),
                             table->relax_capture(),
                             table->stream_is_capturing(nullptr, &number)};
  for (const int32_t code : codes) assert_int_equal(kind_of(code), DDP_GPU_NO_DRIVER);
  assert_null(out);
  assert_null(other);
  assert_string_equal(name, "");
}

ddp_gpu_span some_span() {
  static float numbers[8];
  return {numbers, numbers + 4, 4};
}

ddp_case(without_a_driver_kernels_are_refused) {
  if (has_driver()) skip();
  const ddp_gpu_span span = some_span();
  const ddp_gpu_shape shape{1, HUGE_VAL, nullptr, 0};
  const ddp_gpu_update update{span.to, span.from, {span.to, span.to}, nullptr, 4, 0};
  const ddp_gpu_adam_rule adam{};
  const ddp_gpu_sgd_rule sgd{};
  int64_t words[70]{};
  uint64_t bits = 0;
  ddp_gpu_gate gate{};
  for (const int32_t code :
       {table->move(&span, 1, 1, 1, 1.0, HUGE_VAL, nullptr, nullptr),
        table->move(&span, 1, 1, 3, 0.5, HUGE_VAL, nullptr, nullptr), table->exchange(&span, 1, nullptr),
        table->copy_bytes(&span, 1, nullptr, nullptr), table->ema(&span, 1, 1, 0.5, nullptr, nullptr),
        table->adam(&update, 1, &adam, 1, 1, &shape, nullptr, nullptr),
        table->sgd(&update, 1, &sgd, 1, 1, &shape, nullptr, nullptr), table->add_norm_terms(&span, 1, 1, 2, words, nullptr),
        table->largest(&span, 1, 1, &bits, nullptr), table->decide(words, 1, 0, 0, &gate, nullptr),
        table->hash(&span, 1, &bits, nullptr)})
    assert_int_equal(kind_of(code), DDP_GPU_NO_DRIVER);
}

ddp_case(nothing_to_do_is_done_without_a_device) {
  const ddp_gpu_span empty{nullptr, nullptr, 0};
  const ddp_gpu_shape shape{1, HUGE_VAL, nullptr, 0};
  assert_int_equal(table->move(nullptr, 0, 1, 1, 1.0, HUGE_VAL, nullptr, nullptr), 0);
  assert_int_equal(table->move(&empty, 1, 1, 4, 1.0, HUGE_VAL, nullptr, nullptr), 0);
  assert_int_equal(table->exchange(&empty, 1, nullptr), 0);
  assert_int_equal(table->copy_bytes(&empty, 1, nullptr, nullptr), 0);
  assert_int_equal(table->adam(nullptr, 0, nullptr, 0, 1, &shape, nullptr, nullptr), 0);
  assert_int_equal(table->add_norm_terms(&empty, 1, 1, 2, nullptr, nullptr), 0);
}

ddp_case(a_dtype_that_is_not_floating_is_a_bad_argument) {
  const ddp_gpu_span span = some_span();
  const ddp_gpu_shape shape{1, HUGE_VAL, nullptr, 0};
  const ddp_gpu_update update{span.to, span.from, {span.to, span.to}, nullptr, 4, 1};
  const ddp_gpu_adam_rule rule{};
  assert_int_equal(kind_of(table->move(&span, 1, 5, 1, 1.0, HUGE_VAL, nullptr, nullptr)), DDP_GPU_BAD_ARGUMENT);
  assert_int_equal(kind_of(table->move(&span, 1, 1, 0, 1.0, HUGE_VAL, nullptr, nullptr)), DDP_GPU_BAD_ARGUMENT);
  assert_int_equal(kind_of(table->ema(&span, 1, 8, 0.5, nullptr, nullptr)), DDP_GPU_BAD_ARGUMENT);
  assert_int_equal(kind_of(table->add_norm_terms(&span, 1, 1, 3, nullptr, nullptr)), DDP_GPU_BAD_ARGUMENT);
  assert_int_equal(kind_of(table->adam(&update, 1, &rule, 1, 1, &shape, nullptr, nullptr)),
                   DDP_GPU_BAD_ARGUMENT);  // no rule 1
}

ddp_before_cases({
  table = built_module();
  if (table == nullptr) std::exit(kSkipped);
});
