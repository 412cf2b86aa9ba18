// SPDX-License-Identifier: Apache-2.0
#include "core/description.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/bytes.hpp"

namespace ddp {
namespace {

const char* reduce_name(ddp_reduce reduce) { return reduce == DDP_AVERAGE ? "average" : "sum"; }
const char* unused_name(ddp_unused unused) { return unused == DDP_UNUSED_ERROR ? "error" : "allow"; }

std::string in_quotes(const std::string& name) { return "\"" + name + "\""; }

/// "parameter 3 is " + value; the part before the value is the same on all ranks that have the line at all.
struct Split {
  std::string subject;
  std::string value;
};
Split split(const std::string& line) {
  const size_t at = line.find(" is ");
  return at == std::string::npos ? Split{line, ""} : Split{line.substr(0, at), line.substr(at + 4)};
}

constexpr const char* kParameter = "parameter ";
constexpr const char* kEnd = "the end of the list";

std::string line_at(const std::vector<std::string>& lines, size_t at) { return at < lines.size() ? lines[at] : kEnd; }

/// Of a line about a parameter, whose value ends in `F32 [4, 5]`; -1 of any other.
int64_t bytes_in(const std::string& line) {
  const size_t open = line.rfind(" ["), name = line.rfind("\" ", open);
  if (!line.starts_with(kParameter) || open == std::string::npos || name == std::string::npos) return -1;
  const std::string dtype = line.substr(name + 2, open - name - 2);
  int64_t bytes = -1;
  for (int32_t each = DDP_F32; each <= DDP_C128; ++each)
    if (dtype == dtype_name(static_cast<ddp_dtype>(each))) bytes = dtype_size(static_cast<ddp_dtype>(each));
  const char* at = line.c_str() + open + 2;
  for (char* end = nullptr; bytes >= 0 && *at != ']' && *at != '\0'; at = *end == ',' ? end + 1 : end) {
    bytes *= std::strtoll(at, &end, 10);
    if (end == at) return -1;
  }
  return bytes;
}

}  // namespace

std::vector<std::string> describe_model(const Parameters& table, const ddp_model_options& options, const std::string& hook) {
  std::vector<std::string> lines;
  lines.push_back(std::string("the library's version is ") + DDP_VERSION_STRING);
  const auto is_there = [](const auto& lent) { return !lent.removed; };
  const auto count = [&](const auto& all) { return std::to_string(std::count_if(all.begin(), all.end(), is_there)); };
  lines.push_back("the number of parameters is " + count(table.parameters()));
  lines.push_back("the number of buffers is " + count(table.buffers()));
  size_t position = 0;
  for (const Parameter& parameter : table.parameters())
    if (is_there(parameter))
      lines.push_back("parameter " + std::to_string(position++) + " is " + in_quotes(parameter.name) + " " +
                      describe(declared_view(parameter.value, parameter.declared)));
  position = 0;
  for (const Buffer& buffer : table.buffers())
    if (is_there(buffer))
      lines.push_back("buffer " + std::to_string(position++) + " is " + in_quotes(buffer.name) + " " +
                      describe(declared_view(buffer.value, buffer.declared)));
  lines.push_back("first_bucket_bytes is " + std::to_string(options.first_bucket_bytes));
  lines.push_back("bucket_bytes is " + std::to_string(options.bucket_bytes));
  lines.push_back(std::string("reduce is ") + reduce_name(options.reduce));
  lines.push_back(std::string("unused is ") + unused_name(options.unused));
  lines.push_back("check_every is " + std::to_string(options.check_every));
  lines.push_back(std::string("drift is ") + (options.drift == DDP_DRIFT_REPORT ? "report" : "resend"));
  lines.push_back("hook is " + hook);
  lines.push_back(std::string("divisor is ") +
                  (options.divisor == DDP_DIVISOR_WORLD ? "the number of ranks" : "the sum of the weights"));
  lines.push_back("uneven_inputs is " + std::to_string(options.uneven_inputs));
  lines.push_back("own_values is " + std::to_string(options.own_values));
  // Counts are compared last: the first parameter that is missing or different is more useful than a number.
  std::rotate(lines.begin() + 1, lines.begin() + 3, lines.end());
  return lines;
}

std::vector<std::string> describe_buckets(const GivenBuckets& buckets) {
  std::vector<std::string> lines;
  for (const std::vector<int32_t>& bucket : buckets) {
    std::string line = "bucket " + std::to_string(lines.size()) + " of ddp_model_set_buckets is";
    for (const int32_t parameter : bucket) line += " " + std::to_string(parameter);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string pack_lines(const std::vector<std::string>& lines) {
  ByteWriter writer;
  for (const std::string& line : lines) writer.text(line);
  return std::move(writer).bytes();
}

std::vector<std::string> unpack_lines(std::string_view packed) {
  std::vector<std::string> lines;
  for (ByteReader reader(packed); !reader.at_end();) lines.emplace_back(reader.text());
  return lines;
}

std::string name_ranks(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

ErrorDetails details_of_difference(const std::vector<std::vector<std::string>>& by_rank) {
  ErrorDetails details;
  size_t longest = 0;
  for (const auto& lines : by_rank) longest = std::max(longest, lines.size());
  for (size_t at = 0; at < longest && details.ranks.empty(); ++at) {
    const std::string first = line_at(by_rank[0], at);
    for (size_t rank = 1; rank < by_rank.size(); ++rank)
      if (line_at(by_rank[rank], at) != first) details.ranks.push_back(static_cast<int32_t>(rank));
    if (details.ranks.empty()) continue;
    const std::string other = line_at(by_rank[static_cast<size_t>(details.ranks.front())], at);
    const std::string& named = first.starts_with(kParameter) ? first : other;
    if (!named.starts_with(kParameter)) return details;
    details.parameters = {std::atoi(named.c_str() + std::strlen(kParameter))};
    details.bytes_expected = bytes_in(first);
    details.bytes_got = bytes_in(other);
  }
  return details;
}

std::optional<std::string> first_difference(const std::vector<std::vector<std::string>>& by_rank) {
  size_t longest = 0;
  for (const auto& lines : by_rank) longest = std::max(longest, lines.size());
  for (size_t at = 0; at < longest; ++at) {
    std::map<std::string, std::vector<int32_t>> ranks_of;
    std::vector<std::string> order;  // rank 0's first
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      const std::string line = line_at(by_rank[rank], at);
      if (ranks_of[line].empty()) order.push_back(line);
      ranks_of[line].push_back(static_cast<int32_t>(rank));
    }
    if (order.size() == 1) continue;
    const Split first = split(order[0]);
    std::string text = first.subject + " is " + first.value + " on " + name_ranks(ranks_of[order[0]]);
    for (size_t i = 1; i < order.size(); ++i) {
      const Split other = split(order[i]);
      text += ", but " + (other.subject == first.subject ? other.value : order[i]) + " on " + name_ranks(ranks_of[order[i]]);
    }
    return text;
  }
  return std::nullopt;
}

}  // namespace ddp
