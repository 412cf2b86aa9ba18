// SPDX-License-Identifier: Apache-2.0
#include "discovery/token.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "control/net.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {
namespace {

constexpr size_t kTokenBytes = 4096;
constexpr size_t kLeastTokenBytes = 16;  // an attacker who sees a proof can try tokens offline

std::string checked(std::string token, const char* source) {
  if (token.size() < kLeastTokenBytes)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "the token of %s has %zu bytes, and less than %zu can be guessed: make one with openssl rand -hex 32",
                     source, token.size(), kLeastTokenBytes);
  return token;
}

std::string read_private_file(const char* path) {
  const net::Socket file(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0)
    throw make_error(DDP_ERROR_IO, "the token file %s of DDP_TOKEN_FILE cannot be read: %s", path, std::strerror(errno));
  if (!S_ISREG(about.st_mode)) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s of DDP_TOKEN_FILE is no regular file", path);
  if ((about.st_mode & 077) != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the token file %s can be read by others: run chmod 600 on it", path);
  std::array<char, kTokenBytes + 1> bytes{};
  size_t filled = 0;
  for (;;) {
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw make_error(DDP_ERROR_IO, "the token file %s cannot be read: %s", path, std::strerror(errno));
    filled += static_cast<size_t>(got);
    if (got == 0 || filled == bytes.size()) break;
  }
  if (filled > kTokenBytes)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the token file %s is longer than %zu bytes", path, kTokenBytes);
  return std::string(bytes.data(), filled);
}

}  // namespace

auth::Token read_token(EnvironmentFn environment) {
  const char* token = environment("DDP_TOKEN");
  if (token != nullptr && *token != '\0') return checked(token, "DDP_TOKEN");
  const char* path = environment("DDP_TOKEN_FILE");
  if (path == nullptr || *path == '\0') return std::nullopt;
  std::string text = read_private_file(path);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the token file %s is empty", path);
  return checked(std::move(text), "DDP_TOKEN_FILE");
}

bool is_insecure_wanted(EnvironmentFn environment) {
  const char* value = environment("DDP_INSECURE");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace ddp::bootstrap
