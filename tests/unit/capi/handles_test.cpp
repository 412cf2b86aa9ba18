// SPDX-License-Identifier: Apache-2.0
// Handles are numbers that are checked, not addresses that are followed.
#include "capi/handles.hpp"

#include "support/check.hpp"

struct thing;  // the C handle

struct Object {
  int value = 0;
};
using Table = capi::HandleTable<Object, thing, 0x77>;
using Other = capi::HandleTable<Object, thing, 0x78>;

std::shared_ptr<Object> object(int value) { return std::make_shared<Object>(Object{value}); }

ddp_case(a_live_handle_finds_its_object) {
  Table& table = Table::instance();
  thing* const a = table.add(object(1));
  thing* const b = table.add(object(2));
  expect(a != b && table.get(a)->value == 1 && table.get(b)->value == 2, "objects");
  expect(table.remove(a)->value == 1 && table.get(a) == nullptr && table.remove(a) == nullptr, "gone");
  expect(table.get(b)->value == 2, "the other stays");
  (void)table.remove(b);
}

ddp_case(a_destroyed_foreign_or_invented_handle_finds_nothing) {
  Table& table = Table::instance();
  thing* const old = table.add(object(1));
  (void)table.remove(old);
  thing* const fresh = table.add(object(2));  // most likely in the same place
  expect(table.get(old) == nullptr && table.get(fresh)->value == 2, "a generation later");
  expect(Other::instance().get(fresh) == nullptr, "of another kind");
  int local = 0;
  expect(table.get(reinterpret_cast<thing*>(&local)) == nullptr && table.get(nullptr) == nullptr, "no handle at all");
  for (uint64_t bits = 1; bits != 0; bits <<= 1) expect(table.get(reinterpret_cast<thing*>(bits)) == nullptr, "one bit");
  (void)table.remove(fresh);
}

ddp_case(using_and_destroying_at_once_is_safe) {
  Table& table = Table::instance();
  for (int round = 0; round < 200; ++round) {
    thing* const handle = table.add(object(5));
    std::vector<std::thread> users;
    for (int t = 0; t < 3; ++t)
      users.emplace_back([&] {
        for (int i = 0; i < 50; ++i)
          if (const auto held = table.get(handle)) expect(held->value == 5, "the object");
      });
    (void)table.remove(handle);
    for (std::thread& user : users) user.join();
    expect(table.get(handle) == nullptr, "gone");
  }
}
