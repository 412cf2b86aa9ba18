// SPDX-License-Identifier: Apache-2.0
// Whether links are encrypted: the option, the environment, and what each connection becomes.
#include "group/links.hpp"

#include "control/solo.hpp"
#include "socket/connection.hpp"
#include "support/check.hpp"
#include "support/local_endpoint.hpp"

/// Two ranks, seen by rank 1.
class Pair final : public bootstrap::Control {
 public:
  Pair(bool one_host, bool token) {
    members_[0].boot_id = "a";
    members_[1].boot_id = one_host ? "a" : "b";
    bootstrap::auth::Key key{};
    if (token) key.fill(1);
    set_link_key(key);
  }
  [[nodiscard]] int32_t rank() const noexcept override { return 1; }
  [[nodiscard]] int32_t size() const noexcept override { return 2; }
  [[nodiscard]] const bootstrap::Member& member(int32_t rank) const noexcept override { return members_[rank]; }
  [[nodiscard]] std::vector<std::string> gather(std::string_view what, std::string_view mine, os::Deadline until) override {
    return alone_->gather(what, mine, until);
  }
  void abort(const Error& cause) noexcept override { alone_->abort(cause); }
  [[nodiscard]] std::optional<Error> settle() override { return alone_->settle(); }
  void saw_death(int32_t rank) noexcept override { alone_->saw_death(rank); }
  void leave(bootstrap::Leaving how) noexcept override { alone_->leave(how); }
  void on_failure(std::function<void(const Error&)> fn) override { alone_->on_failure(std::move(fn)); }
  void set_progress(int64_t pass, int32_t bucket) noexcept override { alone_->set_progress(pass, bucket); }
  [[nodiscard]] bootstrap::CallState& calls() noexcept override { return alone_->calls(); }
  [[nodiscard]] std::string describe_progress(int32_t) const override { return ""; }

 private:
  bootstrap::Member members_[2];
  std::unique_ptr<bootstrap::Control> alone_ = bootstrap::make_solo_control();
};

ddp_group_options with(ddp_links links) { return {.links = links}; }

ddp_case(encrypted_links_need_a_token) {
  const Pair open(false, false), closed(false, true);
  for (const ddp_links links : {DDP_LINKS_AUTO, DDP_LINKS_PLAIN}) group::require_links(open, with(links));
  for (const ddp_links links : {DDP_LINKS_AUTO, DDP_LINKS_PLAIN, DDP_LINKS_ENCRYPTED})
    group::require_links(closed, with(links));
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { group::require_links(open, with(DDP_LINKS_ENCRYPTED)); }, {"set DDP_TOKEN"});
  expect_equal(std::string(group::links_between(open, with(DDP_LINKS_AUTO))), std::string("plain"), "without a token");
  expect_equal(std::string(group::links_between(closed, with(DDP_LINKS_AUTO))), std::string("encrypted"), "with one");
  expect_equal(std::string(group::links_between(closed, with(DDP_LINKS_PLAIN))), std::string("plain"), "plain");
}

// NCCL cannot encrypt.
ddp_case(encrypted_links_and_gpus_of_several_hosts_exclude_each_other) {
  const Pair far(false, true), near(true, true);
  for (const ddp_links links : {DDP_LINKS_AUTO, DDP_LINKS_PLAIN}) group::require_gpu_links(far, with(links));
  group::require_gpu_links(near, with(DDP_LINKS_ENCRYPTED));
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { group::require_gpu_links(far, with(DDP_LINKS_ENCRYPTED)); },
               {"NCCL sends plain data"});
}

ddp_links resolved(ddp_links option, const char* environment) {
  ddp_group_options options{.links = option};
  group::resolve_links(options, environment);
  return options.links;
}

ddp_case(the_environment_decides_what_the_option_leaves_open) {
  expect(resolved(DDP_LINKS_AUTO, nullptr) == DDP_LINKS_AUTO && resolved(DDP_LINKS_AUTO, "") == DDP_LINKS_AUTO, "not set");
  expect(resolved(DDP_LINKS_AUTO, "encrypted") == DDP_LINKS_ENCRYPTED, "encrypted");
  expect(resolved(DDP_LINKS_AUTO, "plain") == DDP_LINKS_PLAIN, "plain");
  expect(resolved(DDP_LINKS_AUTO, "auto") == DDP_LINKS_AUTO, "auto");
  expect(resolved(DDP_LINKS_PLAIN, "encrypted") == DDP_LINKS_PLAIN, "the option comes first");
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)resolved(DDP_LINKS_AUTO, "yes"); }, {"\"yes\""});
}

ddp_case(a_connection_is_sealed_unless_it_stays_on_a_host_or_no_token_is_there) {
  socket::auth::Key key{};
  key.fill(1);
  const auto seals = [&](ddp_links wanted, const char* listener, const socket::auth::Key& of) {
    return socket::Sealing{&local_endpoint(), wanted}.seals(listener, of);
  };
  expect(seals(DDP_LINKS_AUTO, "10.0.0.1", key) && seals(DDP_LINKS_AUTO, "fd00::1", key), "between hosts");
  expect(!seals(DDP_LINKS_AUTO, "127.0.0.1", key) && !seals(DDP_LINKS_AUTO, "::1", key), "on a host");
  expect(seals(DDP_LINKS_ENCRYPTED, "127.0.0.1", key), "on a host, where it is wanted");
  expect(!seals(DDP_LINKS_PLAIN, "10.0.0.1", key), "plain");
  expect(!seals(DDP_LINKS_AUTO, "10.0.0.1", socket::auth::Key{}) && !seals(DDP_LINKS_ENCRYPTED, "10.0.0.1", {}), "no token");
  expect(!socket::Sealing{}.seals("10.0.0.1", key), "no module");
}

ddp_case(a_module_without_seals_says_so) {
  const socket::net::Socket none;
  expect_error(DDP_ERROR_NOT_SUPPORTED,
               [&] { const socket::Seal seal(local_endpoint(), none, socket::Seal::End::kListens, {}); },
               {"cannot encrypt"});
}
