#include "collective/shm/mesh.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "bootstrap/control/consensus.hpp"
#include "collective/shm/fd_exchange.hpp"
#include "core/bytes.hpp"

namespace ddp::shm {
namespace {

Mesh empty_mesh(const bootstrap::Control& control) {
  Mesh mesh;
  mesh.rank = control.rank();
  mesh.size = control.size();
  mesh.mappings.resize(static_cast<size_t>(mesh.size));
  return mesh;
}

}  // namespace

bool on_one_host(const bootstrap::Control& control) noexcept {
  const std::string& first = control.member(0).boot_id;
  for (int32_t rank = 1; rank < control.size(); ++rank)
    if (control.member(rank).boot_id != first) return false;
  return !first.empty();
}

Mesh connect_processes(bootstrap::Control& control, os::Deadline deadline) {
  Mesh mesh = empty_mesh(control);
  std::unique_ptr<FdExchange> exchange;
  std::optional<Error> problem = bootstrap::try_to([&] {
    mesh.own = std::make_shared<Region>(Region::default_limit(mesh.size));
    exchange = std::make_unique<FdExchange>();
  });
  ByteWriter mine;
  mine.text(problem ? std::string() : exchange->address()).number(problem ? int64_t{0} : mesh.own->mapping()->size());
  mine.number(static_cast<int32_t>(problem ? problem->status() : DDP_OK)).text(problem ? problem->text() : std::string());
  const std::vector<std::string> answers = control.gather("shm addresses", mine.bytes(), deadline);
  std::vector<std::string> addresses;
  std::vector<int64_t> sizes;
  for (const std::string& answer : answers) {
    ByteReader reader(answer);
    addresses.emplace_back(reader.text());
    sizes.push_back(reader.number<int64_t>());
    const auto status = static_cast<ddp_status>(reader.number<int32_t>());
    if (status != DDP_OK && !problem) problem = Error(status, std::string(reader.text()));
  }
  if (!problem)
    problem = bootstrap::try_to([&] {
      std::vector<Fd> fds = exchange->swap(mesh.own->fd(), mesh.rank, addresses, deadline);
      for (int32_t peer = 0; peer < mesh.size; ++peer) {
        const auto at = static_cast<size_t>(peer);
        mesh.mappings[at] = peer == mesh.rank ? mesh.own->mapping() : std::make_shared<Mapping>(fds[at].get(), sizes[at]);
      }
    });
  bootstrap::agree(control, "shm", problem, deadline);
  return mesh;
}

Mesh connect_threads(bootstrap::Control& control, os::Deadline deadline) {
  Mesh mesh = empty_mesh(control);
  mesh.threads = true;
  const std::optional<Error> problem =
      bootstrap::try_to([&] { mesh.own = std::make_shared<Region>(Region::default_limit(mesh.size)); });
  // One address space: a pointer to the mapping's owner is enough. All have taken their copies when `agree` returns.
  const auto own = problem ? uint64_t{0} : reinterpret_cast<uint64_t>(&mesh.own->mapping());
  ByteWriter mine;
  mine.number(own);
  const std::vector<std::string> answers = control.gather("local memory", mine.bytes(), deadline);
  for (size_t peer = 0; peer < answers.size(); ++peer) {
    ByteReader reader(answers[peer]);
    const auto* mapping = reinterpret_cast<const std::shared_ptr<Mapping>*>(reader.number<uint64_t>());
    if (mapping != nullptr) mesh.mappings[peer] = *mapping;
  }
  bootstrap::agree(control, "local", problem, deadline);
  return mesh;
}

}  // namespace ddp::shm
