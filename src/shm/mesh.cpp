// SPDX-License-Identifier: Apache-2.0
#include "shm/mesh.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "control/consensus.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "shm/fd_exchange.hpp"

namespace ddp::shm {
namespace {

Mesh empty_mesh(const bootstrap::Control& control) {
  Mesh mesh;
  mesh.rank = control.rank();
  mesh.size = control.size();
  mesh.mappings.resize(static_cast<size_t>(mesh.size));
  return mesh;
}

void use_first_pages(Mesh& mesh) {
  for (int32_t rank = 0; rank < mesh.size; ++rank) mesh.pages.push_back(&mesh.first_page(rank));
}

/// The error names this rank, because all ranks throw it.
std::shared_ptr<Region> make_region(const bootstrap::Control& control) {
  std::shared_ptr<Region> made;
  const std::optional<Error> refused =
      try_to([&] { made = std::make_shared<Region>(Region::default_limit(control.size())); });
  if (refused) throw Error(refused->status(), control.member(control.rank()).name() + ": " + refused->text());
  return made;
}

}  // namespace

bool on_one_host(const bootstrap::Control& control) noexcept {
  const std::string& first = control.member(0).boot_id;
  for (int32_t rank = 1; rank < control.size(); ++rank)
    if (control.member(rank).boot_id != first) return false;
  return !first.empty();
}

MemoryOffer::MemoryOffer(const bootstrap::Control& control, const std::shared_ptr<collective::Arena>& kept)
    : mesh_(empty_mesh(control)) {
  mesh_.own = std::dynamic_pointer_cast<Region>(kept);
  if (mesh_.own != nullptr)
    mesh_.own->renew();
  else
    mesh_.own = make_region(control);
}

std::string MemoryOffer::bytes() const {
  return ByteWriter().text(exchange_.address()).number(mesh_.own->mapping()->size()).bytes();
}

Mesh MemoryOffer::take(const std::vector<std::string>& offers, const Patience& patience) {
  // The others wait for this rank until it has knocked, or closed its side.
  on_error([&] { meet(offers, patience); }, [this](const Error&) { exchange_.close(); });
  return std::move(mesh_);
}

void MemoryOffer::meet(const std::vector<std::string>& offers, const Patience& patience) {
  std::vector<std::string> addresses;
  std::vector<int64_t> sizes;
  for (const std::string& offer : offers) {
    ByteReader reader(offer);
    addresses.emplace_back(reader.text());
    sizes.push_back(reader.number<int64_t>());
  }
  std::vector<Fd> fds = exchange_.swap(mesh_.own->fd(), mesh_.rank, addresses, patience);
  for (int32_t peer = 0; peer < mesh_.size; ++peer) {
    const auto at = static_cast<size_t>(peer);
    mesh_.mappings[at] = peer == mesh_.rank ? mesh_.own->mapping() : std::make_shared<Mapping>(fds[at].get(), sizes[at]);
  }
  use_first_pages(mesh_);
}

Mesh connect_processes(bootstrap::Control& control, const Patience& patience,
                       const std::shared_ptr<collective::Arena>& kept) {
  std::optional<MemoryOffer> offer;
  const std::vector<std::string> offers = bootstrap::all_or_none(control, "shm addresses", patience.deadline, [&] {
    offer.emplace(control, kept);
    return offer->bytes();
  });
  Mesh mesh;
  bootstrap::all_or_none(control, "shm", patience.deadline, [&] { mesh = offer->take(offers, patience); });
  return mesh;
}

Mesh connect_threads(bootstrap::Control& control, os::Deadline deadline) {
  Mesh mesh = empty_mesh(control);
  mesh.threads = true;
  // One address space: a pointer to the mapping's owner is enough.
  const std::vector<std::string> answers = bootstrap::all_or_none(control, "local memory", deadline, [&] {
    mesh.own = std::make_shared<Region>(Region::default_limit(mesh.size));
    return ByteWriter().number(reinterpret_cast<uint64_t>(&mesh.own->mapping())).bytes();
  });
  for (size_t peer = 0; peer < answers.size(); ++peer)
    mesh.mappings[peer] = *reinterpret_cast<const std::shared_ptr<Mapping>*>(ByteReader(answers[peer]).number<uint64_t>());
  static_cast<void>(control.gather("local", "", deadline));  // all have taken their copies
  use_first_pages(mesh);
  return mesh;
}

// The page is not freed before the region: a rank that is slower may still look at it.
Mesh add_pages(const Mesh& mesh, bootstrap::Control& control, os::Deadline deadline) {
  Mesh added = mesh;
  const std::vector<std::string> answers = bootstrap::all_or_none(control, "channel", deadline, [&] {
    void* const memory = mesh.own->alloc_for_transport(sizeof(Page));
    new (memory) Page;
    return ByteWriter().number(mesh.own->offset_of(memory, sizeof(Page))).bytes();
  });
  for (int32_t rank = 0; rank < mesh.size; ++rank) {
    const auto at = static_cast<size_t>(rank);
    added.pages[at] = reinterpret_cast<Page*>(mesh.base(rank) + ByteReader(answers[at]).number<int64_t>());
  }
  return added;
}

}  // namespace ddp::shm
