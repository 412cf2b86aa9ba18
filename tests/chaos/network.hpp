// SPDX-License-Identifier: Apache-2.0
// Hosts as network namespaces on one bridge, whose links can be cut: both ways (the host's end moves to another bridge, so
// hosts that are cut off see each other) or one way (the host's packets vanish, those of the others arrive). Needs root and
// `ip`, `tc`.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace ddp::test {

class Network {
 public:
  /// Throws where namespaces cannot be made.
  explicit Network(int hosts) : hosts_(hosts) {
    const std::string net = name() + "-net";
    bool made = say("ip netns add " + net) && say("ip -n " + net + " link add bridge type bridge") &&
                say("ip -n " + net + " link add other type bridge") && say("ip -n " + net + " link set bridge up") &&
                say("ip -n " + net + " link set other up");
    for (int host = 0; made && host < hosts_; ++host) {
      const std::string inside = space(host), end = "to" + std::to_string(host);
      made = say("ip netns add " + inside) &&
             say("ip link add eth0 netns " + inside + " type veth peer name " + end + " netns " + net) &&
             say("ip -n " + net + " link set " + end + " master bridge up") &&
             say("ip -n " + inside + " address add 10.78.0." + std::to_string(host + 1) + "/24 dev eth0") &&
             say("ip -n " + inside + " link set eth0 up") && say("ip -n " + inside + " link set lo up");
    }
    if (made) return;
    remove();
    throw std::runtime_error("network namespaces cannot be made here");
  }
  ~Network() { remove(); }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// This process from now on lives on that host.
  void enter(int host) const {
    const int fd = ::open(("/var/run/netns/" + space(host)).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter " + space(host));
    ::close(fd);
  }
  void cut(int host) const { must("ip -n " + name() + "-net link set to" + std::to_string(host) + " master other"); }
  void mute(int host) const { must("tc -n " + space(host) + " qdisc replace dev eth0 root blackhole"); }
  void heal(int host) const {
    must("ip -n " + name() + "-net link set to" + std::to_string(host) + " master bridge");
    say("tc -n " + space(host) + " qdisc del dev eth0 root");
  }

 private:
  static bool say(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }
  static void must(const std::string& command) {
    if (!say(command)) throw std::runtime_error("failed: " + command);
  }
  [[nodiscard]] std::string name() const { return "chaos" + std::to_string(owner_); }
  [[nodiscard]] std::string space(int host) const { return name() + "-" + std::to_string(host); }
  void remove() const {
    if (getpid() != owner_) return;
    for (int host = 0; host < hosts_; ++host) say("ip netns del " + space(host));
    say("ip netns del " + name() + "-net");
  }

  const int hosts_;
  const pid_t owner_ = getpid();
};

}  // namespace ddp::test
