// SPDX-License-Identifier: Apache-2.0
#include "control/server.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "control/identity.hpp"
#include "control/limits.hpp"
#include "control/link.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "os/closed_in_forks.hpp"
#include "os/log.hpp"
#include "os/thread.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int kAcceptsInTurn = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds(50);  // when descriptors have run out

}  // namespace

class Server::Impl {
 public:
  Impl(net::Socket listener, ServerConfig config)
      : dead_after_ms_(config.dead_after_ms),
        tick_(std::chrono::milliseconds(
            std::clamp<int64_t>(std::min(config.heartbeat_ms, config.dead_after_ms / limits::kTicksInSilence), 1, 100))),
        group_key_(config.token.has_value() ? std::make_shared<GroupKey>() : nullptr),
        last_words_(metadata_of(config.world_rank)),
        state_(limited(std::move(config))),
        listener_(io_, listener.get()),
        timer_(io_),
        pause_(io_) {
    (void)listener.release();
    wait_to_accept();
    tick();
    thread_ = os::start_thread("ddp-server", [this] { run(); });
  }

  void stop(os::Deadline deadline) noexcept {
    if (!thread_.joinable()) return;
    if (!try_to([this] { asio::post(io_, [this] { finish_all(); }); })) {
      std::unique_lock lock(done_.mutex);
      done_.changed.wait_for(lock, std::chrono::nanoseconds(deadline.left_ns()), [this] { return done_.flag; });
    }
    io_.stop();
    thread_.join();
  }

  std::vector<int32_t> present() const {
    const std::lock_guard lock(here_.mutex);
    return here_.ids;
  }

  std::vector<int32_t> witnessed() const {
    const std::lock_guard lock(here_.mutex);
    return here_.witnessed;
  }

  void dismiss(const Error& why) {
    asio::post(io_, [this, why] {
      state_.dismiss(why);
      act();
    });
  }

  void form(std::vector<int32_t> ids) {
    asio::post(io_, [this, ids = std::move(ids)] {
      state_.form(ids);
      act();
    });
  }

 private:
  void run() {
    while (const std::optional<Error> error = try_to([this] { io_.run(); })) {
      os::log_of(*error, DDP_LOG_ERROR, "the control server of rank 0: %s", error->what());
      static_cast<void>(try_to([this] { act(); }));  // what was asked for before: it may have formed
      if (stage_.formed)
        give_up();
      else
        go_on();  // the affected rank is refused or retries
    }
  }

  /// The group forms nevertheless: whatever was to begin anew when memory ran out does so now.
  void go_on() {
    const auto begin = [this] {
      if (!stage_.accepts && listener_.descriptor.is_open()) wait_to_accept();
      if (!stage_.ticks) wait_to_tick();
    };
    while (!io_.stopped() && try_to(begin)) std::this_thread::sleep_for(kAcceptPause);
  }

  // A lack of memory: a message was lost, so no rank may wait for it.
  void give_up() noexcept {
    std::erase_if(links_, [this](const auto& entry) {
      const std::shared_ptr<Link>& link = entry.second;
      if (!try_to([&] {
            link->send(FrameType::kFailed, last_words_);
            link->finish_anyhow();
          }))
        return false;
      link->close();
      return true;
    });
    check_done();
  }

  void wait_to_accept() {
    listener_.descriptor.async_wait(asio::posix::stream_descriptor::wait_read, [this](const asio::error_code& error) {
      stage_.accepts = false;
      if (!error) accept();
    });
    stage_.accepts = true;
  }

  void accept() {
    for (int i = 0; i < kAcceptsInTurn && listener_.descriptor.is_open(); ++i) {
      const int fd = ::accept4(listener_.descriptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0 && net::is_exhausted(errno)) say_exhausted(errno);
      if (fd >= 0) {
        admit(net::Socket(fd));
      } else if (net::is_exhausted(errno) && state_.drop_unauthenticated()) {
        act();
      } else if (net::is_exhausted(errno)) {
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](const asio::error_code& error) {
          stage_.accepts = false;
          if (!error && listener_.descriptor.is_open()) wait_to_accept();
        });
        stage_.accepts = true;
        return;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      }  // anything else concerns a connection that has closed
    }
    if (listener_.descriptor.is_open()) wait_to_accept();
  }

  /// Strangers can bring that about too, so it is no error. Keeps errno.
  void say_exhausted(int error) noexcept {
    if (!std::exchange(stage_.exhausted, true))
      os::log(DDP_LOG_WARNING, "rank 0 cannot take a connection: %s%s", std::strerror(error), advice_of_errno(error));
    errno = error;
  }

  void admit(net::Socket socket) {
    const ConnectionId id = ++last_id_;
    on_error([&] { welcome(id, std::move(socket)); }, [&](const Error&) { lose(id); });
  }

  void welcome(ConnectionId id, net::Socket socket) {
    net::tune(socket.get(), dead_after_ms_);
    auto link = std::make_shared<Link>(io_, std::move(socket), FrameReader(limits::kStrangerBytes), FrameWriter());
    links_.emplace(id, link);
    link->start({[this, id](Frame&& frame) {
                   state_.frame(id, std::move(frame), os::now_ns());
                   act();
                 },
                 [this, id] {
                   forget(id);
                   state_.closed(id, os::now_ns());
                   act();
                 },
                 [this, id](const std::string& how) {
                   forget(id);
                   state_.broke(id, how, os::now_ns());
                   act();
                 },
                 [this, id](const Error& error) {
                   act();                                  // the group may have formed
                   if (stage_.formed) throw Error(error);  // for run()
                   lose(id);
                   act();
                 }});
    state_.connected(id, auth::random_nonce(), os::now_ns());
    act();
  }

  /// Until the group has formed an action that lacks memory costs its connection alone: the other side comes again.
  void act() {
    for (std::vector<ServerAction> actions = state_.take(); !actions.empty(); actions = state_.take())
      for (ServerAction& action : actions)
        if (const std::optional<Error> failed = try_to([&] { perform(action); })) {
          if (stage_.formed) throw Error(*failed);
          lose(action.to);
        }
  }

  void perform(ServerAction& action) {
    if (action.kind == ServerAction::Kind::kSeal) {
      listener_.close();
      stage_.formed = true;
      return;
    }
    const auto found = links_.find(action.to);
    if (found == links_.end()) return;
    const std::shared_ptr<Link> link = found->second;
    switch (action.kind) {
      case ServerAction::Kind::kSend: link->send(action.type, std::move(action.body)); break;
      case ServerAction::Kind::kSecure: link->secure(action.keys, group_key_, messages::longest<messages::Gather>()); break;
      case ServerAction::Kind::kFinish: link->finish(); break;
      case ServerAction::Kind::kDrop:
        link->close();
        forget(action.to);
        break;
      case ServerAction::Kind::kSeal: break;
    }
  }

  /// As if the other side had closed it, but whoever it was may come again at once.
  void lose(ConnectionId id) {
    if (const auto found = links_.find(id); found != links_.end()) found->second->close();
    forget(id);
    state_.broke(id, "", os::now_ns());
  }

  void wait_to_tick() {
    timer_.expires_after(tick_);
    timer_.async_wait([this](const asio::error_code& error) {
      stage_.ticks = false;
      if (!error) tick();
    });
    stage_.ticks = true;
  }

  void tick() {
    wait_to_tick();
    state_.tick(os::now_ns());
    act();
    note_present();
  }

  void note_present() {
    const std::lock_guard lock(here_.mutex);
    here_.ids = state_.present();
    here_.witnessed = state_.witnessed();
  }

  void finish_all() {
    stage_.finishing = true;
    state_.settle();
    act();
    listener_.close();
    for (const auto& [id, link] : links_) link->finish();
    check_done();
  }

  void forget(ConnectionId id) {
    links_.erase(id);
    check_done();
  }

  void check_done() {
    if (!stage_.finishing || !links_.empty()) return;
    const std::lock_guard lock(done_.mutex);
    done_.flag = true;
    done_.changed.notify_all();
  }

  static ServerConfig limited(ServerConfig config) {
    config.most_unauthenticated =
        net::unauthenticated_limit(limits::kUnauthenticatedPending + static_cast<size_t>(config.size));
    return config;
  }

  static SharedBody metadata_of(int32_t world_rank) {
    Member me = this_member(0);
    me.world_rank = world_rank;
    return std::make_shared<const Body>(messages::write(texts::gave_up(me, nullptr, Error().text())));
  }

  asio::io_context io_{1};
  int64_t dead_after_ms_;
  std::chrono::milliseconds tick_;
  const std::shared_ptr<GroupKey> group_key_;  // NULL: there is no token
  const SharedBody last_words_;                // made in time
  ServerState state_;
  // Others see by it that this process has ended, so a fork does not keep it open.
  struct Door {
    Door(asio::io_context& io, int fd) : descriptor(io, fd), in_forks(fd) {}
    void close() {
      in_forks.forget();
      asio::error_code ignored;
      descriptor.close(ignored);
    }
    asio::posix::stream_descriptor descriptor;
    os::ClosedInForks in_forks;
  } listener_;
  asio::steady_timer timer_;
  asio::steady_timer pause_;
  std::unordered_map<ConnectionId, std::shared_ptr<Link>> links_;
  ConnectionId last_id_ = 0;
  struct Stage {
    bool formed = false;
    bool finishing = false;
    bool exhausted = false;  // and said so
    bool accepts = false;    // it waits for the next connection
    bool ticks = false;
  } stage_;

  struct Here {
    mutable std::mutex mutex;  // guards the ids
    std::vector<int32_t> ids, witnessed;
  } here_;
  struct Done {
    std::mutex mutex;  // guards the flag
    std::condition_variable changed;
    bool flag = false;
  } done_;
  std::thread thread_;
};

Server::Server(net::Socket listener, ServerConfig config)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(config))) {}

Server::~Server() {
  if (impl_) stop(os::Deadline::in_ms(500));
}

std::vector<int32_t> Server::present() const { return impl_->present(); }
std::vector<int32_t> Server::witnessed() const { return impl_->witnessed(); }
void Server::form(std::vector<int32_t> ids) { impl_->form(std::move(ids)); }
void Server::dismiss(const Error& why) { impl_->dismiss(why); }
void Server::stop(os::Deadline deadline) { impl_->stop(deadline); }

}  // namespace ddp::bootstrap
