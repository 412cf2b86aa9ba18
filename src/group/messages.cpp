// SPDX-License-Identifier: Apache-2.0
#include "group/messages.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/differing_ranks.hpp"
#include "ddp/messages.h"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/collective_call.hpp"
#include "group/group.hpp"
#include "group/staged.hpp"

namespace ddp::group {
namespace {

/// run_or_post() for a collective between hosts, whose tensors may be on GPUs: stage(tensors) reads and writes them through
/// its argument, and returns the body. When a posted call returns, the copies that it needs are on `stream`.
template <class Stage>
void run_or_post_staged(Group& group, bootstrap::UserCall call, void* stream, Posting posting, const Stage& stage) {
  if (posting == nullptr)
    return run_collective(group, call, [&] {
      StagedTensors tensors(group, bootstrap::name_of(call), stream);
      const auto body = stage(tensors);
      tensors.await();
      body(Sequence{group.channels().own(), messages::Space::kCollective});
      tensors.deliver();
    });
  const auto tensors = std::make_shared<StagedTensors>(group, name_as_made(call, posting), stream);
  begin_post(group, bootstrap::posted(call));
  run_or_post(group, call, posting, [tensors, body = stage(*tensors)](const Sequence& in) {
    tensors->await();
    body(in);
  });
  if (tensors->delivers()) (*posting)->at_end([tensors] { tensors->deliver(); });
}

using bootstrap::UserCall;
using collective::Collective;

constexpr int64_t kPaddedBytes = 64 << 10;  // of all ranks, up to which parts of different sizes are gathered at once

messages::Content content_of(const Tensor& tensor) noexcept { return {tensor.dtype, tensor.count}; }

void check_peer(const Group& group, const char* function, const char* what, int32_t peer) {
  if (peer == group.rank())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is %d, which is this rank itself", function, what, peer);
  if (peer < 0 || peer >= group.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is %d; the group has the ranks 0 to %d", function, what, peer,
                     group.size() - 1);
}

void check_tag(const char* function, int64_t tag) {
  if (tag < 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: tag is %lld; it is 0 or more", function, static_cast<long long>(tag));
}

/// One message: body() begins it and waits. Other threads of the rank may send and receive at the same time.
template <class Body>
void run_message(Group& group, UserCall call, const Body& body) {
  group.health().check_no_fault();
  const bootstrap::CallState::InMessage inside(group.calls(), call);
  group.health().check_open();  // again: exit() looks in the other order
  on_error(body, [&](const Error& error) { fail_message(group.health(), error); });
}

/// body() begins and posts it.
template <class Body>
void post_message(Group& group, UserCall call, const Body& body) {
  group.health().check_no_fault();
  const bootstrap::CallState::InMessage inside(group.calls(), bootstrap::posted(call));
  body();
}

void check_message(const messages::Request& request) {
  if (request.error.has_value()) throw Error(*request.error);
}

void copy(const Tensor& from, const Tensor& to) noexcept {
  if (from.bytes() > 0 && from.data != to.data) std::memmove(to.data, from.data, static_cast<size_t>(from.bytes()));
}

/// A part of a tensor, and the rank that it goes to or comes from.
struct Parcel {
  int32_t peer = 0;
  Tensor part;
};

/// All of them at once; receives are posted first. What is for this rank itself is not among them.
void exchange(Group& group, const Sequence& in, const std::vector<Parcel>& sent, const std::vector<Parcel>& received) {
  messages::Messenger& messenger = group.channels().messenger();
  const messages::Key key = messenger.next_collective(in.space);
  std::vector<messages::RequestPtr> requests;
  requests.reserve(sent.size() + received.size());
  const auto run = [&] {
    for (const Parcel& each : received)
      requests.push_back(messenger.receive(each.peer, key, content_of(each.part), each.part.data));
    for (const Parcel& each : sent)
      requests.push_back(messenger.send(each.peer, key, content_of(each.part), each.part.data));
    for (const messages::RequestPtr& request : requests) {
      messenger.wait(request);
      if (request->error.has_value()) throw Error(DDP_ERROR_INTERNAL, request->error->text());
    }
  };
  on_error(run, [&](const Error&) {
    for (const messages::RequestPtr& request : requests) messenger.drop(request);
  });
}

/// Of a tensor that has as many elements for each rank.
Tensor part_of(const Tensor& whole, int32_t ranks, int32_t rank) noexcept {
  const int64_t count = whole.count / ranks;
  return flat_part(whole, rank * count, count);
}

void check_root_tensor(const Group& group, const char* function, const char* what, const Tensor* whole, const Tensor& part,
                       int32_t root) {
  check_root(group, function, root);
  if (group.rank() != root) return;
  if (whole == nullptr)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is NULL, and this rank is root", function, what);
  if (whole->dtype != part.dtype || whole->count != part.count * group.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is %s; for %s on %d ranks it must have %lld elements", function,
                     what, describe(*whole).c_str(), describe(part).c_str(), group.size(),
                     static_cast<long long>(part.count) * group.size());
}

/// Every rank's numbers, rank after rank.
std::vector<int64_t> exchange_numbers(const Group& group, const Sequence& in, std::vector<int64_t> mine) {
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(group.size()));
  const auto count = static_cast<int64_t>(mine.size());
  in.transport.all_gather(flat_tensor(mine.data(), DDP_I64, count), flat_tensor(all.data(), DDP_I64, count * group.size()));
  return all;
}

/// Equal on all ranks: they have told each other.
[[noreturn]] void refuse(const Error& why) { throw Error(why).as_agreed(); }

void check_counts(const char* function, const char* what, const std::vector<int64_t>& counts, const Tensor& tensor) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    if (counts[rank] < 0 || __builtin_add_overflow(sum, counts[rank], &sum))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s[%zu] is %lld; it is 0 or more, and the tensor is %s", function,
                       what, rank, static_cast<long long>(counts[rank]), describe(tensor).c_str());
  if (sum != tensor.count)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s add up to %lld elements, but the tensor is %s", function, what,
                     static_cast<long long>(sum), describe(tensor).c_str());
}

/// What was given, or as many for each rank.
std::vector<int64_t> counts_or_equal(const char* function, const char* what, std::vector<int64_t> counts,
                                     const Tensor& tensor, int32_t ranks) {
  if (!counts.empty()) {
    check_counts(function, what, counts, tensor);
    return counts;
  }
  if (tensor.count % ranks != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: the tensor is %s, which %d ranks do not share evenly; give %s, or another size", function,
                     describe(tensor).c_str(), ranks, what);
  return std::vector<int64_t>(static_cast<size_t>(ranks), tensor.count / ranks);
}

/// By rank: adjacent parts of a tensor.
std::vector<Tensor> parts_of(const Tensor& tensor, const std::vector<int64_t>& counts) {
  std::vector<Tensor> parts;
  int64_t first = 0;
  for (const int64_t count : counts) {
    parts.push_back(flat_part(tensor, first, count));
    first += count;
  }
  return parts;
}

/// `sent` and `expected` in elements.
ErrorDetails of_sizes(size_t from, size_t to, int64_t element, int64_t expected, int64_t sent) {
  std::vector<int32_t> ranks{static_cast<int32_t>(std::min(from, to))};
  if (from != to) ranks.push_back(static_cast<int32_t>(std::max(from, to)));
  return {.ranks = std::move(ranks), .bytes_expected = expected * element, .bytes_got = sent * element};
}

/// `all`: by rank a dtype, what it sends to each, and what it expects of each.
void check_exchange(const Group& group, const char* name, const std::vector<int64_t>& all) {
  const auto ranks = static_cast<size_t>(group.size());
  const auto row = [&](size_t rank) { return all.data() + rank * (1 + 2 * ranks); };
  const auto has_other_type = [&](size_t rank) { return row(rank)[0] != row(0)[0]; };
  for (size_t rank = 1; rank < ranks; ++rank)
    if (has_other_type(rank))
      refuse(make_error(DDP_ERROR_MISMATCH, "%s: %s gives %s, but %s gives %s", name, group.name_of(0).c_str(),
                        dtype_name(static_cast<ddp_dtype>(row(0)[0])), group.name_of(static_cast<int32_t>(rank)).c_str(),
                        dtype_name(static_cast<ddp_dtype>(row(rank)[0])))
                 .with(ranks_that_differ(ranks, has_other_type)));
  for (size_t from = 0; from < ranks; ++from)
    for (size_t to = 0; to < ranks; ++to)
      if (const int64_t sent = row(from)[1 + to], expected = row(to)[1 + ranks + from]; sent != expected)
        refuse(make_error(DDP_ERROR_MISMATCH, "%s: %s sends %s %lld elements, which expects %lld of it", name,
                          group.name_of(static_cast<int32_t>(from)).c_str(), group.name_of(static_cast<int32_t>(to)).c_str(),
                          static_cast<long long>(sent), static_cast<long long>(expected))
                   .with(of_sizes(from, to, dtype_size(static_cast<ddp_dtype>(row(from)[0])), expected, sent)));
}

/// `all`: by rank as many numbers, which are to be the same.
void check_equal(const Group& group, const char* name, const std::vector<int64_t>& all, size_t numbers) {
  const auto has_others = [&](size_t rank) {
    const auto theirs = all.begin() + static_cast<std::ptrdiff_t>(rank * numbers);
    return !std::equal(theirs, theirs + static_cast<std::ptrdiff_t>(numbers), all.begin());
  };
  for (size_t at = 0; at < all.size(); ++at)
    if (all[at] != all[at % numbers])
      refuse(make_error(DDP_ERROR_MISMATCH, "%s: counts or types differ: %s has %lld where %s has %lld", name,
                        group.name_of(0).c_str(), static_cast<long long>(all[at % numbers]),
                        group.name_of(static_cast<int32_t>(at / numbers)).c_str(), static_cast<long long>(all[at]))
                 .with(ranks_that_differ(all.size() / numbers, has_others)));
}

/// After the ranks have compared their counts.
void exchange_parts(Group& group, const Sequence& in, const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
  std::vector<Parcel> sends, receives;
  for (int32_t step = 1; step < group.size(); ++step) {  // each rank begins with another one
    const int32_t next = (group.rank() + step) % group.size();
    const int32_t before = (group.rank() - step + group.size()) % group.size();
    if (from[static_cast<size_t>(next)].count > 0) sends.push_back({next, from[static_cast<size_t>(next)]});
    if (to[static_cast<size_t>(before)].count > 0) receives.push_back({before, to[static_cast<size_t>(before)]});
  }
  const auto self = static_cast<size_t>(group.rank());
  copy(from[self], to[self]);
  if (group.size() > 1) exchange(group, in, sends, receives);
}

/// The same: the parts of all ranks, of which this rank has its own.
void gather_parts(const Group& group, collective::Transport& transport, const Tensor& input,
                  const std::vector<Tensor>& parts) {
  int64_t padded = 0;
  for (const Tensor& part : parts) padded = std::max(padded, part.bytes());
  if (padded * group.size() > kPaddedBytes) {
    copy(input, parts[static_cast<size_t>(group.rank())]);
    for (int32_t root = 0; root < group.size(); ++root)
      if (const Tensor& part = parts[static_cast<size_t>(root)]; part.count > 0) transport.broadcast(real_view(part), root);
    return;
  }
  std::vector<std::byte> given(static_cast<size_t>(padded)), found(static_cast<size_t>(padded * group.size()));
  if (input.bytes() > 0) std::memcpy(given.data(), input.data, static_cast<size_t>(input.bytes()));
  transport.all_gather(flat_tensor(given.data(), DDP_U8, padded), flat_tensor(found.data(), DDP_U8, padded * group.size()));
  for (size_t rank = 0; rank < parts.size(); ++rank)
    if (parts[rank].bytes() > 0)
      std::memcpy(parts[rank].data, found.data() + rank * static_cast<size_t>(padded),
                  static_cast<size_t>(parts[rank].bytes()));
}

}  // namespace

void send_message(Group& group, const Tensor& tensor, int32_t peer, int64_t tag, void* stream, Posting posting) {
  const char* const name = name_as_made(UserCall::kSend, posting);
  check_peer(group, name, "peer", peer);
  check_tag(name, tag);
  MessageRequests& posted = group.channels().requests().messages();
  const messages::Key key{messages::Space::kProgram, tag};
  if (posting != nullptr)
    return post_message(group, UserCall::kSend, [&] {
      const auto tensors = std::make_shared<StagedTensors>(group, name, stream);
      *posting = posted.post_send({peer, key, content_of(tensor), tensors->read(tensor).data},
                                  [tensors] { return tensors->is_ready(); });
    });
  messages::RequestPtr sent;
  StagedTensors tensors(group, name, stream);
  run_message(group, UserCall::kSend, [&] {
    messages::Messenger& messenger = group.channels().messenger();
    const Tensor given = tensors.read(tensor);
    tensors.await();
    posted.await_turn(peer, key);
    sent = messenger.send(peer, key, content_of(given), given.data);
    const bootstrap::MessageWaits::Waiting waiting(group.calls().messages, UserCall::kSend);
    messenger.wait(sent);
  });
  check_message(*sent);
}

int32_t receive_message(Group& group, const Tensor& tensor, int32_t source, int64_t tag, void* stream, Posting posting) {
  const char* const name = name_as_made(UserCall::kReceive, posting);
  if (source != DDP_ANY_SOURCE) check_peer(group, name, "source", source);
  if (group.size() == 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the group has no other rank to receive from", name);
  check_tag(name, tag);
  const auto begin = [&](StagedTensors& tensors) {
    const Tensor taken = tensors.write(tensor);
    return group.channels().messenger().receive(source, {messages::Space::kProgram, tag}, content_of(taken), taken.data);
  };
  if (posting != nullptr) {
    const auto tensors = std::make_shared<StagedTensors>(group, name, stream);
    post_message(group, UserCall::kReceive,
                 [&] { *posting = group.channels().requests().messages().post_receive(begin(*tensors), tensors); });
    if (tensors->delivers()) (*posting)->at_end([tensors] { tensors->deliver(); });
    return -1;
  }
  StagedTensors tensors(group, name, stream);
  messages::RequestPtr received;
  run_message(group, UserCall::kReceive, [&] {
    received = begin(tensors);
    {
      const bootstrap::MessageWaits::Waiting waiting(group.calls().messages, UserCall::kReceive);
      group.channels().messenger().wait(received);
    }
    if (!received->error.has_value()) tensors.deliver();
  });
  check_message(*received);
  return received->source;
}

void reduce(Group& group, const Tensor& tensor, ddp_reduce op, int32_t root, void* stream, Posting posting) {
  const UserCall call = as_made(UserCall::kReduce, posting);
  check_root(group, name_of(call), root);
  check_operation(group, name_of(call), tensor, op);
  const Tensor real = real_view(tensor);
  run_or_post(group, UserCall::kReduce, tensor, posting,
              [real, op, root, stream](const Sequence& in) { in.transport.reduce(real, op, root, stream); });
}

void gather(Group& group, const Tensor& input, const Tensor* output, int32_t root, void* stream, Posting posting) {
  check_root_tensor(group, name_as_made(UserCall::kGather, posting), "output", output, input, root);
  const bool is_root = group.rank() == root;
  run_or_post_staged(group, UserCall::kGather, stream, posting, [&](StagedTensors& tensors) {
    const Tensor mine = tensors.read(input), all = is_root ? tensors.write(*output) : Tensor();
    return [&group, mine, all, root](const Sequence& in) {
      in.transport.meet(collective::stamp_of(Collective::kGather, mine, DDP_SUM, root));
      if (group.rank() != root) return exchange(group, in, {{root, mine}}, {});
      std::vector<Parcel> received;
      for (int32_t rank = 0; rank < group.size(); ++rank)
        if (rank != root) received.push_back({rank, part_of(all, group.size(), rank)});
      copy(mine, part_of(all, group.size(), root));
      if (group.size() > 1) exchange(group, in, {}, received);
    };
  });
}

void scatter(Group& group, const Tensor* input, const Tensor& output, int32_t root, void* stream, Posting posting) {
  check_root_tensor(group, name_as_made(UserCall::kScatter, posting), "input", input, output, root);
  const bool is_root = group.rank() == root;
  run_or_post_staged(group, UserCall::kScatter, stream, posting, [&](StagedTensors& tensors) {
    const Tensor all = is_root ? tensors.read(*input) : Tensor(), mine = tensors.write(output);
    return [&group, all, mine, root](const Sequence& in) {
      in.transport.meet(collective::stamp_of(Collective::kScatter, mine, DDP_SUM, root));
      if (group.rank() != root) return exchange(group, in, {}, {{root, mine}});
      std::vector<Parcel> sent;
      for (int32_t rank = 0; rank < group.size(); ++rank)
        if (rank != root) sent.push_back({rank, part_of(all, group.size(), rank)});
      if (group.size() > 1) exchange(group, in, sent, {});
      copy(part_of(all, group.size(), root), mine);
    };
  });
}

void all_to_all(Group& group, const Tensor& input, const Tensor& output, ExchangeCounts counts, void* stream,
                Posting posting) {
  const char* const name = name_as_made(UserCall::kAllToAll, posting);
  if (input.dtype != output.dtype)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: input is %s, but output is %s", name, describe(input).c_str(),
                     describe(output).c_str());
  const std::vector<int64_t> sent = counts_or_equal(name, "input_counts", std::move(counts.sent), input, group.size());
  const std::vector<int64_t> received =
      counts_or_equal(name, "output_counts", std::move(counts.received), output, group.size());
  std::vector<int64_t> mine{static_cast<int64_t>(input.dtype)};
  mine.insert(mine.end(), sent.begin(), sent.end());
  mine.insert(mine.end(), received.begin(), received.end());
  run_or_post_staged(group, UserCall::kAllToAll, stream, posting, [&](StagedTensors& tensors) {
    return [&group, name, mine, from = parts_of(tensors.read(input), sent),
            to = parts_of(tensors.write(output), received)](const Sequence& in) {
      check_exchange(group, name, exchange_numbers(group, in, mine));
      exchange_parts(group, in, from, to);
    };
  });
}

void all_gather_counts(Group& group, const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                       void* stream, Posting posting) {
  const char* const name = name_as_made(UserCall::kAllGatherCounts, posting);
  check_counts(name, "counts", counts, output);
  const auto self = static_cast<size_t>(group.rank());
  if (input.dtype != output.dtype || input.count != counts[self])
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: input is %s; as output is %s and counts[%d] is %lld, it does not fit",
                     name, describe(input).c_str(), describe(output).c_str(), group.rank(),
                     static_cast<long long>(counts[self]));
  std::vector<int64_t> mine{static_cast<int64_t>(input.dtype)};
  mine.insert(mine.end(), counts.begin(), counts.end());
  run_or_post_staged(group, UserCall::kAllGatherCounts, stream, posting, [&](StagedTensors& tensors) {
    return [&group, name, mine, given = tensors.read(input),
            parts = parts_of(tensors.write(output), counts)](const Sequence& in) {
      check_equal(group, name, exchange_numbers(group, in, mine), mine.size());
      gather_parts(group, in.transport, given, parts);
    };
  });
}

}  // namespace ddp::group
