// SPDX-License-Identifier: Apache-2.0
// Where the token comes from, and the note with rank 0's address.

#include "discovery/place.hpp"
#include "discovery/token.hpp"
#include "support/check.hpp"

std::string token_text, file_text;
const char* variables(const char* name) {
  if (std::strcmp(name, "DDP_TOKEN") == 0) return token_text.empty() ? nullptr : token_text.c_str();
  if (std::strcmp(name, "DDP_TOKEN_FILE") == 0) return file_text.empty() ? nullptr : file_text.c_str();
  return nullptr;
}

class TokenFile {
 public:
  TokenFile(const std::string& text, mode_t mode) {
    char path[] = "/tmp/ddp-token-XXXXXX";
    const int fd = ::mkstemp(path);
    expect(fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "the file is written");
    ::fchmod(fd, mode);
    ::close(fd);
    token_text.clear();
    file_text = path;
  }
  ~TokenFile() { ::unlink(file_text.c_str()); }
};

ddp_case(the_variable_wins_over_the_file) {
  const TokenFile file("a token from the file\n", 0600);
  expect_equal(*bootstrap::read_token(variables), std::string("a token from the file"), "token");
  token_text = "from the variable";
  expect_equal(*bootstrap::read_token(variables), std::string("from the variable"), "token");
  token_text.clear();
}

ddp_case(without_variables_there_is_no_token) {
  token_text.clear();
  file_text.clear();
  expect(!bootstrap::read_token(variables).has_value(), "none");
}

ddp_case(files_that_others_can_read_are_refused) {
  for (const mode_t mode : {0644u, 0640u, 0604u, 0660u}) {
    const TokenFile file("a secret in a file", mode);
    const std::string text =
        expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)bootstrap::read_token(variables); }, {file_text, "chmod 600"});
    expect(text.find("a secret") == std::string::npos, "the token is not shown");
  }
}

ddp_case(empty_missing_and_endless_files_are_refused) {
  {
    const TokenFile file("\n", 0600);
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)bootstrap::read_token(variables); }, {"is empty"});
  }
  {
    const TokenFile file(std::string(5'000, 'x'), 0600);
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)bootstrap::read_token(variables); }, {"longer than"});
  }
  file_text = "/tmp/no/such/file";
  expect_error(DDP_ERROR_IO, [] { (void)bootstrap::read_token(variables); }, {file_text});
  file_text = "/dev/zero";
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)bootstrap::read_token(variables); }, {"no regular file"});
}

ddp_case(a_token_that_can_be_guessed_is_refused) {
  const auto refusal = [] {
    return expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)bootstrap::read_token(variables); });
  };
  token_text = "only 15 letters";
  const std::string text = refusal();
  expect_contains(text, "DDP_TOKEN has 15 bytes");
  expect_contains(text, "openssl rand -hex 32");
  expect(text.find(token_text) == std::string::npos, "the token is not shown");
  token_text = "these 16 are fit";
  expect_equal(*bootstrap::read_token(variables), token_text, "token");
  const TokenFile file("only 15 letters\n", 0600);
  expect_contains(refusal(), "DDP_TOKEN_FILE has 15 bytes");
}

ddp_case(notes_are_read_whole_or_not_at_all) {
  const std::string text = bootstrap::write_record({"10.0.0.1:40000", "word", "", "host", "boot", "life"});
  const auto note = bootstrap::read_record(text);
  expect(note.has_value() && note->address == "10.0.0.1:40000" && note->word == "word" && note->token.empty() &&
             note->host == "host" && note->boot_id == "boot" && note->life == "life",
         "the note is the same");
  for (size_t size = 0; size < text.size(); ++size)
    expect(!bootstrap::read_record(text.substr(0, size)).has_value(), "a cut note is none");
  expect(!bootstrap::read_record(text + "more\n").has_value(), "a longer note is none");
  expect(!bootstrap::read_record("a text of somebody else\n\n\n\n\n\n").has_value(), "other texts are none");
}
