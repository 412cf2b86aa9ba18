// SPDX-License-Identifier: Apache-2.0
#include "control/tcp_control.hpp"

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <thread>

#include "control/limits.hpp"
#include "control/link.hpp"
#include "core/attempt.hpp"
#include "os/log.hpp"
#include "os/thread.hpp"

namespace ddp::bootstrap {
namespace {

class TcpControl final : public ClientControl {
 public:
  TcpControl(Admission admission, ClientConfig config) : ClientControl(io_, std::move(config)), timer_(io_) {
    set_link_key(admission.link_key);
    FrameReader reader(messages::longest<messages::Reply>());
    if (admission.keys.has_value()) reader.secure(admission.keys->to_client);
    link_ = std::make_shared<Link>(io_, std::move(admission.socket), std::move(reader), admission.writer);
    link_->start({[this](Frame&& one) { frame(std::move(one)); },
                  [this] { closed(); },
                  [this](const std::string& how) { broke(how); },
                  {}});
    start(admission.has_said_first_words);
    tick_again();
    thread_ = os::start_thread("ddp-control", [this] { run(); });
  }

  ~TcpControl() override {
    silence();
    io_.stop();
    thread_.join();
    link_->close();  // before the server waits for us
  }
  TcpControl(const TcpControl&) = delete;
  TcpControl& operator=(const TcpControl&) = delete;

  void own(std::unique_ptr<Server> server) { server_ = std::move(server); }

  void leave(Leaving how) noexcept override {
    const os::Deadline deadline = os::Deadline::in_ms(limits::kLeaveMs);
    if (depart(how) && server_) server_->stop(deadline);
  }

 private:
  void run() {
    while (const std::optional<Error> error = try_to([this] { io_.run(); })) {
      os::log_of(*error, DDP_LOG_ERROR, "the control thread of rank %d: %s", rank(), error->what());
      give_up(*error);
    }
  }

  void give_up(const Error& why) noexcept {
    if (!last_words().error.has_value()) {
      refuse(why);
    } else {
      break_group(*last_words().error);
      if (!try_to([this] {
            send_last_words();
            link_->finish_anyhow();
          }))
        return;
    }
    link_->close();
    link_gone();
  }

  void send(FrameType type, SharedBody body) override { link_->send(type, std::move(body)); }
  void finish() override { link_->finish(); }
  void read_all() override { link_->read_all(); }
  void tick_again() {
    tick();
    timer_.expires_after(std::chrono::milliseconds(tick_ms()));
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) tick_again();
    });
  }

  asio::io_context io_{1};
  asio::steady_timer timer_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<Server> server_;  // on rank 0
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Control> join_over_tcp(Admission admission, ClientConfig config, std::unique_ptr<Server>& server,
                                       const Check& check) {
  const int64_t left_ms = config.left_ms, limit_ms = config.limit_ms;
  auto control = std::make_unique<TcpControl>(std::move(admission), std::move(config));
  if (!control->wait_joined(left_ms, limit_ms, check)) return nullptr;
  control->own(std::move(server));
  return control;
}

}  // namespace ddp::bootstrap
