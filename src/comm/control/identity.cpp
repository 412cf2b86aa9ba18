#include "comm/control/identity.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

namespace ddp {

Member this_member(int32_t rank) {
  Member member;
  member.rank = rank;
  member.pid = getpid();
  std::array<char, 256> host{};
  member.host = gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "unknown";
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  if (!std::getline(boot, member.boot_id)) member.boot_id = member.host;
  if (const char* other = secure_getenv("DDP_TEST_HOST"); other != nullptr && *other != '\0') member.boot_id += std::string(" ") + other;
  return member;
}

}  // namespace ddp
