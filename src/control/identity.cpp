// SPDX-License-Identifier: Apache-2.0
#include "control/identity.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/error.hpp"

namespace ddp::bootstrap {
namespace {

/// Empty where the kernel has none. Another answer than the other ranks' would make this one look as if it were on another
/// host.
std::string boot_id() {
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0 && status_of_errno(errno, DDP_OK) != DDP_OK)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "this host's boot_id cannot be read: %s%s", std::strerror(errno),
                     advice_of_errno(errno));
  if (fd < 0) return "";
  std::array<char, 64> text{};
  const ssize_t got = ::read(fd, text.data(), text.size() - 1);
  ::close(fd);
  std::string id(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

/// Of a list with commas the rank's own entry, for ranks that are threads; a value without commas is for all.
std::string entry_of(std::string_view list, int32_t rank) {
  for (int32_t k = 0; k < rank && list.find(',') != std::string_view::npos; ++k) list.remove_prefix(list.find(',') + 1);
  return std::string(list.substr(0, list.find(',')));
}

}  // namespace

Member this_member(int32_t rank) {
  Member member;
  member.rank = rank;
  member.pid = getpid();
  std::array<char, 256> host{};
  member.host = gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "unknown";
  member.boot_id = boot_id();
  if (member.boot_id.empty()) member.boot_id = member.host;
  if (const char* other = secure_getenv("DDP_TEST_HOST"); other != nullptr && *other != '\0')
    member.boot_id += std::string(" ") + entry_of(other, rank);
  return member;
}

std::string lasting_host(std::string_view host, std::string_view boot_id) {
  const size_t made_up = boot_id.find(' ');
  return std::string(host) + std::string(made_up == std::string_view::npos ? "" : boot_id.substr(made_up));
}

}  // namespace ddp::bootstrap
