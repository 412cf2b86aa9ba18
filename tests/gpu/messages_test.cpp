// SPDX-License-Identifier: Apache-2.0
// Messages and their collectives between two ranks with CUDA tensors: values of slow work are waited for, posted calls read
// at once and write in the order of the stream, and a rank may have its tensor in host memory.
#include "gpu/support/world.hpp"

using namespace ddp;
using namespace ddp::test;
using namespace ddp::test::card;

namespace {

std::string numbers(int about, int64_t count) {
  std::string bytes(static_cast<size_t>(count) * 4, '\0');
  for (int64_t at = 0; at < count; ++at) {
    const float number = static_cast<float>(about * 1000 + at % 997);
    std::memcpy(bytes.data() + 4 * at, &number, sizeof number);
  }
  return bytes;
}

/// A tensor of a rank, and work of the program on it in the order of a stream.
struct Array {
  Place place;
  int64_t count;
  Stream stream;
  Memory memory, fresh, seen;
  SlowWork slow;

  Array(Place of, int64_t elements)
      : place(of),
        count(elements),
        stream(of),
        memory(of, elements * 4),
        fresh(of, elements * 4),
        seen(of, elements * 4),
        slow(of, of.on_gpu() ? (is_fake() ? 1 << 20 : 256 << 20) : 8) {}
  [[nodiscard]] ddp_tensor tensor() const { return flat(memory.data(), DDP_F32, count, place); }
  /// Late.
  void write(const std::string& bytes) const {
    fresh.write(bytes);
    slow.enqueue(stream.get());
    memory.copy_from(fresh, stream.get());
  }
  /// By a kernel that follows on the stream.
  [[nodiscard]] std::string read() const {
    seen.copy_from(memory, stream.get());
    stream.wait();
    return seen.read();
  }
};

struct Request {
  ddp_request* raw = nullptr;
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() { ddp_request_destroy(raw); }
  void wait() const { OK(ddp_request_wait(raw, -1, nullptr)); }
};

constexpr int64_t kCounts[] = {1, 1000, 1'000'000};

ddp_world_case(messages_follow_the_streams, 2) {
  const int other = 1 - at.rank;
  for (const int64_t count : kCounts) {
    const Array given(at.place, count), taken(at.place, count);
    const ddp_tensor input = given.tensor(), output = taken.tensor();
    for (int turn = 0; turn < 3; ++turn) {
      given.write(numbers(10 * turn + at.rank, count));
      if (at.rank == 0) OK(ddp_group_send(at.group, &input, other, turn, given.stream.get()));
      OK(ddp_group_receive(at.group, &output, other, turn, nullptr, taken.stream.get()));
      if (at.rank == 1) OK(ddp_group_send(at.group, &input, other, turn, given.stream.get()));
      expect(taken.read() == numbers(10 * turn + other, count), "what came");
    }
  }
  OK(ddp_group_barrier(at.group));
}

ddp_world_case(posted_messages_follow_the_streams, 2) {
  const int other = 1 - at.rank;
  for (const int64_t count : kCounts) {
    const Array given(at.place, count), taken(at.place, count);
    const Memory zeros(at.place, count * 4);
    const ddp_tensor input = given.tensor(), output = taken.tensor();
    for (int turn = 0; turn < 3; ++turn) {
      Request sent, received;
      OK(ddp_group_post_receive(at.group, &output, other, 1, &received.raw, taken.stream.get()));
      given.write(numbers(10 * turn + at.rank, count));
      OK(ddp_group_post_send(at.group, &input, other, 1, &sent.raw, given.stream.get()));
      given.memory.copy_from(zeros, given.stream.get());
      received.wait();
      expect(taken.read() == numbers(10 * turn + other, count), "the values of before the call");
      sent.wait();
      expect(given.read() == std::string(static_cast<size_t>(count) * 4, '\0'), "the tensor has changed");
    }
  }
  OK(ddp_group_barrier(at.group));
}

/// Rank 0 has its tensors in host memory.
ddp_world_case(collectives_take_tensors_anywhere, 2) {
  const Place place = at.rank == 0 ? kCpu : at.place;
  constexpr int64_t kCount = 5000;
  const std::string both = numbers(0, kCount) + numbers(1, kCount);
  const Array one(place, kCount), two(place, 2 * kCount), more(place, 2 * kCount);
  const ddp_tensor part = one.tensor(), whole = two.tensor(), third = more.tensor();
  const int64_t counts[] = {kCount, kCount};
  one.write(numbers(at.rank, kCount));
  one.stream.wait();
  OK(ddp_group_all_gather_counts(at.group, &part, &whole, counts, two.stream.get()));
  expect(two.read() == both, "gathered by all");
  OK(ddp_group_all_to_all(at.group, &whole, &third, nullptr, nullptr, two.stream.get()));
  two.stream.wait();
  expect(more.read() == numbers(at.rank, kCount) + numbers(at.rank, kCount), "exchanged");
  for (const int root : {0, 1}) {
    OK(ddp_group_gather(at.group, &part, at.rank == root ? &third : nullptr, root, more.stream.get()));
    if (at.rank == root) expect(more.read() == both, "gathered by one");
    OK(ddp_group_scatter(at.group, at.rank == root ? &third : nullptr, &part, root, more.stream.get()));
    more.stream.wait();
    expect(one.read() == numbers(at.rank, kCount), "scattered");
  }
  OK(ddp_group_barrier(at.group));
}

gpu_cases(need_world());

}  // namespace
