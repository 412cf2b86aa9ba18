// SPDX-License-Identifier: Apache-2.0
#include "group/links.hpp"

#include <string_view>

#include "core/error.hpp"
#include "os/log.hpp"
#include "socket/address.hpp"

namespace ddp::group {
namespace {

[[nodiscard]] bool has_token(const bootstrap::Control& control) noexcept {
  return control.link_key() != bootstrap::auth::Key{};
}

}  // namespace

void resolve_links(ddp_group_options& options, const char* environment) {
  if (options.links != DDP_LINKS_AUTO || environment == nullptr || *environment == '\0') return;
  const std::string_view wanted = environment;
  if (wanted == "encrypted")
    options.links = DDP_LINKS_ENCRYPTED;
  else if (wanted == "plain")
    options.links = DDP_LINKS_PLAIN;
  else if (wanted != "auto")
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "DDP_LINKS is \"%s\"; it must be auto, encrypted or plain", environment);
}

void require_links(const bootstrap::Control& control, const ddp_group_options& options) {
  if (options.links != DDP_LINKS_ENCRYPTED || has_token(control)) return;
  throw make_error(
      DDP_ERROR_NOT_SUPPORTED,
      "encrypted links are asked for (DDP_LINKS or the group option links), but their keys are made of a token, "
      "and there is none; set DDP_TOKEN or DDP_TOKEN_FILE")
      .as_agreed();
}

void require_gpu_links(const bootstrap::Control& control, const ddp_group_options& options) {
  if (options.links == DDP_LINKS_PLAIN || socket::on_one_host(control)) return;
  if (options.links == DDP_LINKS_ENCRYPTED)
    throw make_error(
        DDP_ERROR_NOT_SUPPORTED,
        "encrypted links are asked for (DDP_LINKS or the group option links), but NCCL sends plain data between "
        "the GPUs of several hosts; use a tunnel between the hosts, and leave the option DDP_LINKS_AUTO")
        .as_agreed();
  if (control.rank() == 0)
    os::log(
        DDP_LOG_WARNING,
        "NCCL sends plain data between the GPUs of several hosts: who can read or change packets there can read or change "
        "gradients; DDP_LINKS=plain says that the network is yours");
}

const char* links_between(const bootstrap::Control& control, const ddp_group_options& options) {
  return options.links != DDP_LINKS_PLAIN && has_token(control) ? "encrypted" : "plain";
}

}  // namespace ddp::group
