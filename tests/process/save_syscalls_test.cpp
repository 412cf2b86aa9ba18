// SPDX-License-Identifier: Apache-2.0
// A rank is killed at any system call of a save into a folder: what the folder has then is whole, and is the step before or
// the new one; the other rank gets the name of the dead one; the next save works and leaves no other file. The killer is a
// tracer (ptrace), so it sees every call that the saving thread makes, in any code: files, locks, memory, exchanges of the
// ranks.
//
//   test.process.save_syscalls          every 9th call
//   test.process.save_syscalls 2000     2,000 kills, at every call in turn; prints a line for each way of saving
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "checkpoint/folder.hpp"
#include "checkpoint/state.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/meeting.hpp"
#include "support/training.hpp"

constexpr int64_t kOld = 20, kNew = 30;
constexpr int64_t kMostCalls = 250;
constexpr long kMark = -777;  // getpgid of it ends what is traced
constexpr int kSaved = 0, kBlamed = 42, kOther = 43, kNotTraced = 44;

/// How it is saved, and which rank is killed.
struct Way {
  const char* name;
  int ranks;
  bool shard;
  int victim;
};
constexpr Way kWays[] = {
    {"1 rank", 1, false, 0},
    {"2 ranks, rank 0 is killed", 2, false, 0},
    {"2 ranks, rank 1 is killed", 2, false, 1},
    {"2 ranks, sharded, rank 0 is killed", 2, true, 0},
    {"2 ranks, sharded, rank 1 is killed", 2, true, 1},
};

struct Count {
  int64_t kills = 0, calls = 0, of_old = 0, of_new = 0;
};

Ways ways_of(bool shard) {
  Ways ways;
  ways.shard = shard;
  ways.shapes = {7, 5000, 1, 3000};
  return ways;
}

std::shared_ptr<group::Group> meet(int port, int rank, int size) {
  ddp_group_options options = world_options(rank, size);
  return group::Group::create(tcp_place(port).c_str(), options);
}

void train_and_save(Training& world, const std::string& folder, int64_t step, int64_t keep = 2) {
  while (world.optimizer->step_count() < step / 10) {
    world.train(0, static_cast<int>(world.optimizer->step_count()));
  }
  checkpoint::save_latest("save", {*world.model, world.optimizer.get()}, {0, step}, folder, keep, std::nullopt);
}

/// One rank of a save of kNew; the victim lets itself be traced meanwhile.
int save_as(const Way& way, int rank, int port, const std::string& folder) {
  const auto group = meet(port, rank, way.ranks);
  Training world(*group, Rule::kAdamW, ways_of(way.shard));
  const checkpoint::Parts parts{*world.model, world.optimizer.get()};
  (void)checkpoint::load_latest("load", parts, folder, std::nullopt);
  world.train(0, kOld / 10);
  if (rank == way.victim) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return kNotTraced;
    (void)raise(SIGSTOP);
  }
  checkpoint::save_latest("save", parts, {0, kNew}, folder, 2, std::nullopt);
  if (rank == way.victim) (void)syscall(SYS_getpgid, kMark);
  return kSaved;
}

pid_t fork_rank(const Way& way, int rank, int port, const std::string& folder) {
  const pid_t child = fork();
  if (child != 0) return child;
  int code = kOther;
  try {
    code = save_as(way, rank, port, folder);
  } catch (const Error& error) {  // in the save, or in the call before it, which the victim has left already
    const std::string name = "rank " + std::to_string(way.victim) + " (";
    if (error.status() == DDP_ERROR_PEER_FAILED && error.text().find(name) != std::string::npos) code = kBlamed;
    if (code == kOther) std::fprintf(stderr, "rank %d: %d %s\n", rank, static_cast<int>(error.status()), error.what());
  }
  _exit(code);
}

/// Waits 30 s at most; then it ends the process.
int wait_for_end(pid_t child) {
  int status = 0;
  for (int tenths = 0; waitpid(child, &status, WNOHANG | __WALL) == 0; ++tenths) {
    if (tenths == 3000) (void)kill(child, SIGKILL);
    (void)usleep(10'000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Lets a traced process continue, and kills it at the entry of call `at` of the save. Gives the number of calls it made.
int64_t kill_at_call(pid_t victim, int64_t at, bool* is_killed) {
  int status = 0;
  *is_killed = false;
  if (waitpid(victim, &status, __WALL) != victim || !WIFSTOPPED(status)) return -1;
  (void)ptrace(PTRACE_SETOPTIONS, victim, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int64_t calls = 0;
  bool enters = true;
  for (long signal = 0;;) {
    if (ptrace(PTRACE_SYSCALL, victim, nullptr, signal) != 0) return calls;
    if (waitpid(victim, &status, __WALL) != victim || !WIFSTOPPED(status)) return calls;
    signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
    if (signal != 0) continue;
    enters = !enters;
    if (enters) continue;
    __ptrace_syscall_info call{};
    (void)ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), victim, sizeof call, &call);
    if (call.entry.nr == SYS_getpgid && static_cast<int32_t>(call.entry.args[0]) == kMark) break;
    if (++calls != at) continue;
    (void)kill(victim, SIGKILL);
    *is_killed = true;
    return calls;
  }
  (void)ptrace(PTRACE_DETACH, victim, nullptr, nullptr);
  return calls;
}

/// The files as they are without a death.
struct Wanted {
  std::string old_bytes, new_bytes;
};

std::string saved_alone(const std::string& folder, int64_t step) {
  run_groups(1, [&](group::Group& group, int) {
    Training world(group, Rule::kAdamW, ways_of(false));
    train_and_save(world, folder, step);
  });
  return read_whole(folder + "/" + checkpoint::name_of_step(step));
}

/// The file is whole, old or new, and the next save works. Is it the new one?
bool check_folder(const TemporaryFolder& folder, const Wanted& wanted, const std::string& where) {
  int64_t step = 0;
  run_groups(1, [&](group::Group& group, int) {
    Training world(group, Rule::kAdamW, ways_of(false));
    const checkpoint::Parts parts{*world.model, world.optimizer.get()};
    step = checkpoint::load_latest("load", parts, folder.path(), std::nullopt).step;
    expect(world.model->checkpoint_info().last_load.skipped.empty(), where + ": a file that is not whole");
    expect(step == kOld || step == kNew, where + ": step " + std::to_string(step));
    const std::string bytes = read_whole(*world.model->checkpoint_info().last_load.file);
    expect(bytes == (step == kOld ? wanted.old_bytes : wanted.new_bytes), where + ": the bytes of the file");
    train_and_save(world, folder.path(), kNew);
  });
  const std::vector<std::string> names = {".ddp-folder.lock", checkpoint::name_of_step(kOld),
                                          checkpoint::name_of_step(kNew)};
  expect(folder.names() == names, where + ": files");
  expect(read_whole(folder.file(names[2])) == wanted.new_bytes, where + ": the next save");
  return step == kNew;
}

/// One save with a death at call `at`; false if the save made fewer calls.
bool kill_once(const Way& way, int64_t at, const Wanted& wanted, Count& count) {
  const std::string where = std::string(way.name) + ", call " + std::to_string(at);
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  write_whole(folder.file(checkpoint::name_of_step(kOld)), wanted.old_bytes);
  const int port = way.ranks == 1 ? 1 : free_port();
  pid_t ranks[2] = {};
  for (int rank = 0; rank < way.ranks; ++rank) ranks[rank] = fork_rank(way, rank, port, folder.path());
  bool is_killed = false;
  const int64_t calls = kill_at_call(ranks[way.victim], at, &is_killed);
  const int code = calls < 0 ? kNotTraced : wait_for_end(ranks[way.victim]);
  const int other = way.ranks == 2 ? wait_for_end(ranks[1 - way.victim]) : kSaved;
  if (code == kNotTraced) {
    std::printf("processes cannot be traced here: %s\n", std::strerror(errno));
    std::exit(77);
  }
  count.calls = std::max(count.calls, calls);
  expect_equal(code, is_killed ? -SIGKILL : kSaved, where + ": the end of the victim");
  expect(other == kSaved || (is_killed && other == kBlamed), where + ": the other rank ended with " + std::to_string(other));
  const bool is_new = check_folder(folder, wanted, where);
  expect(is_new || other != kSaved || way.ranks == 1, where + ": a save that succeeded is there");
  expect(is_new || is_killed, where + ": a save without a death is there");
  if (!is_killed) return false;
  ++count.kills;
  ++(is_new ? count.of_new : count.of_old);
  return true;
}

Wanted undisturbed() {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  const std::string old_bytes = saved_alone(folder.path(), kOld);
  return {old_bytes, saved_alone(folder.path(), kNew)};
}

int64_t wanted_kills = 0;  // 0: a sample

/// Kills at one call after the other until a save makes no more of them, or there are enough. A rank that waits for another
/// makes the same calls again and again, as many as there is time.
void kill_at_each_call(const Way& way, int64_t first, int64_t stride, int64_t enough, const Wanted& wanted, Count& count) {
  for (int64_t at = first; at <= kMostCalls && count.kills < enough; at += stride)
    if (!kill_once(way, at, wanted, count)) return;
}

ddp_case(a_rank_killed_at_any_call_of_a_save_leaves_a_whole_checkpoint) {
  constexpr size_t kAll = std::size(kWays);
  const Wanted wanted = undisturbed();
  Count counts[kAll];
  int64_t kills = 0;
  const int64_t stride = wanted_kills == 0 ? 9 : 1, each = wanted_kills == 0 ? 20 : (wanted_kills + kAll - 1) / kAll;
  do {
    kills = 0;
    for (size_t way = 0; way < kAll; ++way) {
      kill_at_each_call(kWays[way], 1 + static_cast<int64_t>(way) * 2 % stride, stride, each, wanted, counts[way]);
      kills += counts[way].kills;
      if (wanted_kills > 0) std::printf("%s: %lld kills\n", kWays[way].name, static_cast<long long>(counts[way].kills));
      (void)std::fflush(stdout);
    }
  } while (kills < wanted_kills);
  for (size_t way = 0; way < std::size(kWays); ++way) {
    const Count& count = counts[way];
    std::printf("%-36s %5lld kills, up to %3lld calls a save: %5lld former checkpoints, %5lld new ones\n", kWays[way].name,
                static_cast<long long>(count.kills), static_cast<long long>(count.calls),
                static_cast<long long>(count.of_old), static_cast<long long>(count.of_new));
    expect(count.of_old > 0, std::string(kWays[way].name) + ": some deaths leave the former checkpoint");
    expect(count.of_new > 0 || wanted_kills == 0, std::string(kWays[way].name) + ": some deaths leave the new one");
  }
  std::printf("%lld kills\n", static_cast<long long>(kills));
}

ddp_before_cases({
  if (argc > 1) wanted_kills = std::atoll(argv[1]);
  if (argc > 1 && wanted_kills <= 0) std::exit(2);
});
