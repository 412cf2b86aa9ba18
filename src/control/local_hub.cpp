// SPDX-License-Identifier: Apache-2.0
#include "control/local_hub.hpp"

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "control/client_control.hpp"
#include "control/identity.hpp"
#include "control/server_state.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "os/log.hpp"
#include "os/process.hpp"
#include "os/thread.hpp"

namespace ddp::bootstrap {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int64_t kBeatMs = 50;          // every tick sends the positions of the ranks
constexpr int64_t kDeadMs = 86'400'000;  // never: all ranks have their process in common

class Hub;

class LocalControl final : public ClientControl {
 public:
  LocalControl(std::shared_ptr<Hub> hub, const ClientConfig& config);
  ~LocalControl() override;
  LocalControl(const LocalControl&) = delete;
  LocalControl& operator=(const LocalControl&) = delete;

  /// The end of the process ends all ranks.
  void leave(Leaving how) noexcept override {
    if (how == Leaving::kGroup) static_cast<void>(depart(how));
  }

 private:
  friend Hub;
  void send(FrameType type, SharedBody body) override;
  void finish() override;

  HandlerMemory end_;
  const std::shared_ptr<Hub> hub_;
  ConnectionId id_ = 0;
  bool is_gone_ = false;  // guarded by the hub's mutex
};

/// The server, its thread, and the messages that were sent. Used on that thread alone if no other is named.
class Hub {
 public:
  Hub(std::string name, int32_t founder, int32_t size)
      : founder_(founder),
        size_(size),
        name_(std::move(name)),
        server_(config_of(size)),
        timer_(io_),
        work_(asio::make_work_guard(io_)) {
    tick_again();
    thread_ = os::start_thread("ddp-local", [this] { run(); });
  }
  ~Hub() {
    io_.stop();
    thread_.join();
  }
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// Any thread.
  [[nodiscard]] asio::io_context& io() noexcept { return io_; }
  /// The same. Throws MISMATCH.
  void check_size(int32_t rank, int32_t size) const {
    if (size != size_) throw texts::different_size(rank, size, founder_, size_);
  }
  /// Any thread but this one: until disconnect() is done.
  void wait_gone(const LocalControl& rank) {
    std::unique_lock lock(gone_.mutex);
    gone_.changed.wait(lock, [&] { return rank.is_gone_; });
  }

  void connect(LocalControl& rank, int32_t number, int32_t size);
  /// Nothing comes to this rank any more.
  void disconnect(LocalControl& rank) noexcept;
  void send(ConnectionId from, FrameType type, SharedBody body) {
    if (ranks_.count(from) != 0) push({from, true, type, std::move(body)});
  }
  void finish(ConnectionId from) { send(from, {}, nullptr); }

 private:
  // One message, or without a body the end of a connection.
  struct Parcel {
    ConnectionId id = 0;
    bool is_for_server = false;
    FrameType type = FrameType::kBeat;
    SharedBody body;
  };

  static ServerConfig config_of(int32_t size) {
    ServerConfig config;
    config.size = size;
    config.heartbeat_ms = kBeatMs;
    config.dead_after_ms = kDeadMs;
    return config;
  }

  void run();
  void give_up(const Error& why) noexcept;
  void tick_again();
  void push(Parcel parcel);
  void deliver();
  void deliver_to_server(const Parcel& parcel);
  void deliver_to_rank(const Parcel& parcel);
  void obey_server();

  const int32_t founder_, size_;
  const std::string name_;
  ServerState server_;
  std::map<ConnectionId, LocalControl*> ranks_;  // those that are connected
  ConnectionId last_id_ = 0;
  std::deque<Parcel> parcels_;
  bool will_deliver_ = false;
  bool is_sealed_ = false;
  struct Gone {
    std::mutex mutex;
    std::condition_variable changed;
  } gone_;
  asio::io_context io_{1};
  asio::steady_timer timer_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

// The hubs that still wait for ranks, by name. Never destroyed, so that threads that end late stay safe. A fork begins with
// none: those who wait are threads of its parent.
class Registry {
 public:
  static Registry& instance() {
    static Registry& one = *new Registry;
    one.process_.enter([] {
      new (static_cast<void*>(&one.mutex_)) std::mutex;
      new (static_cast<void*>(&one.forming_)) std::map<std::string, Entry>;
    });
    return one;
  }

  std::shared_ptr<Hub> find(const std::string& name, int32_t rank, int32_t size) {
    std::shared_ptr<Hub> hub;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(forming_, [](const auto& entry) { return entry.second.hub.expired(); });
      Entry& entry = forming_[name];
      hub = entry.hub.lock();
      if (hub == nullptr) {
        hub = std::make_shared<Hub>(name, rank, size);
        entry = {hub.get(), hub};
      }
    }
    hub->check_size(rank, size);
    return hub;
  }

  void forget(const std::string& name, const Hub* hub) {
    const std::lock_guard lock(mutex_);
    const auto found = forming_.find(name);
    if (found != forming_.end() && found->second.address == hub) forming_.erase(found);
  }

 private:
  struct Entry {
    const Hub* address = nullptr;
    std::weak_ptr<Hub> hub{};
  };
  os::PerProcess process_;
  std::mutex mutex_;
  std::map<std::string, Entry> forming_;
};

// ---- the hub's thread

void Hub::run() {
  while (const std::optional<Error> error = try_to([this] { io_.run(); })) {
    os::log_of(*error, DDP_LOG_ERROR, "the control thread of %s: %s", name_.c_str(), error->what());
    give_up(*error);
  }
}

// A lack of memory: a message was lost, so no rank may wait for it.
void Hub::give_up(const Error& why) noexcept {
  std::optional<Error> cause;
  for (const auto& [id, rank] : ranks_)
    if (!cause.has_value()) cause = rank->last_words().error;
  parcels_.clear();
  will_deliver_ = false;
  for (const auto& [id, rank] : std::exchange(ranks_, {})) {
    if (cause.has_value())
      rank->break_group(*cause);
    else
      rank->refuse(why);
    rank->link_gone();
  }
}

void Hub::tick_again() {
  timer_.expires_after(kTick);
  timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    tick_again();
    for (const auto& [id, rank] : ranks_) rank->tick();
    deliver();  // where the ranks are, for the error texts of what follows
    server_.tick(os::now_ns());
    obey_server();
  });
}

void Hub::connect(LocalControl& rank, int32_t number, int32_t size) {
  if (is_sealed_) {  // all have come meanwhile: look for another one
    rank.start(false);
    return rank.closed();
  }
  rank.id_ = ++last_id_;
  ranks_.emplace(rank.id_, &rank);
  messages::Hello hello;
  hello.rank = number;
  hello.size = size;
  server_.connected(rank.id_, {}, os::now_ns());
  server_.frame(rank.id_, {FrameType::kHello, messages::write(hello)}, os::now_ns());
  static_cast<void>(server_.take());  // its banner and its welcome
  rank.start(false);
}

void Hub::disconnect(LocalControl& rank) noexcept {
  if (ranks_.erase(rank.id_) != 0) {
    const auto say = [&] {
      // One that gave up waiting leaves its place to another.
      if (!is_sealed_)
        push({rank.id_, true, FrameType::kBye, std::make_shared<const Body>(messages::write(messages::Bye{}))});
      push({rank.id_, true, {}, nullptr});
    };
    if (const std::optional<Error> error = try_to(say)) give_up(*error);
  }
  const std::lock_guard lock(gone_.mutex);
  rank.is_gone_ = true;
  gone_.changed.notify_all();
}

void Hub::push(Parcel parcel) {
  parcels_.push_back(std::move(parcel));
  if (will_deliver_) return;
  asio::post(io_, [this] { deliver(); });
  will_deliver_ = true;
}

void Hub::deliver() {
  will_deliver_ = true;
  while (!parcels_.empty()) {
    const Parcel parcel = std::move(parcels_.front());
    parcels_.pop_front();
    if (parcel.is_for_server)
      deliver_to_server(parcel);
    else
      deliver_to_rank(parcel);
  }
  will_deliver_ = false;
}

void Hub::deliver_to_server(const Parcel& parcel) {
  const int64_t now_ns = os::now_ns();
  if (parcel.body == nullptr)
    server_.closed(parcel.id, now_ns);
  else if (const auto wrong = try_to<Error>([&] { server_.frame(parcel.id, {parcel.type, parcel.body->bytes()}, now_ns); }))
    server_.broke(parcel.id, wrong->text(), now_ns);
  obey_server();
}

void Hub::deliver_to_rank(const Parcel& parcel) {
  const auto found = ranks_.find(parcel.id);
  if (found == ranks_.end()) return;
  LocalControl& rank = *found->second;
  if (parcel.body == nullptr) {
    ranks_.erase(found);
    return rank.closed();
  }
  if (const auto wrong = try_to<Error>([&] { rank.frame({parcel.type, parcel.body->bytes()}); })) rank.broke(wrong->text());
}

void Hub::obey_server() {
  for (ServerAction& action : server_.take()) {
    switch (action.kind) {
      case ServerAction::Kind::kSend: push({action.to, false, action.type, std::move(action.body)}); break;
      case ServerAction::Kind::kFinish:
      case ServerAction::Kind::kDrop: push({action.to, false, {}, nullptr}); break;
      case ServerAction::Kind::kSeal:
        is_sealed_ = true;
        Registry::instance().forget(name_, this);
        break;
      case ServerAction::Kind::kSecure: break;
    }
  }
}

// ---- a rank

LocalControl::LocalControl(std::shared_ptr<Hub> hub, const ClientConfig& config)
    : ClientControl(hub->io(), config), hub_(std::move(hub)) {
  asio::post(hub_->io(), [this, rank = config.me.rank, size = config.size] { hub_->connect(*this, rank, size); });
}

LocalControl::~LocalControl() {
  silence();
  post_in_place(hub_->io(), end_, [this] { hub_->disconnect(*this); });
  hub_->wait_gone(*this);
}

void LocalControl::send(FrameType type, SharedBody body) { hub_->send(id_, type, std::move(body)); }
void LocalControl::finish() { hub_->finish(id_); }

}  // namespace

std::unique_ptr<Control> join_local_hub(const std::string& name, int32_t rank, int32_t size, os::Deadline deadline,
                                        int64_t limit_ms, int32_t world_rank, const std::function<void()>& check) {
  if (rank < 0 || rank >= size) throw texts::rank_out_of_range(rank, size);
  ClientConfig config;
  config.me = this_member(rank);
  config.me.address = "127.0.0.1";
  config.me.world_rank = world_rank;
  config.size = size;
  config.heartbeat_ms = kBeatMs;
  config.dead_after_ms = kDeadMs;
  config.limit_ms = limit_ms;
  const Check look = [&](const Witness&) {
    if (check) check();
  };
  for (;;) {
    config.left_ms = deadline.is_never() ? 0 : std::max<int64_t>(deadline.left_ms(), 1);
    auto control = std::make_unique<LocalControl>(Registry::instance().find(name, rank, size), config);
    if (control->wait_joined(config.left_ms, limit_ms, look)) return control;
  }
}

}  // namespace ddp::bootstrap
