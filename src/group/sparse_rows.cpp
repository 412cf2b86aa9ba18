// SPDX-License-Identifier: Apache-2.0
#include "group/sparse_rows.hpp"

#include <algorithm>
#include <cstring>

#include "core/differing_ranks.hpp"
#include "device/cpu/reduce.hpp"
#include "group/consensus.hpp"

namespace ddp::group {
namespace {

/// What all ranks tell each other first.
struct Head {
  int64_t dtype, op, width, count;
};
constexpr int64_t kHeadWords = 4;
static_assert(sizeof(Head) == kHeadWords * sizeof(int64_t));

std::vector<int64_t> sorted_unique(std::vector<int64_t> indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

std::vector<int64_t> read_indices(const Tensor& tensor) {
  std::vector<int64_t> indices(static_cast<size_t>(tensor.count));
  if (tensor.count > 0) std::memcpy(indices.data(), tensor.data, static_cast<size_t>(tensor.bytes()));
  return indices;
}

std::string describe(const Head& head) {
  return std::string(dtype_name(static_cast<ddp_dtype>(head.dtype))) + " rows of " + std::to_string(head.width) +
         " elements (" + (head.op == DDP_AVERAGE ? "average" : "sum") + ")";
}

/// Returns the largest count.
int64_t check_heads(const Group& group, const std::vector<Head>& heads) {
  int64_t most = 0;
  const auto is_other = [&](size_t rank) {
    const Head& head = heads[rank];
    return head.dtype != heads[0].dtype || head.op != heads[0].op || head.width != heads[0].width;
  };
  for (size_t rank = 0; rank < heads.size(); ++rank) {
    const Head& head = heads[rank];
    if (is_other(rank))
      throw make_error(DDP_ERROR_MISMATCH, "ddp_group_all_reduce_rows: rank 0 gives %s, but %s gives %s",
                       describe(heads[0]).c_str(), group.name_of(static_cast<int32_t>(rank)).c_str(), describe(head).c_str())
          .with(ranks_that_differ(heads.size(), is_other));
    most = std::max(most, head.count);
  }
  return most;
}

}  // namespace

int64_t Rows::all_reduce(Group& group, const Tensor& indices, const Tensor& rows, ddp_reduce op) {
  has_result_ = false;
  dtype_ = rows.dtype;
  width_ = 1;
  for (int32_t d = 1; d < rows.ndim; ++d) width_ *= rows.shape[static_cast<size_t>(d)];
  const std::vector<int64_t> mine = sorted_unique(read_indices(indices));
  Head head{rows.dtype, op, width_, static_cast<int64_t>(mine.size())};
  std::vector<Head> heads(static_cast<size_t>(group.size()));
  group.all_gather(flat_tensor(&head, DDP_I64, kHeadWords), flat_tensor(heads.data(), DDP_I64, kHeadWords * group.size()));
  exchange_indices(group, mine, check_heads(group, heads));
  const auto count = static_cast<int64_t>(indices_.size());
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count, row_bytes(), &bytes))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_group_all_reduce_rows: the rows of all ranks have more than 2^63 bytes");
  if (static_cast<size_t>(bytes) > values_.size()) {  // on all ranks alike, because they have had the same results
    std::vector<std::byte> larger;
    all_or_none(group, "memory for rows", [&] {
      if (try_to([&] { larger.resize(static_cast<size_t>(bytes)); }))
        throw make_error(DDP_ERROR_OUT_OF_MEMORY, "ddp_group_all_reduce_rows: no memory for %lld rows on %s",
                         static_cast<long long>(count), group.name_of(group.rank()).c_str());
    });
    values_ = std::move(larger);
  }
  lay_out(indices, rows);
  if (bytes > 0) group.all_reduce(flat_tensor(values_.data(), dtype_, count * width_), op);
  has_result_ = true;
  return count;
}

/// Afterwards indices_ is the union. Lists are filled up to the longest with -1.
void Rows::exchange_indices(Group& group, const std::vector<int64_t>& mine, int64_t most) {
  std::vector<int64_t> padded(mine);
  padded.resize(static_cast<size_t>(most), -1);
  std::vector<int64_t> all(static_cast<size_t>(most) * static_cast<size_t>(group.size()));
  if (most > 0)
    group.all_gather(flat_tensor(padded.data(), DDP_I64, most),
                     flat_tensor(all.data(), DDP_I64, static_cast<int64_t>(all.size())));
  indices_ = sorted_unique(std::move(all));
  if (!indices_.empty() && indices_.front() == -1) indices_.erase(indices_.begin());
}

/// Own rows into their places of the union, zeros elsewhere. Rows with the same index are added in the order in which they
/// were given, as a dense gradient would hold them.
void Rows::lay_out(const Tensor& indices, const Tensor& rows) {
  const auto bytes = static_cast<size_t>(row_bytes());
  if (bytes == 0 || indices_.empty()) return;
  std::memset(values_.data(), 0, bytes * indices_.size());
  std::vector<bool> taken(indices_.size(), false);
  const cpu::ReduceRule rule{dtype_, DDP_SUM, 1};
  const std::vector<int64_t> given = read_indices(indices);
  for (size_t i = 0; i < given.size(); ++i) {
    const auto place = static_cast<size_t>(std::lower_bound(indices_.begin(), indices_.end(), given[i]) - indices_.begin());
    std::byte* const to = values_.data() + place * bytes;
    const std::byte* const from = rows.data + i * bytes;
    if (!taken[place]) {
      std::memcpy(to, from, bytes);
      taken[place] = true;
      continue;
    }
    const void* const in[] = {to, from};
    void* out = to;
    cpu::reduce(rule, in, 2, &out, 1, width_);
  }
}

void Rows::get(const Tensor& indices, const Tensor& rows) const {
  if (!has_result_)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_group_get_rows: there is no result; call ddp_group_all_reduce_rows first");
  const auto count = static_cast<int64_t>(indices_.size());
  if (indices.count != count || rows.count != count * width_ || rows.dtype != dtype_)
    throw make_error(
        DDP_ERROR_INVALID_ARGUMENT,
        "ddp_group_get_rows: indices is %s and rows is %s; the result has %lld indices and as many rows of %lld %s",
        ddp::describe(indices).c_str(), ddp::describe(rows).c_str(), static_cast<long long>(count),
        static_cast<long long>(width_), dtype_name(dtype_));
  if (count > 0) std::memcpy(indices.data, indices_.data(), indices_.size() * sizeof(int64_t));
  if (rows.bytes() > 0) std::memcpy(rows.data, values_.data(), static_cast<size_t>(rows.bytes()));
}

}  // namespace ddp::group
