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

struct HitRank {
  std::vector<std::string> texts;  // of the others
  double seconds = 0;              // until all had ended
};
/// Rank 1 gets `number` when all ranks have sent "training"; the text that `body` gives on the others names it.
inline HitRank hit_rank_1(int size, const ddp_group_options& options,
                          const std::function<std::string(group::Group&, int rank, Reporter& report)>& body,
                          int number = SIGKILL) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter& report) {
    const auto group = join_process_group(folder, rank, size, options);
    return body(*group, rank, report);
  });
  for (int rank = 0; rank < size; ++rank) procs.wait_for(rank, "training");
  const auto begin = std::chrono::steady_clock::now();
  procs.signal(1, number);
  HitRank hit;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 1) continue;
    const ProcResult& result = procs.wait_one(rank);
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe());
    expect_contains(result.text, "rank 1");
    hit.texts.push_back(result.text);
  }
  hit.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (number == SIGSTOP) procs.signal(1, SIGKILL);
  return hit;
}

}  // namespace ddp::test
