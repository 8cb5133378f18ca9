// A launch ends if its peer never calls or it is stopped; the GPU and the process continue.
#include <algorithm>
#include <chrono>
#include <thread>

#include "gpu/wires.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
/// A receiver that never calls still owns the data sent to it. A sender whose wait for a free slot
/// fails must not write into the other slots.
template <class Proto, class Group>
void keeps_slots(Tally& tally) {
  using Format = detail::WireFormat<Group, Proto, detail::Bytes, 16>;
  constexpr int slots = 8, slot_bytes = 4096;
  constexpr unsigned char marker = 0xee;
  Wire wire;
  wire.slot_packets = slot_bytes / int(sizeof(Packet));
  const Index fits = Format::slice_capacity(wire, 1) * slots, count = fits * 4;
  World world{2, 1, slots, slot_bytes};
  world.deadline_s = 0.3;
  world.absent = {1};
  const DeviceArray data{world.gpu(0), size_t(count)};
  std::vector<unsigned char> host(size_t(count), marker);
  std::fill_n(host.begin(), fits, 1);
  data.put(host.data(), host.size());
  const bool ok =
      world.run<Broadcast, Ring, Proto, Group, 16>(detail::Bytes{}, 1, 1, 0, [&](int, auto& w) {
        w.input = data.data(), w.output = data.data();
        w.layout = {count, 0, 0, false};
      });
  tally.check(!ok && world.failed().peer == 2 && world.failed().step == slots,
              "%s: gave up on rank %d at step %d", Proto::name, int(world.failed().peer) - 1,
              int(world.failed().step));
  const auto seen = world.slots_to(1);
  tally.check(std::count(seen.begin(), seen.end(), 1) >= fits, "%s: the slots were not filled",
              Proto::name);
  tally.check(std::count(seen.begin(), seen.end(), marker) == 0,
              "%s: slots that were not free were written", Proto::name);
}

template <class Algo, class Proto, class Group>
void run(Tally& tally) {
  const Index count = 50000;
  const detail::Reduction<Sum, float> sum{Sum{}, 2};
  Buffers<float> b{World{2, 1, 8, 4096}, count, count, 0, 1};
  const auto setup = [&](int r, auto& w) {
    w.input = b.in(r), w.output = b.out(r);
    w.layout = {count, 0, 0, Algo::wires == 2};
  };
  {
    World world{2, 2, 8, 4096};
    world.deadline_s = 0.3;
    world.absent = {1};
    const auto begin = std::chrono::steady_clock::now();
    const bool ok = world.run<AllReduce, Algo, Proto, Group, 16>(sum, 1, 1, 0, setup);
    const double s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    tally.check(!ok, "%s %s: nobody noticed that rank 1 is absent", Algo::name, Proto::name);
    tally.check(world.failed().peer == 2, "%s %s: rank %d is blamed", Algo::name, Proto::name,
                int(world.failed().peer) - 1);
    tally.check(s > 0.25 && s < 3, "%s %s: it took %.2f s", Algo::name, Proto::name, s);
  }
  {
    World world{2, 2, 8, 4096};
    world.deadline_s = 0;
    world.absent = {1};
    std::thread other{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      world.stop(1);
    }};
    tally.check(!(world.run<AllReduce, Algo, Proto, Group, 16>(sum, 1, 1, 0, setup)),
                "%s %s: ran to its end alone", Algo::name, Proto::name);
    tally.check(world.failed().peer == 0, "%s %s: someone is blamed", Algo::name, Proto::name);
    other.join();
  }
  // New wires work as if nothing had been.
  World world{2, 2, 8, 4096};
  const bool ok = world.run<AllReduce, Algo, Proto, Group, 16>(sum, 1, 1, 0, setup);
  for (int r = 0; r < 2; ++r) {
    tally.check(ok && b.holds(r, count, [&](Index i) { return b.reduced(2, i); }),
                "%s %s: wrong after a launch that gave up", Algo::name, Proto::name);
  }
}
}  // namespace

int main() {
  gpus();
  Tally tally;
  run<Ring, LL, detail::WarpLanes>(tally);
  run<Ring, LL128, detail::WarpLanes>(tally);
  run<Ring, Simple, detail::BlockLanes<128>>(tally);
  run<Tree, LL128, detail::WarpLanes>(tally);
  run<Tree, Simple, detail::BlockLanes<128>>(tally);
  keeps_slots<LL, detail::WarpLanes>(tally);
  keeps_slots<LL128, detail::WarpLanes>(tally);
  keeps_slots<Simple, detail::BlockLanes<128>>(tally);
  return tally.result("Patience");
}
