#include <ccl/detail/runtime/settings.hpp>
#include <ccl/topo/discover.hpp>

#include <array>
#include <cerrno>
#include <string>

#include "transport/ib/verbs/port_choice.hpp"
#include "transport/ib/verbs/verbs.hpp"
#include <dlfcn.h>
#include <endian.h>
#include <unistd.h>

namespace ccl::topo {
namespace {

using ccl::detail::HcaList;
using ccl::detail::Verbs;

/// Mbit/s of a lane; the value is one bit per generation, SDR to XDR.
int lane_mbps(unsigned speed) {
  constexpr std::array generations{2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000, 200000};
  for (std::size_t g = generations.size(); g-- > 0;) {
    if ((speed >> g & 1U) != 0) return generations[g];
  }
  return 0;
}

int lanes(unsigned width) {
  switch (width) {
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 1;
  }
}

/// True if memory of other devices can be registered through a DMA-BUF. The test passes an invalid
/// descriptor: a device with support reports exactly that error.
bool takes_dma_buf(const Verbs& calls, ibv_context* context) {
  using Register = ibv_mr* (*)(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int);
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr || ccl::detail::verbs_are_replaced()) return false;
  const auto register_kernels = reinterpret_cast<Register>(::dlsym(library, "ibv_reg_dmabuf_mr"));
  ibv_pd* const pd = register_kernels == nullptr ? nullptr : calls.alloc_pd(context);
  if (pd == nullptr) return false;
  errno = 0;
  ibv_mr* const region = register_kernels(pd, 0, 4096, 0, -1, 0);
  const bool can = region != nullptr || (errno != EOPNOTSUPP && errno != EPROTONOSUPPORT);
  if (region != nullptr) (void)calls.dereg_mr(region);
  (void)calls.dealloc_pd(pd);
  return can;
}

}  // namespace

Result<DiscoveredNics> verbs_nics() {
  DiscoveredNics seen;
  CCL_TRY(const bool disabled, detail::setting_flag("IB_DISABLE"));
  CCL_TRY(const std::string hca, detail::setting_text("IB_HCA"));
  CCL_TRY(const HcaList list, HcaList::parse(hca));
  if (disabled) {
    seen.why = "CCL_IB_DISABLE is 1";
    return seen;
  }
  if (!ccl::detail::verbs_are_replaced() && ::access("/sys/class/infiniband", F_OK) != 0) {
    seen.why = "there is no RDMA device";
    return seen;
  }
  const auto library = ccl::detail::verbs();
  if (!library) {
    seen.why = library.error().what;
    seen.asked = false;
    return seen;
  }
  const Verbs& calls = **library;
  int count = 0;
  ibv_device** const devices = calls.get_device_list(&count);
  for (int n = 0; devices != nullptr && n < count; ++n) {
    ibv_context* const context = calls.open_device(devices[n]);
    if (context == nullptr) {
      seen.why = std::string(devices[n]->name) + " cannot be opened (see the rights on " +
                 "/dev/infiniband)";
      continue;
    }
    ibv_device_attr device{};
    const bool answers = calls.query_device(context, &device) == 0;
    int dma_buf = -1;  // not queried yet
    for (int port = 1; answers && port <= device.phys_port_cnt; ++port) {
      if (!list.accepts(devices[n]->name, port)) continue;
      ibv_port_attr attributes{};
      if (calls.query_port(context, static_cast<std::uint8_t>(port),
                           reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) != 0 ||
          attributes.state != IBV_PORT_ACTIVE) {
        continue;
      }
      if (dma_buf < 0) dma_buf = takes_dma_buf(calls, context) ? 1 : 0;
      DiscoveredNic nic;
      nic.name = devices[n]->name;
      nic.port = port;
      nic.mbps = lane_mbps(attributes.active_speed) * lanes(attributes.active_width);
      nic.guid = be64toh(device.sys_image_guid);
      nic.max_connections = device.max_qp;
      nic.infiniband = attributes.link_layer != IBV_LINK_LAYER_ETHERNET;
      nic.dma_buf = dma_buf == 1;
      seen.nics.push_back(std::move(nic));
    }
    (void)calls.close_device(context);
  }
  if (devices != nullptr) calls.free_device_list(devices);
  if (seen.nics.empty() && seen.why.empty()) seen.why = "no port is up and allowed";
  return seen;
}

}  // namespace ccl::topo
