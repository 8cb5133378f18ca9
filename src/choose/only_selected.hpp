#pragma once

#include <string_view>

namespace ccl::detail {

/// While one exists, compositions that this thread creates are limited to a list, beside CCL_ALGO
/// and CCL_PROTO. The list holds beginnings of ALGORITHM_PROTOCOL in capitals, such as RING_LL or
/// TREE, parted by commas; ^ before it: all but these. A blank at the end of a name ends it:
/// "RING_LL " is not RING_LL128.
class OnlySelected {
 public:
  explicit OnlySelected(std::string_view list);
  ~OnlySelected();
  OnlySelected(const OnlySelected&) = delete;
  OnlySelected& operator=(const OnlySelected&) = delete;

  /// True if the thread's list, if any, leaves the composition. On CPU ranks Simple stands for
  /// NCCL's protocols of GPUs too, unless the list ends with a whole name.
  static bool leaves(std::string_view algo, std::string_view proto, bool on_gpus);
  static std::string_view list();

 private:
  std::string_view before_;
};

/// While one exists, lists under NCCL's names (NCCL_ALGO, NCCL_PROTO) do not limit compositions
/// that this thread creates. Those under ccl's own names do.
class OwnListsOnly {
 public:
  OwnListsOnly();
  ~OwnListsOnly();
  OwnListsOnly(const OwnListsOnly&) = delete;
  OwnListsOnly& operator=(const OwnListsOnly&) = delete;

  /// True if the list of the setting does not count for this thread.
  static bool leaves_out(std::string_view setting);

 private:
  bool before_;
};

}  // namespace ccl::detail
