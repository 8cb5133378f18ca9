#include <algorithm>
#include <cstring>

#include "bootstrap/core.hpp"
#include "net/auth.hpp"
#include "net/sha256.hpp"

namespace ccl::detail {

using namespace net;

Result<std::unique_ptr<Bootstrap>> Bootstrap::split(int color, int key, const Options& options) {
  CCL_TRY(const double deadline_s, deadline_of(options));
  // The child's deadline, not the one that the parent was created with.
  return make_child(color, key, options, deadline_s, "split", false);
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::make_child(int color, int key, const Options& options,
                                                         std::optional<double> limit_s,
                                                         const char* what, bool shrinks) {
  CCL_TRY(const double deadline_s, deadline_of(options));
  const auto gather = [&](auto& all) {
    return core_->all_gather(all.data(), sizeof all[0], limit_s, {what}, "CCL_INIT_TIMEOUT");
  };
  struct Part {
    std::int32_t color, key;
    std::array<std::byte, 16> random;
  };
  std::vector<Part> parts(static_cast<size_t>(ranks()), Part{-1, 0, {}});  // some may be absent
  Part& mine = parts[size_t(rank())];
  mine = {color, key, {}};
  fill_random(mine.random);
  if (auto told = gather(parts); !told) return fail(core_->give_up(std::move(told).error()));
  std::vector<int> group;  // ranks of the parent, in the child's order
  for (int r = 0; r < ranks(); ++r) {
    if (parts[size_t(r)].color == color) group.push_back(r);
  }
  std::stable_sort(group.begin(), group.end(),
                   [&](int a, int b) { return parts[size_t(a)].key < parts[size_t(b)].key; });
  const int child_ranks = color < 0 ? 1 : int(group.size());
  const int child_rank =
      color < 0 ? 0 : int(std::find(group.begin(), group.end(), rank()) - group.begin());
  // What only the parent's ranks know, and what no earlier child had.
  std::vector<std::byte> text;
  for (const int r : group) {
    text.insert(text.end(), parts[size_t(r)].random.begin(), parts[size_t(r)].random.end());
  }
  const auto parent_secret = secret();
  const Digest digest = hmac_sha256(parent_secret, text);
  Secret child_secret;
  std::memcpy(child_secret.data(), digest.data(), child_secret.size());

  auto core =
      std::make_shared<Core>(child_rank, child_ranks, child_secret, deadline_s, options.status);
  std::unique_ptr<Bootstrap> out{new Bootstrap(core)};
  std::vector<Member> members(static_cast<size_t>(ranks()));
  const auto form = [&]() -> Result<void> {
    Member& me = members[size_t(rank())];
    if (child_ranks > 1) {
      CCL_CHECK(core->open_gate(core_->listening_at()));
      me = core->me();
    } else {
      me = this_member(child_rank, {});
    }
    // Everybody listens before anybody calls.
    CCL_CHECK(gather(members));
    std::vector<Member> table;
    for (const int r : group) table.push_back(members[size_t(r)]);
    if (child_ranks == 1) {
      core->set_members({me});
    } else {
      const Member next = table[size_t((child_rank + 1) % child_ranks)];
      core->set_members(std::move(table));
      if (auto ring = core->form_ring(next); !ring) {
        return fail(core->in_parent(*core_, std::move(ring).error()));
      }
    }
    return {};
  };
  // While some still form their rings, the parent's ring watches over all of them.
  if (color >= 0) core->set_ranks_in_parent(group);
  core_->set_forming_child(core);
  auto formed = form();
  if (formed) {
    formed = core_->barrier(limit_s, "CCL_INIT_TIMEOUT", what);
    if (shrinks) {
      formed = core->is_made(formed.has_value()) ? Result<void>{} : core_->unmade(formed);
    }
  }
  core_->set_forming_child({});
  if (!formed) {
    core->give_up(formed.error());
    return fail(core_->give_up(formed.error()));
  }
  if (color < 0) {
    CCL_CHECK(out->finalize());
    return std::unique_ptr<Bootstrap>{};
  }
  return out;
}

}  // namespace ccl::detail
