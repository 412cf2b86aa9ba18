// SPDX-License-Identifier: Apache-2.0
// Memory, threads or descriptors run out on one rank during a call of all. Whichever request fails: no process dies, no rank
// waits for nothing, all ranks agree on the error or find the group broken by the rank that is named, and nothing is left.
//
//   test.scarce.collectives                    some requests of every scene
//   test.scarce.collectives --every 1 [NAME]   every request of every scene, or of one, on either rank; hours
//   test.scarce.collectives --request N NAME   one request of a scene
#include <dirent.h>
#include <execinfo.h>
#include <sys/prctl.h>

#include <ctime>

#include "scarce/scenes.hpp"
#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/scarce.hpp"

extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

using namespace ddp::test;

namespace {

constexpr int kRanks = 2;
double limit_seconds = 10;  // on an idle machine 1 s is enough: DDP_SCARCE_LIMIT=1

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// What a rank tells the test, in memory of both.
struct Told {
  std::atomic<int32_t> arrived{0}, returned{0}, settled{0}, seen{0};
  std::atomic<bool> broken{false};
  ddp_status status{}, group{};
  char text[512]{}, group_text[512]{};
  double seconds = 0;
  int64_t asked = 0;
  int32_t descriptors[2]{}, threads[2]{};
  bool leaks = false;
};

struct Board {
  std::array<Told, kRanks> told;
};

struct Case {
  const Scene* scene;
  ddp_backend backend;
  int32_t failing;
  scarce::Plan plan;
};

int32_t entries_of(const char* folder) {
  DIR* const directory = opendir(folder);
  int32_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

void copy_text(char (&to)[512]) { std::strncpy(to, ddp_last_error(), sizeof to - 1); }

template <class Ready>
bool wait_for(double seconds, Ready&& ready) {
  const double end = now() + seconds;
  while (!ready()) {
    if (now() > end) return false;
    usleep(1000);
  }
  return true;
}

bool all(const Board& board, std::atomic<int32_t> Told::*flag) {
  return std::all_of(board.told.begin(), board.told.end(), [&](const Told& told) { return (told.*flag).load() != 0; });
}

constexpr int kDiedInGloo = 92;
Told* own_told = nullptr;  // of this process

/// The other rank need not wait for this one any more.
void tell_the_end() {
  for (const auto flag : {&Told::arrived, &Told::returned, &Told::settled, &Told::seen}) (own_told->*flag).store(1);
}

/// Where a process that must not die did. On Gloo's own thread, in Gloo's own code, libddp has no say.
void show_stack(int number) {
  scarce::disarm();
  void* frames[64];
  const int count = backtrace(frames, 64);
  char** const names = backtrace_symbols(frames, count);
  tell_the_end();
  for (int i = 0; i < count; ++i)
    if (std::strstr(names[i], "4gloo9transport3tcp4Loop3run") != nullptr) _exit(kDiedInGloo);
  backtrace_symbols_fd(frames, count, STDOUT_FILENO);
  signal(number, SIG_DFL);
  raise(number);
}

void destroy(Stage& stage) {
  ddp_ema_destroy(stage.ema);
  ddp_optimizer_destroy(stage.optimizer);
  ddp_model_destroy(stage.model);
  ddp_model_destroy(stage.other);
  ddp_group_destroy(stage.group);
}

void set_up(const Case& that, Stage& stage, const std::string& folder, int32_t rank) {
  stage.rank = rank;
  stage.place = "file://" + folder + "/meet";
  stage.file = folder + "/state.safetensors";
  ddp_group_options_init(&stage.group_options, sizeof stage.group_options);
  stage.group_options.rank = rank;
  stage.group_options.world_size = kRanks;
  stage.group_options.backend = that.backend;
  stage.group_options.timeout_ms = static_cast<int64_t>(limit_seconds * 1500);
  stage.group_options.rendezvous_timeout_ms = that.scene->kind == Scene::kMakesGroup ? 700 : 20'000;
  stage.group_options.heartbeat_ms = 200;
  ddp_set_log(DDP_LOG_OFF, nullptr, nullptr);
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs
  for (const int number : {SIGABRT, SIGSEGV}) signal(number, show_stack);
}

/// The fate of the group: a rank may get the report of the break a little later, after calls that succeeded.
void settle(const Stage& stage, Board& board, int32_t rank) {
  Told& told = board.told[static_cast<size_t>(rank)];
  const Told& other = board.told[static_cast<size_t>(1 - rank)];
  const double quiet = told.status != DDP_OK || other.status != DDP_OK ? 0.3 : 0.03;
  const double begin = now();
  const auto same = [&] {
    told.broken.store(ddp_group_status(stage.group) != DDP_OK);
    return told.broken.load() == other.broken.load();
  };
  wait_for(2, [&] { return same() && (told.broken.load() || now() - begin > quiet); });
  told.settled.store(1);
  wait_for(limit_seconds, [&] { return all(board, &Told::settled); });
  wait_for(1, same);
  told.group = ddp_group_status(stage.group);
  if (told.group != DDP_OK) copy_text(told.group_text);
  told.broken.store(told.group != DDP_OK);
}

void run_rank(const Case& that, Board& board, const std::string& folder, int32_t rank) {
  static Stage stage;
  Told& told = board.told[static_cast<size_t>(rank)];
  own_told = &told;
  set_up(that, stage, folder, rank);
  told.descriptors[0] = entries_of("/proc/self/fd");
  told.threads[0] = entries_of("/proc/self/task");
  if (that.scene->kind != Scene::kMakesGroup) must(create(stage));
  that.scene->prepare(stage);
  told.arrived.store(1);
  if (!wait_for(20, [&] { return all(board, &Told::arrived); })) _exit(91);

  const bool fails = rank == that.failing;
  if (fails) scarce::arm(that.plan);
  const double begin = now();
  told.status = that.scene->call(stage);
  told.seconds = now() - begin;
  if (fails && !that.plan.lasting) told.asked = scarce::disarm();
  if (told.status != DDP_OK) copy_text(told.text);
  told.returned.store(1);
  wait_for(3 * limit_seconds, [&] { return all(board, &Told::returned); });
  if (stage.group != nullptr) settle(stage, board, rank);
  told.seen.store(1);
  wait_for(limit_seconds, [&] { return all(board, &Told::seen); });
  destroy(stage);
  if (fails && that.plan.lasting) told.asked = scarce::disarm();
  wait_for(0.5, [&] { return entries_of("/proc/self/task") == told.threads[0]; });
  told.descriptors[1] = entries_of("/proc/self/fd");
  told.threads[1] = entries_of("/proc/self/task");
  stage = Stage();
  told.leaks = __lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0;
}

struct Tally {
  int64_t cases = 0, not_reached = 0, fine = 0, agreed = 0, broken = 0;
  int64_t died = 0, in_gloo = 0, blocked = 0, slow = 0, split = 0, unnamed = 0, wrong_code = 0, left_behind = 0;
  double slowest = 0;
  [[nodiscard]] int64_t bad() const { return died + blocked + split + unnamed + wrong_code + left_behind; }
};

std::string describe(const Case& that) {
  return std::string(that.scene->name) + (that.backend == DDP_BACKEND_GLOO ? " over Gloo" : " over shared memory") +
         ", rank " + std::to_string(that.failing) + " lacks " +
         (that.plan.what == scarce::What::kMemory ? "memory" : "threads and descriptors") + ", request " +
         std::to_string(that.plan.first) + (that.plan.lasting ? " and all after it" : "");
}

void report(const Case& that, const char* what, const Board& board) {
  std::printf("%s: %s\n", describe(that).c_str(), what);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Told& told = board.told[static_cast<size_t>(rank)];
    std::printf("    rank %d: %s after %.3f s: %s | group %s: %s | fds %d to %d, threads %d to %d\n", rank,
                told.returned.load() != 0 ? ddp_status_name(told.status) : "did not return", told.seconds, told.text,
                ddp_status_name(told.group), told.group_text, told.descriptors[0], told.descriptors[1], told.threads[0],
                told.threads[1]);
  }
  std::fflush(stdout);
}

bool names(const char* text, int32_t rank) { return std::strstr(text, ("rank " + std::to_string(rank)).c_str()) != nullptr; }

/// Does a text name the lacking resource? If a rank's control thread could not send it any more, only its end is seen.
bool blames(const Case& that, const Told& told) {
  return names(told.text[0] != '\0' ? told.text : told.group_text, that.failing);
}

void judge(const Case& that, const Board& board, Tally& tally) {
  const Told& own = board.told[static_cast<size_t>(that.failing)];
  const Told& other = board.told[static_cast<size_t>(1 - that.failing)];
  for (const Told& told : board.told) {
    tally.slowest = std::max(tally.slowest, told.seconds);
    if (told.returned.load() == 0 || told.seconds > limit_seconds) return ++tally.blocked, report(that, "blocked", board);
  }
  for (const Told& told : board.told)
    if (told.descriptors[1] > told.descriptors[0] || told.threads[1] > told.threads[0] || told.leaks)
      return ++tally.left_behind, report(that, "something is left behind", board);
  if (that.scene->kind == Scene::kMakesGroup) {  // ranks that wait for one that did not come get an error in time
    if (own.status != DDP_OK && own.status != DDP_ERROR_OUT_OF_MEMORY && own.status != DDP_ERROR_TIMED_OUT &&
        own.status != DDP_ERROR_PEER_FAILED)
      return ++tally.wrong_code, report(that, "another error than OUT_OF_MEMORY", board);
    return own.status == DDP_OK ? ++tally.fine : ++tally.broken, void();
  }
  const bool broken = own.group != DDP_OK, other_broken = other.group != DDP_OK;
  if (broken != other_broken) return ++tally.split, report(that, "the group is broken on one rank only", board);
  if (broken) {
    ++tally.broken;
    if (!blames(that, other) || !names(other.group_text, that.failing))
      ++tally.unnamed, report(that, "the failing rank is not named", board);
    if (own.status != DDP_OK && own.status != DDP_ERROR_OUT_OF_MEMORY && !names(own.text, that.failing))
      ++tally.wrong_code, report(that, "another error than OUT_OF_MEMORY", board);
    return;
  }
  if (that.scene->kind == Scene::kLocal && own.status == DDP_ERROR_OUT_OF_MEMORY && other.status == DDP_OK)
    return ++tally.fine, void();
  if (own.status != other.status) return ++tally.split, report(that, "one rank goes on, the other does not", board);
  if (own.status == DDP_OK) return ++tally.fine, void();
  ++tally.agreed;
  if (own.status != DDP_ERROR_OUT_OF_MEMORY && own.status != DDP_ERROR_CALLBACK)
    ++tally.wrong_code, report(that, "another error than OUT_OF_MEMORY", board);
}

/// False if the request was not reached: the call makes fewer.
bool run(const Case& that, Tally& tally, bool first_of_all = false) {
  const Folder folder;
  void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Board& board = *new (shared) Board;
  std::array<pid_t, kRanks> children{};
  std::fflush(nullptr);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    children[static_cast<size_t>(rank)] = fork();
    if (children[static_cast<size_t>(rank)] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_rank(that, board, folder.path(), rank);
    _exit(0);
  }
  bool died = false, stuck = false, in_gloo = false;
  const double end = now() + 8 * limit_seconds + 20;
  std::string how;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const pid_t child = children[static_cast<size_t>(rank)];
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (now() > end) stuck = true, ::kill(child, SIGKILL);
      usleep(1000);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == kDiedInGloo)
      in_gloo = true;
    else if (!stuck && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
      died = true, how = "rank " + std::to_string(rank) + " died: status " + std::to_string(status);
  }
  const bool reached =
      that.plan.first == INT64_MAX || board.told[static_cast<size_t>(that.failing)].asked >= that.plan.first;
  if (!first_of_all) {
    ++tally.cases;
    if (died)
      ++tally.died, report(that, how.c_str(), board);
    else if (stuck)
      ++tally.blocked, report(that, "did not end", board);
    else if (in_gloo)
      ++tally.in_gloo;
    else if (!reached)
      ++tally.not_reached;
    else
      judge(that, board, tally);
  }
  const int64_t asked = board.told[static_cast<size_t>(that.failing)].asked;
  munmap(shared, sizeof(Board));
  if (first_of_all) tally.cases = asked;
  return reached || died || stuck;
}

int64_t requests_of(Case that) {
  Tally tally;
  that.plan.first = INT64_MAX;
  that.plan.lasting = false;
  run(that, tally, true);
  return tally.cases;
}

void print(const char* what, const Tally& tally) {
  std::printf(
      "%-44s %5lld cases: %lld went on, %lld agreed, %lld broken; %lld died, %lld in Gloo's thread, %lld blocked, %lld "
      "split, %lld unnamed, %lld wrong code, "
      "%lld left behind; slowest %.3f s\n",
      what, static_cast<long long>(tally.cases - tally.not_reached), static_cast<long long>(tally.fine),
      static_cast<long long>(tally.agreed), static_cast<long long>(tally.broken), static_cast<long long>(tally.died),
      static_cast<long long>(tally.in_gloo), static_cast<long long>(tally.blocked), static_cast<long long>(tally.split),
      static_cast<long long>(tally.unnamed), static_cast<long long>(tally.wrong_code),
      static_cast<long long>(tally.left_behind), tally.slowest);
  std::fflush(stdout);
}

void add(Tally& to, const Tally& from) {
  to.cases += from.cases, to.not_reached += from.not_reached, to.fine += from.fine, to.agreed += from.agreed,
      to.broken += from.broken;
  to.died += from.died, to.in_gloo += from.in_gloo, to.blocked += from.blocked, to.split += from.split,
      to.unnamed += from.unnamed, to.wrong_code += from.wrong_code;
  to.left_behind += from.left_behind, to.slowest = std::max(to.slowest, from.slowest);
}

/// Every `stride`-th request, or this one alone.
Tally sweep(const Scene& scene, ddp_backend backend, int64_t stride, int64_t only) {
  Tally sum;
  int64_t begin = &scene - kScenes;  // another one in each scene
  for (const scarce::What what : {scarce::What::kMemory, scarce::What::kSystem})
    for (const bool lasting : {false, true})
      for (int32_t failing = 0; failing < kRanks; ++failing, begin += 7) {
        if (!scarce::kRefusesSystem && what == scarce::What::kSystem) continue;
        Case that{&scene, backend, failing, {.first = 1, .lasting = lasting, .what = what}};
        const int64_t last = only > 0 ? only : requests_of(that) + 1, step = only > 0 ? last : stride;
        for (that.plan.first = only > 0 ? only : 1 + begin % stride; that.plan.first <= last; that.plan.first += step)
          run(that, sum);
      }
  return sum;
}

/// Of the many requests one that fails alone, and one with all after it; others in each scene.
Tally sample(const Scene& scene, ddp_backend backend) {
  Tally sum;
  const int64_t number = &scene - kScenes;
  const bool over_gloo = backend == DDP_BACKEND_GLOO;
  // What Gloo itself leaves behind when it cannot begin is not ours to judge; the whole sweep shows it.
  if (over_gloo && (scene.kind == Scene::kMakesGroup || scene.kind == Scene::kConnects)) return sum;
  Case that{&scene, backend, static_cast<int32_t>((number + (over_gloo ? 1 : 0)) % kRanks), {}};
  const int64_t requests = requests_of(that);
  that.plan.first = 1 + number * 7919 % std::max<int64_t>(requests, 1);
  for (const bool lasting : {false, true}) {
    that.plan.lasting = lasting;
    if (requests > 0 && !(lasting && over_gloo)) run(that, sum);  // Gloo's thread ends the process
  }
  return sum;
}

bool has_gloo() {
  if (requests_of({&kScenes[0], DDP_BACKEND_GLOO, 0, {}}) > 0) return true;
  std::printf("skipped over Gloo: no group can be made there\n");
  return false;
}

struct Wish {
  int64_t stride = 0;  // 0: the sample, if no request is wanted
  int64_t request = 0;
  const char* scene = nullptr;  // alone
};

int run_all(const Wish& wish) {
  Tally total;
  const char* const path = std::getenv("DDP_SCARCE_PATH");  // "shm" or "gloo" alone
  for (const ddp_backend backend : {DDP_BACKEND_SHM, DDP_BACKEND_GLOO}) {
    if (path != nullptr && (std::strcmp(path, "gloo") == 0) != (backend == DDP_BACKEND_GLOO)) continue;
    if (backend == DDP_BACKEND_GLOO && !has_gloo()) continue;
    Tally of_backend;
    for (const Scene& scene : kScenes) {
      if (wish.scene != nullptr && std::strcmp(wish.scene, scene.name) != 0) continue;
      const Tally tally =
          wish.stride + wish.request > 0 ? sweep(scene, backend, wish.stride, wish.request) : sample(scene, backend);
      print(scene.name, tally);
      add(of_backend, tally);
    }
    print(backend == DDP_BACKEND_GLOO ? "ALL over Gloo" : "ALL over shared memory", of_backend);
    add(total, of_backend);
  }
  return total.bad() == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (const char* limit = std::getenv("DDP_SCARCE_LIMIT")) limit_seconds = std::strtod(limit, nullptr);
  Wish wish;
  if (count > 2) (std::strcmp(arguments[1], "--request") == 0 ? wish.request : wish.stride) = std::atoll(arguments[2]);
  if (count > 3) wish.scene = arguments[3];
  return run_all(wish);
}
