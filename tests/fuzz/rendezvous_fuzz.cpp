// SPDX-License-Identifier: Apache-2.0
// Any bytes as a rank's information about the place to meet: a rendezvous text, the record that rank 0 leaves in a file or a
// store, and Slurm's list of hosts. They are refused with INVALID_ARGUMENT, or what was understood holds together.
#include <cstdint>
#include <string>
#include <string_view>

#include "control/limits.hpp"
#include "control/net.hpp"
#include "core/error.hpp"
#include "discovery/launchers.hpp"
#include "discovery/place.hpp"
#include "discovery/rendezvous.hpp"
#include "fuzz/must.hpp"

namespace {

using namespace ddp;

int32_t set(void*, const char*, const void*, int64_t) { return 0; }
int32_t get(void*, const char*, void*, int64_t, int64_t, int64_t*) { return 1; }

void check_port(const std::string& place) {
  const auto [host, port] = bootstrap::net::split_place(place);
  must(!host.empty() && port >= 1 && port <= 65'535, "a host and a port");
}

void as_rendezvous(const std::string& text) {
  static const ddp_store store{sizeof(ddp_store), set, get, nullptr};
  ddp_group_options options{};
  options.struct_size = sizeof options;
  options.rank = 1;
  options.world_size = 3;
  options.store = &store;
  try {
    const bootstrap::Meeting meeting =
        bootstrap::resolve_meeting(text.c_str(), options, [](const char*) -> const char* { return nullptr; });
    must(meeting.rank == 1 && meeting.size == 3, "rank and size are those of the options");
    must(meeting.group_name.size() <= 64 && meeting.group_name.find('/') == std::string::npos, "a name that is no path");
    if (meeting.kind == bootstrap::Meeting::Kind::kTcp) check_port(meeting.place);
    if (meeting.kind == bootstrap::Meeting::Kind::kFile) must(meeting.place.front() == '/', "an absolute path");
    if (meeting.kind == bootstrap::Meeting::Kind::kLocal) must(!meeting.place.empty(), "a name");
  } catch (const Error& error) {
    must(error.status() == DDP_ERROR_INVALID_ARGUMENT && !error.text().empty(), "refusals are INVALID_ARGUMENT with a text");
  }
}

void as_record(std::string_view text) {
  const auto record = bootstrap::read_record(text);
  if (!record.has_value()) return;
  must(bootstrap::write_record(*record) == text, "what was read is written the same");
}

void as_hosts(std::string_view text) {
  const std::string host = bootstrap::first_host(text);
  must(host.size() <= text.size() && host.find(',') == std::string::npos && host.find('[') == std::string::npos,
       "one host of the list");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  as_rendezvous(std::string(bytes));
  as_record(bytes);
  as_hosts(bytes);
  return 0;
}
