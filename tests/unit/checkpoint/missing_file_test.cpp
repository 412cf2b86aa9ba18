// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is not there: the text names the files that are there.

#include "checkpoint/source.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"

std::string text_of(const std::string& path) {
  const Error error = checkpoint::missing_file(path);
  expect_equal(static_cast<int>(error.status()), static_cast<int>(DDP_ERROR_IO), "status");
  return error.what();
}

void make(const TemporaryFolder& folder, const std::string& name) { std::ofstream(folder.file(name)) << "x"; }

ddp_case(a_similar_name_is_suggested) {
  const TemporaryFolder folder;
  make(folder, "digits.safetensors");
  make(folder, "other.safetensors");
  expect_contains(text_of(folder.file("digts.safetensors")), "did you mean \"" + folder.file("digits.safetensors") + "\"?");
  expect_contains(text_of(folder.file("digits.safetensor")), "did you mean");
}

ddp_case(else_the_checkpoints_are_named) {
  const TemporaryFolder folder;
  make(folder, "notes.txt");
  expect_contains(text_of(folder.file("epoch-7")), "has no .safetensors file; check the path");
  for (const char* name : {"a", "b", "c", "d", "e"}) make(folder, std::string(name) + "-training.safetensors");
  expect_contains(
      text_of(folder.file("epoch-7")),
      " has \"a-training.safetensors\", \"b-training.safetensors\", \"c-training.safetensors\" and 2 more; check the path");
}

ddp_case(a_missing_folder_is_named_and_not_to_be_made) {
  const TemporaryFolder folder;
  const std::string text = text_of(folder.file("nowhere/model.safetensors"));
  expect_contains(text, "the folder \"" + folder.file("nowhere") + "\" does not exist; check the path");
  expect(text.find("make") == std::string::npos, text);
}

ddp_case(a_relative_path_shows_the_working_folder) {
  char here[4096];
  expect(getcwd(here, sizeof here) != nullptr, "getcwd");
  expect_contains(text_of("no-such-checkpoint"),
                  "there is no such file in the working folder \"" + std::string(here) + "\"");
  expect_contains(text_of("no/such/file"), "the folder \"no/such\" does not exist");
}

ddp_case(odd_paths_do_no_harm) {
  const TemporaryFolder folder;
  make(folder, "x");
  for (const std::string& path :
       {std::string(), std::string("/"), folder.file(""), folder.file("x/y"), std::string(5000, 'n')})
    expect(!text_of(path).empty(), path);
}
