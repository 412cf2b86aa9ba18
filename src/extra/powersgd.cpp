// SPDX-License-Identifier: Apache-2.0
#include "extra/powersgd.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/low_rank.hpp"
#include "os/memory.hpp"
#include "parts/hooks/hook_bucket.hpp"

namespace ddp::extra {
namespace {

/// A gradient that is compressed. Positions are in elements.
struct Matrix {
  size_t piece = 0;
  cpu::LowRank shape;
  int64_t left = 0;          // of P, in the array of all P's
  int64_t right = 0;         // of Q
  bool taking_part = false;  // in this pass
  bool has_error = false;    // of earlier passes
  int32_t kept = 0;          // which of the two copies of its error and of its Q the last good pass left
  bool is_new = false;       // the last pass has filled the others
  [[nodiscard]] int64_t left_count() const noexcept { return shape.rank * shape.rows; }
  [[nodiscard]] int64_t right_count() const noexcept { return shape.rank * shape.columns; }
};

/// Nearly normal numbers, the same on all ranks: the sum of four uniform ones, exact in F32.
double random_entry(uint64_t seed, uint64_t stream, uint64_t at) noexcept {
  const uint64_t bits = philox_u64(seed, stream, at);
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (static_cast<double>(sum) - 131070.0) / 65536.0;
}

class PowerSgd {
 public:
  PowerSgd(const parts::HookBucket& bucket, const ddp_powersgd_options& options);
  void reduce(parts::HookBucket& bucket);

 private:
  [[nodiscard]] std::byte* at(std::byte* base, int64_t element) const noexcept { return base + element * size_; }
  [[nodiscard]] std::byte* gradient(const parts::HookBucket& bucket, const Matrix& matrix) const noexcept {
    return at(bucket.contents().data, bucket.pieces()[matrix.piece].offset);
  }
  void copy(std::byte* to, const std::byte* from, int64_t count) const noexcept {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count * size_));
  }
  [[nodiscard]] std::byte* error(const parts::HookBucket& bucket, const Matrix& matrix, int32_t copy) noexcept {
    return at(error_[copy].data(), bucket.pieces()[matrix.piece].offset);
  }
  [[nodiscard]] std::byte* right(const Matrix& matrix, int32_t copy) noexcept {
    return at(right_[copy].data(), matrix.right);
  }
  void fill_right(const Matrix& matrix, int32_t copy, int32_t first, int64_t pass) noexcept;
  void settle(parts::HookBucket& bucket) noexcept;
  void begin(const parts::HookBucket& bucket) noexcept;
  [[nodiscard]] int64_t gather(const parts::HookBucket& bucket, std::byte* message) noexcept;
  void unpack_rest(const parts::HookBucket& bucket, const std::byte* message) const noexcept;
  [[nodiscard]] int64_t project_back(const parts::HookBucket& bucket, const std::byte* sums, std::byte* message) noexcept;
  void finish(const parts::HookBucket& bucket, const std::byte* rights) noexcept;
  void finish(const parts::HookBucket& bucket, Matrix& matrix, const std::byte* sums) noexcept;
  void keep_right(const Matrix& matrix, const std::byte* sums, int64_t pass) noexcept;

  const ddp_powersgd_options options_;
  ddp_dtype dtype_;
  int64_t size_;  // bytes of an element
  std::vector<Matrix> matrices_;
  std::vector<size_t> rest_;  // pieces that are sent unchanged
  int64_t lefts_ = 0;         // elements of all P's, all Q's, the rest
  int64_t rights_ = 0;
  int64_t rest_count_ = 0;
  os::LargeArray error_[2];  // laid out as the bucket; see Matrix::kept
  os::LargeArray left_;      // P of this pass
  os::LargeArray own_;       // this rank's Q of this pass
  os::LargeArray right_[2];  // Q to begin a pass with
  int64_t loads_;            // before the last pass
  bool seeded_ = false;      // a good pass has left Q's
};

PowerSgd::PowerSgd(const parts::HookBucket& bucket, const ddp_powersgd_options& options)
    : options_(options), dtype_(bucket.contents().dtype), size_(dtype_size(dtype_)), loads_(bucket.loads()) {
  for (size_t piece = 0; piece < bucket.pieces().size(); ++piece) {
    const Tensor& shape = bucket.pieces()[piece].shape;
    Matrix matrix;
    matrix.piece = piece;
    matrix.shape.dtype = dtype_;
    matrix.shape.rows = shape.ndim > 0 ? shape.shape[0] : 1;
    matrix.shape.columns = matrix.shape.rows > 0 ? shape.count / matrix.shape.rows : 0;
    matrix.shape.rank = static_cast<int32_t>(std::min<int64_t>({options.rank, matrix.shape.rows, matrix.shape.columns}));
    const auto sent = static_cast<double>(matrix.shape.rows + matrix.shape.columns) * matrix.shape.rank;
    if (shape.ndim < 2 || shape.count == 0 || sent * options.min_compression_rate >= static_cast<double>(shape.count)) {
      rest_.push_back(piece);
      rest_count_ += shape.count;
      continue;
    }
    matrix.left = lefts_;
    matrix.right = rights_;
    lefts_ += matrix.left_count();
    rights_ += matrix.right_count();
    matrices_.push_back(matrix);
  }
  const auto array = [&](int64_t count) {
    return os::LargeArray(static_cast<size_t>(std::max<int64_t>(count, 1) * size_), "PowerSGD");
  };
  for (int copy = 0; copy < 2; ++copy) {
    if (options_.error_feedback != 0) error_[copy] = array(matrices_.empty() ? 0 : bucket.contents().count);
    right_[copy] = array(rights_);
  }
  left_ = array(lefts_);
  own_ = array(rights_);
}

/// Random vectors from `first` on.
void PowerSgd::fill_right(const Matrix& matrix, int32_t copy, int32_t first, int64_t pass) noexcept {
  const uint64_t stream = static_cast<uint64_t>(pass) << 16 ^ static_cast<uint64_t>(matrix.piece) << 40;
  for (int64_t i = first * matrix.shape.columns; i < (first + 1) * matrix.shape.columns; ++i) {
    const double value = random_entry(static_cast<uint64_t>(options_.seed), stream, static_cast<uint64_t>(matrix.right + i));
    const auto single = static_cast<float>(value);
    std::byte* const to = at(right(matrix, copy), i);
    if (dtype_ == DDP_F32)
      std::memcpy(to, &single, sizeof single);
    else
      std::memcpy(to, &value, sizeof value);
  }
}

/// Takes over what the last pass left if it ended well. After a load nothing counts.
void PowerSgd::settle(parts::HookBucket& bucket) noexcept {
  const bool loaded = std::exchange(loads_, bucket.loads()) != bucket.loads();
  const bool good = bucket.take_draft();
  seeded_ = !loaded && (seeded_ || good);
  for (Matrix& matrix : matrices_) {
    if (std::exchange(matrix.is_new, false) && good) {
      matrix.kept = 1 - matrix.kept;
      matrix.has_error = true;
    }
    if (loaded) matrix.has_error = false;
  }
}

void PowerSgd::begin(const parts::HookBucket& bucket) noexcept {
  for (Matrix& matrix : matrices_) {
    matrix.taking_part = bucket.is_used(matrix.piece);
    for (int32_t k = 0; k < matrix.shape.rank && (!seeded_ || options_.warm_start == 0); ++k)
      fill_right(matrix, matrix.kept, k, bucket.pass_number());
  }
}

/// The rest and the P's, one after the other; answers their number of elements.
int64_t PowerSgd::gather(const parts::HookBucket& bucket, std::byte* message) noexcept {
  int64_t count = 0;
  for (const size_t piece : rest_) {
    const parts::HookBucket::Piece& where = bucket.pieces()[piece];
    copy(at(message, count), at(bucket.contents().data, where.offset), where.shape.count);
    count += where.shape.count;
  }
  for (const Matrix& matrix : matrices_) {
    if (!matrix.taking_part) continue;
    std::byte* const gradient_here = gradient(bucket, matrix);
    const int64_t elements = matrix.shape.rows * matrix.shape.columns;
    if (options_.error_feedback != 0 && matrix.has_error)
      cpu::add_to(dtype_, gradient_here, error(bucket, matrix, matrix.kept), elements);
    cpu::project(matrix.shape, gradient_here, right(matrix, matrix.kept), at(message, count));
    count += matrix.left_count();
  }
  return count;
}

void PowerSgd::unpack_rest(const parts::HookBucket& bucket, const std::byte* message) const noexcept {
  for (const size_t piece : rest_) {
    const parts::HookBucket::Piece& where = bucket.pieces()[piece];
    copy(at(bucket.contents().data, where.offset), message, where.shape.count);
    message += where.shape.count * size_;
  }
}

/// P made orthonormal from the sums of the ranks, and the Q's of this rank; answers their number of elements.
int64_t PowerSgd::project_back(const parts::HookBucket& bucket, const std::byte* sums, std::byte* message) noexcept {
  int64_t count = 0;
  for (const Matrix& matrix : matrices_) {
    if (!matrix.taking_part) continue;
    std::byte* const left = at(left_.data(), matrix.left);
    std::byte* const own = at(own_.data(), matrix.right);
    copy(left, sums, matrix.left_count());
    sums += matrix.left_count() * size_;
    // What is not finite stays so: the basis would hide it.
    if (cpu::count_nonfinite(dtype_, left, matrix.left_count()) == 0)
      cpu::orthonormalize(dtype_, left, matrix.shape.rows, matrix.shape.rank);
    cpu::project_back(matrix.shape, gradient(bucket, matrix), left, own);
    copy(at(message, count), own, matrix.right_count());
    count += matrix.right_count();
  }
  return count;
}

/// The next pass begins with this Q. A vector that is zero would stay zero for ever, so it begins anew.
void PowerSgd::keep_right(const Matrix& matrix, const std::byte* sums, int64_t pass) noexcept {
  const int32_t next = 1 - matrix.kept;
  copy(right(matrix, next), sums, matrix.right_count());
  for (int32_t k = 0; k < matrix.shape.rank; ++k) {
    const int64_t first = k * matrix.shape.columns;
    if (!(cpu::largest_magnitude(dtype_, at(right(matrix, next), first), matrix.shape.columns) > 0))
      fill_right(matrix, next, k, pass);
  }
}

void PowerSgd::finish(const parts::HookBucket& bucket, Matrix& matrix, const std::byte* sums) noexcept {
  std::byte* const mine = gradient(bucket, matrix);
  const int64_t elements = matrix.shape.rows * matrix.shape.columns;
  const std::byte* const left = at(left_.data(), matrix.left);
  if (cpu::count_nonfinite(dtype_, left, matrix.left_count()) + cpu::count_nonfinite(dtype_, sums, matrix.right_count()) >
      0) {
    cpu::scale(dtype_, mine, elements, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  if (options_.error_feedback != 0) {
    std::byte* const lost = error(bucket, matrix, 1 - matrix.kept);
    copy(lost, mine, elements);
    cpu::subtract_expanded(matrix.shape, left, at(own_.data(), matrix.right), lost);
  }
  cpu::expand(matrix.shape, left, sums, mine);
  keep_right(matrix, sums, bucket.pass_number());
  matrix.is_new = true;
}

void PowerSgd::finish(const parts::HookBucket& bucket, const std::byte* rights) noexcept {
  for (Matrix& matrix : matrices_) {
    if (!matrix.taking_part) continue;
    finish(bucket, matrix, rights);
    rights += matrix.right_count() * size_;
  }
}

void PowerSgd::reduce(parts::HookBucket& bucket) {
  settle(bucket);
  begin(bucket);
  bucket.note_draft();
  std::byte* const message = bucket.scratch((rest_count_ + lefts_ + rights_) * size_);
  std::byte* const rights = at(message, rest_count_ + lefts_);
  const int64_t first = gather(bucket, message);
  bucket.all_reduce(flat_tensor(message, dtype_, first), bucket.reduce());
  unpack_rest(bucket, message);
  const int64_t second = project_back(bucket, at(message, rest_count_), rights);
  if (second == 0) return;
  bucket.all_reduce(flat_tensor(rights, dtype_, second), bucket.reduce());
  finish(bucket, rights);
}

}  // namespace

ddp_powersgd_options default_powersgd_options() noexcept {
  ddp_powersgd_options options{};
  options.seed = 0;
  options.start_pass = 1000;
  options.min_compression_rate = 2;
  options.rank = 1;
  options.warm_start = 1;
  options.error_feedback = 1;
  return options;
}

void check_powersgd_options(const ddp_powersgd_options& options, const char* function) {
  if (options.rank < 1 || options.rank > 1024)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: rank is %d; it is 1 to 1,024", function, options.rank);
  if (options.start_pass < 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: start_pass is %lld; it is 0 or more", function,
                     static_cast<long long>(options.start_pass));
  if (!(options.min_compression_rate >= 1) || !std::isfinite(options.min_compression_rate))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: min_compression_rate is %g; it is 1 or more", function,
                     options.min_compression_rate);
  if ((options.warm_start | 1) != 1 || (options.error_feedback | 1) != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: warm_start is %d and error_feedback is %d; they are 0 or 1", function,
                     options.warm_start, options.error_feedback);
}

void reduce_by_powersgd(parts::HookBucket& bucket, const ddp_powersgd_options& options) {
  const Tensor whole = bucket.contents();
  if (bucket.size() == 1) return;
  if (bucket.pass_number() <= options.start_pass || (whole.dtype != DDP_F32 && whole.dtype != DDP_F64))
    return bucket.all_reduce(whole, bucket.reduce());
  if (bucket.state == nullptr) bucket.state = std::make_shared<PowerSgd>(bucket, options);
  static_cast<PowerSgd*>(bucket.state.get())->reduce(bucket);
}

parts::Hook powersgd_hook(const ddp_powersgd_options& options) {
  parts::Hook hook;
  hook.kind = parts::Hook::Kind::kCallback;
  hook.name = "powersgd of rank " + std::to_string(options.rank) + " after " + std::to_string(options.start_pass) +
              " passes, rate " + std::to_string(options.min_compression_rate) + ", seed " + std::to_string(options.seed) +
              (options.warm_start != 0 ? ", warm start" : "") + (options.error_feedback != 0 ? ", error feedback" : "");
  hook.body = [options](parts::HookBucket& bucket) { reduce_by_powersgd(bucket, options); };
  return hook;
}

}  // namespace ddp::extra
