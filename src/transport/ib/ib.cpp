#include <ccl/transport/ib.hpp>

#include <fmt/format.h>

#include "transport/ib/verbs/presence.hpp"
#include "transport/net_choice.hpp"

namespace ccl {
namespace {

const char* text(detail::IbAbsence absence) {
  switch (absence) {
    case detail::IbAbsence::not_built:
      return "its ccl was built without libibverbs-dev's headers";
    case detail::IbAbsence::no_library:
      return "it has no libibverbs of rdma-core 32 or later";
    case detail::IbAbsence::no_device:
      return "it has no RDMA device";
    case detail::IbAbsence::not_chosen:
      return "its CCL_IB_HCA takes none of its ports";
    case detail::IbAbsence::not_active:
      return "none of its RDMA ports is up";
    case detail::IbAbsence::no_gid:
      return "none of its RDMA ports can be opened and has an address that the settings allow";
    case detail::IbAbsence::disabled:
      return "its CCL_IB_DISABLE is 1";
    case detail::IbAbsence::none:
      break;
  }
  return "it said nothing of RDMA ports";
}

}  // namespace

Result<void> IbTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  const auto refuse = [&](const std::string& why) {
    return fail(Errc::no_transport, fmt::format("ib does not connect rank {} to rank {} ({})",
                                                from.rank, to.rank, why));
  };
  CCL_TRY(const std::string why, detail::net_excludes(name, from, to));
  if (!why.empty()) return refuse(why);
  for (const PeerInfo* rank : {&from, &to}) {
    if (rank->ib_kinds != 0) continue;
    return refuse(fmt::format("rank {} on {}: {}", rank->rank, rank->host,
                              text(detail::IbAbsence(rank->ib_absence))));
  }
  if ((from.ib_kinds & to.ib_kinds) == 0) {
    return refuse(fmt::format("rank {} on {} has only {}, rank {} on {} only {}", from.rank,
                              from.host, from.ib_kinds == 1 ? "InfiniBand" : "RoCE", to.rank,
                              to.host, to.ib_kinds == 1 ? "InfiniBand" : "RoCE"));
  }
  return {};
}

}  // namespace ccl
