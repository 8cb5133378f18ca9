#pragma once

#include <ccl/types/result.hpp>

#include <infiniband/verbs.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// CCL_IB_HCA: "mlx5_0:1,mlx5_2" takes devices whose names begin so (and, where given, that port);
/// "=" in front: whole names; "^": all but these; "^=" both. Empty takes everything.
class HcaList {
 public:
  static Result<HcaList> parse(std::string_view text);
  bool takes(std::string_view device, int port) const;

 private:
  struct Entry {
    std::string name;
    int port = -1;  // any
  };
  bool leaves_out_ = false, exact_ = false;
  std::vector<Entry> entries_;
};

/// Which of a RoCE port's GIDs connections start from.
struct GidPreference {
  int index = -1;        // CCL_IB_GID_INDEX; -1: choose
  int roce_version = 2;  // CCL_IB_ROCE_VERSION_NUM
  bool ipv6 = false;     // CCL_IB_ADDR_FAMILY
  std::string range{};   // CCL_IB_ADDR_RANGE: "10.1.0.0/16"; empty: any
  static Result<GidPreference> from_settings();
};

/// The GID that fits best: one of the range, else none at all; then the address family, the RoCE
/// version, and addresses that are not link-local; then the lowest index. An error lists what there
/// is.
Result<ibv_gid_entry> choose_gid(std::span<const ibv_gid_entry> table, const GidPreference& wish);

/// "10.1.0.1" for an address of IPv4 in a GID, else IPv6.
std::string gid_text(const ibv_gid& gid);

}  // namespace ccl::detail
