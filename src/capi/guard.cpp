// SPDX-License-Identifier: Apache-2.0
#include "capi/guard.hpp"

#include <algorithm>
#include <cstring>

namespace ddp::capi {
namespace {

/// The first numbers of a list.
struct List {
  int32_t count;  // of the whole list
  int32_t numbers[DDP_MAX_ERROR_LIST];

  void set(std::span<const int32_t> whole) noexcept {
    count = static_cast<int32_t>(whole.size());
    const auto kept = std::min<size_t>(whole.size(), DDP_MAX_ERROR_LIST);
    std::copy_n(whole.begin(), kept, numbers);
  }
  [[nodiscard]] std::span<const int32_t> kept() const noexcept {
    return {numbers, std::min<size_t>(static_cast<size_t>(count), DDP_MAX_ERROR_LIST)};
  }
};

struct OfThread {
  char text[kErrorCapacity];
  ddp_error_details details;
  List ranks;
  List parameters;
};
constinit thread_local OfThread of_thread{};

}  // namespace

void set_last_error(ddp_status status, const char* text, int32_t call) noexcept {
  std::strncpy(of_thread.text, text, kErrorCapacity - 1);
  of_thread.text[kErrorCapacity - 1] = '\0';
  of_thread.ranks.count = of_thread.parameters.count = 0;
  of_thread.details = {};
  of_thread.details.status = status;
  of_thread.details.call = call;
  of_thread.details.bytes_expected = of_thread.details.bytes_got = -1;
}

void set_last_error(const Error& error, int32_t call) noexcept {
  set_last_error(error.status(), error.what(), call);
  if (const int32_t culprit = error.culprit(); culprit >= 0) of_thread.ranks.set({&culprit, 1});
  ddp_error_details& details = of_thread.details;
  if (const ErrorDetails* const of = error.details()) {
    if (!of->ranks.empty()) of_thread.ranks.set(of->ranks);
    of_thread.parameters.set(of->parameters);
    if (of->call != 0) details.call = of->call;
    details.other_call = of->other_call;
    details.bytes_expected = of->bytes_expected;
    details.bytes_got = of->bytes_got;
  }
  details.rank_count = of_thread.ranks.count;
  details.parameter_count = of_thread.parameters.count;
}

const char* last_error() noexcept { return of_thread.text; }

ddp_error_details last_details() noexcept {
  ddp_error_details details = of_thread.details;
  if (details.status == DDP_OK) details.bytes_expected = details.bytes_got = -1;
  return details;
}

std::span<const int32_t> last_ranks() noexcept { return of_thread.ranks.kept(); }

std::span<const int32_t> last_parameters() noexcept { return of_thread.parameters.kept(); }

}  // namespace ddp::capi
