#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/wire/short_broadcast.hpp>

#include <cstddef>

#include "launch/short_wires.hpp"

namespace ccl::detail {

bool broadcast_short(const Connections& connections, const CallArguments<Bytes>& given) {
  if (!ShortWires::fit(connections)) return false;
  const ShortWires wires{connections};
  const Index bytes = given.layout.count;
  if (bytes <= 0 || bytes > wires.slice_bytes()) return false;
  const RingPosition& at = connections.tables().rings[0];
  const int hops = at.distance_from(given.root);
  const bool sends = hops + 1 < at.ranks;
  const bool receives = hops != 0;
  if (sends && !wires.is_shared<true>(at.next())) return false;
  if (receives && !wires.is_shared<false>(at.prev())) return false;
  char* const input = static_cast<char*>(const_cast<void*>(given.input));
  char* const output = static_cast<char*>(given.output);
  SpinWait<HostMemory> spin{connections.calls().watch};
  Word step = 0;
  if (receives) {
    while (!wires.recv(at.prev(), {output, bytes}, step)) {
      if (spin.ends(at.prev(), step)) return true;
    }
  }
  if (sends) {
    while (!wires.send(at.next(), {receives ? output : input, bytes}, step)) {
      if (spin.ends(at.next(), step)) return true;
    }
  }
  if (!receives && input != output) copy_here(output, input, std::size_t(bytes));
  return true;
}

}  // namespace ccl::detail
