#include <ccl/algo/doubling.hpp>
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/simulate.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/text.hpp"

namespace ccl::sim {
namespace {

struct Entry {
  const char *op, *algo, *proto;
  Result<Report> (*run)(const Cluster&, Index, const Options&);
};

template <class Op, class Algo>
void add_protocols(std::vector<Entry>& all) {
  if constexpr (detail::simulates<Op, Algo>) {
    all.push_back({Op::name, Algo::name, Simple::name, &simulate<Op, Algo, Simple>});
    all.push_back({Op::name, Algo::name, LL128::name, &simulate<Op, Algo, LL128>});
    all.push_back({Op::name, Algo::name, LL::name, &simulate<Op, Algo, LL>});
  }
}
template <class Algo>
void add(std::vector<Entry>& all) {
  add_protocols<AllReduce, Algo>(all);
  add_protocols<AllGather, Algo>(all);
  add_protocols<ReduceScatter, Algo>(all);
  add_protocols<Broadcast, Algo>(all);
  add_protocols<Reduce, Algo>(all);
  add_protocols<AllToAll, Algo>(all);
  add_protocols<SendRecv, Algo>(all);
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> list;
    add<Ring>(list);
    add<Tree>(list);
    add<Pat>(list);
    add<Pairwise>(list);
    add<Hierarchical<Ring, Ring>>(list);
    add<Hierarchical<Ring, Tree>>(list);
    add<Hierarchical<Ring, Doubling>>(list);
    add<Hierarchical<Ring, Pat>>(list);
    return list;
  }();
  return all;
}

// Name as in settings, and without `-`, which some names contain.
std::string plain(std::string_view name) {
  std::string out = detail::plain(name);
  std::erase(out, '-');
  return out;
}
bool fits(std::string_view wanted, std::string_view name) {
  return wanted.empty() || plain(wanted) == plain(name);
}

Result<void> check_name(const char* what, std::string_view wanted, const char* Entry::*name) {
  std::set<std::string_view> known;
  for (const Entry& entry : entries()) {
    if (fits(wanted, entry.*name)) return {};
    known.insert(entry.*name);
  }
  return fail(Errc::invalid_argument,
              fmt::format("no {} {} can be simulated (known are {}); take one of them", what,
                          wanted, fmt::join(known, ", ")));
}

Result<std::vector<const Entry*>> find(const Composition& wanted) {
  CCL_CHECK(check_name("operation", wanted.op, &Entry::op));
  CCL_CHECK(check_name("algorithm", wanted.algo, &Entry::algo));
  CCL_CHECK(check_name("protocol", wanted.proto, &Entry::proto));
  std::vector<const Entry*> found;
  for (const Entry& e : entries()) {
    if (fits(wanted.op, e.op) && fits(wanted.algo, e.algo) && fits(wanted.proto, e.proto)) {
      found.push_back(&e);
    }
  }
  if (!found.empty()) return found;
  return fail(Errc::not_supported,
              fmt::format("{} does not do {}; take another algorithm", wanted.algo, wanted.op));
}

}  // namespace

Result<std::vector<Composition>> compositions(const Composition& wanted) {
  CCL_TRY(const auto found, find(wanted));
  std::vector<Composition> all;
  for (const Entry* e : found) all.push_back({e->op, e->algo, e->proto});
  return all;
}

Result<Report> simulate(const Cluster& cluster, const Composition& what, Index bytes,
                        const Options& options) {
  CCL_TRY(const auto found, find(what));
  if (found.size() == 1) return found[0]->run(cluster, bytes, options);
  return fail(Errc::invalid_argument,
              fmt::format("{} compositions match {}/{}/{}; name operation, algorithm and protocol",
                          found.size(), what.op, what.algo, what.proto));
}

}  // namespace ccl::sim
