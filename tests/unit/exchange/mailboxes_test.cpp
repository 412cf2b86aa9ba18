// SPDX-License-Identifier: Apache-2.0
// Streams in shared memory: bytes come in their order and whole, whatever pieces they are written and read in, over the end
// of the ring as well; a ring is made by the rank that writes; and no call waits for a message that is not there.
#include "shm/mailboxes.hpp"

#include "support/check.hpp"

/// Two ranks, 3 and 5 of a group of 7, that are threads.
struct Neighbours {
  std::shared_ptr<shm::Region> regions[2] = {std::make_shared<shm::Region>(int64_t{256} << 20),
                                             std::make_shared<shm::Region>(int64_t{256} << 20)};
  std::unique_ptr<shm::Mailboxes> of[2];

  Neighbours() {
    for (int32_t rank = 0; rank < 2; ++rank) {
      shm::Mesh mesh;
      mesh.rank = rank;
      mesh.size = 2;
      mesh.threads = true;
      mesh.own = regions[rank];
      mesh.mappings = {regions[0]->mapping(), regions[1]->mapping()};
      mesh.pages = {&mesh.first_page(0), &mesh.first_page(1)};
      of[rank] = std::make_unique<shm::Mailboxes>(mesh, std::vector<int32_t>{3, 5}, 7);
    }
  }
};

size_t write(shm::Mailboxes& from, int32_t to, const std::vector<std::byte>& data, size_t at, size_t count) {
  const size_t half = count / 3;
  return from.write(to, {data.data() + at, half}, {data.data() + at + half, count - half});
}

std::vector<std::byte> some_bytes(size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

ddp_case(a_stream_is_made_by_who_writes) {
  Neighbours ranks;
  expect(ranks.of[0]->reaches(5) && !ranks.of[0]->reaches(0), "only ranks of this host are reached");
  expect(ranks.of[1]->sources().empty(), "nobody has written");
  const std::vector<std::byte> data = some_bytes(10);
  expect_equal(write(*ranks.of[0], 5, data, 0, 10), size_t{0}, "bytes written before it is open");
  ranks.of[0]->open(5);
  ranks.of[0]->open(5);
  expect(ranks.of[1]->sources() == std::vector<int32_t>{3}, "the writer is known");
  expect(ranks.of[0]->sources().empty(), "and the other way is not open");
  std::vector<std::byte> got(20);
  expect_equal(ranks.of[1]->read(3, got.data(), 20), size_t{0}, "bytes that are not there");
  expect_equal(write(*ranks.of[0], 5, data, 0, 10), size_t{10}, "bytes written");
  expect_equal(ranks.of[1]->read(3, got.data(), 20), size_t{10}, "bytes read");
  expect(std::equal(data.begin(), data.end(), got.begin()), "the same bytes");
}

ddp_case(a_full_ring_takes_no_more) {
  Neighbours ranks;
  ranks.of[0]->open(5);
  const std::vector<std::byte> data = some_bytes(shm::Ring::kBytes + 1000);
  expect_equal(write(*ranks.of[0], 5, data, 0, data.size()), size_t{shm::Ring::kBytes}, "bytes written");
  expect_equal(write(*ranks.of[0], 5, data, shm::Ring::kBytes, 1000), size_t{0}, "bytes written to a full ring");
  std::vector<std::byte> got(600);
  static_cast<void>(ranks.of[1]->sources());
  expect_equal(ranks.of[1]->read(3, got.data(), 600), size_t{600}, "bytes read");
  expect_equal(write(*ranks.of[0], 5, data, shm::Ring::kBytes, 1000), size_t{600}, "bytes written to the room");
}

ddp_case(bytes_keep_their_order_in_any_pieces) {
  Neighbours ranks;
  const std::vector<std::byte> data = some_bytes(5'000'000);
  std::thread writer([&] {
    std::mt19937 random(1);
    ranks.of[0]->open(5);
    for (size_t at = 0; at < data.size();)
      at += write(*ranks.of[0], 5, data, at, std::min<size_t>(1 + random() % 90'000, data.size() - at));
  });
  std::mt19937 random(2);
  std::vector<std::byte> got(data.size());
  while (ranks.of[1]->sources().empty()) std::this_thread::yield();
  for (size_t at = 0; at < got.size();)
    at += ranks.of[1]->read(3, got.data() + at, std::min<size_t>(1 + random() % 90'000, got.size() - at));
  writer.join();
  expect(got == data, "all bytes in their order");
}
