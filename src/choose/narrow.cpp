// Exclusion of candidates that could run, because of other candidates or of the path.
#include <ccl/detail/choose/chooser.hpp>

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace ccl::detail {

void Chooser::drop_for_whole_lines() {
  for (std::size_t c = 0; c < facts_.size(); ++c) {
    if (!facts_[c].for_torn_lines || !usable(int(c))) continue;
    for (std::size_t other = 0; other < facts_.size(); ++other) {
      const CandidateFacts& one = facts_[other];
      if (!usable(int(other)) || one.line_bytes < 128) continue;
      if (std::string_view{one.algo} != facts_[c].algo) continue;
      usable_ &= ~(std::uint64_t{1} << c);
      out_[c] = fmt::format("{} runs here", one.name());
      break;
    }
  }
}

void Chooser::drop_loads_beyond_nvlink() {
  if (path_ == Path::nvlink) return;
  for (std::size_t c = 0; c < facts_.size(); ++c) {
    if (!facts_[c].reads_peers || !usable(int(c))) continue;
    usable_ &= ~(std::uint64_t{1} << c);
    out_[c] = fmt::format("loads from peers suit NVLink, and these GPUs have {}", name(path_));
  }
}

void Chooser::keep_one_order() {
  // Keeps the order of the first candidate that the kind of functor can use. A candidate for torn
  // lines suits short messages only, and would leave others none.
  const auto keep = [this](bool for_order, auto&& meets) {
    std::optional<SumOrder> order;
    for (const bool torn : {false, true}) {
      for (std::size_t c = 0; c < facts_.size() && !order; ++c) {
        const CandidateFacts& one = facts_[c];
        if (usable(int(c)) && meets(one) && one.for_torn_lines == torn) order = one.order;
      }
    }
    for (std::size_t c = 0; c < facts_.size(); ++c) {
      const CandidateFacts& one = facts_[c];
      if (!usable(int(c)) || !meets(one)) continue;
      if (one.order == *order || one.for_order != for_order) continue;
      usable_ &= ~(std::uint64_t{1} << c);
      out_[c] = "it reduces in another order than those before it";
    }
  };
  keep(false, [](const CandidateFacts& one) { return !one.for_order; });
  keep(true, [](const CandidateFacts& one) { return !one.reorders; });
}

}  // namespace ccl::detail
