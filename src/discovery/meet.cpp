// SPDX-License-Identifier: Apache-2.0
// Meet the other ranks, in the way that the Meeting names. Rank 0 starts the server and then joins it like all other ranks.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "control/identity.hpp"
#include "control/interfaces.hpp"
#include "control/limits.hpp"
#include "control/local_hub.hpp"
#include "control/port_range.hpp"
#include "control/solo.hpp"
#include "control/tcp_control.hpp"
#include "control/texts.hpp"
#include "core/random.hpp"
#include "discovery/place.hpp"
#include "discovery/port_walk.hpp"
#include "discovery/probe.hpp"
#include "discovery/rendezvous.hpp"
#include "discovery/signpost.hpp"
#include "discovery/token.hpp"
#include "os/life.hpp"
#include "os/log.hpp"
#include "os/loopback.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int64_t kFirstPauseMs = 10;
constexpr int64_t kLongestPauseMs = 200;
constexpr int64_t kStaleRecordMs = 10'000;  // rank 0 replaces the record of an earlier run by then

class Encounter {
 public:
  Encounter(const Meeting& meeting, const ddp_group_options& options, std::function<void()> check = {},
            std::optional<Opening> opening = {})
      : meeting_(meeting),
        options_(options),
        opening_(std::move(opening)),
        check_(std::move(check)),
        deadline_(os::Deadline::in_ms(options.rendezvous_timeout_ms)),
        token_(read_token(process_environment)) {}

  std::unique_ptr<Control> run() {
    return meeting_.kind == Meeting::Kind::kTcp || meeting_.kind == Meeting::Kind::kEnvironment ? at_address() : by_record();
  }

  /// Rank 0 listens at `here`, on a port of the range; the data for the others is in the record.
  std::pair<Listening, Record> listen(net::Endpoint here);
  /// See signpost.hpp.
  std::unique_ptr<Server> set_up(const std::string& record);
  std::string ask(std::string& doubt);
  /// The ranks know where rank 0 is; `listening` on rank 0 alone.
  std::unique_ptr<Control> at_record(Listening* listening, const Record& record);

 private:
  std::vector<net::Endpoint> addresses_of(const std::string& host);
  /// Where new ranks get the address of the group: not where the ranks of a forming group meet.
  std::pair<Address, std::vector<net::Endpoint>> signpost(bool asks);
  std::unique_ptr<Control> at_address();
  std::unique_ptr<Control> by_record();
  std::unique_ptr<Control> lead(Listening listening, const Address& target, const std::function<void()>& announce);
  std::unique_ptr<Control> join(const std::function<std::vector<Address>()>& look, std::unique_ptr<Server> server);
  std::unique_ptr<Control> try_spots(const std::vector<Address>& targets, std::unique_ptr<Server>& server);
  ClientConfig config_at(const net::Socket& socket) const;
  std::optional<Address> follow(const Record& record);
  void doubt(const Record& record, const Error& why);
  // What is asked for, not where rank 0 then listens: neighbouring jobs walk over the same ports.
  auth::GroupId group_at(const std::string& place) const { return auth::group_id(meeting_.job, place, meeting_.group_name); }
  bool is_in_reach(const net::Endpoint& where, const auth::Token& token) const;
  void pause(int64_t& pause_ms) const;

  const Meeting& meeting_;
  const ddp_group_options& options_;
  const std::optional<Opening> opening_;
  std::function<void()> check_;
  os::Deadline deadline_;
  auth::Token token_;
  std::string doubted_;  // the word of a record that leads nowhere
  os::Deadline doubt_ends_ = os::Deadline::never();
  std::string trouble_;                                       // what the last round met, for the error text
  std::string advice_;                                        // and what that means
  std::set<std::string> warned_;                              // warnings about an impostor of rank 0 that were already given
  std::string reached_;                                       // where rank 0 was looked for
  std::optional<std::pair<std::string, os::Deadline>> lost_;  // where rank 0 was; it counts as dead from then on
  bool is_meant_for_here_ = false;  // all ranks are on this host: nothing has to be reached from elsewhere
};

// An address that only this machine can reach needs no token.
bool Encounter::is_in_reach(const net::Endpoint& where, const auth::Token& token) const {
  return token.has_value() || where.is_loopback() || is_insecure_wanted(process_environment);
}

// Debian and others map a host's own name to a loopback address on that host alone: there rank 0 must listen where the other
// hosts look for it, if it may.
std::vector<net::Endpoint> Encounter::addresses_of(const std::string& host) {
  std::vector<net::Endpoint> addresses = net::resolve(host, deadline_);
  // "localhost" is both; the same one first everywhere.
  std::stable_sort(addresses.begin(), addresses.end(), [](const net::Endpoint& a, const net::Endpoint& b) {
    return a.address.ss_family == AF_INET && b.address.ss_family != AF_INET;
  });
  const bool is_loopback = std::all_of(addresses.begin(), addresses.end(), [](const auto& at) { return at.is_loopback(); });
  const bool is_meant = host.find("localhost") != std::string::npos || addresses.front().host() == host;
  is_meant_for_here_ = is_loopback && is_meant;
  if (!is_loopback || is_meant) return addresses;
  const net::Endpoint own = net::own_address(process_environment("DDP_SOCKET_IFNAME"));
  if (!own.is_loopback() && is_in_reach(own, token_)) addresses.insert(addresses.begin(), own);
  return addresses;
}

std::unique_ptr<Control> Encounter::at_address() {
  const auto [host, port] = net::split_place(meeting_.place);
  const std::vector<net::Endpoint> addresses = addresses_of(host);
  for (const net::Endpoint& address : addresses)
    if (!is_in_reach(address, token_)) throw texts::token_needed(address.host());
  const std::vector<int32_t> ports = ports_of(meeting_, port);
  Address target;
  target.group = group_at("port " + std::to_string(port));
  target.token = token_;
  if (meeting_.rank == 0) {
    Listening listening = listen_in_walk(meeting_, addresses, ports, target, deadline_);
    target.where = listening.where;
    return lead(std::move(listening), target, [] {});
  }
  std::vector<Address> targets;
  for (const int32_t at : ports) {
    for (const net::Endpoint& address : addresses) {
      targets.push_back(target);
      targets.back().where = address.with_port(at);
    }
  }
  return join([&] { return targets; }, nullptr);
}

std::pair<Address, std::vector<net::Endpoint>> Encounter::signpost(bool asks) {
  const auto [host, port] = net::split_place(meeting_.place);
  Address target;
  target.group = auth::group_id("", "new ranks at port " + std::to_string(port), meeting_.group_name);
  target.token = token_;
  std::vector<net::Endpoint> addresses = addresses_of(host);
  if (asks && meeting_.kind == Meeting::Kind::kEnvironment && net::is_here(addresses.front())) {
    // A launcher whose ranks are all on this host has them meet at the loopback, whatever MASTER_ADDR calls the host.
    std::erase_if(addresses, [&](const auto& address) { return !is_in_reach(address, token_); });
    addresses.insert(addresses.begin(), net::resolve(os::loopback(), deadline_).front());
  }
  for (net::Endpoint& address : addresses) {
    if (!is_in_reach(address, token_)) throw texts::token_needed(address.host());
    address = address.with_port(port);
  }
  return {std::move(target), std::move(addresses)};
}

std::unique_ptr<Server> Encounter::set_up(const std::string& record) {
  const auto [target, addresses] = signpost(false);
  Listening listening = listen_past_all(meeting_, addresses, ports_of(meeting_, addresses.front().port()));
  ServerConfig config;
  config.group = target.group;
  config.token = target.token;
  config.signpost = record;
  return std::make_unique<Server>(std::move(listening.socket), std::move(config));
}

std::string Encounter::ask(std::string& doubt) {
  const auto [target, addresses] = signpost(true);
  std::vector<Address> targets;
  for (const int32_t port : ports_of(meeting_, addresses.front().port()))
    for (const net::Endpoint& address : addresses) targets.push_back({address.with_port(port), target.group, target.token});
  const std::vector<Probe> answers = probe_all(targets, Caller{kNewRank, 0}, deadline_);
  for (const Probe& answer : answers) {
    if (answer.answer == Probe::Answer::kAdmitted) return read_signpost(*answer.admission, deadline_);
    if (answer.answer == Probe::Answer::kUnproved) doubt = answer.record;
  }
  for (const Probe& answer : answers)
    if (answer.answer == Probe::Answer::kRefused) throw Error(*answer.refusal);
  return "";
}

std::unique_ptr<Control> Encounter::by_record() {
  const Place place = Place::of(meeting_, options_);
  is_meant_for_here_ = meeting_.private_place;
  if (meeting_.rank != 0) {
    const auto look = [&]() -> std::vector<Address> {
      const auto record = read_record(place.find(std::clamp<int64_t>(deadline_.left_ms(), 1, 1'000)));
      const auto target = record.has_value() ? follow(*record) : std::nullopt;
      return target.has_value() ? std::vector<Address>{*target} : std::vector<Address>{};
    };
    return join(look, nullptr);
  }
  net::Endpoint here = meeting_.private_place ? net::resolve(os::loopback(), deadline_).front()
                                              : net::own_address(process_environment("DDP_SOCKET_IFNAME"));
  auto [listening, record] = listen(here);
  const Address target{listening.where, group_at(record.word), token_.has_value() ? *token_ : record.token};
  const std::string text = write_record(record);
  std::unique_ptr<Control> control = lead(std::move(listening), target, [&] { place.publish(text); });
  place.withdraw(text);
  return control;
}

std::pair<Listening, Record> Encounter::listen(net::Endpoint here) {
  net::Socket socket = listen_in_range(here, port_range_of(options_), "rank 0");
  here = net::local_end(socket);
  const Member me = this_member(0);
  Record record{here.text(), auth::random_token(), token_.has_value() ? "" : auth::random_token(),
                me.host,     me.boot_id,           os::this_life()};
  return {Listening{std::move(socket), here}, std::move(record)};
}

std::unique_ptr<Control> Encounter::at_record(Listening* listening, const Record& record) {
  const auto [host, port] = net::split_place(record.address);
  const Address target{net::resolve(host, deadline_).front().with_port(port), group_at(record.word),
                       token_.has_value() ? *token_ : record.token};
  if (listening != nullptr) return lead(std::move(*listening), target, [] {});
  return join([&] { return std::vector<Address>{target}; }, nullptr);
}

// What a record promises; nothing if it makes no sense.
std::optional<Address> Encounter::follow(const Record& record) {
  const size_t colon = record.address.rfind(':');
  if (colon == std::string::npos || colon + 1 == record.address.size() || record.address.size() - colon > 6 ||
      record.address.find_first_not_of("0123456789", colon + 1) != std::string::npos)
    return std::nullopt;
  const auto [host, port] = net::split_place(record.address);
  if (host.empty() || host.find_first_not_of("0123456789abcdefABCDEF.:") != std::string::npos) return std::nullopt;
  Address target;
  target.where = net::resolve(host, deadline_).front().with_port(port);
  target.group = group_at(record.word);
  target.token = token_;
  if (!token_.has_value() && !record.token.empty()) target.token = record.token;
  if (target.where.is_loopback() && record.boot_id != this_member(0).boot_id) {
    doubt(record, make_error(DDP_ERROR_IO,
                             "rank 0 on the host %s can be reached from there alone: set DDP_SOCKET_IFNAME to the network "
                             "interface that the hosts share",
                             record.host.c_str()));
    return std::nullopt;
  }
  if (!is_in_reach(target.where, target.token)) {
    doubt(record, texts::token_needed(target.where.host()));
    return std::nullopt;
  }
  return target;
}

// The record may be an earlier run's. An error in it counts when rank 0 has not replaced it for a while.
void Encounter::doubt(const Record& record, const Error& why) {
  if (doubted_ != record.word) {
    doubted_ = record.word;
    doubt_ends_ = os::Deadline::in_ms(kStaleRecordMs);
  }
  if (doubt_ends_.passed()) throw Error(why);
  trouble_ = why.text();
}

std::unique_ptr<Control> Encounter::lead(Listening listening, const Address& target, const std::function<void()>& announce) {
  ServerConfig config;
  config.size = meeting_.size;
  config.group = target.group;
  config.token = target.token;
  config.heartbeat_ms = options_.heartbeat_ms;
  config.dead_after_ms = options_.dead_after_ms;
  config.world_rank = meeting_.world_rank;
  os::log(DDP_LOG_INFO, "rank 0 listens at %s for %d ranks", target.where.text().c_str(), meeting_.size);
  if (const char* const placement = process_environment("DDP_PLACEMENT");
      placement != nullptr && meeting_.kind == Meeting::Kind::kEnvironment && meeting_.world_rank < 0)
    config.placement = placement;
  if (!is_meant_for_here_) config.place = target.where.text() + "; " + texts::other_interface_hint();
  auto server = std::make_unique<Server>(std::move(listening.socket), std::move(config));
  announce();
  return join([&] { return std::vector<Address>{target}; }, std::move(server));
}

std::unique_ptr<Control> Encounter::join(const std::function<std::vector<Address>()>& look, std::unique_ptr<Server> server) {
  for (int64_t pause_ms = kFirstPauseMs; !deadline_.passed(); pause(pause_ms)) {
    if (auto control = try_spots(look(), server)) return control;
    if (check_) check_();
    if (lost_ && lost_->second.passed()) throw texts::server_gone_early(lost_->first);
  }
  if (!warned_.empty() && trouble_ != *warned_.begin())
    trouble_ = *warned_.begin() + (trouble_.empty() ? "" : "; ") + trouble_;
  if (!is_meant_for_here_ && !advice_.empty()) trouble_ += "; " + advice_;
  if (!is_meant_for_here_ && !reached_.empty())
    trouble_ += "; rank 0 was looked for at " + reached_ +
                " and its log says where it listens (DDP_LOG=info): " + texts::other_interface_hint();
  const std::string place = meeting_.private_place ? "the meeting" : meeting_.place.empty() ? "the store" : meeting_.place;
  throw texts::rank0_never_came(place, options_.rendezvous_timeout_ms, trouble_);
}

// One round. A refusal counts only if no other place admits us: it may come from another group.
std::unique_ptr<Control> Encounter::try_spots(const std::vector<Address>& targets, std::unique_ptr<Server>& server) {
  std::optional<Error> refusal;
  std::string nobody, somebody, advice;
  if (!targets.empty()) reached_ = targets.front().where.text();
  const Check check = [this](const Witness&) {
    if (check_) check_();
  };
  const auto words = [&](const net::Socket& socket) { return first_words(config_at(socket)); };
  for (Probe& answer : probe_all(targets, Caller{meeting_.rank, meeting_.size}, deadline_, words)) {
    if (answer.answer == Probe::Answer::kAdmitted) {
      net::tune(answer.admission->socket.get(), options_.dead_after_ms);
      ClientConfig config = config_at(answer.admission->socket);
      if (auto control = join_over_tcp(std::move(*answer.admission), std::move(config), server, check)) return control;
      lost_ = std::pair(answer.where.text(), os::Deadline::in_ms(limits::kComeAgainMs));
      return nullptr;  // it went away meanwhile: look again
    }
    if (answer.answer == Probe::Answer::kRefused && !refusal.has_value()) refusal = answer.refusal;
    if (answer.answer == Probe::Answer::kUnproved && warned_.insert(answer.record).second)
      os::log(DDP_LOG_WARNING, "ddp_group_create: %s; rank 0 is still looked for", answer.record.c_str());
    std::string& record = answer.answer == Probe::Answer::kNobody ? nobody : somebody;
    if (record.empty() && answer.error != 0) advice = texts::unreachable_advice(answer.error);
    if (record.empty()) record = answer.record;
  }
  if (refusal.has_value()) throw Error(*refusal);
  if (!nobody.empty() || !somebody.empty()) trouble_ = somebody.empty() ? nobody : somebody;
  advice_ = somebody.empty() ? advice : "";
  return nullptr;
}

ClientConfig Encounter::config_at(const net::Socket& socket) const {
  ClientConfig config;
  config.me = this_member(meeting_.rank);
  config.me.world_rank = meeting_.world_rank;
  const net::Endpoint here = net::local_end(socket);
  config.me.address = here.is_loopback() ? os::loopback() : here.host();
  config.size = meeting_.size;
  config.heartbeat_ms = options_.heartbeat_ms;
  config.dead_after_ms = options_.dead_after_ms;
  config.limit_ms = options_.rendezvous_timeout_ms;
  config.left_ms = deadline_.is_never() ? 0 : std::max<int64_t>(deadline_.left_ms(), 1);
  config.opening = opening_;
  return config;
}

// Longer and longer, and not all ranks at the same moment.
void Encounter::pause(int64_t& pause_ms) const {
  const auto jitter = static_cast<int64_t>(mix64(static_cast<uint64_t>(os::now_ns()) ^ static_cast<uint64_t>(getpid())) % 8);
  const int64_t ms = std::min(pause_ms + jitter, std::max<int64_t>(deadline_.left_ms(), 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  pause_ms = std::min(2 * pause_ms, kLongestPauseMs);
}

}  // namespace

std::unique_ptr<Control> meet(const Meeting& meeting, const ddp_group_options& options, std::optional<Opening> opening) {
  if (meeting.size == 1) return make_solo_control();
  const int64_t limit_ms = options.rendezvous_timeout_ms;
  if (meeting.kind == Meeting::Kind::kLocal)
    return join_local_hub(meeting.place + "#" + meeting.group_name, meeting.rank, meeting.size,
                          os::Deadline::in_ms(limit_ms), limit_ms);
  return Encounter(meeting, options, {}, std::move(opening)).run();
}

std::unique_ptr<Server> set_up_signpost(const Meeting& meeting, const ddp_group_options& options,
                                        const std::string& record) {
  return Encounter(meeting, options).set_up(record);
}

std::string ask_signpost(const Meeting& meeting, const ddp_group_options& options, std::string& doubt) {
  return Encounter(meeting, options).ask(doubt);
}

struct Reunion::Opened {
  Listening listening;
};

Reunion::Reunion(Meeting meeting, const ddp_group_options& options, std::function<void()> check)
    : meeting_(std::move(meeting)), options_(options), check_(std::move(check)) {}
Reunion::~Reunion() = default;

std::string Reunion::open(const std::string& address) {
  if (meeting_.size == 1) return "";
  if (meeting_.kind == Meeting::Kind::kLocal) return auth::random_token();
  Encounter encounter(meeting_, options_, check_);
  auto [listening, record] =
      encounter.listen(net::resolve(address, os::Deadline::in_ms(options_.rendezvous_timeout_ms)).front());
  opened_ = std::make_unique<Opened>(Opened{std::move(listening)});
  return write_record(record);
}

std::unique_ptr<Control> Reunion::join(const std::string& record) {
  const int64_t limit_ms = options_.rendezvous_timeout_ms;
  if (meeting_.size == 1) return make_solo_control();
  if (meeting_.kind == Meeting::Kind::kLocal)  // a name that no user can give
    return join_local_hub("#" + record, meeting_.rank, meeting_.size, os::Deadline::in_ms(limit_ms), limit_ms,
                          meeting_.world_rank, check_);
  const auto read = read_record(record);
  if (!read.has_value())
    throw Error(DDP_ERROR_INTERNAL, "rank 0 of a new group said where it listens in a way that nobody understands");
  meeting_.place = read->address;
  return Encounter(meeting_, options_, check_).at_record(opened_ ? &opened_->listening : nullptr, *read);
}

}  // namespace ddp::bootstrap
