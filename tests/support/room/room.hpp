#pragma once

// A machine room: hosts with GPUs that are played and RDMA devices that copy between ranks and
// count. Include <ccl/collective.cuh> and "support/played/played_gpus.hpp" first.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/fake_verbs.hpp"
#include "support/played/calls.hpp"
#include "support/room/shapes.hpp"
#include <unistd.h>

namespace ccl::test::room {

/// Bytes of a NIC, or of several.
using Traffic = FakeVerbs::Traffic;

/// Hosts of one shape. Rank r is GPU r % gpus of host r / gpus, on the played device r.
class Room {
 public:
  static constexpr int multiprocessors = 4;

  Room(const Shape& shape, int hosts, int gpus = 0)
      : shape_{shape},
        hosts_{hosts},
        gpus_{gpus > 0 ? gpus : shape.gpus},
        folder_{std::filesystem::temp_directory_path() /
                fmt::format("ccl_room_{}_{}", ::getpid(), shape.name)},
        environment_{{{"CCL_TOPO_FILE", (folder_ / "%h.xml").string()},
                      {"CCL_IB_MERGE_NICS", "0"},  // devices that are on no bus are not one NIC
                      {"CCL_MNNVL_ENABLE", "0"},
                      {"CCL_P2P_CHECK", "0"},
                      {"CCL_NET", "IB"}}} {
    played::install(hosts_ * gpus_, multiprocessors);
    std::filesystem::create_directories(folder_);
    std::vector<std::string> names;
    for (int h = 0; h < hosts_; ++h) {
      for (int n = 0; n < shape_.nics; ++n) names.push_back(nic_name(h, n));
      std::ofstream{folder_ / fmt::format("played-{}.xml", h)}
          << topology(shape_, h, gpus_, [&](int g) { return bus_id(h * gpus_ + g); });
    }
    verbs_ = std::make_unique<FakeVerbs>(names);
  }
  ~Room() { std::filesystem::remove_all(folder_); }

  const Shape& shape() const { return shape_; }
  int hosts() const { return hosts_; }
  FakeVerbs& verbs() { return *verbs_; }
  played::Ranks create_ranks() const { return played::create_ranks(hosts_ * gpus_, gpus_); }

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
  static std::string bus_id(int device) {
    char text[32] = {};
    (void)(*detail::cuda_driver())->device_get_pci_bus_id(text, sizeof text, device);
    return text;
  }

  const Shape shape_;
  const int hosts_, gpus_;
  const std::filesystem::path folder_;
  const Environment environment_;
  std::unique_ptr<FakeVerbs> verbs_;
};

/// Largest distance of a NIC's bytes from the mean, as a part of it; 1 if nothing moved.
inline double unevenness(const std::vector<Traffic>& nics) {
  double sum = 0, worst = 0;
  for (const Traffic& nic : nics) sum += double(nic.sent + nic.received);
  const double mean = sum / double(nics.size());
  if (mean == 0) return 1;
  for (const Traffic& nic : nics) {
    worst = std::max(worst, std::abs(double(nic.sent + nic.received) - mean) / mean);
  }
  return worst;
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
