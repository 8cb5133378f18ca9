#pragma once

#include <ccl/types/result.hpp>

#include <infiniband/verbs.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// CCL_IB_HCA, such as "mlx5_0:1,mlx5_2": devices whose names begin so (and that port, if given). A
/// prefix "=" means whole names, "^" all but these, "^=" both. An empty list allows all devices.
class HcaList {
 public:
  static Result<HcaList> parse(std::string_view text);
  bool accepts(std::string_view device, int port) const;

 private:
  struct Entry {
    std::string name;
    int port = -1;  // any
  };
  bool leaves_out_ = false, exact_ = false;
  std::vector<Entry> entries_;
};

/// Settings that choose among a RoCE port's GIDs.
struct GidPreference {
  int index = -1;        // CCL_IB_GID_INDEX; -1: choose
  int roce_version = 2;  // CCL_IB_ROCE_VERSION_NUM
  bool ipv6 = false;     // CCL_IB_ADDR_FAMILY
  std::string range{};   // CCL_IB_ADDR_RANGE: "10.1.0.0/16"; empty: any
  static Result<GidPreference> from_settings();
};

/// Chooses the best GID of the range by, in this order:
/// - the address family,
/// - the RoCE version,
/// - not being link-local,
/// - the lowest index.
/// Fails if none is in the range; the error lists all GIDs.
Result<ibv_gid_entry> choose_gid(std::span<const ibv_gid_entry> table, const GidPreference& wish);

/// Text of a GID: "10.1.0.1" for an IPv4 address, else IPv6.
std::string gid_text(const ibv_gid& gid);

}  // namespace ccl::detail
