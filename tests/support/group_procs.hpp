// SPDX-License-Identifier: Apache-2.0
// Groups of processes, met at a file in a folder of their own: each child's body gets its group.
#pragma once

#include "support/group_world.hpp"
#include "support/procs.hpp"

namespace ddp::test {

/// A fresh folder, removed with everything in it.
class Folder : NotCopied {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ddp-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::shared_ptr<group::Group> join_process_group(const Folder& folder, int rank, int size,
                                                        ddp_group_options options) {
  options.rank = rank;
  options.world_size = size;
  return group::Group::create(("file://" + folder.path() + "/meet").c_str(), options);
}

/// Throws if a child fails, with the child's text.
inline void run_group_procs(int size, const ddp_group_options& options,
                            const std::function<void(group::Group&, int)>& body) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter&) {
    const auto group = join_process_group(folder, rank, size, options);
    body(*group, rank);
  });
  expect_success(procs, 60'000);
}

}  // namespace ddp::test
