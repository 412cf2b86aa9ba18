// SPDX-License-Identifier: Apache-2.0
#include "collective/socket/ucx/worker.hpp"

#include <uct/api/uct.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace ddp::ucx {
namespace {

/// The options of UCX: what its environment variables say, then what we want where they say nothing.
class Options {
 public:
  Options() { check(ucp_config_read(nullptr, nullptr, &options_)); }
  ~Options() { ucp_config_release(options_); }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  void prefer(const char* name, const char* value) {
    if (std::getenv((std::string("UCX_") + name).c_str()) == nullptr) check(ucp_config_modify(options_, name, value));
  }
  [[nodiscard]] const ucp_config_t* get() const noexcept { return options_; }

 private:
  ucp_config_t* options_ = nullptr;
};

ucp_context_h make_context(int32_t peers, bool one_host) {
  Options options;
  if (one_host) options.prefer("NET_DEVICES", "lo");
  // The control plane has heartbeats. Those of UCX would look like bytes that flow.
  options.prefer("KEEPALIVE_INTERVAL", "inf");
  // Over TCP, memory that UCX sends from without a copy is accounted for twice when a peer dies, and UCX 1.13 ends the
  // process.
  if (!finds_rdma()) {
    options.prefer("ZCOPY_THRESH", "inf");
    options.prefer("RNDV_SCHEME", "am");
  }
  ucp_params_t wanted{};
  wanted.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
  wanted.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  wanted.estimated_num_eps = static_cast<size_t>(peers);
  wanted.name = "libddp";
  ucp_context_h context = nullptr;
  check(ucp_init(&wanted, options.get(), &context));
  return context;
}

/// Has this memory domain a network device of another kind than the system's sockets?
bool has_rdma(uct_component_h component, const char* domain) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return false;
  uct_md_h md = nullptr;
  const ucs_status_t opened = uct_md_open(component, domain, config, &md);
  uct_config_release(config);
  if (opened != UCS_OK) return false;
  uct_tl_resource_desc_t* transports = nullptr;
  unsigned count = 0;
  bool found = false;
  if (uct_md_query_tl_resources(md, &transports, &count) == UCS_OK) {
    for (unsigned at = 0; at < count; ++at)
      found = found || (transports[at].dev_type == UCT_DEVICE_TYPE_NET && std::strcmp(transports[at].tl_name, "tcp") != 0);
    uct_release_tl_resource_list(transports);
  }
  uct_md_close(md);
  return found;
}

bool has_rdma(uct_component_h component) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK || attributes.md_resource_count == 0) return false;
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (uct_component_query(component, &attributes) != UCS_OK) return false;
  for (const uct_md_resource_desc_t& domain : domains)
    if (has_rdma(component, domain.md_name)) return true;
  return false;
}

}  // namespace

Worker::Worker(int32_t peers, bool one_host) : context_(make_context(peers, one_host)) {
  ucp_worker_params_t wanted{};
  wanted.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  wanted.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t made = ucp_worker_create(context_, &wanted, &worker_);
  if (made == UCS_OK) {
    made = ucp_worker_get_efd(worker_, &descriptor_);
    if (made == UCS_OK) return;
    ucp_worker_destroy(worker_);
  }
  ucp_cleanup(context_);
  throw UcxError(made);
}

Worker::~Worker() {
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

std::string Worker::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  check(ucp_worker_get_address(worker_, &address, &bytes));
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return copy;
}

bool finds_rdma() noexcept {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return false;
  bool found = false;
  for (unsigned at = 0; at < count && !found; ++at) found = has_rdma(components[at]);
  uct_release_component_list(components);
  return found;
}

}  // namespace ddp::ucx
