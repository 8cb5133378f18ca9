#include <algorithm>
#include <cstring>

#include "base/exceptions.hpp"
#include "bootstrap/core.hpp"
#include "net/auth.hpp"
#include "net/crypto/secret.hpp"

namespace ccl::detail {

using namespace net;

namespace {

/// Arguments of one rank's split, and its part of the child's secret.
struct SplitEntry {
  std::int32_t color, key;
  std::array<std::byte, 16> random;
};

/// Child of one color.
struct Child {
  std::vector<int> group;  // ranks of the parent, in the child's order
  int rank = 0, ranks = 1;
  Secret secret;
};

Child child_of(const std::vector<SplitEntry>& entries, int rank, const Secret& parent_secret) {
  Child out;
  const int color = entries[size_t(rank)].color;
  for (int r = 0; r < int(entries.size()); ++r) {
    if (entries[size_t(r)].color == color) out.group.push_back(r);
  }
  std::stable_sort(out.group.begin(), out.group.end(),
                   [&](int a, int b) { return entries[size_t(a)].key < entries[size_t(b)].key; });
  if (color >= 0) {
    out.ranks = int(out.group.size());
    out.rank = int(std::find(out.group.begin(), out.group.end(), rank) - out.group.begin());
  }
  // The child's secret depends on the parent's secret and on new random bytes of all its ranks.
  std::vector<std::byte> text;
  for (const int r : out.group) {
    text.insert(text.end(), entries[size_t(r)].random.begin(), entries[size_t(r)].random.end());
  }
  out.secret = derived_secret(parent_secret, text);
  return out;
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> Bootstrap::split(int color, int key, const Options& options) {
  CCL_TRY(const double deadline_s, deadline_of(options));
  // The deadline of the child, not of the parent.
  return make_child(color, key, options, deadline_s, "split", false);
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::make_child(int color, int key, const Options& options,
                                                         std::optional<double> limit_s,
                                                         const char* what, bool shrinks) {
  CCL_TRY(const double deadline_s, deadline_of(options));
  const auto gather = [&](auto& all) {
    return core_->gather().all_gather(all.data(), sizeof all[0], limit_s, {what},
                                      "CCL_INIT_TIMEOUT");
  };
  // Ranks may be missing: their entries keep the color -1.
  std::vector<SplitEntry> entries(static_cast<size_t>(ranks()), SplitEntry{-1, 0, {}});
  SplitEntry& mine = entries[size_t(rank())];
  mine = {color, key, {}};
  fill_random(mine.random);
  if (auto gathered = gather(entries); !gathered) {
    return fail(core_->shutdown().give_up(std::move(gathered).error()));
  }
  const Child child = child_of(entries, rank(), secret());
  auto core =
      std::make_shared<Core>(child.rank, child.ranks, child.secret, deadline_s, options.status);
  core->membership().tree_ranks = options.tree_ranks;
  std::unique_ptr<Bootstrap> out{new Bootstrap(core)};
  std::vector<Member> members(static_cast<size_t>(ranks()));
  const auto form = [&]() -> Result<void> {
    Member& me = members[size_t(rank())];
    if (child.ranks > 1) {
      CCL_CHECK(core->formation().open_acceptor(core_->membership().listening_at()));
      me = core->membership().me;
    } else {
      me = this_member(child.rank, {});
    }
    // All ranks listen before one connects.
    CCL_CHECK(gather(members));
    std::vector<Member> table;
    for (const int r : child.group) table.push_back(members[size_t(r)]);
    for (int r = 0; child.ranks > 1 && r < child.ranks; ++r) {
      if (auto fits = core->membership().check_member(r, table[size_t(r)]); !fits) {
        return fail(core->membership().in_parent(std::move(fits).error()));
      }
    }
    if (child.ranks == 1) {
      core->membership().set_members(Engine::get().lock(), {me});
    } else {
      const Member next = table[size_t((child.rank + 1) % child.ranks)];
      core->membership().set_members(Engine::get().lock(), std::move(table));
      if (auto ring = core->formation().form_ring(next); !ring) {
        CCL_CHECK(core_->status().result());  // the error of the parent comes first
        return fail(core->membership().in_parent(std::move(ring).error()));
      }
    }
    return {};
  };
  // While ranks form their rings, the parent's ring detects dead ranks.
  if (color >= 0) {
    const Lock lock = Engine::get().lock();
    core->membership().ranks_in_parent = child.group;
  }
  core_->shutdown().set_forming_child(core);
  auto formed = without_exceptions(form);  // all ranks get the error
  if (formed) {
    formed = core_->gather().barrier(limit_s, "CCL_INIT_TIMEOUT", what);
    if (shrinks) {
      const bool made = core->agreement().is_made(formed.has_value());
      formed = made ? Result<void>{} : core_->agreement().failure(formed);
    }
  }
  // The child fails with the parent, in its own numbers of ranks.
  if (!formed) formed = fail(core_->shutdown().give_up(std::move(formed).error()));
  core_->shutdown().set_forming_child({});
  if (!formed) return fail(std::move(formed).error());
  if (color < 0) {
    CCL_CHECK(out->finalize());
    return std::unique_ptr<Bootstrap>{};
  }
  return out;
}

}  // namespace ccl::detail
