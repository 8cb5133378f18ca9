#pragma once

// A machine room: hosts with GPUs that are played and RDMA devices that copy between ranks and
// count. Include <ccl/collective.cuh> and "support/played/played_gpus.hpp" first.
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/fake_verbs.hpp"
#include "support/played/ranks.hpp"
#include "support/room/shapes.hpp"
#include <unistd.h>

namespace ccl::test::room {

/// Bytes of a NIC, or of several.
using Traffic = FakeVerbs::Traffic;

/// Hosts of one shape. Ranks are numbered host by host; rank r is on the played device r.
class Room {
 public:
  static constexpr int multiprocessors = 128;  // a communicator takes a quarter

  Room(const Shape& shape, int hosts)
      : Room{shape, std::vector<int>(std::size_t(hosts), shape.gpus)} {}
  /// `gpus`: those of each host, the first of the shape.
  Room(const Shape& shape, const std::vector<int>& gpus)
      : Room{std::vector<Shape>(gpus.size(), shape), gpus} {}
  /// Hosts that differ. All shapes have the same `nics`, some of which may be absent.
  Room(const std::vector<Shape>& shapes, const std::vector<int>& gpus)
      : shape_{shapes.front()},
        folder_{own_folder()},
        environment_{{{"CCL_TOPO_FILE", (folder_ / "%h.xml").string()},
                      {"CCL_IB_MERGE_NICS", "0"},  // devices that are on no bus are not one NIC
                      {"CCL_MNNVL_UUID", "-1"},    // cliques are those of the files
                      {"CCL_P2P_CHECK", "0"},
                      {"CCL_NET", "IB"}}} {
    for (std::size_t h = 0; h < gpus.size(); ++h) {
      host_of_rank_.insert(host_of_rank_.end(), std::size_t(gpus[h]), int(h));
    }
    played::install(int(host_of_rank_.size()), multiprocessors);
    std::filesystem::create_directories(folder_);
    std::vector<std::string> names;
    int first = 0;
    for (std::size_t h = 0; h < gpus.size(); first += gpus[h++]) {
      for (int n = 0; n < shape_.nics; ++n) names.push_back(nic_name(int(h), n));
      std::ofstream{folder_ / fmt::format("played-{}.xml", h)}
          << topology(shapes[h], int(h), gpus[h], [&](int g) { return bus_id(first + g); });
    }
    verbs_ = std::make_unique<FakeVerbs>(names);
  }
  ~Room() { std::filesystem::remove_all(folder_); }

  const Shape& shape() const { return shape_; }
  int hosts() const { return host_of_rank_.back() + 1; }
  FakeVerbs& verbs() { return *verbs_; }
  played::Ranks create_ranks() const {
    return played::create_ranks(int(host_of_rank_.size()),
                                [this](int rank) { return host_of_rank_[std::size_t(rank)]; });
  }

  /// Bytes of each NIC, as [host * nics + nic], that `calls` move.
  template <class F>
  std::vector<Traffic> traffic_of(F calls) {
    std::vector<Traffic> moved = verbs_->traffic();
    calls();
    const std::vector<Traffic> after = verbs_->traffic();
    for (std::size_t n = 0; n < moved.size(); ++n) {
      moved[n] = {after[n].sent - moved[n].sent, after[n].received - moved[n].received};
    }
    return moved;
  }

 private:
  /// A folder of its own, because a process reads a file once.
  static std::filesystem::path own_folder() {
    static int rooms = 0;
    return std::filesystem::temp_directory_path() /
           fmt::format("ccl_room_{}_{}", ::getpid(), ++rooms);
  }
  static std::string bus_id(int device) {
    char text[32] = {};
    (void)(*detail::cuda_driver())->device_get_pci_bus_id(text, sizeof text, device);
    return text;
  }

  const Shape shape_;
  std::vector<int> host_of_rank_;
  const std::filesystem::path folder_;
  const Environment environment_;
  std::unique_ptr<FakeVerbs> verbs_;
};

/// Largest distance of a NIC's bytes from the mean of those NICs of its host that moved any, as a
/// part of the mean; 1 if a host moved nothing.
inline double unevenness(const std::vector<Traffic>& nics, int per_host) {
  double worst = 0;
  for (std::size_t first = 0; first < nics.size(); first += std::size_t(per_host)) {
    std::vector<double> bytes;
    for (int n = 0; n < per_host; ++n) {
      const Traffic& nic = nics[first + std::size_t(n)];
      if (nic.sent + nic.received > 0) bytes.push_back(double(nic.sent + nic.received));
    }
    if (bytes.empty()) return 1;
    const double mean = std::accumulate(bytes.begin(), bytes.end(), 0.0) / double(bytes.size());
    for (const double each : bytes) worst = std::max(worst, std::abs(each - mean) / mean);
  }
  return worst;
}

/// NICs of a host that moved bytes.
inline std::set<int> busy(const std::vector<Traffic>& nics, int host, int per_host) {
  std::set<int> found;
  for (int n = 0; n < per_host; ++n) {
    const Traffic& nic = nics[std::size_t(host * per_host + n)];
    if (nic.sent + nic.received > 0) found.insert(n);
  }
  return found;
}

/// "1024/512 ..." for each NIC of host 0: KiB sent and received.
inline std::string text(const std::vector<Traffic>& nics, int per_host) {
  std::string all;
  for (int n = 0; n < per_host; ++n) {
    all += fmt::format("{}{}/{}", n == 0 ? "" : " ", nics[std::size_t(n)].sent >> 10,
                       nics[std::size_t(n)].received >> 10);
  }
  return all;
}

}  // namespace ccl::test::room
