#include "comm/control/identity.hpp"

#include <unistd.h>

#include <array>
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
  return member;
}

}  // namespace ddp
