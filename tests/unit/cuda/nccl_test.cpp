// SPDX-License-Identifier: Apache-2.0
// Opening NCCL through the module: with a library that plays NCCL (compiled here), with none, with an old one; and with the
// real one, which needs no GPU to say its version, where there is one.

#include "ddp/types.h"
#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/procs.hpp"
#include "unit/cuda/module.hpp"

const ddp_gpu_table* table = nullptr;
constexpr int kSkipped = 77;
std::string folder;

// What a library must have; the arguments of the last call are kept in exported words.
constexpr const char* kPlayed = R"C(
#include <string.h>
long last[8];
char last_name[64];
typedef struct { char internal[128]; } id_t_;
typedef struct { unsigned long size; unsigned magic, version; int blocking, cga, min_ctas, max_ctas; const char *net; int share, traffic; const char *name; } config_t_;
int ncclGetVersion(int *v) { *v = VERSION; return 0; }
const char *ncclGetErrorString(int r) { return r == 6 ? "remote" : "other"; }
int ncclGetUniqueId(id_t_ *id) { memset(id, 42, sizeof *id); return 0; }
int ncclCommInitRankConfig(void **comm, int n, id_t_ id, int rank, config_t_ *c) {
  *comm = last; last[0] = n; last[1] = rank; last[2] = id.internal[127]; last[3] = c->blocking; last[4] = c->max_ctas;
  last[5] = c->min_ctas;
  last[6] = (long)c->size; last[7] = c->magic == 0xcafebeef && c->net == 0;
  strncpy(last_name, c->name ? c->name : "(none)", sizeof last_name - 1);
  return 0; }
int ncclCommAbort(void *c) { return 0; }
int ncclCommFinalize(void *c) { return 0; }
int ncclCommDestroy(void *c) { return 0; }
int ncclCommGetAsyncError(void *c, int *e) { *e = 6; return 0; }
int ncclAllReduce(const void *s, void *r, unsigned long n, int type, int op, void *c, void *st) { last[0] = (long)n; last[1] = type; last[2] = op; return 0; }
int ncclReduceScatter(const void *s, void *r, unsigned long n, int type, int op, void *c, void *st) { return ncclAllReduce(s, r, n, type, op, c, st); }
int ncclAllGather(const void *s, void *r, unsigned long n, int type, void *c, void *st) { return ncclAllReduce(s, r, n, type, -1, c, st); }
int ncclBroadcast(const void *s, void *r, unsigned long n, int type, int root, void *c, void *st) { return ncclAllReduce(s, r, n, type, root, c, st); }
int ncclCommCount(const void *c, int *n) { *n = 5; return 0; }
int ncclCommUserRank(const void *c, int *n) { *n = 3; return 0; }
int ncclCommCuDevice(const void *c, int *n) { *n = 2; return 0; }
int ncclSend(const void *s, unsigned long n, int type, int peer, void *c, void *st) { return ncclAllReduce(s, 0, n, type, peer, c, st); }
int ncclRecv(void *r, unsigned long n, int type, int peer, void *c, void *st) { return ncclAllReduce(0, r, n, type, peer, c, st); }
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
)C";

/// A library from C text, or an empty path where there is no compiler.
std::string build_library(const std::string& name, const std::string& text, const std::string& flags) {
  const std::string source = folder + "/" + name + ".c";
  const std::string library = folder + "/" + name + ".so";
  std::ofstream(source) << text;
  const std::string command = "cc -shared -fPIC -w " + flags + " -o " + library + " " + source;
  return std::system(command.c_str()) == 0 ? library : std::string();
}

std::string error_of(const char* path) {
  char error[512] = "";
  const ddp_nccl_table* nccl = nullptr;
  const int32_t code = table->open_nccl(path, &nccl, error, sizeof error);
  expect_equal(code == 0, nccl != nullptr, "a table for success only");
  return code == 0 ? "" : error;
}

const ddp_nccl_table& opened(std::string_view path) {
  char error[512] = "";
  const ddp_nccl_table* nccl = nullptr;
  if (table->open_nccl(std::string(path).c_str(), &nccl, error, sizeof error) != 0) throw std::runtime_error(error);
  return *nccl;
}

template <class T>
T& word_of(const std::string& library, const char* name) {
  return *static_cast<T*>(dlsym(dlopen(library.c_str(), RTLD_NOW), name));
}

/// A process has one NCCL, so every test is a process of its own.
void alone(void (*body)()) {
  Procs procs(1, [body](int, Reporter&) { body(); });
  const ProcResult result = procs.wait().front();
  if (result.exit_code != 0) throw std::runtime_error(result.describe());
}
#define alone_case(function)                                                                            \
  void function();                                                                                      \
  const bool function##_is_listed = ddp::test::list_case(__FILE__, #function, [] { alone(function); }); \
  void function()

std::string played(const char* flags = "-DVERSION=22809") {
  const std::string library = build_library("played", kPlayed, flags);
  if (library.empty()) throw std::runtime_error("cc cannot build a library");
  return library;
}

alone_case(a_file_that_is_not_there_is_named) {
  const std::string path = folder + "/none.so";
  expect_contains(error_of(path.c_str()), path);
}

alone_case(a_library_that_is_not_nccl_is_named) {
  const std::string library = build_library("other", "int something;", "");
  expect_contains(error_of(library.c_str()), library + " is not NCCL");
}

alone_case(an_old_nccl_is_refused_with_its_version) {
  const std::string library = played("-DVERSION=21305");
  const std::string error = error_of(library.c_str());
  expect_contains(error, "NCCL 2.13.5");
  expect_contains(error, "2.14.3");
  expect_contains(error, library);
}

alone_case(a_nccl_from_before_the_numbers_grew_is_refused) {
  expect_contains(error_of(played("-DVERSION=2708").c_str()), "NCCL 2.7.8");
}

alone_case(after_a_failure_another_file_can_be_opened) {
  expect_contains(error_of((folder + "/none.so").c_str()), "none.so");
  expect_equal(opened(played()).library_version, 22809, "version");
}

alone_case(a_second_file_is_refused_and_the_first_stays) {
  const std::string first = played();
  const ddp_nccl_table& nccl = opened(first);
  const std::string second = build_library("second", kPlayed, "-DVERSION=22900");
  expect_contains(error_of(second.c_str()), first);
  expect_equal(&opened(first), &nccl, "the table");
  expect_equal(&opened(""), &nccl, "the table without a path");
}

alone_case(the_table_says_what_was_opened) {
  const std::string library = played();
  const ddp_nccl_table& nccl = opened(library);
  expect_equal(nccl.struct_size, static_cast<int64_t>(sizeof nccl), "struct_size");
  expect_equal(std::string(nccl.path), library, "path");
  expect_equal(nccl.error_kind(0), static_cast<int32_t>(DDP_NCCL_OK), "kind of 0");
  expect_equal(nccl.error_kind(4), static_cast<int32_t>(DDP_NCCL_BAD_ARGUMENT), "kind of 4");
  expect_equal(nccl.error_kind(5), static_cast<int32_t>(DDP_NCCL_FAILED), "kind of 5");
  expect_equal(nccl.error_kind(6), static_cast<int32_t>(DDP_NCCL_REMOTE), "kind of 6");
  expect_equal(nccl.error_kind(7), static_cast<int32_t>(DDP_NCCL_IN_PROGRESS), "kind of 7");
  expect_equal(nccl.error_kind(8), static_cast<int32_t>(DDP_NCCL_FAILED), "kind of a result of a newer NCCL");
  expect_equal(std::string(nccl.error_text(6)), std::string("remote"), "text of 6");
  expect_equal(std::string(nccl.last_error(nullptr)), std::string(), "the last error of a NCCL that has none");
}

alone_case(a_communicator_blocks_and_has_a_name) {
  const std::string library = played();
  const ddp_nccl_table& nccl = opened(library);
  char id[DDP_NCCL_ID_BYTES];
  expect_equal(nccl.get_unique_id(id), 0, "get_unique_id");
  void* comm = nullptr;
  expect_equal(nccl.comm_init(&comm, 4, id, 2, "libddp:run", 0), 0, "comm_init");
  const long* const last = &word_of<long>(library, "last");
  expect_equal(comm, static_cast<void*>(&word_of<long>(library, "last")), "the communicator");
  expect_equal(last[0] * 1000 + last[1] * 100 + last[2], 4242L, "size, rank and id");
  expect_equal(last[3], 0L, "blocking");
  expect_equal(last[4], static_cast<long>(INT32_MIN), "max_ctas");
  expect_equal(last[5], static_cast<long>(INT32_MIN), "min_ctas");
  expect_equal(last[7], 1L, "magic");
  expect_equal(std::string(&word_of<char>(library, "last_name")), std::string("libddp:run"), "name");
  expect_equal(nccl.comm_init(&comm, 4, id, 2, "libddp:run", 6), 0, "comm_init");
  expect_equal(last[4], 6L, "max_ctas");
  int32_t result = 0;
  expect_equal(nccl.comm_async_error(comm, &result), 0, "comm_async_error");
  expect_equal(nccl.error_kind(result), static_cast<int32_t>(DDP_NCCL_REMOTE), "its result");
}

alone_case(a_nccl_before_names_gets_none) {
  const std::string library = played("-DVERSION=22105");
  char id[DDP_NCCL_ID_BYTES]{};
  void* comm = nullptr;
  expect_equal(opened(library).comm_init(&comm, 1, id, 0, "libddp:run", 0), 0, "comm_init");
  expect_equal(std::string(&word_of<char>(library, "last_name")), std::string("(none)"), "name");
}

alone_case(dtypes_and_operations_are_nccls) {
  const std::string library = played();
  const ddp_nccl_table& nccl = opened(library);
  const long* const last = &word_of<long>(library, "last");
  struct Case {
    int32_t dtype;
    long count, type;
  };
  for (const Case& c :
       {Case{DDP_F32, 5, 7}, Case{DDP_F64, 5, 8}, Case{DDP_F16, 5, 6}, Case{DDP_BF16, 5, 9}, Case{DDP_I32, 5, 2},
        Case{DDP_I64, 5, 4}, Case{DDP_U8, 5, 1}, Case{DDP_C64, 10, 7}, Case{DDP_C128, 10, 8}}) {
    expect_equal(nccl.all_reduce(nullptr, nullptr, 5, c.dtype, DDP_GPU_SUM, nullptr, nullptr), 0, "all_reduce");
    expect_equal(last[0] * 100 + last[1] * 10 + last[2], c.count * 100 + c.type * 10,
                 "count, type and sum of dtype " + std::to_string(c.dtype));
    expect_equal(nccl.broadcast(nullptr, nullptr, 5, c.dtype, 3, nullptr, nullptr), 0, "broadcast");
    expect_equal(last[0] * 100 + last[1] * 10 + last[2], c.count * 100 + c.type * 10 + 3, "count, type and root");
    expect_equal(nccl.all_gather(nullptr, nullptr, 5, c.dtype, nullptr, nullptr), 0, "all_gather");
    expect_equal(last[0] * 10 + last[1], c.count * 10 + c.type, "count and type");
    expect_equal(nccl.send(nullptr, 5, c.dtype, 4, nullptr, nullptr), 0, "send");
    expect_equal(last[0] * 100 + last[1] * 10 + last[2], c.count * 100 + c.type * 10 + 4, "count, type and peer");
    expect_equal(nccl.receive(nullptr, 5, c.dtype, 6, nullptr, nullptr), 0, "receive");
    expect_equal(last[0] * 100 + last[1] * 10 + last[2], c.count * 100 + c.type * 10 + 6, "count, type and peer");
  }
  expect_equal(nccl.reduce_scatter(nullptr, nullptr, 5, DDP_I64, DDP_GPU_MIN, nullptr, nullptr), 0, "reduce_scatter");
  expect_equal(last[2], 3L, "ncclMin");
  expect_equal(nccl.all_reduce(nullptr, nullptr, 5, DDP_F32, DDP_GPU_MAX, nullptr, nullptr), 0, "all_reduce");
  expect_equal(last[2], 2L, "ncclMax");
}

alone_case(what_nccl_cannot_reduce_is_a_bad_argument) {
  const ddp_nccl_table& nccl = opened(played());
  const auto refused = [&](int32_t dtype, int32_t reduce) {
    return nccl.error_kind(nccl.all_reduce(nullptr, nullptr, 1, dtype, reduce, nullptr, nullptr)) == DDP_NCCL_BAD_ARGUMENT &&
           nccl.error_kind(nccl.reduce_scatter(nullptr, nullptr, 1, dtype, reduce, nullptr, nullptr)) ==
               DDP_NCCL_BAD_ARGUMENT;
  };
  expect(refused(DDP_C64, DDP_GPU_MAX), "the larger of two complex numbers");
  expect(refused(DDP_F32, 1), "operation 1");
  expect(refused(0, DDP_GPU_SUM), "dtype 0");
}

alone_case(what_is_optional_may_be_absent) {
  const ddp_nccl_table& nccl = opened(played());
  void* handle = &handle;
  expect_equal(nccl.comm_register(nullptr, nullptr, 16, &handle), 0, "comm_register");
  expect(handle == nullptr, "no handle");
  expect_equal(nccl.comm_deregister(nullptr, handle), 0, "comm_deregister");
}

alone_case(a_communicator_of_somebody_else_says_where_it_is) {
  const ddp_nccl_table& nccl = opened(played());
  int32_t size = 0, rank = 0, device = 0;
  expect(nccl.comm_count(nullptr, &size) == 0 && nccl.comm_user_rank(nullptr, &rank) == 0, "asked");
  expect(nccl.comm_device(nullptr, &device) == 0, "asked");
  expect_equal(size * 100 + rank * 10 + device, 532, "size, rank and device");
}

std::string error_of_finding() {
  char error[1024] = "";
  const ddp_nccl_table* nccl = nullptr;
  const int32_t code = table->find_nccl(&nccl, error, sizeof error);
  expect_equal(code == 0, nccl != nullptr, "a table for success only");
  return code == 0 ? "" : error;
}

constexpr const char* kByItsName = "-DVERSION=22809 -Wl,-soname,libnccl.so.2";

/// The file that a framework has loaded; the program gives no path.
alone_case(a_loaded_copy_is_found_and_no_file_is_opened) {
  expect_contains(error_of_finding(), "has not loaded libnccl.so.2");
  const std::string library = played(kByItsName);
  expect(dlopen(library.c_str(), RTLD_NOW) != nullptr, "a framework loads it");
  expect_equal(error_of_finding(), std::string(), "it is found");
  expect_equal(std::string(opened("").path), library, "its path");
}

alone_case(communicators_of_another_copy_than_libddps_are_refused) {
  const std::string own = build_library("other", kPlayed, "-DVERSION=22809");
  expect_equal(error_of(own.c_str()), std::string(), "libddp's own");
  expect_equal(error_of_finding(), std::string(), "it is the only one");
  const std::string library = played(kByItsName);
  expect(dlopen(library.c_str(), RTLD_NOW) != nullptr, "a framework loads another");
  expect_contains(error_of_finding(), library);
  expect_contains(error_of_finding(), own);
}

/// The real one, if the loader finds it or the toolkit has it.
std::string real_nccl() {
  for (const char* path : {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"})
    if (dlopen(path, RTLD_NOW) != nullptr) return path;
  return {};
}

alone_case(the_real_nccl_says_its_version_and_makes_ids) {
  const std::string path = real_nccl();
  if (path.empty()) {
    std::puts("no libnccl.so.2 here: not looked at");
    return;
  }
  const ddp_nccl_table& nccl = opened("");  // the copy that is loaded already
  expect(nccl.library_version >= 21403, "a version");
  expect_contains(nccl.path, "libnccl.so.2");
  char id[DDP_NCCL_ID_BYTES]{};
  expect_equal(nccl.get_unique_id(id), 0, "get_unique_id");
  expect(std::string(id, sizeof id) != std::string(sizeof id, '\0'), "an id");
  expect(std::strlen(nccl.error_text(4)) > 0, "a text");
}

ddp_before_cases({
  table = built_module();
  if (table == nullptr) std::exit(kSkipped);
  static const TemporaryFolder made;
  folder = made.path();
});
